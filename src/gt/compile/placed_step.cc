#include "gt/compile/placed_step.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "gt/analysis/collectives.h"
#include "gt/base/error.h"
#include "gt/base/logging.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/find_placement.h"
#include "gt/compile/global_step.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/placement_judge.h"
#include "gt/compile/plan_finder.h"
#include "gt/compile/step_inputs.h"
#include "gt/job/config.h"
#include "gt/storage/checksum.h"
#include "gt/torch_bridge/convert.h"

namespace gt {
namespace {

using placement::Plan;
using Clock = std::chrono::steady_clock;

int64_t MemoryOf(const StepRequest& request) {
  return MemoryCapacity(request.config, request.world, request.device);
}

// Empty: the job may train it.
std::string WhyNotAllowed(const StepRequest& request, const Plan& plan) {
  const int64_t ranks = request.mesh.world_size();
  const placement::DeviceMesh mesh(plan.mesh);
  if (mesh.ranks() != ranks) {
    return fmt::format("the plan is for mesh {} of {} ranks, but the job has {}", mesh.ToString(),
                       mesh.ranks(), ranks);
  }
  const std::vector<placement::DeviceMesh> allowed = MeshesOf(request.config, ranks);
  if (allowed.size() == 1 && allowed.front() != mesh) {
    return fmt::format("the plan is for mesh {}, not for {}", mesh.ToString(),
                       allowed.front().ToString());
  }
  return "";
}

Plan StoredPlan(const StepRequest& request, const Graph& graph) {
  const std::string& path = request.config.compile.autoparallel_plan;
  Plan plan = ReadPlanFile(path);
  if (const std::string why = WhyNotAllowed(request, plan); !why.empty()) {
    Fail(ErrorCode::kBadPlan, "{}: {}", path, why);
  }
  for (const auto& input : graph.inputs()) {
    if (plan.inputs.contains(input->name)) continue;
    Fail(ErrorCode::kBadPlan, "{}: the plan is for another model: it says nothing of {}", path,
         input->name);
  }
  return plan;
}

// The plan that the run was trained with so far, if it is one of this step and still allowed. Another one
// would add up sums in another order: a search that its time limit ends, or that has other memory,
// need not find the same plan again.
std::optional<Plan> ContinuedPlan(const StepRequest& request, const EpOverlapSection& overlap,
                                  SingleDeviceStep& whole, uint64_t hash) {
  const std::string& path = request.continued_plan;
  if (path.empty()) return std::nullopt;
  Plan plan = ReadPlanFile(path);
  std::string why = WhyNotAllowed(request, plan);
  if (why.empty() && plan.step_hash != hash) why = "the step has changed";
  if (why.empty()) {
    try {
      const bool fits = PredictPlan(request, overlap, whole, plan).excess == 0;
      if (!fits) why = "it needs more memory than there is";
    } catch (const Error& error) {  // other chunks than before
      why = error.message();
    }
  }
  if (why.empty()) return plan;
  log::Info("the plan in {} is not continued: {}", path, why);
  return std::nullopt;
}

class PlacedCapturer {
 public:
  PlacedCapturer(const StepRequest& request, const EpOverlapSection& overlap)
      : request_(request), overlap_(overlap), whole_(request) {}

  PlacedCapture Run() {
    PlacedCapture made;
    auto job = std::make_shared<PlacedJob>();
    const Clock::time_point start = Clock::now();
    Decide(*job);
    job->seconds = std::chrono::duration<double>(Clock::now() - start).count();
    made.captured = whole_.For(job->plan, overlap_);
    Graph& graph = *made.captured.graph;
    made.whole_nodes = graph.node_count();
    job->step = ApplyPlacement(graph, job->plan, request_.mesh.rank());
    if (request_.world != nullptr) {
      MakeMeshGroups(*request_.world, graph,
                     MeshRank(placement::DeviceMesh(job->plan.mesh), request_.mesh.rank()));
    }
    made.job = std::move(job);
    return made;
  }

 private:
  // The first rank decides; the others check that their step is the one it decided about.
  void Decide(PlacedJob& job) {
    const uint64_t hash = whole_.graph().Hash();
    auto decide = [&]() -> std::string {
      Plan plan = Choose(hash, job);
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

  Plan Choose(uint64_t hash, PlacedJob& job) {
    if (!request_.config.compile.autoparallel_plan.empty()) {
      return StoredPlan(request_, whole_.graph());
    }
    if (std::optional<Plan> plan = ContinuedPlan(request_, overlap_, whole_, hash)) {
      job.source = request_.continued_plan;
      return std::move(*plan);
    }
    PlanFinder finder(request_, whole_);
    std::optional<Error> problem;
    try {
      job.chosen = finder.Fastest(overlap_);
      job.rival = finder.rival();
      job.judged = finder.judged();
      return job.chosen.plan;
    } catch (const Error& error) {
      if (!ChunksGraph(overlap_) || error.code() == ErrorCode::kNoPlacement) throw;
      problem = error;
    }
    log::Info(
        "no placement that was found can be cut into chunks; others are searched, in which each "
        "rank has sequences of its own and sends rows to their experts");
    try {
      PlanFinder sending(request_, whole_, PlanFinder::Kind::kSendingRows);
      job.chosen = sending.Fastest(overlap_);
      job.rival = sending.rival();
      job.judged = sending.judged();
      return job.chosen.plan;
    } catch (const Error& error) {
      log::Debug("none of them either: {}", error.what());
    }
    Fail(problem->code(),
         "{}\n  That is so under every placement that was found, and none can be used in which "
         "each rank has sequences of its own and sends rows to their experts: use a --mesh whose "
         "axes divide the batch and the experts, or no chunks "
         "(--compile.ep_overlap.enabled=false)",
         problem->message());
  }

  const StepRequest& request_;
  const EpOverlapSection& overlap_;
  SingleDeviceStep whole_;
};

}  // namespace

std::string DescribeLayout(const PlacedJob* placed, const Mesh& mesh) {
  if (placed == nullptr) return mesh.Describe();
  return "placed on mesh " + placement::DeviceMesh(placed->plan.mesh).ToString();
}

bool AppliesPolicyFirst(const Config& config) {
  const CompileSection& compile = config.compile;
  if (compile.inductor_compilation == InductorCompilation::kAutoparallelBackend) return false;
  return compile.memory_policy != MemoryPolicy::kNone &&
         compile.memory_policy != MemoryPolicy::kSacAndOffload;
}

PlacedPredictor::PlacedPredictor(const StepRequest& request) : request_(request), whole_(request) {
  if (request.config.compile.autoparallel_plan.empty()) {
    finder_.emplace(request_, whole_);
  } else {
    stored_ = StoredPlan(request, whole_.graph());
  }
}

bool PlacedPredictor::MovesRows() {
  auto moves = [](const std::string& layout) { return layout.find('E') != std::string::npos; };
  auto moves_in = [&](const Plan& plan) {
    return std::ranges::any_of(plan.nodes, [&](const auto& node) {
      return std::ranges::any_of(node.second.results, moves);
    });
  };
  return finder_ ? std::ranges::any_of(finder_->plans(), moves_in) : moves_in(stored_);
}

Prediction PlacedPredictor::Predict(const EpOverlapSection& overlap) {
  return PredictPlan(request_, overlap, whole_, finder_ ? finder_->Fastest(overlap).plan : stored_);
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
  CleanForPlacement(graph);
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
                            .cluster = request.cluster.cluster,
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
