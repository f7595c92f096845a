// What a step needs of the device's memory, from its graph alone: which storage each value
// occupies, from when to when it is alive, and where the sum is largest. Nothing runs and nothing
// is allocated, so that the question can be asked of a model that fits no machine at hand.
// The rules are those of sim/storages.h, the bytes those of sim/live_memory.h in the graph's order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "gt/analysis/recorded_spans.h"
#include "gt/base/text.h"
#include "gt/ir/graph.h"
#include "gt/sim/communicators.h"

namespace gt {

// What a storage is for. Each belongs to one category for its whole life: the first that
// fits.
enum class MemoryCategory : uint8_t {
  kParameter,      // as the rank stores them
  kOptimizer,      // state of the optimizer; no storage of the graph
  kWorkspace,      // what libraries of kernels hold all the time; no storage of the graph either
  kCommunicator,   // what the communicators of process groups hold; no storage of the graph
  kCheckpoint,     // copies of the state that a checkpoint is written from; likewise
  kBuffer,         // also the new value of a buffer, which the step returns
  kInput,          // what the step is given: tokens, labels
  kConstant,       // tensors that the program made before the step
  kGradient,       // what the step returns as one; with accumulation also the sums so far
  kGathered,       // made of parameters alone, and holding what a collective gathered
  kCast,           // made of parameters alone otherwise: cast for compute
  kSaved,          // made before the backward and used in it
  kCommunication,  // what other collectives read and write
  kOutput,         // loss and results
  kTemporary,      // everything else
};
inline constexpr int kMemoryCategoryCount = 15;
template <>
inline constexpr std::array<std::string_view, kMemoryCategoryCount> kEnumNames<MemoryCategory> = {
    "parameters",
    "optimizer state",
    "library workspaces",
    "communicators",
    "checkpoint copies",
    "buffers",
    "inputs",
    "constants",
    "gradients",
    "gathered parameters",
    "cast parameters",
    "saved activations",
    "communication buffers",
    "outputs",
    "temporaries"};

using CategoryBytes = std::array<int64_t, kMemoryCategoryCount>;

struct MemoryOptions {
  // The memory to measure; empty: cuda if any value is on it, else the CPU's. What lives elsewhere
  // (offloaded activations) is counted in MemoryCurve::elsewhere_peak alone.
  std::optional<DeviceKind> device = std::nullopt;
  // On cuda, storages take multiples of this many bytes, as the caching allocator hands them out.
  int64_t cuda_rounding = 512;
  // State that the optimizer keeps for each element of each parameter: 8 for AdamW in f32.
  int64_t optimizer_bytes_per_element = 0;
  // What libraries hold on cuda all the time.
  int64_t cuda_workspace_bytes = 0;
  // What communicators of the graph's process groups hold on cuda all the time.
  CommunicatorMemory communicators = {};
  // What gloo holds in host memory; nothing: collectives take none.
  std::optional<GlooMemory> gloo = std::nullopt;
  // A checkpoint is written in the background while steps run, from copies of parameters, optimizer
  // state and buffers in host memory.
  bool copies_state = false;
  // The step adds its gradients to those of earlier batches, which are alive all the time.
  bool accumulates_gradients = false;
  // Stretches of the step become CUDA graphs (sim/recorded_memory.h); nothing: it runs node by node.
  std::optional<SpanOptions> recordings = std::nullopt;
  // Value of each symbol; empty: their hints.
  std::vector<int64_t> symbols = {};
};

// One piece of memory that values of the graph look into.
struct StorageLife {
  const Value* value = nullptr;  // the input, or the result that was allocated
  int64_t bytes = 0;
  int32_t first = 0;  // position of the node that allocates it; -1: an input
  int32_t last = 0;   // position of the last node during which it is alive; the node count for what
                      // outlives the step
  MemoryCategory category = MemoryCategory::kTemporary;

  bool AliveAt(int32_t position) const { return first <= position && position <= last; }
};

// Points into the graph it was measured on, which must outlive it and not change.
struct MemoryCurve {
  DeviceKind device = DeviceKind::kCpu;
  std::vector<StorageLife> storages;  // on the device; inputs first, then in order of allocation
  // Bytes alive while node i runs (its results allocated, nothing freed yet) and after it.
  std::vector<int64_t> during, after;

  // Alive from beginning to end, by category: inputs, optimizer state, accumulated gradients. Part
  // of everything above and below.
  CategoryBytes constant = {};

  int64_t peak = 0;
  int32_t peak_position = -1;       // the first where the peak is reached; -1: there are no nodes
  const Node* peak_node = nullptr;  // null: likewise
  CategoryBytes at_peak = {};
  std::vector<int32_t> alive_at_peak;  // indices of storages, largest first; inputs included

  // With CUDA graphs: what they hold of the device's memory, what of it is best taken in one piece before
  // they are recorded, and the peak when they are used. Everything else here is about the runs before they
  // are made.
  int64_t recording_pool = 0;
  int64_t recording_reserve = 0;
  int64_t recorded_peak = 0;

  int64_t state_copies = 0;      // in host memory, for checkpoints; part of everything on the CPU
  int64_t elsewhere_peak = 0;    // most bytes alive on other devices, inputs and copies of the
                                 // state included; on the host also what a step that runs on the
                                 // CPU has offloaded
  std::vector<int64_t> scratch;  // what node i allocates for itself while it runs
  std::vector<int64_t> symbols;  // what sizes were computed with
};

// The peak as libtorch's allocator sees it: without communicators, which allocate for themselves (NCCL)
// or on threads of their own (gloo).
int64_t AllocatedPeak(const MemoryCurve& curve);

// Lets what the curve says about its peak be said about another position.
void LookAt(const Graph& graph, int32_t position, MemoryCurve& curve);

// A size that comes out negative counts as 0. Time and
// memory are linear in nodes and operands, but for sorting what is alive at the peak. Throws
// SizeOverflow, naming the value, when a size or the sum does not fit into 64 bits.
MemoryCurve MeasureMemory(const Graph& graph, const MemoryOptions& options = {});

}  // namespace gt
