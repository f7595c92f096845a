#include "gt/sim/storages.h"

#include <algorithm>
#include <limits>

#include "gt/analysis/aliasing.h"
#include "gt/analysis/collectives.h"
#include "gt/base/error.h"
#include "gt/ir/checked_math.h"
#include "gt/ir/text.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

int64_t RoundedUp(int64_t bytes, int64_t unit) {
  int64_t rest = bytes % unit;
  return rest == 0 ? bytes : CheckedAdd(bytes, unit - rest);
}

// Whether an operator that looks into its argument where it can really does so here.
bool SharesMemory(const Value& value, const Value& viewed, SymbolValues symbols) {
  const TensorType& from = viewed.type();
  const TensorType& to = value.type();
  if (value.producer()->op().aliasing == Aliasing::kAlways) return true;
  if (from.dtype != to.dtype || from.device != to.device) return false;
  return from == to || IsRowMajor(from, symbols);
}

// The value whose memory this one is a part of at these sizes; null if its producer allocates.
const Value* LooksInto(const Value& value, SymbolValues symbols) {
  const Value* viewed = ViewedValue(value);
  return viewed != nullptr && SharesMemory(value, *viewed, symbols) ? viewed : nullptr;
}

bool ConvertsOperands(const Node& node) {
  return node.op().converts_operands && node.result()->type().device.kind == DeviceKind::kCpu;
}

bool RunsOn(const Node& node, DeviceKind device) {
  return node.result_count() > 0 && node.result(0)->type().device.kind == device;
}

int64_t ScratchBytes(const Node& node, SymbolValues symbols) {
  if (const CostRule rule = node.op().scratch) return SizeAt(CostOf(node, rule), symbols);
  if (!ConvertsOperands(node)) return 0;
  const DType dtype = node.result()->type().dtype;
  int64_t bytes = 0;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const TensorType& operand = node.operand(i)->type();
    if (operand.dtype == dtype || operand.rank() == 0) continue;
    bytes = CheckedAdd(bytes, CheckedMultiply(ElementsOf(operand, symbols), ItemSize(dtype)));
  }
  return bytes;
}

}  // namespace

// One walk through the graph: storages are found as nodes allocate them, and their lives grow with
// every use.
class StorageTable::Builder {
 public:
  Builder(StorageTable& table, const Graph& graph, const StorageOptions& options)
      : table_(table), graph_(graph), options_(options) {
    const auto count = static_cast<size_t>(graph.node_count());
    table_.storages_.reserve(count + graph.inputs().size());
    table_.scratch_.reserve(count);
    table_.awaited_.reserve(count);
    table_.held_.begin.reserve(count + 1);
    for (const auto& input : graph.inputs()) {
      const Value& value = input->value;
      KeepToTheEnd(Append({&value, BytesOf(value), value.type().device.kind}));
    }
    table_.allocated_.reserve(count + 1);
    table_.allocated_.push_back(static_cast<int32_t>(table_.storages_.size()));
    for (const Node* node : graph.nodes()) Visit(*node);
    for (const auto& output : graph.outputs()) KeepToTheEnd(table_.StorageOf(*output->value()));
    ExtendOverFlights();
    for (const Node* node : graph.nodes()) {
      if (!RunsOn(*node, table_.device_)) table_.scratch_[StorageTable::At(node->number())] = 0;
    }
  }

 private:
  Storage& At(int32_t storage) { return table_.storages_[StorageTable::At(storage)]; }

  int32_t Append(const Storage& storage) {
    if (storage.device == DeviceKind::kCuda) table_.device_ = DeviceKind::kCuda;
    table_.storages_.push_back(storage);
    table_.holds_.push_back(0);
    written_by_.push_back(-1);
    return static_cast<int32_t>(table_.storages_.size()) - 1;
  }

  int64_t BytesOf(const Value& value) const {
    try {
      const int64_t bytes = StorageBytes(value.type(), table_.symbols_);
      const bool rounded =
          value.type().device.kind == DeviceKind::kCuda && options_.cuda_rounding > 1;
      return rounded ? RoundedUp(bytes, options_.cuda_rounding) : bytes;
    } catch (const Error& error) {
      Fail(error.code(), "the size of %{}, a {}: {}", value.name(),
           Print(value.type(), graph_.shapes()), error.message());
    }
  }

  void Visit(const Node& node) {
    table_.awaited_.push_back(-1);
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      Hold(table_.StorageOf(*node.operand(i)), node.number());
    }
    if (node.op().collective == Collective::kWait) Wait(node);
    for (int32_t i = 0; i < node.result_count(); ++i) {
      const Value& result = *node.result(i);
      table_.storage_of_[result] = FindOrAllocate(result);
      Hold(table_.StorageOf(result), node.number());
    }
    if (LaunchesCollective(node.op())) Launch(node);
    table_.held_.EndRow();
    table_.allocated_.push_back(static_cast<int32_t>(table_.storages_.size()));
    table_.scratch_.push_back(ScratchBytes(node, table_.symbols_));
  }

  int32_t FindOrAllocate(const Value& result) {
    if (const Value* viewed = LooksInto(result, table_.symbols_)) return table_.StorageOf(*viewed);
    const Node& node = *result.producer();
    return Append({.value = &result,
                   .bytes = BytesOf(result),
                   .device = result.type().device.kind,
                   .offloaded = node.op().transfer == Transfer::kOffload,
                   .first = node.number(),
                   .last = node.number()});
  }

  void Hold(int32_t storage, int32_t node) {
    const bool again = At(storage).last == node && table_.holds_[StorageTable::At(storage)] > 0;
    if (IsInput(storage) || again) return;
    table_.held_.entries.push_back(storage);
    At(storage).last = node;
    ++table_.holds_[StorageTable::At(storage)];
  }

  bool IsInput(int32_t storage) const { return storage < table_.allocated_.front(); }

  // One hold that nobody lets go of.
  void KeepToTheEnd(int32_t storage) {
    At(storage).last = static_cast<int32_t>(graph_.node_count());
    ++table_.holds_[StorageTable::At(storage)];
  }

  // What the collective reads and writes is held until its wait.
  void Launch(const Node& node) {
    const auto collective = static_cast<int32_t>(table_.waits_.size());
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      HoldInFlight(table_.StorageOf(*node.operand(i)));
    }
    for (int32_t i = 0; i < node.result_count(); ++i) {
      const int32_t storage = table_.StorageOf(*node.result(i));
      HoldInFlight(storage);
      written_by_[StorageTable::At(storage)] = collective;
    }
    if (options_.gloo != nullptr) AllocateSumBuffer(node);
    table_.in_flight_.EndRow();
    table_.waits_.push_back(0);
  }

  void HoldInFlight(int32_t storage) {
    if (IsInput(storage)) return;
    table_.in_flight_.entries.push_back(storage);
    ++table_.holds_[StorageTable::At(storage)];
  }

  // What gloo takes for the collective, as a storage beside that of its first result.
  void AllocateSumBuffer(const Node& node) {
    const Value& result = *node.result(0);
    if (result.type().device.kind != DeviceKind::kCpu) return;
    const int64_t bytes = OrderedSumBytes(node, *options_.gloo, table_.symbols_);
    if (bytes == 0) return;
    HoldInFlight(Append({.value = &result,
                         .bytes = bytes,
                         .is_sum_buffer = true,
                         .first = node.number(),
                         .last = node.number()}));
  }

  void Wait(const Node& node) {
    const int32_t storage = table_.StorageOf(*node.operand(0));
    const int32_t collective = written_by_[StorageTable::At(storage)];
    if (collective < 0) return;
    table_.awaited_.back() = collective;
    ++table_.waits_[StorageTable::At(collective)];
  }

  // A collective that the graph does not wait for is waited for by whoever takes the outputs.
  void ExtendOverFlights() {
    const auto end = static_cast<int32_t>(graph_.node_count());
    std::vector<int32_t> last_wait(table_.waits_.size(), end);
    for (int32_t node = 0; node < end; ++node) {
      const int32_t collective = table_.AwaitedBy(node);
      if (collective >= 0) last_wait[StorageTable::At(collective)] = node;
    }
    for (size_t i = 0; i < last_wait.size(); ++i) {
      for (int32_t storage : table_.HeldInFlight(static_cast<int32_t>(i))) {
        At(storage).last = std::max(At(storage).last, last_wait[i]);
      }
    }
  }

  StorageTable& table_;
  const Graph& graph_;
  const StorageOptions& options_;
  std::vector<int32_t> written_by_;  // by storage: the last collective that writes it; -1: none
};

namespace {

const Graph& Numbered(const Graph& graph) {
  const_cast<Graph&>(graph).NumberNodes();
  return graph;
}

}  // namespace

StorageTable::StorageTable(const Graph& graph, const StorageOptions& options)
    : symbols_(options.symbols), storage_of_(Numbered(graph)) {
  GT_CHECK(graph.node_count() < std::numeric_limits<int32_t>::max(), "{} nodes",
           graph.node_count());
  if (symbols_.empty()) {
    const SymbolValues hints = graph.shapes().Hints();
    symbols_.assign(hints.begin(), hints.end());
  }
  Builder(*this, graph, options);
}

}  // namespace gt
