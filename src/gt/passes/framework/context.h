// What passes know beyond the graph and their own options: facts of the job, what an earlier pass of
// the same run has noted, and analyses of the graph that several passes share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeindex>
#include <unordered_map>

#include "gt/ir/graph.h"
#include "gt/passes/framework/process_groups.h"
#include "gt/sim/cost_model.h"

namespace gt {

using CostModelFor = std::function<std::unique_ptr<CostModel>(const Graph&)>;

// Lets all ranks apply one decision: the first rank calls `decide` and publishes what it returns, the
// others get that text without deciding anything. `what` is for messages: "the order of the step".
using DecideForAll =
    std::function<std::string(std::string_view what, const std::function<std::string()>& decide)>;

// What a job tells its passes. Whatever is left out is answered as for a graph outside of a job.
struct JobFacts {
  // Null: every name is a group of its own. Must outlive the context.
  ProcessGroups* groups = nullptr;
  // Null: GPUs of today with a network between nodes of eight.
  CostModelFor costs = {};
  // Bytes of the device that may be in use at once. Null or 0: no limit is known.
  std::function<int64_t()> memory_budget = {};
  // What is in the device's memory all the time while this step runs: parameters, optimizer,
  // communicators of its groups. Null: nothing.
  std::function<int64_t(const Graph&)> constant_bytes = {};
  DecideForAll decide_for_all = {};  // null: this rank is alone
};

// Of one run of a pipeline. Not for several threads at once.
class PassContext {
 public:
  explicit PassContext(JobFacts job = {}) : job_(std::move(job)) {}
  PassContext(const PassContext&) = delete;
  PassContext& operator=(const PassContext&) = delete;

  ProcessGroups& groups() { return job_.groups == nullptr ? named_groups_ : *job_.groups; }
  std::unique_ptr<CostModel> Costs(const Graph& graph) const;
  int64_t MemoryBudget() const { return job_.memory_budget ? job_.memory_budget() : 0; }
  int64_t ConstantBytes(const Graph& graph) const {
    return job_.constant_bytes ? job_.constant_bytes(graph) : 0;
  }
  std::string Decide(std::string_view what, const std::function<std::string()>& decide) const {
    return job_.decide_for_all ? job_.decide_for_all(what, decide) : decide();
  }

  // What a pass leaves for those after it, by name; the last value counts.
  void Note(std::string_view name, int64_t value) {
    notes_.insert_or_assign(std::string(name), value);
  }
  std::optional<int64_t> Noted(std::string_view name) const;

  // An analysis is whatever can be made from a graph: Dependencies, EscapingStorage. Made on the
  // first request and kept until the graph changes. Those that number nodes agree on the numbers.
  template <typename Analysis>
  const Analysis& Get(Graph& graph) {
    if (analyzed_ != &graph) Invalidate();
    analyzed_ = &graph;
    std::shared_ptr<const void>& kept = analyses_[typeid(Analysis)];
    if (kept == nullptr) kept = std::make_shared<const Analysis>(graph);
    return *static_cast<const Analysis*>(kept.get());
  }
  // The graph has changed, or may be another one at the same address.
  void Invalidate() { analyses_.clear(); }

 private:
  JobFacts job_;
  NamedGroups named_groups_;
  std::map<std::string, int64_t, std::less<>> notes_;
  const Graph* analyzed_ = nullptr;
  std::unordered_map<std::type_index, std::shared_ptr<const void>> analyses_;
};

}  // namespace gt
