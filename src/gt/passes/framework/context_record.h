// What passes were told by a job, as data: written beside a reproducer, and read back by `gt opt`, so
// that a pass that was given more than a graph runs as it did.
//
// The file is JSON:
//   {"memory_budget": 85899345920, "constant_bytes": 1024,
//    "notes": {"whole_peak": 4096},
//    "groups": {"ep": {"identity": 0, "ranks": [0, 1], "tokens": "ep.tokens"}},
//    "device": {"name": "hopper", "launch_us": 4.5, ...}, "contention": false,
//    "costs": {"a": {"us": 12.5}, "d": {"us": 20, "latency_us": 5, "transfer_us": 15, ...}},
//    "decisions": [{"what": "the order of the step", "text": "..."}]}
// Costs are by the name of a node's first result; nodes without results are "#0", "#1" and so on in
// the order of the graph. Names of one process group have one identity. What was not asked for is not
// there, and speeds of the device may be left out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gt/ir/graph.h"
#include "gt/passes/framework/process_groups.h"
#include "gt/sim/cost_model.h"

namespace gt {

// What a cost model said about the nodes of one graph.
struct RecordedCosts {
  DeviceSpeed device = {};
  bool contention = false;
  std::map<std::string, NodeCost, std::less<>> nodes = {};
};

struct ContextRecord {
  struct Group {
    std::optional<ProcessGroups::Info> info = {};
    std::map<ProcessGroups::Purpose, std::string> separate = {};  // names of groups made from it
  };
  struct Decision {
    std::string what, text;
  };

  std::optional<int64_t> memory_budget = {};
  std::optional<int64_t> constant_bytes = {};
  std::map<std::string, int64_t, std::less<>> notes = {};
  std::map<std::string, Group, std::less<>> groups = {};
  std::optional<RecordedCosts> costs = {};
  std::vector<Decision> decisions = {};  // in the order in which they were made

  bool empty() const;
  std::string ToJson() const;
  // Fails with BadOptionValue, naming file and place.
  static ContextRecord FromJson(std::string_view text, std::string_view file);
};

RecordedCosts RecordCosts(const Graph& graph, const CostModel& model);
// For a graph whose nodes have the same names. Those that are not in the record cost what `rest` says.
std::unique_ptr<CostModel> ReplayCosts(const RecordedCosts& record, const Graph& graph,
                                       std::unique_ptr<CostModel> rest);

}  // namespace gt
