#include "gt/compile/placed_step.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "gt/analysis/collectives.h"
#include "gt/base/error.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/find_placement.h"
#include "gt/compile/global_step.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/placement_judge.h"
#include "gt/compile/step_capture.h"
#include "gt/compile/step_inputs.h"
#include "gt/job/config.h"
#include "gt/passes/framework/manager.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/memory/memory_policy.h"
#include "gt/passes/memory/rematerialize.h"
#include "gt/storage/checksum.h"
#include "gt/torch_bridge/convert.h"

namespace gt {
namespace {

using placement::Plan;
using Clock = std::chrono::steady_clock;

// One form of everything, so that a plan names nodes that are still there when it is applied.
void Clean(Graph& graph) { PassManager(ParsePipeline("dce,canonicalize,cse,dce"), {}).Run(graph); }

// What is recomputed is placed like any other node, and what memory holds under the policy is what a
// search counts.
void ApplyPolicy(Graph& graph, const Config& config) {
  if (!AppliesPolicyFirst(config)) return;
  PassList passes;
  passes.push_back(std::make_unique<ApplyMemoryPolicy>(
      MemoryPolicyOptions{config.compile.memory_policy, config.compile.full_recompute_save_ops}));
  passes.push_back(std::make_unique<Rematerialize>());
  PassManager(std::move(passes), {}).Run(graph);
}

int64_t MemoryOf(const StepRequest& request) {
  return MemoryCapacity(request.config, request.world, request.device);
}

class PlacedCapturer {
 public:
  PlacedCapturer(const StepRequest& request, const EpOverlapSection& overlap)
      : request_(request), overlap_(overlap), ranks_(request.mesh.world_size()) {}

  PlacedCapture Run() {
    PlacedCapture made;
    made.captured = Capture();
    Graph& graph = *made.captured.graph;
    made.whole_nodes = graph.node_count();
    auto job = std::make_shared<PlacedJob>();
    const Clock::time_point start = Clock::now();
    Decide(graph, *job);
    job->seconds = std::chrono::duration<double>(Clock::now() - start).count();
    job->step = ApplyPlacement(graph, job->plan, request_.mesh.rank());
    if (request_.world != nullptr) {
      MakeMeshGroups(*request_.world, graph,
                     MeshRank(placement::DeviceMesh(job->plan.mesh), request_.mesh.rank()));
    }
    made.job = std::move(job);
    return made;
  }

 private:
  Captured Capture() {
    const Config global = GlobalConfig(request_.config, ranks_, request_.model);
    StepRequest whole{request_.model, global, request_.device};
    Captured captured = CaptureUncompiled(whole, overlap_, PartsOfChunkedDim());
    Clean(*captured.graph);
    ApplyPolicy(*captured.graph, request_.config);
    captured.graph->NumberNodes();
    return captured;
  }

  // A rank's part of what is cut into chunks is the symbol, so that its size says how much a rank has: the
  // batch is shared out among those who read different data, sequences among the others.
  int64_t PartsOfChunkedDim() const {
    const int64_t readers = request_.mesh.size(MeshAxis::kBatch);
    return overlap_.chunk_dim == ChunkDim::kSeq ? ranks_ / readers : readers;
  }

  // The first rank decides; the others check that their step is the one it decided about.
  void Decide(Graph& graph, PlacedJob& job) {
    const uint64_t hash = graph.Hash();
    auto decide = [&]() -> std::string {
      Plan plan = Choose(graph, job);
      plan.step_hash = hash;
      return ToJson(plan);
    };
    World* world = request_.world;
    const std::string text =
        world != nullptr ? world->DecideForAll("the placement", decide) : decide();
    job.plan = placement::PlanFromJson(text, "the plan of rank 0");
    if (job.plan.step_hash != hash) {
      Fail(ErrorCode::kRanksDisagree,
           "rank {} has captured another step ({}) than the one that rank 0 has placed ({})",
           request_.mesh.rank(), ChecksumText(hash), ChecksumText(job.plan.step_hash));
    }
  }

  Plan Choose(Graph& graph, PlacedJob& job) {
    const Config& config = request_.config;
    if (!config.compile.autoparallel_plan.empty()) return Stored(graph);
    PlacementRequest wanted{.config = config,
                            .step = graph,
                            .meshes = MeshesOf(config, ranks_),
                            .memory_bytes = MemoryOf(request_),
                            .time_limit_s = config.compile.autoparallel_time_limit};
    wanted.batch = GlobalBatch(config, ranks_);
    wanted.for_judging = true;
    const FoundPlacement found = FindPlacement(wanted);
    if (const FoundPlacement::Rival* rival = found.BestRival()) {
      job.rival = rival->name;
      job.rival_us = rival->found->placement.step_us;
    }
    std::vector<Plan> plans;
    for (const auto& one : found.candidates) {
      plans.push_back(MakePlan(*one->problem, one->placement, ModelTitle(config)));
    }
    return FastestPlan(request_, overlap_, graph, std::move(plans));
  }

  Plan Stored(const Graph& graph) const {
    const std::string& path = request_.config.compile.autoparallel_plan;
    Plan plan = ReadPlanFile(path);
    int64_t ranks = 1;
    for (int64_t size : plan.mesh) ranks *= size;
    const placement::DeviceMesh mesh(plan.mesh);
    const std::vector<placement::DeviceMesh> allowed = MeshesOf(request_.config, ranks_);
    if (ranks != ranks_) {
      Fail(ErrorCode::kBadPlan, "{}: the plan is for mesh {} of {} ranks, but the job has {}", path,
           mesh.ToString(), ranks, ranks_);
    }
    if (allowed.size() == 1 && allowed.front() != mesh) {
      Fail(ErrorCode::kBadPlan, "{}: the plan is for mesh {}, not for {}", path, mesh.ToString(),
           allowed.front().ToString());
    }
    for (const auto& input : graph.inputs()) {
      if (plan.inputs.contains(input->name)) continue;
      Fail(ErrorCode::kBadPlan, "{}: the plan is for another model: it says nothing of {}", path,
           input->name);
    }
    return plan;
  }

  const StepRequest& request_;
  const EpOverlapSection& overlap_;
  const int64_t ranks_;
};

}  // namespace

bool AppliesPolicyFirst(const Config& config) {
  const MemoryPolicy policy = config.compile.memory_policy;
  return policy != MemoryPolicy::kNone && policy != MemoryPolicy::kSacAndOffload;
}

PlacedCapture CapturePlaced(const StepRequest& request, const EpOverlapSection& overlap) {
  return PlacedCapturer(request, overlap).Run();
}

Captured CapturePlacedLoss(const StepRequest& request, const PlacedJob& job) {
  const int64_t ranks = request.mesh.world_size();
  const Config global = GlobalConfig(request.config, ranks, request.model);
  LossConfig loss = LossConfigOf(global, request.model);
  loss.z_loss = 0.0;
  CaptureOptions options;
  options.device = FromTorch(request.device);
  options.name = "validation";
  LanguageModel& model = request.model;
  Captured captured = CaptureForward(
      model,
      [&model, loss](std::span<const at::Tensor> given) {
        return LossOf(model, {given[0], given[2]}, given[1], given[3], loss);
      },
      StepInputs(global, Mesh()), options);
  Graph& graph = *captured.graph;
  graph.modules() = nn::RolesOf(model);
  graph.outputs().front()->role = OutputRole::kLoss;
  Clean(graph);
  graph.NumberNodes();
  auto decide = [&] {
    std::vector<placement::Pin> pins;
    for (const auto& input : graph.inputs()) {
      const bool fixed = input->role == InputRole::kParameter || input->role == InputRole::kInput;
      auto found = job.plan.inputs.find(input->name);
      if (fixed && found != job.plan.inputs.end()) pins.push_back({input->name, found->second});
    }
    PlacementRequest wanted{.config = request.config,
                            .step = graph,
                            .meshes = {placement::DeviceMesh(job.plan.mesh)},
                            .memory_bytes = MemoryOf(request),
                            .time_limit_s = request.config.compile.autoparallel_time_limit};
    wanted.pins = [&pins](const placement::DeviceMesh&) { return pins; };
    const FoundPlacement found = FindPlacement(wanted);
    return ToJson(MakePlan(*found.best->problem, found.best->placement, "validation"));
  };
  const std::string text = request.world != nullptr
                               ? request.world->DecideForAll("the placement of validation", decide)
                               : decide();
  const Plan plan = placement::PlanFromJson(text, "the plan of rank 0");
  ApplyPlacement(graph, plan, request.mesh.rank(), job.step.inputs);
  if (request.world != nullptr) {
    MakeMeshGroups(*request.world, graph,
                   MeshRank(placement::DeviceMesh(plan.mesh), request.mesh.rank()));
  }
  return captured;
}

void MakeMeshGroups(World& world, const Graph& graph, const MeshRank& rank) {
  std::set<std::string> names;
  for (const Node* node : graph.nodes()) {
    if (node->op().group_arg >= 0) names.insert(GroupOf(*node));
  }
  for (const std::string& name : names) {
    if (world.Find(name) != nullptr) continue;
    const AxisList axes = AxesOfMeshGroup(name);
    Group group;
    group.name = name;
    group.description = fmt::format("ranks along axes of mesh {}", rank.mesh().ToString());
    group.ranks = rank.RanksAlong(axes);
    group.index = rank.IndexIn(axes);
    world.MakeGroup(std::move(group));
  }
}

void KeepPlacedParts(LanguageModel& model, const PlacedJob& job) {
  const MeshRank rank(placement::DeviceMesh(job.plan.mesh), job.step.rank);
  for (nn::Module* module : nn::ModulesOf(model)) {
    module->ForEachParameter([&](const std::string& name, nn::Parameter& parameter) {
      auto found = job.step.inputs.find(nn::JoinName(module->fqn().str(), name));
      if (found == job.step.inputs.end()) {  // nothing uses it: whole everywhere
        module->KeepPart(name, parameter.box(), job.step.rank == 0);
        return;
      }
      module->KeepPart(name, found->second.BoxOn(rank), found->second.IsAnsweredBy(rank));
    });
  }
}

}  // namespace gt
