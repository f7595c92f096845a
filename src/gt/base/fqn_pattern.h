// Patterns on full names such as layers.3.attention.wo.weight, compared component by component: `*`
// stands for any one component, `**` for any number of them, everything else for itself.
#pragma once

#include <string_view>

namespace gt {

bool MatchesFqn(std::string_view pattern, std::string_view name);

}  // namespace gt
