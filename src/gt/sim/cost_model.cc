#include "gt/sim/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gt/analysis/host_reads.h"
#include "gt/base/error.h"
#include "gt/base/text.h"
#include "gt/ir/text.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

// One GB/s is a thousand bytes in a microsecond, one TFLOP/s a million operations.
double TransferUs(double bytes, double gb_per_s) {
  return gb_per_s > 0 ? bytes / (1e3 * gb_per_s) : 0;
}
double ArithmeticUs(double flops, double tflops) { return tflops > 0 ? flops / (1e6 * tflops) : 0; }

bool IsQueued(const Operator& op) {
  return op.collective != Collective::kNone || op.transfer != Transfer::kNone;
}

// Of the elements that are there: those along an expanded dimension are one.
double BytesOf(const TensorType& type, SymbolValues symbols) {
  if (!type.defined()) return 0;
  double bytes = ItemSize(type.dtype);
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    if (!type.strides[i].Is(0)) bytes *= static_cast<double>(SizeAt(type.sizes[i], symbols));
  }
  return bytes;
}

double ResultBytes(const Node& node, SymbolValues symbols) {
  double bytes = 0;
  for (int32_t i = 0; i < node.result_count(); ++i) {
    bytes += BytesOf(node.result(i)->type(), symbols);
  }
  return bytes;
}

double OperandBytes(const Node& node, SymbolValues symbols) {
  double bytes = 0;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    bytes += BytesOf(node.operand(i)->type(), symbols);
  }
  return bytes;
}

// What the kernel reads and writes.
double TrafficOf(const Node& node, SymbolValues symbols) {
  double results = ResultBytes(node, symbols);
  double traffic = results + OperandBytes(node, symbols);
  const Work work = node.op().work;
  // Of a cast, too, as many bytes are taken to be read as are written.
  const bool selects = work == Work::kSelect || work == Work::kClone;
  if (!selects && work != Work::kFill) return traffic;
  const Value* first = node.op().schema.args.empty() ? nullptr : node.TensorArg(0);
  if (first == nullptr) return traffic;
  double whole = BytesOf(first->type(), symbols);
  return traffic - whole + (selects ? std::min(whole, results) : 0);
}

double FlopsOf(const Node& node, SymbolValues symbols) {
  const Operator& op = node.op();
  std::vector<const TensorType*> operands, results;
  for (int32_t i = 0; i < node.operand_count(); ++i) operands.push_back(&node.operand(i)->type());
  for (int32_t i = 0; i < node.result_count(); ++i) results.push_back(&node.result(i)->type());
  if (op.flops != nullptr) {
    Dim flops = op.flops(CostContext{node.args(), operands, results});
    return static_cast<double>(std::max<int64_t>(flops.Evaluate(symbols), 0));
  }
  double elements = 0;
  for (const TensorType* result : results) {
    if (result->defined()) elements += static_cast<double>(SizeAt(result->numel(), symbols));
  }
  return elements;
}

bool IsHalf(DType dtype) { return IsFloating(dtype) && ItemSize(dtype) <= 2; }

// The flops of attention count every pair of a query and a key. A causal kernel skips half of them,
// and spends time on exponentials in which no product runs.
double AttentionFactor(const Node& node) {
  constexpr double kReached = 0.55;
  int causal = node.op().schema.Find("is_causal");
  bool skips = causal >= 0 && node.arg(causal) == Argument(true);
  return (skips ? 0.5 : 1.0) / kReached;
}

double KernelFlopsUs(const Node& node, SymbolValues symbols, const DeviceSpeed& device) {
  double flops = FlopsOf(node, symbols);
  const Work work = node.op().work;
  if (work != Work::kProduct && work != Work::kGroupedProduct && work != Work::kAttention) {
    return ArithmeticUs(flops, device.float_tflops);
  }
  bool half = node.operand_count() > 0 && IsHalf(node.operand(0)->type().dtype);
  double us = ArithmeticUs(flops, half ? device.half_tflops : device.float_tflops);
  if (work == Work::kAttention) us *= AttentionFactor(node);
  // Products without enough tiles to fill the device reach less: half of the rate where they would
  // take as long as the shortest kernel.
  return us + device.kernel_us;
}

double CopyUs(const Node& node, SymbolValues symbols, const DeviceSpeed& device) {
  double us = TransferUs(OperandBytes(node, symbols), device.host_link_gb_per_s);
  return us + (FeedsHostRead(*node.result()) ? device.host_read_us : device.kernel_us);
}

// Of anything but a collective.
NodeCost Estimate(const Node& node, SymbolValues symbols, const DeviceSpeed& device) {
  if (node.op().transfer != Transfer::kNone) {
    const double us = CopyUs(node, symbols, device);
    return {.us = us, .link = {.transfer_us = us}};
  }
  const double memory = TransferUs(TrafficOf(node, symbols), device.memory_gb_per_s);
  const double arithmetic = KernelFlopsUs(node, symbols, device);
  return {.us = std::max(memory, arithmetic) + device.kernel_us, .arithmetic_us = arithmetic};
}

double EstimateUs(const Node& node, SymbolValues symbols, const DeviceSpeed& device) {
  return Estimate(node, symbols, device).us;
}

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

// A node that has this key; null for keys that do not say enough (a nested graph, an operator of
// another version).
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
      double estimate = EstimateUs(*graph->first(), {}, device);
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

bool IsCollective(const Operator& op) {
  return op.collective != Collective::kNone && op.collective != Collective::kWait;
}

const std::string& GroupNameOf(const Node& node) {
  return std::get<std::string>(node.arg(node.op().group_arg));
}

class GroupSpans {
 public:
  GroupSpans(const Graph& graph, std::map<std::string, GroupSpan, std::less<>> known,
             int64_t gpus_per_node)
      : spans_(std::move(known)), gpus_per_node_(gpus_per_node) {
    for (const Node* node : graph.nodes()) {
      if (!IsCollective(node->op()) || spans_.contains(GroupNameOf(*node))) continue;
      if (int64_t size = GroupSizeIn(*node); size > 0) {
        spans_[GroupNameOf(*node)] = Consecutive(size);
      }
    }
    for (const auto& [name, span] : spans_) {
      if (span.ranks() > largest_.ranks()) largest_ = span;
    }
  }

  GroupSpan Of(const Node& node) const {
    auto found = spans_.find(GroupNameOf(node));
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
    if (IsCollective(node.op())) return ComputeCollective(node, symbols);
    const NodeCost estimate = Estimate(node, symbols, options_.device);
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

DeviceSpeed SpeedOf(std::string_view generation) {
  if (generation == "cpu") {
    return {.name = "cpu",
            .half_tflops = 0.05,
            .float_tflops = 0.05,
            .memory_gb_per_s = 8,
            .kernel_us = 2,
            .launch_us = 0,
            .host_read_us = 0,
            .host_link_gb_per_s = 8};
  }
  if (generation == "blackwell") {
    return {.name = "blackwell",
            .half_tflops = 1400,
            .float_tflops = 65,
            .memory_gb_per_s = 6200,
            .kernel_us = 3,
            .launch_us = 5,
            .host_read_us = 25,
            .host_link_gb_per_s = 50};
  }
  return {.name = "hopper",
          .half_tflops = 600,
          .float_tflops = 50,
          .memory_gb_per_s = 2600,
          .kernel_us = 3,
          .launch_us = 5,
          .host_read_us = 25,
          .host_link_gb_per_s = 50};
}

bool TakesTime(const Node& node, SymbolValues symbols) {
  const Operator& op = node.op();
  if (op.work == Work::kHost || op.work == Work::kAllocate) return false;
  switch (op.aliasing) {
    case Aliasing::kAlways:
      return false;
    case Aliasing::kNone:
      return true;
    case Aliasing::kMayAlias:
      break;
  }
  const TensorType& from = node.operand(0)->type();
  const TensorType& to = node.result()->type();
  bool looks_into = from.dtype == to.dtype && from.device == to.device &&
                    (from == to || IsRowMajor(from, symbols));
  return !looks_into;
}

int64_t MovedBytes(const Node& node, SymbolValues symbols) {
  const Operator& op = node.op();
  double moved = 0;
  if (op.collective == Collective::kAllGather) {
    moved = ResultBytes(node, symbols);
  } else if (op.collective == Collective::kAllToAll) {
    moved = std::max(OperandBytes(node, symbols), ResultBytes(node, symbols));
  } else if (IsQueued(op) && op.collective != Collective::kWait && op.transfer != Transfer::kWait) {
    moved = OperandBytes(node, symbols);
  }
  return static_cast<int64_t>(moved);
}

std::string CostTable::KeyOf(const Node& node, SymbolValues symbols) {
  if (!TakesTime(node, symbols) || IsCollective(node.op())) return "";
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
    json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
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

std::unique_ptr<CostModel> MakeCostModel(const Graph& graph, CostModelOptions options) {
  return std::make_unique<GraphCostModel>(graph, std::move(options));
}

}  // namespace gt
