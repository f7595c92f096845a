#include "gt/sim/memory_curve.h"

#include <algorithm>
#include <memory>

#include "gt/analysis/collectives.h"
#include "gt/ir/checked_math.h"
#include "gt/sim/live_memory.h"
#include "gt/sim/recorded_memory.h"
#include "gt/sim/storages.h"
#include "gt/sim/type_sizes.h"

namespace gt {
namespace {

// What the category of a storage depends on.
struct Track {
  uint8_t output_roles = 0;    // a bit for each OutputRole
  bool of_parameters = false;  // a parameter, or made of parameters alone
  bool gathered = false;
  bool before_backward = false;
  bool used_in_backward = false;
  bool communicated = false;

  bool HasRole(OutputRole role) const { return (output_roles >> static_cast<int>(role) & 1) != 0; }
};

MemoryCategory CategoryOf(InputRole role) {
  switch (role) {
    case InputRole::kParameter:
      return MemoryCategory::kParameter;
    case InputRole::kBuffer:
      return MemoryCategory::kBuffer;
    case InputRole::kInput:
      return MemoryCategory::kInput;
    case InputRole::kConstant:
      return MemoryCategory::kConstant;
  }
  return MemoryCategory::kInput;
}

MemoryCategory CategoryOf(const Track& track) {
  if (track.HasRole(OutputRole::kBufferUpdate)) return MemoryCategory::kBuffer;
  if (track.HasRole(OutputRole::kGradient)) return MemoryCategory::kGradient;
  if (track.of_parameters) {
    return track.gathered ? MemoryCategory::kGathered : MemoryCategory::kCast;
  }
  if ((track.before_backward && track.used_in_backward) || track.HasRole(OutputRole::kSaved)) {
    return MemoryCategory::kSaved;
  }
  if (track.communicated) return MemoryCategory::kCommunication;
  return track.output_roles != 0 ? MemoryCategory::kOutput : MemoryCategory::kTemporary;
}

// The category of each storage, found in one walk through the graph.
class Categories {
 public:
  Categories(const Graph& graph, const StorageTable& storages)
      : graph_(graph), storages_(storages), tracks_(storages.storages().size()) {
    for (const auto& input : graph.inputs()) {
      TrackOf(input->value).of_parameters = input->role == InputRole::kParameter;
    }
    for (const Node* node : graph.nodes()) Visit(*node);
    for (const auto& output : graph.outputs()) {
      TrackOf(*output->value()).output_roles |=
          static_cast<uint8_t>(1U << static_cast<int>(output->role));
    }
  }

  MemoryCategory Of(size_t storage) const {
    if (storage < graph_.inputs().size()) return CategoryOf(graph_.inputs()[storage]->role);
    return CategoryOf(tracks_[storage]);
  }

 private:
  Track& TrackOf(const Value& value) {
    return tracks_[static_cast<size_t>(storages_.StorageOf(value))];
  }

  void Visit(const Node& node) {
    const bool backward = node.meta().phase == Phase::kBackward;
    const bool communicates = LaunchesCollective(node.op());
    bool of_parameters = node.operand_count() > 0 && !node.op().random;
    bool gathered = node.op().collective == Collective::kAllGather;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      Track& operand = TrackOf(*node.operand(i));
      operand.used_in_backward |= backward;
      operand.communicated |= communicates;
      of_parameters &= operand.of_parameters;
      gathered |= operand.gathered;
    }
    for (const Storage& storage : storages_.AllocatedBy(node.number())) {
      Track& track = tracks_[static_cast<size_t>(&storage - storages_.storages().data())];
      track.communicated = communicates;
      if (storage.is_sum_buffer) continue;
      track.of_parameters = of_parameters;
      track.gathered = gathered;
      track.before_backward = !backward;
      if (node.op().transfer == Transfer::kReload) {  // a saved value that is back
        track.before_backward = track.used_in_backward = true;
      }
    }
  }

  const Graph& graph_;
  const StorageTable& storages_;
  std::vector<Track> tracks_;  // by storage
};

int64_t Sum(const CategoryBytes& categories) {
  int64_t sum = 0;
  for (int64_t bytes : categories) sum = CheckedAdd(sum, bytes);
  return sum;
}

void AddTo(CategoryBytes& categories, MemoryCategory category, int64_t bytes) {
  int64_t& sum = categories[static_cast<size_t>(category)];
  sum = CheckedAdd(sum, bytes);
}

// What is alive from the beginning of the step to its end.
CategoryBytes ConstantBytes(const Graph& graph, const MemoryCurve& curve,
                            const MemoryOptions& options) {
  CategoryBytes constant = {};
  if (curve.device == DeviceKind::kCuda) {
    AddTo(constant, MemoryCategory::kWorkspace, options.cuda_workspace_bytes);
    AddTo(constant, MemoryCategory::kCommunicator, CommunicatorBytes(graph, options.communicators));
  } else if (options.gloo) {
    AddTo(constant, MemoryCategory::kCommunicator,
          GatherBufferBytes(graph, *options.gloo, curve.symbols));
  }
  for (const StorageLife& life : curve.storages) {
    if (life.first < 0) AddTo(constant, life.category, life.bytes);
    if (life.category == MemoryCategory::kParameter) {
      int64_t elements = ElementsOf(life.value->type(), curve.symbols);
      AddTo(constant, MemoryCategory::kOptimizer,
            CheckedMultiply(elements, options.optimizer_bytes_per_element));
    }
    if (life.category == MemoryCategory::kGradient && options.accumulates_gradients) {
      AddTo(constant, MemoryCategory::kGradient, life.bytes);
    }
  }
  return constant;
}

// What a checkpoint is made of.
int64_t StateBytes(const CategoryBytes& constant) {
  int64_t bytes = 0;
  for (const MemoryCategory category :
       {MemoryCategory::kParameter, MemoryCategory::kOptimizer, MemoryCategory::kBuffer}) {
    bytes = CheckedAdd(bytes, constant[static_cast<size_t>(category)]);
  }
  return bytes;
}

// What is alive at curve.peak_position.
void ListAlive(MemoryCurve& curve) {
  curve.at_peak = curve.constant;
  curve.alive_at_peak.clear();
  for (size_t i = 0; i < curve.storages.size(); ++i) {
    const StorageLife& life = curve.storages[i];
    if (!life.AliveAt(curve.peak_position)) continue;
    curve.alive_at_peak.push_back(static_cast<int32_t>(i));
    if (life.first >= 0) AddTo(curve.at_peak, life.category, life.bytes);
  }
  if (curve.peak_position >= 0) {
    AddTo(curve.at_peak, MemoryCategory::kTemporary,
          curve.scratch[static_cast<size_t>(curve.peak_position)]);
  }
  std::stable_sort(curve.alive_at_peak.begin(), curve.alive_at_peak.end(),
                   [&curve](int32_t a, int32_t b) {
                     return curve.storages[static_cast<size_t>(a)].bytes >
                            curve.storages[static_cast<size_t>(b)].bytes;
                   });
}

void AddStorages(const Graph& graph, const StorageTable& table, MemoryCurve& curve) {
  const Categories categories(graph, table);
  for (size_t i = 0; i < table.storages().size(); ++i) {
    const Storage& storage = table.storages()[i];
    // Results that libtorch leaves undefined, and empty ones, are no memory.
    if (!storage.IsIn(curve.device) || storage.bytes == 0) continue;
    curve.storages.push_back(
        {storage.value, storage.bytes, storage.first, storage.last, categories.Of(i)});
  }
}

void AddConstant(const Graph& graph, const MemoryOptions& options, MemoryCurve& curve) {
  curve.constant = ConstantBytes(graph, curve, options);
  if (options.copies_state) curve.state_copies = StateBytes(curve.constant);
  if (curve.device == DeviceKind::kCpu) {
    AddTo(curve.constant, MemoryCategory::kCheckpoint, curve.state_copies);
  }
}

void RunInOrder(const std::shared_ptr<const StorageTable>& table, MemoryCurve& curve) {
  const int64_t constant = Sum(curve.constant);
  LiveMemory memory(table, curve.device), elsewhere(table, curve.device, /*inside=*/false);
  const auto count = static_cast<size_t>(table->node_count());
  curve.during.reserve(count);
  curve.after.reserve(count);
  curve.scratch.reserve(count);
  for (int32_t node = 0; node < table->node_count(); ++node) {
    curve.during.push_back(CheckedAdd(constant, memory.Run(node)));
    curve.after.push_back(constant + memory.alive());
    curve.scratch.push_back(memory.scratch(node));
    elsewhere.Run(node);
  }
  curve.elsewhere_peak = CheckedAdd(elsewhere.input_bytes(), elsewhere.peak());
  if (curve.device != DeviceKind::kCpu) {
    curve.elsewhere_peak = CheckedAdd(curve.elsewhere_peak, curve.state_copies);
  }
}

void FindPeak(const Graph& graph, MemoryCurve& curve) {
  curve.peak = Sum(curve.constant);
  if (auto highest = std::max_element(curve.during.begin(), curve.during.end());
      highest != curve.during.end()) {
    LookAt(graph, static_cast<int32_t>(highest - curve.during.begin()), curve);
    return;
  }
  ListAlive(curve);
}

void AddRecordings(const Graph& graph, const StorageTable& table, const MemoryOptions& options,
                   MemoryCurve& curve) {
  curve.recorded_peak = curve.peak;
  if (!options.recordings || curve.device != DeviceKind::kCuda) return;
  const RecordedMemory recorded = MeasureRecorded(graph, table, curve.device, *options.recordings,
                                                  options.cuda_workspace_bytes);
  curve.recording_pool = recorded.pool;
  curve.recording_reserve = recorded.reserve;
  const int64_t both = CheckedAdd(curve.recording_pool, recorded.rest);
  curve.recorded_peak = std::max(curve.peak, CheckedAdd(Sum(curve.constant), both));
}

}  // namespace

void LookAt(const Graph& graph, int32_t position, MemoryCurve& curve) {
  curve.peak = curve.during[static_cast<size_t>(position)];
  curve.peak_position = position;
  curve.peak_node = graph.first();
  for (int32_t i = 0; i < position; ++i) curve.peak_node = curve.peak_node->next();
  ListAlive(curve);
}

int64_t AllocatedPeak(const MemoryCurve& curve) {
  return curve.peak - curve.constant[static_cast<size_t>(MemoryCategory::kCommunicator)];
}

MemoryCurve MeasureMemory(const Graph& graph, const MemoryOptions& options) {
  const auto table = std::make_shared<StorageTable>(
      graph, StorageOptions{.cuda_rounding = options.cuda_rounding,
                            .gloo = options.gloo ? &*options.gloo : nullptr,
                            .symbols = options.symbols});
  MemoryCurve curve;
  curve.device = options.device.value_or(table->device());
  curve.symbols.assign(table->symbols().begin(), table->symbols().end());
  AddStorages(graph, *table, curve);
  AddConstant(graph, options, curve);
  RunInOrder(table, curve);
  FindPeak(graph, curve);
  AddRecordings(graph, *table, options, curve);
  return curve;
}

}  // namespace gt
