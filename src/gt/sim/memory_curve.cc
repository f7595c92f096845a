#include "gt/sim/memory_curve.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "gt/analysis/aliasing.h"
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

int64_t ElementsOf(const TensorType& type, SymbolValues hints) {
  int64_t elements = 1;
  for (const Dim& size : type.sizes) elements = CheckedMultiply(elements, SizeAt(size, hints));
  return elements;
}

// Whether an operator that looks into its argument where it can really does so here.
bool SharesMemory(const Value& value, const Value& viewed, SymbolValues hints) {
  const TensorType& from = viewed.type();
  const TensorType& to = value.type();
  if (AliasingOf(value.producer()->op()) == Aliasing::kAlways) return true;
  if (from.dtype != to.dtype || from.device != to.device) return false;
  return from == to || IsRowMajor(from, hints);
}

// TensorIterator computes in one dtype. On the CPU it makes copies of operands in another one; CUDA
// kernels convert as they read.
bool ConvertsOperands(const Node& node) {
  static const std::array<const Operator*, 4> kOperators = {
      FindOperator("aten::add.Tensor"), FindOperator("aten::sub.Tensor"),
      FindOperator("aten::mul.Tensor"), FindOperator("aten::div.Tensor")};
  return node.result_count() == 1 && node.result()->type().device.kind == DeviceKind::kCpu &&
         std::find(kOperators.begin(), kOperators.end(), &node.op()) != kOperators.end();
}

// A storage and what its category depends on.
struct Track {
  StorageLife life;
  DeviceKind device = DeviceKind::kCpu;
  bool host = false;           // moved out of the device's memory
  int32_t flight = -1;         // the collective that writes it
  uint8_t output_roles = 0;    // a bit for each OutputRole
  bool of_parameters = false;  // a parameter, or made of parameters alone
  bool gathered = false;
  bool before_backward = false;
  bool used_in_backward = false;
  bool communicated = false;

  bool HasRole(OutputRole role) const { return (output_roles >> static_cast<int>(role) & 1) != 0; }
};

// A collective between its call and its wait.
struct Flight {
  std::vector<int32_t> storages;  // what it reads and writes
  int32_t last_wait = -1;
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

// One walk through the graph: storages are found as nodes allocate them, and their lives grow with
// every use.
class StorageWalk {
 public:
  StorageWalk(const Graph& graph, const MemoryOptions& options)
      : graph_(graph), options_(options), hints_(options.symbols) {
    if (hints_.empty()) hints_.assign(graph.shapes().Hints().begin(), graph.shapes().Hints().end());
    auto values = static_cast<size_t>(graph.node_count()) + graph.inputs().size();
    storage_of_.reserve(values);
    tracks_.reserve(values);
    for (const auto& input : graph.inputs()) AddInput(*input);
    scratch_.reserve(static_cast<size_t>(graph.node_count()));
    for (const Node* node : graph.nodes()) {
      Visit(*node);
      scratch_.push_back(ScratchBytes(*node, hints_));
      ++position_;
    }
    for (const auto& output : graph.outputs()) KeepOutput(*output);
    EndFlights();
    for (Track& track : tracks_) {
      if (track.life.first >= 0) track.life.category = CategoryOf(track);
    }
  }

  const std::vector<Track>& tracks() const { return tracks_; }
  const std::vector<int64_t>& scratch() const { return scratch_; }
  int32_t node_count() const { return position_; }
  const std::vector<int64_t>& hints() const { return hints_; }

 private:
  int32_t StorageOf(const Value* value) const { return storage_of_.at(value); }
  Track& TrackOf(const Value* value) { return tracks_[static_cast<size_t>(StorageOf(value))]; }

  Track& Allocate(const Value& value, int32_t first) {
    storage_of_.emplace(&value, static_cast<int32_t>(tracks_.size()));
    Track& track = tracks_.emplace_back();
    track.device = value.type().device.kind;
    track.life = {&value, BytesOf(value), first, first};
    return track;
  }

  int64_t BytesOf(const Value& value) const {
    try {
      int64_t bytes = StorageBytes(value.type(), hints_);
      bool rounded = value.type().device.kind == DeviceKind::kCuda && options_.cuda_rounding > 1;
      return rounded ? RoundedUp(bytes, options_.cuda_rounding) : bytes;
    } catch (const Error& error) {
      Fail(error.code(), "the size of %{}, a {}: {}", value.name(),
           Print(value.type(), graph_.shapes()), error.message());
    }
  }

  void AddInput(const Input& input) {
    Track& track = Allocate(input.value, -1);
    track.life.last = static_cast<int32_t>(graph_.node_count());
    track.life.category = CategoryOf(input.role);
    track.of_parameters = input.role == InputRole::kParameter;
  }

  void Visit(const Node& node) {
    bool backward = node.meta().phase == Phase::kBackward;
    bool communicates =
        node.op().collective != Collective::kNone && node.op().collective != Collective::kWait;
    bool of_parameters = node.operand_count() > 0 && !node.op().random;
    bool gathered = node.op().collective == Collective::kAllGather;
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      Track& operand = TrackOf(node.operand(i));
      operand.life.last = std::max(operand.life.last, position_);
      operand.used_in_backward |= backward;
      operand.communicated |= communicates;
      of_parameters &= operand.of_parameters;
      gathered |= operand.gathered;
    }
    if (node.op().collective == Collective::kWait) Land(TrackOf(node.operand(0)));
    for (int32_t i = 0; i < node.result_count(); ++i) {
      const Value& result = *node.result(i);
      if (IsPartOfOperand(result)) continue;
      Track& track = Allocate(result, position_);
      track.of_parameters = of_parameters;
      track.gathered = gathered;
      track.before_backward = !backward;
      track.communicated = communicates;
      track.host = node.op().transfer == Transfer::kOffload;
      if (node.op().transfer == Transfer::kReload) {  // a saved value that is back
        track.before_backward = track.used_in_backward = true;
      }
    }
    if (communicates) TakeOff(node);
  }

  // Gives a view its base's storage.
  bool IsPartOfOperand(const Value& result) {
    const Value* viewed = LooksInto(result, hints_);
    if (viewed == nullptr) return false;
    storage_of_.emplace(&result, StorageOf(viewed));
    return true;
  }

  void TakeOff(const Node& node) {
    auto number = static_cast<int32_t>(flights_.size());
    Flight& flight = flights_.emplace_back();
    for (int32_t i = 0; i < node.operand_count(); ++i) {
      flight.storages.push_back(StorageOf(node.operand(i)));
    }
    for (int32_t i = 0; i < node.result_count(); ++i) {
      flight.storages.push_back(StorageOf(node.result(i)));
      TrackOf(node.result(i)).flight = number;
    }
    if (options_.gloo) AddOrderedSum(node, flight);
  }

  // What gloo takes for the collective, as a storage beside that of its first result.
  void AddOrderedSum(const Node& node, Flight& flight) {
    const Value& result = *node.result(0);
    if (result.type().device.kind != DeviceKind::kCpu) return;
    const int64_t bytes = OrderedSumBytes(node, *options_.gloo, hints_);
    if (bytes == 0) return;
    flight.storages.push_back(static_cast<int32_t>(tracks_.size()));
    Track& track = tracks_.emplace_back();
    track.device = DeviceKind::kCpu;
    track.communicated = true;
    track.life = {&result, bytes, position_, position_};
  }

  void Land(const Track& track) {
    if (track.flight >= 0) flights_[static_cast<size_t>(track.flight)].last_wait = position_;
  }

  void KeepOutput(const Output& output) {
    Track& track = TrackOf(output.value());
    track.life.last = position_;
    track.output_roles |= static_cast<uint8_t>(1U << static_cast<int>(output.role));
  }

  // A collective that the graph does not wait for is waited for by whoever takes the outputs.
  void EndFlights() {
    for (const Flight& flight : flights_) {
      int32_t end = flight.last_wait >= 0 ? flight.last_wait : position_;
      for (int32_t storage : flight.storages) {
        int32_t& last = tracks_[static_cast<size_t>(storage)].life.last;
        last = std::max(last, end);
      }
    }
  }

  const Graph& graph_;
  const MemoryOptions& options_;
  std::vector<int64_t> hints_;
  std::unordered_map<const Value*, int32_t> storage_of_;
  std::vector<Track> tracks_;
  std::vector<Flight> flights_;
  std::vector<int64_t> scratch_;  // by position
  int32_t position_ = 0;          // of the node being visited; their count at the end
};

DeviceKind MeasuredDevice(const std::vector<Track>& tracks) {
  bool cuda = std::any_of(tracks.begin(), tracks.end(),
                          [](const Track& track) { return track.device == DeviceKind::kCuda; });
  return cuda ? DeviceKind::kCuda : DeviceKind::kCpu;
}

// Bytes alive during and after each node, without what is alive all the time.
class Sweep {
 public:
  explicit Sweep(int32_t node_count)
      : allocated_(static_cast<size_t>(node_count)), freed_(static_cast<size_t>(node_count)) {}

  void Add(const StorageLife& life) {
    auto first = static_cast<size_t>(life.first), last = static_cast<size_t>(life.last);
    allocated_[first] = CheckedAdd(allocated_[first], life.bytes);
    // What was allocated together can be freed apart, but never more than was allocated in all.
    if (last < freed_.size()) freed_[last] = CheckedAdd(freed_[last], life.bytes);
  }

  void Finish(int64_t always, std::vector<int64_t>& during, std::vector<int64_t>& after) const {
    int64_t alive = always;
    during.reserve(allocated_.size());
    after.reserve(allocated_.size());
    for (size_t i = 0; i < allocated_.size(); ++i) {
      alive = CheckedAdd(alive, allocated_[i]);
      during.push_back(alive);
      alive -= freed_[i];
      after.push_back(alive);
    }
  }

 private:
  std::vector<int64_t> allocated_, freed_;
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
                            const MemoryOptions& options, SymbolValues hints) {
  CategoryBytes constant = {};
  if (curve.device == DeviceKind::kCuda) {
    AddTo(constant, MemoryCategory::kWorkspace, options.cuda_workspace_bytes);
    AddTo(constant, MemoryCategory::kCommunicator, CommunicatorBytes(graph, options.communicators));
  } else if (options.gloo) {
    AddTo(constant, MemoryCategory::kCommunicator, GatherBufferBytes(graph, *options.gloo, hints));
  }
  for (const StorageLife& life : curve.storages) {
    if (life.first < 0) AddTo(constant, life.category, life.bytes);
    if (life.category == MemoryCategory::kParameter) {
      int64_t elements = ElementsOf(life.value->type(), hints);
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

int64_t PeakElsewhere(const std::vector<Track>& tracks, DeviceKind measured, int32_t node_count) {
  Sweep sweep(node_count);
  int64_t always = 0;
  for (const Track& track : tracks) {
    if (track.device == measured && !track.host) continue;
    if (track.life.first >= 0) {
      sweep.Add(track.life);
    } else {
      always = CheckedAdd(always, track.life.bytes);
    }
  }
  std::vector<int64_t> during, after;
  sweep.Finish(always, during, after);
  return during.empty() ? always : *std::max_element(during.begin(), during.end());
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

void FindPeak(const Graph& graph, MemoryCurve& curve) {
  curve.peak = Sum(curve.constant);
  if (auto highest = std::max_element(curve.during.begin(), curve.during.end());
      highest != curve.during.end()) {
    LookAt(graph, static_cast<int32_t>(highest - curve.during.begin()), curve);
    return;
  }
  ListAlive(curve);
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
  if (curve.device == DeviceKind::kCpu) return curve.peak;
  return curve.peak - curve.constant[static_cast<size_t>(MemoryCategory::kCommunicator)];
}

int64_t StorageBytes(const TensorType& type, SymbolValues hints) {
  if (!type.defined()) return 0;
  int64_t elements = 1;
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    int64_t size = SizeAt(type.sizes[i], hints);
    if (size == 0) return 0;
    elements = CheckedAdd(elements, CheckedMultiply(size - 1, SizeAt(type.strides[i], hints)));
  }
  return CheckedMultiply(elements, ItemSize(type.dtype));
}

const Value* LooksInto(const Value& value, SymbolValues hints) {
  const Value* viewed = ViewedValue(value);
  return viewed != nullptr && SharesMemory(value, *viewed, hints) ? viewed : nullptr;
}

int64_t ScratchBytes(const Node& node, SymbolValues hints) {
  if (!ConvertsOperands(node)) return 0;
  const DType dtype = node.result()->type().dtype;
  int64_t bytes = 0;
  for (int32_t i = 0; i < node.operand_count(); ++i) {
    const TensorType& operand = node.operand(i)->type();
    if (operand.dtype == dtype || operand.rank() == 0) continue;
    bytes = CheckedAdd(bytes, CheckedMultiply(ElementsOf(operand, hints), ItemSize(dtype)));
  }
  return bytes;
}

MemoryCurve MeasureMemory(const Graph& graph, const MemoryOptions& options) {
  GT_CHECK(graph.node_count() < std::numeric_limits<int32_t>::max(), "{} nodes",
           graph.node_count());
  StorageWalk walk(graph, options);
  MemoryCurve curve;
  curve.device = options.device.value_or(MeasuredDevice(walk.tracks()));
  Sweep sweep(walk.node_count());
  for (const Track& track : walk.tracks()) {
    // Results that libtorch leaves undefined, and empty ones, are no memory.
    if (track.device != curve.device || track.host || track.life.bytes == 0) continue;
    curve.storages.push_back(track.life);
    if (track.life.first >= 0) sweep.Add(track.life);
  }
  curve.constant = ConstantBytes(graph, curve, options, walk.hints());
  if (options.copies_state) curve.state_copies = StateBytes(curve.constant);
  if (curve.device == DeviceKind::kCpu) {
    AddTo(curve.constant, MemoryCategory::kCheckpoint, curve.state_copies);
  }
  sweep.Finish(Sum(curve.constant), curve.during, curve.after);
  curve.scratch.resize(curve.during.size(), 0);
  if (curve.device == DeviceKind::kCpu) curve.scratch = walk.scratch();
  for (size_t i = 0; i < curve.during.size(); ++i) {
    curve.during[i] = CheckedAdd(curve.during[i], curve.scratch[i]);
  }
  curve.elsewhere_peak = PeakElsewhere(walk.tracks(), curve.device, walk.node_count());
  if (curve.device != DeviceKind::kCpu) {
    curve.elsewhere_peak = CheckedAdd(curve.elsewhere_peak, curve.state_copies);
  }
  curve.symbols = walk.hints();
  FindPeak(graph, curve);
  return curve;
}

}  // namespace gt
