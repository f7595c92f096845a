#include "gt/passes/overlap/ep_overlap_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "gt/analysis/dependencies.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/ir/builder.h"
#include "gt/passes/overlap/measure_peak.h"
#include "gt/passes/overlap/order_contest.h"
#include "gt/passes/overlap/order_text.h"
#include "gt/passes/overlap/overlap_order.h"
#include "gt/passes/overlap/overlap_structural.h"

namespace gt {
namespace {

bool InBody(const Node& node) {
  return node.meta().chunk != nullptr && node.meta().chunk->role == ChunkRole::kBody;
}

}  // namespace

EpOverlapSchedule::EpOverlapSchedule(EpOverlapOptions options) {
  Declare(&options_);
  options_ = options;
}

const PassInfo& EpOverlapSchedule::info() const {
  static constexpr PassInfo kInfo = {
      .name = "ep_overlap_schedule",
      .summary = "Orders a chunked step so that exchanges of tokens hide behind compute.",
      .description =
          "With mode cost, several orders are judged by one clock and one account of memory, and "
          "the "
          "fastest within the budget is taken: the graph's own, those of mode structural, and the "
          "orders in which a device would run the nodes if it could choose: exchanges start as "
          "soon "
          "as their tokens are there, waits come when their exchange is done, and compute of other "
          "chunks, of recomputation and of weight gradients fills the time between, within windows "
          "of several widths; near the limit of memory windows are narrowed locally. The best one "
          "is improved by moving single chains into the longest stalls. With mode structural, "
          "filler is chosen by rules about chunks and exchanges alone. On a GPU, a read of token "
          "counts becomes a copy that begins early and a read that blocks late.",
      .reads = "chunk metadata of either producer, exchange labels, collective facts, costs.",
      .writes = "the order of nodes; gt::offload in front of reads of token counts on a GPU.",
      .never =
          "changes what a node computes. Collectives change their order, the same way on every "
          "rank.",
  };
  return kInfo;
}

bool EpOverlapSchedule::RunImpl(Graph& graph, PassContext& context) {
  bool chunked = false;
  for (const Node* node : graph.nodes()) {
    chunked |= node->op().collective == Collective::kAllToAll && InBody(*node);
  }
  if (!chunked || options_.schedule == OverlapSchedule::kNone) return false;
  const bool split = SplitReads(graph);
  if (split) context.Invalidate();
  const auto& dependencies = context.Get<Dependencies>(graph);
  const CommonOrder common(graph, dependencies);
  auto decide = [&] {
    return common.ToText(options_.schedule == OverlapSchedule::kCost
                             ? OrderByCost(graph, context, dependencies, common)
                             : StructuralOrder(graph, dependencies, options_.pair_first));
  };
  const std::string text = context.Decide("the order of the step", decide);
  const bool moved = Apply(graph, dependencies, common.FromText(text));
  return split || moved;
}

// A read blocks the host, and with it everything that the host has not launched yet. Begun ahead, its
// copy runs while the device has something to do.
bool EpOverlapSchedule::SplitReads(Graph& graph) {
  static const Operator* const offload = FindOperator("gt::offload");
  const int64_t before = split_reads_.value();
  for (Node* node : graph.nodes()) {
    if (!node->op().reads_data || node->result_count() > 0 || !InBody(*node)) continue;
    Value* counts = node->operand(0);
    if (counts->type().device.kind != DeviceKind::kCuda) continue;
    node->SetOperand(
        0, NodeBuilder(graph, *offload).Set("self", counts).With(node->meta()).Result(node));
    ++split_reads_;
  }
  return split_reads_.value() > before;
}

// Of the memory that the step allocates, which has its peak at `peak` as it is.
int64_t EpOverlapSchedule::BudgetFor(const Graph& graph, PassContext& context, int64_t peak) const {
  int64_t budget = OrderContest::kNoLimit;
  const int64_t total =
      options_.memory_budget > 0 ? options_.memory_budget : context.MemoryBudget();
  if (total > 0) budget = std::max<int64_t>(total - context.ConstantBytes(graph), 0);
  if (options_.memory_headroom >= 0) {
    const int64_t before = std::max(peak, context.Noted(MeasurePeak::kNote).value_or(0));
    budget = std::min(
        budget, static_cast<int64_t>(static_cast<double>(before) * (1 + options_.memory_headroom)));
  }
  return budget;
}

std::vector<int32_t> EpOverlapSchedule::OrderByCost(Graph& graph, PassContext& context,
                                                    const Dependencies& dependencies,
                                                    const CommonOrder& common) {
  std::unique_ptr<CostModel> costs = context.Costs(graph);
  OverlapOrder orders(graph, dependencies, *costs);
  OverlapOrder::Result given = orders.AsItIs();
  const int64_t budget = BudgetFor(graph, context, given.peak);
  microseconds_before_ += static_cast<int64_t>(given.microseconds);
  OrderContest contest(budget);
  // As all ranks will apply it.
  auto placed = [&](const OverlapOrder::Result& result) {
    return orders.Judge(common.Placed(result.order));
  };
  contest.Enter("as it is", std::move(given));
  for (bool pair_first : {false, true}) {
    try {
      contest.Enter(pair_first ? "structural, pairs first" : "structural",
                    orders.Judge(common.Placed(StructuralOrder(graph, dependencies, pair_first))));
    } catch (const Error& error) {  // its rules do not fit every step
      log::Debug("overlap, structural: {}", error.what());
    }
  }
  const int32_t unit = orders.exchanges_per_region();
  for (int32_t window : {unit / 2, 2 * unit / 3, unit, 2 * unit}) {
    const std::string name = fmt::format("within {} exchanges", window);
    if (contest.Enter(name, placed(orders.WithinWindow(window, OrderContest::kNoLimit)))) continue;
    contest.Enter(name + ", held back", placed(orders.WithinWindow(window, budget)));
  }
  // As many tries as take about as long as everything above, at the least.
  constexpr int64_t kNodesLookedAt = 1'000'000;
  const auto tries =
      static_cast<int>(std::clamp<int64_t>(kNodesLookedAt / dependencies.count(), 8, 64));
  contest.Enter("with stalls filled", placed(orders.FillStalls(contest.best(), budget, tries)));

  const OverlapOrder::Result& best = contest.best();
  candidates_ += contest.entered();
  over_budget_ += contest.over_budget();
  microseconds_after_ += static_cast<int64_t>(best.microseconds);
  if (contest.fastest().microseconds < best.microseconds && budget != OrderContest::kNoLimit) {
    bytes_missing_ += contest.fastest().peak - budget;
    microseconds_unlimited_ += static_cast<int64_t>(contest.fastest().microseconds);
  }
  return best.order;
}

bool EpOverlapSchedule::Apply(Graph& graph, const Dependencies& dependencies,
                              std::span<const int32_t> order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int32_t>(i)) ++moved_;
  }
  return ApplyOrder(graph, dependencies, order);
}

}  // namespace gt
