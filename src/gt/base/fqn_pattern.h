// Patterns on full names such as layers.3.attention.wo.weight, compared component by component: `*`
// stands for any one component, `**` for any number of them, everything else for itself.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gt {

bool MatchesFqn(std::string_view pattern, std::string_view name);

// The shortest leading part of the name that the pattern fits, cut between components: layers.3 of
// layers.3.moe.router for layers.*. Nothing when it fits none.
std::optional<std::string_view> MatchingPrefix(std::string_view pattern, std::string_view name);

// What is wrong with the pattern itself, or nothing: empty components, names that no module has.
std::string FqnPatternProblem(std::string_view pattern);

}  // namespace gt
