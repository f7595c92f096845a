#include "gt/compile/single_device_step.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "gt/base/error.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/global_step.h"
#include "gt/compile/placed_step.h"
#include "gt/compile/step_capture.h"
#include "gt/compile/step_inputs.h"
#include "gt/ir/verifier.h"
#include "gt/job/config.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/memory/memory_policy.h"
#include "gt/passes/memory/rematerialize.h"
#include "gt/placement/dim_pieces.h"

namespace gt {
namespace {

using placement::ClassPieces;
using placement::Pieces;
using placement::Plan;

// A job verifies its step once, after all passes.
PassManagerOptions Unchecked() {
  PassManagerOptions options;
  options.check_changed = options.verify_each = false;
  return options;
}

// By hints, so that the step with numbers for sizes and the one with an open batch keep the same nodes.
PassList Cleaning() { return ParsePipeline("dce,canonicalize,cse{sizes_by_hint=true},dce"); }

// What is recomputed is placed like any other node, and what memory holds under the policy is what a
// search counts.
void AddPolicy(PassList& passes, const Config& config) {
  if (!AppliesPolicyFirst(config)) return;
  passes.push_back(std::make_unique<ApplyMemoryPolicy>(
      MemoryPolicyOptions{config.compile.memory_policy, config.compile.full_recompute_save_ops}));
  passes.push_back(std::make_unique<Rematerialize>());
}

EpOverlapSection NoChunks() {
  EpOverlapSection off;
  off.enabled = AutoSwitch::kFalse;
  return off;
}

// What two nested or unrelated numbers of shards are both coarser than.
class FinestShards {
 public:
  FinestShards(std::set<int32_t> pieces, placement::DeviceMesh mesh)
      : pieces_(std::move(pieces)), mesh_(std::move(mesh)) {}

  void Add(const std::string& text, const Pieces& pieces) {
    const std::optional<placement::Layout> layout = ParseLayout(text, pieces, mesh_);
    if (!layout) return;  // ApplyPlacement refuses it, with a reason
    const std::vector<int64_t> ways = WaysOf(*layout, pieces, mesh_);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces_.contains(pieces[i].id)) count_ = std::lcm(count_, ways[i]);
    }
  }
  int64_t count() const { return count_; }

 private:
  const std::set<int32_t> pieces_;
  const placement::DeviceMesh mesh_;
  int64_t count_ = 1;
};

// Numbers are scratch space, no part of what a graph says. Copies of a graph share its nested ones: with
// numbers that are right, several threads can work on copies.
void NumberAll(const Graph& graph) {
  const_cast<Graph&>(graph).NumberNodes();
  for (const Node* node : graph.nodes()) ForEachNestedGraph(*node, NumberAll);
}

Captured CaptureWhole(const StepRequest& request, int64_t ranks, const EpOverlapSection& overlap,
                      int64_t shards, bool verified = true) {
  const Config global = GlobalConfig(request.config, ranks, request.model);
  const auto capture = [&] {
    return CaptureUncompiled({request.model, global, request.device}, overlap, shards);
  };
  Captured captured = capture();
  PassList passes = Cleaning();
  AddPolicy(passes, request.config);
  PassManagerOptions options = Unchecked();
  options.verify_last = verified;
  options.make_start = [&] { return std::move(capture().graph); };
  PassManager(std::move(passes), std::move(options)).Run(*captured.graph);
  NumberAll(*captured.graph);
  return captured;
}

}  // namespace

void CleanForPlacement(Graph& graph) { PassManager(Cleaning(), Unchecked()).Run(graph); }

int64_t ShardsOf(ChunkDim dim, Graph& step, const Plan& plan) {
  const placement::Folding folding = placement::Fold(step);
  const std::vector<ClassPieces> pieces = placement::FindPieces(folding, step.shapes().Hints());
  auto of_input = [&](const Input& input) -> const Pieces& {
    const auto position = static_cast<size_t>(input.value.index());
    return pieces[static_cast<size_t>(folding.class_of_input[position])].results[0];
  };
  std::set<int32_t> ids;
  for (const auto& input : step.inputs()) {
    if (input->role != InputRole::kInput) continue;
    for (const placement::Piece& piece : of_input(*input)) {
      if (piece.dim == (dim == ChunkDim::kSeq ? 1 : 0)) ids.insert(piece.id);
    }
  }
  FinestShards finest(std::move(ids), placement::DeviceMesh(plan.mesh));
  for (const auto& input : step.inputs()) {
    auto found = plan.inputs.find(input->name);
    if (found != plan.inputs.end()) finest.Add(found->second, of_input(*input));
  }
  for (const Node* node : step.nodes()) {
    if (node->result_count() == 0) continue;
    auto found = plan.nodes.find(node->result()->name());
    if (found == plan.nodes.end()) continue;
    const auto number = static_cast<size_t>(node->number());
    const ClassPieces& own = pieces[static_cast<size_t>(folding.class_of_node[number])];
    const auto& [operands, results] = found->second;
    for (size_t i = 0; i < std::min(operands.size(), own.operands.size()); ++i) {
      finest.Add(operands[i], own.operands[i]);
    }
    for (size_t i = 0; i < std::min(results.size(), own.results.size()); ++i) {
      finest.Add(results[i], own.results[i]);
    }
  }
  return finest.count();
}

SingleDeviceStep::SingleDeviceStep(const StepRequest& request)
    : request_(request),
      ranks_(request.mesh.world_size()),
      plain_(Capture(NoChunks(), /*shards=*/1)) {}

Captured SingleDeviceStep::Capture(const EpOverlapSection& overlap, int64_t shards) const {
  return CaptureWhole(request_, ranks_, overlap, shards);
}

namespace {

// A step for a GPU can be looked at on a machine without one.
Captured CaptureToLookAt(LanguageModel& model, const Config& config, int64_t ranks, bool verified) {
  const c10::Device device =
      config.device == DeviceChoice::kCuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
  return CaptureWhole({.model = model, .config = config, .device = device}, ranks, NoChunks(), 1,
                      verified);
}

}  // namespace

SingleDeviceGraph::SingleDeviceGraph(const Config& config, int64_t ranks)
    : config_(config), ranks_(ranks) {
  ModelPtr model = BuildConfiguredModel(config);
  Captured captured = CaptureToLookAt(*model, config, ranks, /*verified=*/false);
  graph_ = std::move(captured.graph);
  // The other thread also takes the model apart, which takes as long as making it.
  verified_ = std::async(std::launch::async, [graph = graph_.get(), model = std::move(model),
                                              inputs = std::move(captured.bound_inputs)]() mutable {
    inputs.clear();
    model.reset();
    try {
      Verify(*graph);
    } catch (const Error&) {
      return false;
    }
    return true;
  });
}

void SingleDeviceGraph::RequireVerified() {
  if (!verified_.valid() || verified_.get()) return;
  // Verified at once, the pass that is to blame is found, and a file that replays it written.
  const ModelPtr model = BuildConfiguredModel(config_);
  CaptureToLookAt(*model, config_, ranks_, /*verified=*/true);
  GT_CHECK(false, "a captured step did not verify, but does when it is captured again");
}

Captured SingleDeviceStep::For(const Plan& plan, const EpOverlapSection& overlap) {
  const Captured* from = &plain_;
  if (ChunksGraph(overlap)) {
    const bool sequence = overlap.chunk_dim == ChunkDim::kSeq;
    const int64_t shards = ShardsOf(overlap.chunk_dim, *plain_.graph, plan);
    const int64_t extent =
        sequence ? request_.config.training.seq_len : GlobalBatch(request_.config, ranks_);
    if (extent % shards != 0 || extent / shards < overlap.num_chunks) {
      Fail(ErrorCode::kChunkExtent,
           "the plan cuts the {} of {} {} into {} shards on mesh {}, which cannot have {} chunks "
           "each; use a multiple of {} ({}), fewer chunks "
           "(--compile.ep_overlap.num_chunks), another --mesh, or no chunks",
           sequence ? "sequence" : "batch", extent, sequence ? "tokens" : "sequences", shards,
           placement::DeviceMesh(plan.mesh).ToString(), overlap.num_chunks,
           shards * overlap.num_chunks,
           sequence ? "--training.seq_len"
                    : "--training.local_batch_size times the ranks that read");
    }
    auto [found, is_new] =
        open_.try_emplace(OpenDim{overlap.chunk_dim, overlap.num_chunks, shards});
    if (is_new) found->second = Capture(overlap, shards);
    from = &found->second;
  }
  return {from->graph->Clone(), from->bound_inputs};
}

}  // namespace gt
