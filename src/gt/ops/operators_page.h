// docs/operators.md: the table of operators with the facts that each declares.
#pragma once

#include <string>

namespace gt {

std::string OperatorsMarkdown();

}  // namespace gt
