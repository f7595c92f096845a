#include "gt/compile/step_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "gt/base/logging.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/post_trace_policy.h"
#include "gt/dist/world_groups.h"
#include "gt/job/derived_options.h"
#include "gt/passes/framework/registry.h"
#include "gt/passes/pipeline/pipeline.h"
#include "gt/sim/memory_curve.h"

namespace gt {
namespace {

PassList::iterator FindSchedule(PassList& passes) {
  return std::find_if(passes.begin(), passes.end(),
                      [](const auto& pass) { return pass->info().name == "ep_overlap_schedule"; });
}

// The passes from the schedule on, which leaves the others in `passes`.
PassList TakeFromSchedule(PassList& passes) {
  auto schedule = FindSchedule(passes);
  PassList taken(std::make_move_iterator(schedule), std::make_move_iterator(passes.end()));
  passes.erase(schedule, passes.end());
  return taken;
}

void Append(PipelineReport& to, PipelineReport more) {
  to.changed |= more.changed;
  to.seconds += more.seconds;
  to.runs.insert(to.runs.end(), std::make_move_iterator(more.runs.begin()),
                 std::make_move_iterator(more.runs.end()));
}

}  // namespace

StepCompiler::StepCompiler(const Config& config, const Mesh& mesh, World* world, c10::Device device,
                           JobCluster cluster, Audience audience)
    : config_(config),
      mesh_(mesh),
      world_(world),
      device_(device),
      audience_(audience),
      costs_(config, world, device, std::move(cluster)) {
  if (world == nullptr) return;
  if (audience == Audience::kJob) {
    groups_ = std::make_unique<WorldGroups>(*world);
  } else {
    groups_ = std::make_unique<HypotheticalGroups>(*world);
  }
}

JobFacts StepCompiler::Facts() {
  JobFacts facts;
  facts.groups = groups_.get();
  facts.costs = [this](const Graph& graph) { return costs_.For(graph); };
  facts.memory_budget = [this] { return MemoryCapacity(config_, world_, device_); };
  facts.constant_bytes = [this](const Graph& graph) {
    const CategoryBytes constant =
        MeasureMemory(graph, StepMemory(config_, mesh_, costs_.placed_on())).constant;
    return std::accumulate(constant.begin(), constant.end(), int64_t{0});
  };
  if (world_ != nullptr && audience_ == Audience::kJob) {
    facts.decide_for_all = [this](std::string_view what,
                                  const std::function<std::string()>& decide) {
      return world_->DecideForAll(std::string(what), decide);
    };
  }
  return facts;
}

PassList StepCompiler::Passes() const {
  return ChangedPipeline(ParsePipeline(pipeline_), config_.compile.passes);
}

bool StepCompiler::Dumps() const {
  if (!config_.compile.debug_graph_passes || audience_ == Audience::kSelf) return false;
  return (world_ != nullptr && world_->pretended()) || DumpsPasses(config_, mesh_.rank());
}

PipelineReport StepCompiler::Run(PassList passes, Graph& graph, PassContext& context,
                                 const std::string& pipeline) {
  PassManagerOptions options;
  options.disabled = config_.compile.disable_passes;
  options.reproducer_folder = config_.dump_folder;
  // A job waits for this; who looks into passes wants to know of each.
  options.check_changed = options.verify_each = config_.compile.debug_graph_passes;
  if (Dumps()) {
    options.dump_folder = fmt::format("{}/passes/rank_{}", config_.dump_folder, mesh_.rank());
    options.pipeline = pipeline;
    options.first_number = passes_run_;
  }
  passes_run_ += passes.size();
  return PassManager(std::move(passes), options).Run(graph, context);
}

PipelineReport StepCompiler::Compile(Graph& graph, const EpOverlapSection& overlap) {
  pipeline_ = MakePostTracePolicy(config_, device_.is_cuda())->PipelineFor(graph, overlap);
  unordered_ = nullptr;
  PassList passes = Passes();
  log::Debug("pipeline: {}", PrintPipeline(passes));
  PassContext context(Facts());
  const bool orders =
      overlap.schedule == OverlapSchedule::kCost && FindSchedule(passes) != passes.end();
  const bool replans =
      orders && overlap.replan_interval > 0 && audience_ == Audience::kJob && world_ != nullptr;
  if (!replans) return Run(std::move(passes), graph, context, "step");
  PassList rest = TakeFromSchedule(passes);
  PipelineReport report = Run(std::move(passes), graph, context, "step");
  unordered_ = graph.Clone();
  Append(report, Run(std::move(rest), graph, context, "order"));
  return report;
}

PipelineReport StepCompiler::Order(Graph& graph) {
  PassList passes = Passes();
  PassContext context(Facts());
  return Run(TakeFromSchedule(passes), graph, context, fmt::format("new_order_{}", ++orders_));
}

std::optional<Timeline> StepCompiler::Predict(const Graph& graph) {
  bool communicates = false;
  for (const Node* node : graph.nodes()) {
    communicates |= node->op().collective != Collective::kNone;
  }
  if (!communicates) return std::nullopt;
  if (audience_ == Audience::kJob) costs_.Share(graph);
  return Simulate(graph, *costs_.For(graph));
}

}  // namespace gt
