#include "gt/placement/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "gt/base/error.h"
#include "gt/base/json_text.h"

namespace gt::placement {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "gt-plan-1";

std::vector<std::string> Texts(const std::vector<Layout>& layouts,
                               const std::vector<Pieces>& pieces, const DeviceMesh& mesh) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < layouts.size(); ++i) {
    texts.push_back(ToString(layouts[i], pieces[i], mesh));
  }
  return texts;
}

// Gives members of a class the names of their values.
template <typename Visit>
void ForEachMember(const PlaceProblem& problem, const FoldedClass& of,
                   const std::vector<int32_t>& members, const std::vector<const Node*>& nodes,
                   Visit&& visit) {
  for (int32_t member : members) {
    if (of.input != nullptr) {
      visit(problem.graph().inputs()[static_cast<size_t>(member)]->name);
    } else {
      visit(nodes[static_cast<size_t>(member)]->result()->name());
    }
  }
}

template <typename T>
T Get(const Json& json, const char* key, std::string_view file) {
  try {
    return json.at(key).get<T>();
  } catch (const Json::exception&) {
    Fail(ErrorCode::kBadPlan, "{}: \"{}\" is missing or of the wrong kind", file, key);
  }
}

// {"wq": ["f32[16,8]", "S0S0", "S0S0"]}: type, placement, placement of the gradient.
void ReadUpstreamParameters(const Json& json, Plan& plan, std::string_view file) {
  for (const auto& [name, entry] : json.items()) {
    if (!entry.is_array() || entry.size() < 2 || !entry[1].is_string()) {
      Fail(ErrorCode::kBadPlan, "{}: the placement of {} cannot be read", file, name);
    }
    plan.inputs[name] = entry[1].get<std::string>();
  }
}

// To a thousandth of a nanosecond, so that files stay readable.
double Rounded(double us) { return std::round(us * 1e6) / 1e6; }

Json Rounded(const std::map<std::string, double>& times) {
  Json json = Json::object();
  for (const auto& [name, us] : times) json[name] = Rounded(us);
  return json;
}

// A node: kernel, what is exchanged within it, and a list of the moves of its operands.
Json TimesToJson(const PlanTimes& times) {
  Json json{{"kept", Rounded(times.kept)},
            {"updates", Rounded(times.updates)},
            {"results", Rounded(times.results)},
            {"nodes", Json::object()}};
  for (const auto& [name, time] : times.nodes) {
    Json moves = Json::array();
    for (double us : time.moves_us) moves.push_back(Rounded(us));
    json["nodes"][name] =
        Json::array({Rounded(time.kernel_us), Rounded(time.collective_us), std::move(moves)});
  }
  return json;
}

PlanTimes TimesFromJson(const Json& json, std::string_view file) {
  using Times = std::map<std::string, double>;
  using Entry = std::tuple<double, double, std::vector<double>>;
  PlanTimes times;
  times.kept = Get<Times>(json, "kept", file);
  times.updates = Get<Times>(json, "updates", file);
  times.results = Get<Times>(json, "results", file);
  for (auto& [name, entry] : Get<std::map<std::string, Entry>>(json, "nodes", file)) {
    auto& [kernel_us, collective_us, moves_us] = entry;
    times.nodes[name] = {kernel_us, collective_us, std::move(moves_us)};
  }
  return times;
}

}  // namespace

Plan MakePlan(const PlaceProblem& problem, const Placement& placement, std::string title) {
  const DeviceMesh& mesh = problem.pricing().mesh();
  Plan plan;
  for (int axis = 0; axis < mesh.axes(); ++axis) plan.mesh.push_back(mesh.size(axis));
  plan.title = std::move(title);
  plan.step_hash = problem.graph().Hash();
  plan.step_us = placement.step_us;
  plan.bound_us = placement.bound_us;
  plan.peak_bytes = placement.peak_bytes;
  std::vector<const Node*> nodes;
  for (const Node* node : problem.graph().nodes()) nodes.push_back(node);
  for (size_t i = 0; i < problem.variables().size(); ++i) {
    const PlacedVariable& variable = problem.variables()[i];
    auto index = static_cast<size_t>(variable.class_index);
    const FoldedClass& of = problem.folding().classes[index];
    const ClassPieces& pieces = problem.pieces()[index];
    auto label = static_cast<size_t>(placement.labels[i]);
    if (variable.result >= 0) {
      const std::string text = ToString(variable.layouts[label],
                                        pieces.results[static_cast<size_t>(variable.result)], mesh);
      ForEachMember(problem, of, variable.members, nodes, [&](const std::string& name) {
        plan.kept[ValueName(name, variable.result)] = text;
      });
      continue;
    }
    if (of.result_count() == 0) continue;  // computed by every rank, and there is no name for it
    const Strategy& strategy = problem.strategies()[index][label];
    const Plan::NodeLayouts layouts{Texts(strategy.operands, pieces.operands, mesh),
                                    Texts(strategy.results, pieces.results, mesh)};
    ForEachMember(problem, of, of.members, nodes, [&](const std::string& name) {
      if (of.input != nullptr) {
        plan.inputs[name] = layouts.results[0];
      } else {
        plan.nodes[name] = layouts;
      }
    });
  }
  plan.times = TimesOf(problem, placement.labels);
  return plan;
}

std::string ToJson(const Plan& plan) {
  Json json;
  json["format"] = kFormat;
  json["mesh"] = plan.mesh;
  json["title"] = plan.title;
  json["step_hash"] = fmt::format("{:016x}", plan.step_hash);
  json["step_us"] = plan.step_us;
  json["bound_us"] = plan.bound_us;
  json["peak_bytes"] = plan.peak_bytes;
  json["inputs"] = plan.inputs;
  json["kept"] = plan.kept;
  json["nodes"] = Json::object();
  for (const auto& [name, layouts] : plan.nodes) {
    json["nodes"][name] = Json::array({layouts.operands, layouts.results});
  }
  if (!plan.times.nodes.empty()) json["times_us"] = TimesToJson(plan.times);
  // Names may hold any bytes, JSON may not.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Plan PlanFromJson(std::string_view text, std::string_view file) {
  Json json;
  try {
    json = ParseJson(text, kLargeJson);
  } catch (const BadJson& error) {
    Fail(ErrorCode::kBadPlan, "{} is no JSON: {}", file, error.what());
  }
  if (!json.is_object()) Fail(ErrorCode::kBadPlan, "{}: a plan is a JSON object", file);
  Plan plan;
  plan.mesh = Get<std::vector<int64_t>>(json, "mesh", file);
  if (!json.contains("format")) {
    if (!json.contains("params") || !json["params"].is_object()) {
      Fail(ErrorCode::kBadPlan,
           "{}: neither a plan of gt (\"format\") nor placements of parameters "
           "(\"params\")",
           file);
    }
    ReadUpstreamParameters(json["params"], plan, file);
    return plan;
  }
  if (json["format"] != kFormat) {
    Fail(ErrorCode::kBadPlan, "{}: this gt reads plans of format {}", file, kFormat);
  }
  plan.title = Get<std::string>(json, "title", file);
  const auto hash = Get<std::string>(json, "step_hash", file);
  const char* end = hash.data() + hash.size();
  const auto [stop, error] = std::from_chars(hash.data(), end, plan.step_hash, 16);
  if (error != std::errc{} || stop != end) {
    Fail(ErrorCode::kBadPlan, "{}: \"step_hash\" is no hexadecimal number", file);
  }
  plan.step_us = Get<double>(json, "step_us", file);
  plan.bound_us = Get<double>(json, "bound_us", file);
  plan.peak_bytes = Get<int64_t>(json, "peak_bytes", file);
  plan.inputs = Get<std::map<std::string, std::string>>(json, "inputs", file);
  plan.kept = Get<std::map<std::string, std::string>>(json, "kept", file);
  using Sides = std::vector<std::vector<std::string>>;
  for (auto& [name, sides] : Get<std::map<std::string, Sides>>(json, "nodes", file)) {
    if (sides.size() != 2) {
      Fail(ErrorCode::kBadPlan, "{}: node {} needs layouts of operands and of results", file, name);
    }
    plan.nodes[name] = {sides[0], sides[1]};
  }
  if (json.contains("times_us")) plan.times = TimesFromJson(json["times_us"], file);
  return plan;
}

std::vector<std::string> Differences(const Plan& a, const Plan& b) {
  std::vector<std::string> lines;
  if (a.mesh != b.mesh) {
    lines.push_back(fmt::format("mesh  {}  {}", fmt::join(a.mesh, "x"), fmt::join(b.mesh, "x")));
  }
  auto describe = [](const Plan::NodeLayouts& layouts) {
    return fmt::format("{} -> {}", fmt::join(layouts.operands, " "),
                       fmt::join(layouts.results, " "));
  };
  auto compare = [&](const auto& first, const auto& second, auto&& text) {
    std::set<std::string> names;
    for (const auto& [name, layouts] : first) names.insert(name);
    for (const auto& [name, layouts] : second) names.insert(name);
    for (const std::string& name : names) {
      auto in_first = first.find(name), in_second = second.find(name);
      const std::string one = in_first == first.end() ? "-" : text(in_first->second);
      const std::string two = in_second == second.end() ? "-" : text(in_second->second);
      if (one != two) lines.push_back(fmt::format("{}  {}  {}", name, one, two));
    }
  };
  auto same = [](const std::string& text) { return text; };
  compare(a.inputs, b.inputs, same);
  compare(a.kept, b.kept, same);
  compare(a.nodes, b.nodes, describe);
  return lines;
}

std::vector<Pin> PinsOf(const Plan& plan, const DeviceMesh& mesh, const Graph& graph) {
  std::vector<int64_t> sizes;
  sizes.reserve(kMaxAxes);
  for (int axis = 0; axis < mesh.axes(); ++axis) sizes.push_back(mesh.size(axis));
  if (plan.mesh != sizes) {
    Fail(ErrorCode::kBadPlan, "the plan is for mesh {}, not for {}", fmt::join(plan.mesh, "x"),
         mesh.ToString());
  }
  std::set<std::string> known;
  for (const auto& input : graph.inputs()) known.insert(input->name);
  std::vector<Pin> pins;
  for (const auto& [name, layout] : plan.inputs) {
    if (!known.contains(name)) {
      Fail(ErrorCode::kBadPlan, "the plan is for another model: this one has no {}", name);
    }
    pins.push_back({name, layout});
  }
  return pins;
}

}  // namespace gt::placement
