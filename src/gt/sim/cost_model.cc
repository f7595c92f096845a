#include "gt/sim/cost_model.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gt/analysis/collectives.h"

namespace gt {
namespace {

double Median(std::vector<double>& values) {
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// By how much estimates are off on the device of a table.
class Calibration {
 public:
  Calibration(const CostTable& table, const DeviceSpeed& device) {
    std::vector<double> all;
    std::unordered_map<const Operator*, std::vector<double>> by_operator;
    for (const auto& [key, measured] : table.costs()) {
      std::unique_ptr<Graph> graph = GraphOfKey(key);
      if (graph == nullptr) continue;
      double estimate = EstimateNode(*graph->first(), {}, device).us;
      if (estimate <= 0) continue;
      all.push_back(measured / estimate);
      by_operator[&graph->first()->op()].push_back(measured / estimate);
    }
    if (!all.empty()) all_ = Median(all);
    for (auto& [op, ratios] : by_operator) factors_[op] = Median(ratios);
  }

  double FactorOf(const Operator& op) const {
    auto found = factors_.find(&op);
    return found == factors_.end() ? all_ : found->second;
  }

 private:
  double all_ = 1;
  std::unordered_map<const Operator*, double> factors_;
};

// How many ranks the node itself says its group has; 0: it does not say.
int64_t GroupSizeIn(const Node& node) {
  const Schema& schema = node.op().schema;
  if (int i = schema.Find("group_size"); i >= 0) {
    return std::get<Dim>(node.arg(i)).as_const().value_or(0);
  }
  if (int i = schema.Find("input_split_sizes"); i >= 0) {
    return static_cast<int64_t>(std::get<Shape>(node.arg(i)).size());
  }
  return 0;
}

class GroupSpans {
 public:
  GroupSpans(const Graph& graph, std::map<std::string, GroupSpan, std::less<>> known,
             int64_t gpus_per_node)
      : spans_(std::move(known)), gpus_per_node_(gpus_per_node) {
    for (const Node* node : graph.nodes()) {
      if (!LaunchesCollective(node->op()) || spans_.contains(GroupOf(*node))) continue;
      if (int64_t size = GroupSizeIn(*node); size > 0) {
        spans_[GroupOf(*node)] = Consecutive(size);
      }
    }
    for (const auto& [name, span] : spans_) {
      if (span.ranks() > largest_.ranks()) largest_ = span;
    }
  }

  GroupSpan Of(const Node& node) const {
    auto found = spans_.find(GroupOf(node));
    if (found != spans_.end()) return found->second;
    int64_t size = GroupSizeIn(node);
    return size > 0 ? Consecutive(size) : largest_;
  }

 private:
  GroupSpan Consecutive(int64_t size) const {
    std::vector<int64_t> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return SpanOf(ranks, gpus_per_node_);
  }

  std::map<std::string, GroupSpan, std::less<>> spans_;
  int64_t gpus_per_node_;
  GroupSpan largest_;
};

class GraphCostModel : public CostModel {
 public:
  GraphCostModel(const Graph& graph, CostModelOptions options)
      : graph_(graph),
        options_(std::move(options)),
        spans_(graph, options_.groups,
               options_.links != nullptr ? options_.links->cluster().gpus_per_node : 1) {
    if (options_.table != nullptr) calibration_.emplace(*options_.table, options_.device);
    by_number_.resize(static_cast<size_t>(graph.node_count()));
    for (const Node* node : graph.nodes()) {
      auto number = static_cast<size_t>(node->number());  // -1, never numbered, is beyond all
      if (number < by_number_.size() && by_number_[number].node == nullptr) {
        by_number_[number] = {node, Compute(*node)};
      } else {
        others_[node] = Compute(*node);
      }
    }
  }

  double Microseconds(const Node& node) const override { return Find(node).us; }
  NodeCost CostOf(const Node& node) const override { return Find(node); }
  bool contention() const override { return options_.contention; }
  const DeviceSpeed& device() const override { return options_.device; }

 private:
  struct Slot {
    const Node* node = nullptr;
    NodeCost cost;
  };

  const NodeCost& Find(const Node& node) const {
    // Numbers change when nodes are moved, so that the node in the slot has to be looked at.
    auto number = static_cast<size_t>(node.number());
    if (number < by_number_.size() && by_number_[number].node == &node)
      return by_number_[number].cost;
    auto [found, is_new] = others_.try_emplace(&node);
    if (is_new) found->second = Compute(node);
    return found->second;
  }

  NodeCost Compute(const Node& node) const {
    SymbolValues symbols = graph_.shapes().Hints();
    if (!TakesTime(node, symbols)) return {};
    if (LaunchesCollective(node.op())) return ComputeCollective(node, symbols);
    const NodeCost estimate = EstimateNode(node, symbols, options_.device);
    if (!calibration_) return estimate;
    const double* measured = options_.table->Find(CostTable::KeyOf(node, symbols));
    const double factor = measured != nullptr && estimate.us > 0
                              ? *measured / estimate.us
                              : calibration_->FactorOf(node.op());
    NodeCost cost = {.us = measured != nullptr ? *measured : factor * estimate.us,
                     .arithmetic_us = factor * estimate.arithmetic_us};
    if (estimate.link.total_us() > 0) cost.link = {.transfer_us = cost.us};
    return cost;
  }

  NodeCost ComputeCollective(const Node& node, SymbolValues symbols) const {
    if (options_.links == nullptr) return {};
    const Collective kind = node.op().collective;
    CollectiveTime time = options_.links->Time(kind, MovedBytes(node, symbols), spans_.Of(node));
    time.latency_us *= options_.link_scale;
    time.transfer_us *= options_.link_scale;
    NodeCost cost = {.us = time.total_us(), .link = time};
    if (options_.contention) cost.taken = options_.links->cluster().ComputeShareTaken(kind);
    return cost;
  }

  const Graph& graph_;
  CostModelOptions options_;
  GroupSpans spans_;
  std::optional<Calibration> calibration_;
  std::vector<Slot> by_number_;
  // Added since, or moved and numbered anew.
  mutable std::unordered_map<const Node*, NodeCost> others_;
};

}  // namespace

std::unique_ptr<CostModel> MakeCostModel(const Graph& graph, CostModelOptions options) {
  return std::make_unique<GraphCostModel>(graph, std::move(options));
}

}  // namespace gt
