#include "gt/passes/live_memory.h"

#include <algorithm>
#include <unordered_map>

#include "gt/passes/aliasing.h"
#include "gt/sim/memory_curve.h"

namespace gt {
namespace {

bool IsLaunch(const Node& node) {
  return node.op().collective != Collective::kNone && node.op().collective != Collective::kWait;
}

DeviceKind DeviceOf(const Graph& graph) {
  for (const auto& input : graph.inputs()) {
    if (input->value.type().device.kind == DeviceKind::kCuda) return DeviceKind::kCuda;
  }
  return DeviceKind::kCpu;
}

}  // namespace

LiveMemory::LiveMemory(const Graph& graph) {
  constexpr int32_t kElsewhere = -1;  // an input, or another device
  const DeviceKind device = DeviceOf(graph);
  const SymbolValues hints = graph.shapes().Hints();
  // By number of the node: storage of its first result, the others behind it. Views of operands are
  // looked up, so results get a number each.
  std::vector<int32_t> first_value;
  std::vector<int32_t> storage_of;
  auto storage = [&](const Value& value) {
    if (value.is_input()) return kElsewhere;
    auto first = first_value[static_cast<size_t>(value.producer()->number())];
    return storage_of[static_cast<size_t>(first + value.index())];
  };
  // What a collective reads and writes is held until its wait.
  std::unordered_map<const Node*, std::vector<int32_t>> in_flight;
  for (const Node* node : graph.nodes()) {
    first_value.push_back(static_cast<int32_t>(storage_of.size()));
    std::vector<int32_t> touched;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      touched.push_back(storage(*node->operand(i)));
    }
    for (int32_t i = 0; i < node->result_count(); ++i) {
      const Value& result = *node->result(i);
      if (const Value* viewed = ViewedValue(result)) {
        storage_of.push_back(storage(*viewed));
      } else if (result.type().device.kind != device) {
        storage_of.push_back(kElsewhere);
      } else {
        storage_of.push_back(static_cast<int32_t>(bytes_.size()));
        allocated_.entries.push_back(storage_of.back());
        bytes_.push_back(StorageBytes(result.type(), hints));
        touches_.push_back(0);
      }
      touched.push_back(storage_of.back());
    }
    int64_t own = 0;
    for (auto i = static_cast<size_t>(allocated_.begin.back()); i < allocated_.entries.size();
         ++i) {
      own += bytes_[static_cast<size_t>(allocated_.entries[i])];
    }
    own_.push_back(own);
    if (IsLaunch(*node)) in_flight[node] = touched;
    if (node->op().collective == Collective::kWait) {
      auto found = in_flight.find(node->operand(0)->producer());
      if (found != in_flight.end()) {
        touched.insert(touched.end(), found->second.begin(), found->second.end());
      }
    }
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (int32_t each : touched) {
      if (each == kElsewhere) continue;
      touched_.entries.push_back(each);
      ++touches_[static_cast<size_t>(each)];
    }
    allocated_.EndRow();
    touched_.EndRow();
  }
  for (const auto& input : graph.inputs()) {
    if (input->value.type().device.kind == device) {
      input_bytes_ += StorageBytes(input->value.type(), hints);
    }
  }
  // One touch that never comes.
  for (const auto& output : graph.outputs()) {
    int32_t kept = storage(*output->value());
    if (kept != kElsewhere) ++touches_[static_cast<size_t>(kept)];
  }
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
  each(allocated_, [this](size_t storage) { alive_ += bytes_[storage]; });
  const int64_t during = alive_;
  peak_ = std::max(peak_, during);
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
