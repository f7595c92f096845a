// A random call as text, for messages.
#pragma once

#include <string>
#include <vector>

#include "gt/conformance/harness.h"

namespace gt::conformance {

// Its arguments, operands, symbols and guards, and the results that the operator's rule gave, if any.
std::string DescribeCase(const Case& c, const std::vector<TensorType>& results);

}  // namespace gt::conformance
