#include "gt/sim/live_memory.h"

#include <algorithm>

#include "gt/sim/memory_curve.h"

namespace gt {
namespace {

bool IsLaunch(const Node& node) {
  return node.op().collective != Collective::kNone && node.op().collective != Collective::kWait;
}

DeviceKind DeviceOf(const Graph& graph) {
  auto on_gpu = [](const Value& value) { return value.type().device.kind == DeviceKind::kCuda; };
  for (const auto& input : graph.inputs()) {
    if (on_gpu(input->value)) return DeviceKind::kCuda;
  }
  for (const Node* node : graph.nodes()) {
    for (int32_t i = 0; i < node->result_count(); ++i) {
      if (on_gpu(*node->result(i))) return DeviceKind::kCuda;
    }
  }
  return DeviceKind::kCpu;
}

}  // namespace

// Finds storages and who touches them.
class LiveMemory::Walk {
 public:
  Walk(LiveMemory& memory, const Graph& graph)
      : memory_(memory), device_(DeviceOf(graph)), hints_(graph.shapes().Hints()) {
    for (const auto& input : graph.inputs()) {
      if (input->value.type().device.kind != device_) continue;
      memory_.input_bytes_ += BytesOf(input->value.type());
    }
    for (const Node* node : graph.nodes()) Visit(*node);
    for (const auto& output : graph.outputs()) KeepToTheEnd(StorageOf(*output->value()));
    for (const Flight& flight : flights_) {
      if (flight.waited) continue;  // otherwise whoever takes the outputs waits
      for (int32_t storage : flight.storages) KeepToTheEnd(storage);
    }
  }

 private:
  static constexpr int32_t kElsewhere = -1;  // an input, or another device

  // A collective between its launch and its wait: what it reads and writes is held.
  struct Flight {
    std::vector<int32_t> storages;
    bool waited = false;
  };

  int32_t StorageOf(const Value& value) const {
    if (value.is_input()) return kElsewhere;
    auto first = first_value_[static_cast<size_t>(value.producer()->number())];
    return storage_of_[static_cast<size_t>(first + value.index())];
  }

  int64_t BytesOf(const TensorType& type) const {
    const int64_t bytes = StorageBytes(type, hints_);
    if (device_ != DeviceKind::kCuda) return bytes;
    const int64_t unit = MemoryOptions().cuda_rounding;
    return (bytes + unit - 1) / unit * unit;
  }

  void Visit(const Node& node) {
    first_value_.push_back(static_cast<int32_t>(storage_of_.size()));
    memory_.own_.push_back(device_ == DeviceKind::kCpu ? ScratchBytes(node, hints_) : 0);
    std::vector<int32_t> touched;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      touched.push_back(StorageOf(*node.operand(i)));
    }
    for (int32_t i = 0; i < node.result_count(); ++i) {
      storage_of_.push_back(FindOrAllocate(*node.result(i)));
      touched.push_back(storage_of_.back());
    }
    if (IsLaunch(node)) TakeOff(node, touched);
    if (node.op().collective == Collective::kWait) Land(StorageOf(*node.operand(0)), touched);
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (int32_t storage : touched) {
      if (storage == kElsewhere) continue;
      memory_.touched_.entries.push_back(storage);
      ++memory_.touches_[static_cast<size_t>(storage)];
    }
    memory_.allocated_.EndRow();
    memory_.touched_.EndRow();
  }

  int32_t FindOrAllocate(const Value& result) {
    if (const Value* viewed = LooksInto(result, hints_)) return StorageOf(*viewed);
    const bool to_host = result.producer()->op().transfer == Transfer::kOffload;
    if (to_host || result.type().device.kind != device_) return kElsewhere;
    const auto storage = static_cast<int32_t>(memory_.bytes_.size());
    memory_.allocated_.entries.push_back(storage);
    memory_.bytes_.push_back(BytesOf(result.type()));
    memory_.own_.back() += memory_.bytes_.back();
    memory_.touches_.push_back(0);
    flight_of_.push_back(-1);
    return storage;
  }

  void TakeOff(const Node& node, const std::vector<int32_t>& touched) {
    for (int32_t i = 0; i < node.result_count(); ++i) {
      const int32_t storage = StorageOf(*node.result(i));
      if (storage == kElsewhere) continue;
      flight_of_[static_cast<size_t>(storage)] = static_cast<int32_t>(flights_.size());
    }
    flights_.push_back({touched});
  }

  void Land(int32_t storage, std::vector<int32_t>& touched) {
    if (storage == kElsewhere || flight_of_[static_cast<size_t>(storage)] < 0) return;
    Flight& flight = flights_[static_cast<size_t>(flight_of_[static_cast<size_t>(storage)])];
    flight.waited = true;
    touched.insert(touched.end(), flight.storages.begin(), flight.storages.end());
  }

  // One touch that never comes.
  void KeepToTheEnd(int32_t storage) {
    if (storage != kElsewhere) ++memory_.touches_[static_cast<size_t>(storage)];
  }

  LiveMemory& memory_;
  DeviceKind device_;
  SymbolValues hints_;
  // By number of the node: where its first result is in storage_of_, the others behind it.
  std::vector<int32_t> first_value_;
  std::vector<int32_t> storage_of_;
  std::vector<int32_t> flight_of_;  // by storage: the collective that writes it; -1: none
  std::vector<Flight> flights_;
};

LiveMemory::LiveMemory(const Graph& graph) {
  Walk(*this, graph);
  Restart();
}

void LiveMemory::Restart() {
  remaining_ = touches_;
  alive_ = peak_ = 0;
}

int64_t LiveMemory::Run(int32_t node) {
  auto each = [node](const Table& table, auto&& visit) {
    auto row = static_cast<size_t>(node);
    for (int32_t i = table.begin[row]; i < table.begin[row + 1]; ++i) {
      visit(static_cast<size_t>(table.entries[static_cast<size_t>(i)]));
    }
  };
  const int64_t during = IfNext(node);
  peak_ = std::max(peak_, during);
  each(allocated_, [this](size_t storage) { alive_ += bytes_[storage]; });
  each(touched_, [this](size_t storage) {
    if (--remaining_[storage] == 0) alive_ -= bytes_[storage];
  });
  return during;
}

int64_t PeakInUse(Graph& graph) {
  const int32_t count = graph.NumberNodes();
  LiveMemory memory(graph);
  for (int32_t node = 0; node < count; ++node) memory.Run(node);
  return memory.peak();
}

}  // namespace gt
