// Computes equal things once.
#pragma once

#include <array>

#include "gt/passes/framework/pass.h"

namespace gt {

// Which nodes of different phases may become one.
enum class CrossPhase : uint8_t { kNone, kViews, kAll };
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<CrossPhase> = {"none", "views", "all"};

struct CommonSubexpressionEliminationOptions {
  CrossPhase cross_phase = CrossPhase::kViews;
  int64_t max_factory_bytes = 64 * 1024;
};

class CommonSubexpressionElimination : public Pass {
 public:
  explicit CommonSubexpressionElimination(CommonSubexpressionEliminationOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  bool RunOn(Graph& graph);
  bool MayMerge(const Node& node, bool parameters_alone) const;
  bool StaysInPhase(const Node& node) const;

  CommonSubexpressionEliminationOptions options_;
  Counter merged_{this, "merged", "nodes replaced by an earlier one"};
  Counter kept_for_outputs_{this, "kept_for_outputs",
                            "equal nodes that stayed because both are returned"};
};

}  // namespace gt
