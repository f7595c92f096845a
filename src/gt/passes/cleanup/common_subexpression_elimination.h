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
  GT_OPTION(CrossPhase, cross_phase, CrossPhase::kViews, Any(),
            "what may be shared between forward, loss and backward: a value that backward computes "
            "anew need not be kept until then, a view costs nothing either way");
  GT_OPTION(int64_t, max_factory_bytes, int64_t{64} * 1024, AtLeast(0),
            "tensors made from nothing (zeros, arange) are shared up to this size; holding a "
            "larger one costs more than making it again");
  GT_OPTION(
      bool, sizes_by_hint, false, Any(),
      "take the sizes of what is made from nothing by the hints of its symbols instead of the "
      "most that they can be, so that a step with open sizes keeps the nodes that it has with "
      "numbers");
  GT_END_OPTIONS(CommonSubexpressionEliminationOptions);
};

class CommonSubexpressionElimination : public Pass {
 public:
  explicit CommonSubexpressionElimination(CommonSubexpressionEliminationOptions options = {});
  const PassInfo& info() const override;
  bool RunImpl(Graph& graph, PassContext& context) override;

 private:
  bool RunOn(Graph& graph);
  bool MayMerge(const Node& node, bool parameters_alone) const;
  int64_t SizeOf(const Node& node) const;
  bool StaysInPhase(const Node& node) const;

  CommonSubexpressionEliminationOptions options_;
  Counter merged_{this, "merged", "nodes replaced by an earlier one"};
  Counter kept_for_outputs_{this, "kept_for_outputs",
                            "equal nodes that stayed because both are returned"};
};

}  // namespace gt
