#include "gt/ir/describe.h"

#include <fmt/format.h>

namespace gt {

std::string DescribeNode(const Node& node, std::string_view without_results,
                         std::string_view more) {
  std::string name =
      node.result_count() > 0 ? "%" + node.result()->name() : std::string(without_results);
  if (!name.empty()) name += " ";
  return fmt::format("{}({}, module '{}'{})", name, node.op().name.str(), node.meta().module.str(),
                     more);
}

}  // namespace gt
