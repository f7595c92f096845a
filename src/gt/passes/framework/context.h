// What passes know beyond the graph and their own options: facts of the job, what an earlier pass of
// the same run has noted, and analyses of the graph that several passes share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeindex>
#include <unordered_map>

#include "gt/ir/graph.h"
#include "gt/passes/framework/context_record.h"
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
  // Bytes of the device that may be in use at the same time. Null or 0: no limit is known.
  std::function<int64_t()> memory_budget = {};
  // What is in the device's memory all the time while this step runs: parameters, optimizer,
  // communicators of its groups. Null: nothing.
  std::function<int64_t(const Graph&)> constant_bytes = {};
  DecideForAll decide_for_all = {};  // null: this rank is alone
};

// Of one run of a pipeline. Not thread-safe.
//
// What the job answered can be replayed: passes that are rerun after one of them failed are told
// what they were told before, without asking other ranks, and what they ask for is recorded for a
// file (passes/framework/context_record.h) from which `gt opt` makes a context that answers alike.
class PassContext {
 public:
  explicit PassContext(JobFacts job = {});
  // Answers as recorded. What is not in the record is answered as outside of a job.
  explicit PassContext(ContextRecord record);
  ~PassContext();
  PassContext(const PassContext&) = delete;
  PassContext& operator=(const PassContext&) = delete;

  ProcessGroups& groups();
  std::unique_ptr<CostModel> Costs(const Graph& graph);
  int64_t MemoryBudget();
  int64_t ConstantBytes(const Graph& graph);
  std::string Decide(std::string_view what, const std::function<std::string()>& decide);

  // What a pass leaves for those after it, by name; the last value counts.
  void Note(std::string_view name, int64_t value);
  std::optional<int64_t> Noted(std::string_view name);

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

  // From now on passes are rerun from the one that was about to run when `position` was taken: they
  // are told what they were told before, and no other rank is asked.
  void Replay(size_t position);
  size_t position() const { return replays_ ? next_decision_ : known_.decisions.size(); }
  // What is asked from now on is recorded, until it is taken.
  void StartRecording() { asked_.emplace(); }
  ContextRecord TakeRecording();

 private:
  class RecordedGroups;

  JobFacts job_;
  NamedGroups named_groups_;
  std::unique_ptr<RecordedGroups> groups_;
  bool replays_ = false;
  // What has been answered. Costs, budget and constant bytes are only here if they were read from a
  // file: a job can always be asked for them again.
  ContextRecord known_;
  size_t next_decision_ = 0;  // to be replayed
  std::optional<ContextRecord> asked_;

  const Graph* analyzed_ = nullptr;
  std::unordered_map<std::type_index, std::shared_ptr<const void>> analyses_;
};

}  // namespace gt
