#include "gt/passes/framework/context.h"

namespace gt {
namespace {

std::unique_ptr<CostModel> TypicalCosts(const Graph& graph) {
  static const LinkModel& links =
      *new LinkModel({.name = "typical",
                      .generation = "hopper",
                      .gpus_per_node = 8,
                      .links = SimpleLinks{.node = {10, 300}, .network = {20, 50}}});
  return MakeCostModel(graph, {.device = SpeedOf(links.cluster().generation), .links = &links});
}

}  // namespace

std::unique_ptr<CostModel> PassContext::Costs(const Graph& graph) const {
  return job_.costs ? job_.costs(graph) : TypicalCosts(graph);
}

std::optional<int64_t> PassContext::Noted(std::string_view name) const {
  auto found = notes_.find(name);
  if (found == notes_.end()) return std::nullopt;
  return found->second;
}

}  // namespace gt
