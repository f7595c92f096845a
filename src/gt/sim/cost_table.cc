#include "gt/sim/cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "gt/analysis/collectives.h"
#include "gt/base/error.h"
#include "gt/base/json_text.h"
#include "gt/base/text.h"
#include "gt/ir/text.h"
#include "gt/sim/node_cost.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

class KeyWriter {
 public:
  KeyWriter(const Node& node, SymbolValues symbols) : node_(node), symbols_(symbols) {}

  std::string Write() {
    key_ = node_.op().name.str() + "(";
    const std::vector<ArgSpec>& specs = node_.op().schema.args;
    bool positional = true;  // as in the text form, where only leading tensors have no name
    bool first = true;
    for (size_t i = 0; i < specs.size(); ++i) {
      const ArgSpec& spec = specs[i];
      const Argument& argument = node_.arg(static_cast<int32_t>(i));
      positional &= spec.kind == ArgKind::kTensor || spec.kind == ArgKind::kTensorList;
      if (IsIdle(spec) || (spec.default_value && argument == *spec.default_value)) {
        positional = false;
        continue;
      }
      if (!first) key_ += ",";
      first = false;
      if (!positional) Put("{}=", spec.name);
      std::visit([this](const auto& value) { PutArgument(value); }, argument);
    }
    return std::move(key_) + ")";
  }

 private:
  template <typename... Args>
  void Put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(key_), format, std::forward<Args>(args)...);
  }

  // Arguments that change nothing about the work: a table is of one device.
  static bool IsIdle(const ArgSpec& spec) {
    return spec.kind == ArgKind::kDevice || spec.kind == ArgKind::kLayout ||
           spec.kind == ArgKind::kGenerator || spec.name == "pin_memory";
  }

  template <typename List, typename PutElement>
  void PutList(char open, const List& list, char close, PutElement&& put) {
    key_ += open;
    bool first = true;
    for (auto&& element : list) {
      if (!std::exchange(first, false)) key_ += ",";
      put(element);
    }
    key_ += close;
  }
  void PutNumber(double value) {
    size_t begin = key_.size();
    Put("{}", value);
    if (key_.find_first_of(".en", begin) == std::string::npos) key_ += ".0";  // no integer
  }
  void PutDims(char open, const Shape& dims, char close) {
    PutList(open, dims, close, [this](const Dim& dim) { Put("{}", dim.Evaluate(symbols_)); });
  }
  void PutType(int32_t operand) {
    if (operand < 0) return Put("none");
    const TensorType& type = node_.operand(operand)->type();
    Put("{}", DTypeName(type.dtype));
    PutDims('[', type.sizes, ']');
    if (!IsRowMajor(type, symbols_)) PutDims('{', type.strides, '}');
  }

  template <typename T>
  void PutArgument(const T& value) {
    if constexpr (std::is_same_v<T, std::monostate>) {
      Put("none");
    } else if constexpr (std::is_same_v<T, OperandRef>) {
      PutType(value.index);
    } else if constexpr (std::is_same_v<T, OperandList>) {
      PutList('[', value.indices, ']', [this](int32_t index) { PutType(index); });
    } else if constexpr (std::is_same_v<T, Dim>) {
      Put("{}", value.Evaluate(symbols_));
    } else if constexpr (std::is_same_v<T, Shape>) {
      PutDims('[', value, ']');
    } else if constexpr (std::is_same_v<T, double>) {
      PutNumber(value);
    } else if constexpr (std::is_same_v<T, bool>) {
      Put("{}", value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      key_ += Quoted(value);
    } else if constexpr (std::is_same_v<T, DType>) {
      Put("{}", DTypeName(value));
    } else if constexpr (std::is_same_v<T, Device>) {
      Put("\"{}\"", DeviceName(value));
    } else if constexpr (std::is_same_v<T, Layout>) {
      Put("strided");
    } else if constexpr (std::is_same_v<T, MemoryFormat>) {
      Put("{}", value == MemoryFormat::kPreserve ? "preserve" : "contiguous");
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      PutList('[', value, ']', [this](double element) { PutNumber(element); });
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      PutList('[', value, ']', [this](bool element) { Put("{}", element); });
    } else {
      static_assert(std::is_same_v<T, GraphRef>);
      if (value == nullptr) return Put("none");
      Put("graph:{:016x}", value->Hash());
    }
  }

  const Node& node_;
  SymbolValues symbols_;
  std::string key_;
};

// Where the type that begins at `at` ends: "bf16[2,3]{1,2}"; `at` itself if none begins there.
size_t EndOfType(std::string_view key, size_t at) {
  size_t end = at;
  while (end < key.size() && std::isalnum(static_cast<unsigned char>(key[end])) != 0) ++end;
  if (!ParseDType(key.substr(at, end - at))) return at;
  auto skip = [&](char open, char close) {
    size_t closed = end < key.size() && key[end] == open ? key.find(close, end) : key.npos;
    if (closed == key.npos) return false;
    end = closed + 1;
    return true;
  };
  if (!skip('[', ']')) return at;  // a dtype among the arguments
  skip('{', '}');
  return end;
}

// A key as the text of a graph of one node, of which only the types of the results are missing: the
// types in the key become inputs.
std::optional<std::string> GraphTextOf(std::string_view key) {
  size_t arguments = key.find('(');
  const Operator* op = FindOperator(key.substr(0, std::min(arguments, key.size())));
  if (op == nullptr || arguments == key.npos) return std::nullopt;

  std::vector<std::string> inputs, results, types;
  std::string call(key.substr(0, arguments));
  for (size_t at = arguments; at < key.size();) {
    size_t end = EndOfType(key, at);
    if (end == at) {
      call += key[at++];
      continue;
    }
    std::string name = fmt::format("t{}", inputs.size());
    inputs.push_back(fmt::format("%{}: input \"{}\" {}", name, name, key.substr(at, end - at)));
    call += "%" + name;
    at = end;
  }
  for (const ResultSpec& result : op->schema.results) {
    if (result.list) return std::nullopt;  // how many there are is not in the key
    if (result.integer) continue;
    results.push_back(fmt::format("%r{}", results.size()));
    types.emplace_back("none");
  }
  if (results.empty()) return std::nullopt;
  return fmt::format("graph @key({}) {{\n  {} = {} : ({})\n  return\n}}\n", Join(inputs, ", "),
                     Join(results, ", "), call, Join(types, ", "));
}

const nlohmann::json& MemberOf(const nlohmann::json& json, const char* name,
                               nlohmann::json::value_t type, std::string_view file) {
  auto found = json.find(name);
  if (found == json.end()) {
    Fail(ErrorCode::kBadCosts, "{}: \"{}\" is missing", file, name);
  }
  if (found->type() != type) {
    Fail(ErrorCode::kBadCosts, "{}: \"{}\" must not be of type {}", file, name, found->type_name());
  }
  return *found;
}

}  // namespace

std::string CostTable::KeyOf(const Node& node, SymbolValues symbols) {
  if (LaunchesCollective(node.op()) || !TakesTime(node, symbols)) return "";
  return KeyWriter(node, symbols).Write();
}

const double* CostTable::Find(const std::string& key) const {
  auto found = costs_.find(key);
  return found == costs_.end() ? nullptr : &found->second;
}

std::string CostTable::ToJson() const {
  nlohmann::ordered_json json = {{"device", device}, {"unit", "us"}};
  nlohmann::ordered_json& costs = json["costs"] = nlohmann::ordered_json::object();
  for (const auto& [key, us] : costs_) costs[key] = us;
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

CostTable CostTable::FromJson(std::string_view text, std::string_view file) {
  using Type = nlohmann::json::value_t;
  nlohmann::json json;
  try {
    json = ParseJson(text);
  } catch (const BadJson& error) {
    Fail(ErrorCode::kBadCosts, "{}: not JSON: {}", file, error.what());
  }
  if (!json.is_object()) {
    Fail(ErrorCode::kBadCosts, "{}: an object is expected, not {}", file, json.type_name());
  }
  CostTable table;
  table.device = MemberOf(json, "device", Type::string, file).get<std::string>();
  std::string unit = MemberOf(json, "unit", Type::string, file).get<std::string>();
  if (unit != "us") {
    Fail(ErrorCode::kBadCosts, "{}: times are in {} instead of \"us\"", file, Quoted(unit));
  }
  for (const auto& [key, cost] : MemberOf(json, "costs", Type::object, file).items()) {
    if (!cost.is_number()) {
      Fail(ErrorCode::kBadCosts, "{}: the time of {} must be a number, not of type {}", file,
           Quoted(key), cost.type_name());
    }
    auto us = cost.get<double>();
    if (!std::isfinite(us) || us < 0) {
      Fail(ErrorCode::kBadCosts, "{}: {} cannot take {} us", file, Quoted(key), us);
    }
    table.Set(key, us);
  }
  return table;
}

std::unique_ptr<Graph> GraphOfKey(const std::string& key) {
  std::optional<std::string> text = GraphTextOf(key);
  if (!text) return nullptr;
  try {
    std::unique_ptr<Graph> graph = Parse(*text, key);
    Node* node = graph->first();
    std::vector<TensorType> types = InferTypes(*node);
    if (types.size() != static_cast<size_t>(node->result_count())) return nullptr;
    for (size_t i = 0; i < types.size(); ++i) {
      node->result(static_cast<int32_t>(i))->set_type(std::move(types[i]));
    }
    return graph;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace gt
