#include "gt/passes/framework/context_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/text.h"

namespace gt {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<ProcessGroups::Purpose, const char*>, 3> kPurposes = {
    {{ProcessGroups::Purpose::kTokens, "tokens"},
     {ProcessGroups::Purpose::kCounts, "counts"},
     {ProcessGroups::Purpose::kGathers, "gathers"}}};
constexpr std::array<const char*, 3> kResources = {"none", "node", "network"};

constexpr std::array<std::pair<const char*, double DeviceSpeed::*>, 7> kSpeeds = {
    {{"half_tflops", &DeviceSpeed::half_tflops},
     {"float_tflops", &DeviceSpeed::float_tflops},
     {"memory_gb_per_s", &DeviceSpeed::memory_gb_per_s},
     {"kernel_us", &DeviceSpeed::kernel_us},
     {"launch_us", &DeviceSpeed::launch_us},
     {"host_read_us", &DeviceSpeed::host_read_us},
     {"host_link_gb_per_s", &DeviceSpeed::host_link_gb_per_s}}};

void SetIfAny(Json& json, const char* key, double value) {
  if (value != 0) json[key] = value;
}

Json ToJson(const NodeCost& cost) {
  Json json;
  json["us"] = cost.us;
  SetIfAny(json, "arithmetic_us", cost.arithmetic_us);
  SetIfAny(json, "latency_us", cost.link.latency_us);
  SetIfAny(json, "transfer_us", cost.link.transfer_us);
  if (cost.link.resource != LinkResource::kNone) {
    json["resource"] = kResources.at(static_cast<size_t>(cost.link.resource));
  }
  SetIfAny(json, "taken", cost.taken);
  return json;
}

NodeCost CostFrom(const nlohmann::json& json) {
  NodeCost cost;
  cost.us = json.at("us").get<double>();
  cost.arithmetic_us = json.value("arithmetic_us", 0.0);
  cost.link.latency_us = json.value("latency_us", 0.0);
  cost.link.transfer_us = json.value("transfer_us", 0.0);
  const std::string resource = json.value("resource", std::string(kResources[0]));
  const auto found = std::find(kResources.begin(), kResources.end(), resource);
  if (found == kResources.end()) throw std::invalid_argument("no resource " + Quoted(resource));
  cost.link.resource = static_cast<LinkResource>(found - kResources.begin());
  cost.taken = json.value("taken", 0.0);
  return cost;
}

Json ToJson(const DeviceSpeed& device) {
  Json json;
  json["name"] = device.name;
  for (const auto& [key, member] : kSpeeds) json[key] = device.*member;
  return json;
}

DeviceSpeed DeviceFrom(const nlohmann::json& json) {
  DeviceSpeed device;
  device.name = json.at("name").get<std::string>();
  for (const auto& [key, member] : kSpeeds) device.*member = json.value(key, device.*member);
  return device;
}

// Identities are addresses in a job; in the file they count from 0.
Json GroupsToJson(const std::map<std::string, ContextRecord::Group, std::less<>>& groups) {
  std::unordered_map<int64_t, size_t> identities;
  Json json = Json::object();
  for (const auto& [name, group] : groups) {
    Json& entry = json[name] = Json::object();
    if (group.info) {
      entry["identity"] =
          identities.try_emplace(group.info->identity, identities.size()).first->second;
      entry["ranks"] = group.info->ranks;
    }
    for (const auto& [purpose, key] : kPurposes) {
      if (auto found = group.separate.find(purpose); found != group.separate.end()) {
        entry[key] = found->second;
      }
    }
  }
  return json;
}

ContextRecord::Group GroupFrom(const nlohmann::json& json) {
  ContextRecord::Group group;
  if (json.contains("identity")) {
    // Negative, so that no name outside of the record is taken for the same group.
    group.info = {-1 - json.at("identity").get<int64_t>(),
                  json.at("ranks").get<std::vector<int64_t>>()};
  }
  for (const auto& [purpose, key] : kPurposes) {
    if (json.contains(key)) group.separate[purpose] = json.at(key).get<std::string>();
  }
  return group;
}

// Calls visit(node, name) for every node, with the name that costs are recorded by.
template <typename Visit>
void ForEachNamed(const Graph& graph, const Visit& visit) {
  int64_t without_results = 0;
  for (const Node* node : graph.nodes()) {
    visit(*node, node->result_count() > 0 ? node->result()->name()
                                          : fmt::format("#{}", without_results++));
  }
}

class ReplayedCosts : public CostModel {
 public:
  ReplayedCosts(const RecordedCosts& record, const Graph& graph, std::unique_ptr<CostModel> rest)
      : device_(record.device), contention_(record.contention), rest_(std::move(rest)) {
    ForEachNamed(graph, [&](const Node& node, const std::string& name) {
      auto found = record.nodes.find(name);
      if (found != record.nodes.end()) costs_.emplace(&node, found->second);
    });
  }

  double Microseconds(const Node& node) const override { return CostOf(node).us; }
  NodeCost CostOf(const Node& node) const override {
    auto found = costs_.find(&node);
    return found == costs_.end() ? rest_->CostOf(node) : found->second;
  }
  const DeviceSpeed& device() const override { return device_; }
  bool contention() const override { return contention_; }

 private:
  DeviceSpeed device_;
  bool contention_;
  std::unique_ptr<CostModel> rest_;
  std::unordered_map<const Node*, NodeCost> costs_;
};

// One line for each element, so that files can be read and compared.
std::string Lines(const Json& json) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : json.items()) {
    lines.push_back(fmt::format("  {}: {}", Json(key).dump(), value.dump()));
  }
  return fmt::format("{{\n{}\n }}", Join(lines, ",\n"));
}

}  // namespace

bool ContextRecord::empty() const {
  return !memory_budget && !constant_bytes && notes.empty() && groups.empty() && !costs &&
         decisions.empty();
}

std::string ContextRecord::ToJson() const {
  std::vector<std::string> fields;
  auto add = [&fields](std::string_view key, const std::string& value) {
    fields.push_back(fmt::format(" \"{}\": {}", key, value));
  };
  if (memory_budget) add("memory_budget", Json(*memory_budget).dump());
  if (constant_bytes) add("constant_bytes", Json(*constant_bytes).dump());
  if (!notes.empty()) add("notes", Json(notes).dump());
  if (!groups.empty()) add("groups", Lines(GroupsToJson(groups)));
  if (costs) {
    add("device", gt::ToJson(costs->device).dump());
    add("contention", Json(costs->contention).dump());
    Json nodes = Json::object();
    for (const auto& [name, cost] : costs->nodes) nodes[name] = gt::ToJson(cost);
    add("costs", Lines(nodes));
  }
  if (!decisions.empty()) {
    Json made = Json::array();
    for (const Decision& decision : decisions) {
      made.push_back({{"what", decision.what}, {"text", decision.text}});
    }
    add("decisions", made.dump());
  }
  return fmt::format("{{\n{}\n}}\n", Join(fields, ",\n"));
}

ContextRecord ContextRecord::FromJson(std::string_view text, std::string_view file) {
  try {
    const nlohmann::json json = ParseJson(text, kLargeJson);
    if (!json.is_object()) throw std::invalid_argument("an object is expected");
    ContextRecord record;
    if (json.contains("memory_budget")) record.memory_budget = json["memory_budget"].get<int64_t>();
    if (json.contains("constant_bytes")) {
      record.constant_bytes = json["constant_bytes"].get<int64_t>();
    }
    if (json.contains("notes")) json["notes"].get_to(record.notes);
    if (json.contains("groups")) {
      for (const auto& [name, group] : json["groups"].items()) {
        record.groups[name] = GroupFrom(group);
      }
    }
    if (json.contains("device")) {
      RecordedCosts& costs = record.costs.emplace();
      costs.device = DeviceFrom(json["device"]);
      costs.contention = json.value("contention", false);
      for (const auto& [name, cost] : json.at("costs").items()) {
        costs.nodes[name] = CostFrom(cost);
      }
    }
    if (json.contains("decisions")) {
      for (const nlohmann::json& decision : json["decisions"]) {
        record.decisions.push_back(
            {decision.at("what").get<std::string>(), decision.at("text").get<std::string>()});
      }
    }
    return record;
  } catch (const std::exception& problem) {
    Fail(ErrorCode::kBadOptionValue, "{} is not what a job told its passes: {}", file,
         problem.what());
  }
}

RecordedCosts RecordCosts(const Graph& graph, const CostModel& model) {
  RecordedCosts costs{model.device(), model.contention(), {}};
  ForEachNamed(graph, [&](const Node& node, const std::string& name) {
    costs.nodes.emplace(name, model.CostOf(node));
  });
  return costs;
}

std::unique_ptr<CostModel> ReplayCosts(const RecordedCosts& record, const Graph& graph,
                                       std::unique_ptr<CostModel> rest) {
  return std::make_unique<ReplayedCosts>(record, graph, std::move(rest));
}

}  // namespace gt
