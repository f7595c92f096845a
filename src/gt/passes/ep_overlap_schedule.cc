#include "gt/passes/ep_overlap_schedule.h"

#include <algorithm>
#include <optional>

#include "gt/base/byte_text.h"
#include "gt/base/logging.h"
#include "gt/passes/dependencies.h"
#include "gt/passes/overlap_order.h"
#include "gt/passes/overlap_structural.h"

namespace gt {
namespace {

// For graphs outside of a job.
std::unique_ptr<CostModel> TypicalCosts(const Graph& graph) {
  static const LinkModel& links =
      *new LinkModel({.name = "typical",
                      .generation = "hopper",
                      .gpus_per_node = 8,
                      .links = SimpleLinks{.node = {10, 300}, .network = {20, 50}}});
  return MakeCostModel(graph, {.device = SpeedOf(links.cluster().generation), .links = &links});
}

// Memory cannot be freed at will, so an order may go beyond what it was to keep to; it is then held
// back earlier.
OverlapOrder::Result WithinBudget(OverlapOrder& orders, int32_t window, int64_t budget) {
  constexpr int kAttempts = 4;
  OverlapOrder::Result result;
  int64_t brake = budget;
  for (int i = 0; i < kAttempts; ++i) {
    result = orders.WithinWindow(window, brake);
    if (result.peak <= budget) break;
    brake -= result.peak - budget;
  }
  return result;
}

bool InBody(const Node& node) {
  return node.meta().chunk != nullptr && node.meta().chunk->role == ChunkRole::kBody;
}

}  // namespace

EpOverlapSchedule::EpOverlapSchedule(EpOverlapOptions options, CostModelFor costs,
                                     std::shared_ptr<const int64_t> whole_peak)
    : costs_(costs ? std::move(costs) : TypicalCosts), whole_peak_(std::move(whole_peak)) {
  Declare("mode", &options_.mode,
          "how filler is chosen: by predicted times, by structure alone, or not at all");
  Declare("memory_headroom", &options_.memory_headroom,
          "share by which the memory that the step allocates may grow, with mode cost",
          Within(0, 10));
  Declare("pair_first", &options_.pair_first,
          "with mode structural: token counts of all chunks go to the host together");
  options_ = options;
}

const PassInfo& EpOverlapSchedule::info() const {
  static constexpr PassInfo kInfo = {
      .name = "ep_overlap_schedule",
      .summary = "Orders a chunked step so that exchanges of tokens hide behind compute.",
      .description =
          "With mode cost, nodes are put into the order in which a device would best run them: "
          "exchanges start as soon as their tokens are there, waits come when their exchange is "
          "done, and compute of other chunks, of recomputation and of weight gradients fills the "
          "time between, as long as predicted times say it lasts. Several windows are tried; the "
          "fastest whose memory is within the headroom is taken. With mode structural, filler is "
          "chosen by rules about chunks and exchanges alone. On a GPU, a read of token counts "
          "becomes a copy that begins early and a read that blocks late.",
      .reads = "chunk metadata of either producer, exchange labels, collective facts, costs.",
      .writes = "the order of nodes; gt::offload in front of reads of token counts on a GPU.",
      .never =
          "changes what a node computes. Collectives change their order, the same way on every "
          "rank.",
  };
  return kInfo;
}

bool EpOverlapSchedule::Run(Graph& graph) {
  bool chunked = false;
  for (const Node* node : graph.nodes()) {
    chunked |= node->op().collective == Collective::kAllToAll && InBody(*node);
  }
  if (!chunked || options_.mode == OverlapSchedule::kNone) return false;
  bool split = SplitReads(graph);
  bool moved =
      options_.mode == OverlapSchedule::kCost ? OrderByCost(graph) : OrderByStructure(graph);
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
    Graph::NodeSpec spec;
    spec.op = offload;
    spec.operands = {counts};
    spec.args = {OperandRef{0}};
    spec.meta = node->meta();
    node->SetOperand(0, graph.Insert(std::move(spec), node)->result());
    ++split_reads_;
  }
  return split_reads_.value() > before;
}

bool EpOverlapSchedule::OrderByCost(Graph& graph) {
  Dependencies dependencies(graph);
  std::unique_ptr<CostModel> costs = costs_(graph);
  OverlapOrder orders(graph, dependencies, *costs);
  const OverlapOrder::Result before = orders.AsItIs();
  const int64_t allowed = std::max(before.peak, whole_peak_ ? *whole_peak_ : 0);
  const auto budget =
      static_cast<int64_t>(static_cast<double>(allowed) * (1 + options_.memory_headroom));
  const int32_t unit = orders.exchanges_per_region();
  std::optional<OverlapOrder::Result> best;
  for (int32_t window : {unit / 2, 2 * unit / 3, unit, 2 * unit}) {
    OverlapOrder::Result result = WithinBudget(orders, window, budget);
    log::Debug(
        "overlap within {} exchanges: {:.1f} ms instead of {:.1f}, {} instead of {}, {} allowed",
        window, result.microseconds / 1e3, before.microseconds / 1e3, ByteText(result.peak),
        ByteText(before.peak), ByteText(budget));
    if (result.peak > budget) {
      ++over_budget_;
      continue;
    }
    const double to_beat = best ? best->microseconds : before.microseconds;
    if (result.microseconds < to_beat) best = std::move(result);
  }
  microseconds_before_ += static_cast<int64_t>(before.microseconds);
  microseconds_after_ += static_cast<int64_t>(best ? best->microseconds : before.microseconds);
  if (!best) return false;
  return Apply(graph, dependencies, best->order);
}

bool EpOverlapSchedule::OrderByStructure(Graph& graph) {
  Dependencies dependencies(graph);
  return Apply(graph, dependencies, StructuralOrder(graph, dependencies, options_.pair_first));
}

bool EpOverlapSchedule::Apply(Graph& graph, const Dependencies& dependencies,
                              std::span<const int32_t> order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int32_t>(i)) ++moved_;
  }
  return ApplyOrder(graph, dependencies, order);
}

}  // namespace gt
