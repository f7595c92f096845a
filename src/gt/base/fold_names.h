// Names of modules and parameters that differ in numbers alone, as one name: "layers.{0-31}.wo.weight".
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace gt {

struct FoldedName {
  std::string name;
  std::vector<size_t> members;  // positions of the names it stands for
};

// Names are folded where a component between dots is a number and all else is equal, their keys included.
// In the order of the first member of each.
std::vector<FoldedName> FoldNames(std::span<const std::string> names,
                                  std::span<const std::string> keys);

}  // namespace gt
