#include "gt/compile/step_compiler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "gt/base/fqn_pattern.h"
#include "gt/base/logging.h"
#include "gt/compile/memory_capacity.h"
#include "gt/dist/world_groups.h"
#include "gt/passes/framework/registry.h"
#include "gt/sim/memory_curve.h"

namespace gt {
namespace {

MemoryPolicyOptions MemoryPolicyOf(const CompileSection& compile) {
  return {compile.memory_policy, compile.full_recompute_save_ops};
}

FuseOptions FuseOptionsOf(const CompileSection& compile, const ModuleTable& modules) {
  FuseOptions options;
  if (compile.inductor_compilation != InductorCompilation::kRegional) return options;
  options.modules = compile.fusion_modules;
  if (!options.modules.empty()) return options;
  for (Name block : modules.With(ModuleRole::kBlock)) options.modules.push_back(block.str());
  return options;
}

bool OrdersByCost(const PipelineOptions& options) {
  return options.overlap && options.overlap->mode == OverlapSchedule::kCost;
}

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

// Whether the pattern cuts mixtures of experts by themselves, without the blocks around them.
bool CutsMixtures(const ModuleTable& modules, std::string_view pattern) {
  const std::span<const Name> mixtures = modules.With(ModuleRole::kMoe);
  return std::any_of(mixtures.begin(), mixtures.end(), [&](Name moe) {
    return MatchingPrefix(pattern, moe.str()) == std::string_view(moe.str());
  });
}

void Append(PipelineReport& to, PipelineReport more) {
  to.changed |= more.changed;
  to.seconds += more.seconds;
  to.runs.insert(to.runs.end(), std::make_move_iterator(more.runs.begin()),
                 std::make_move_iterator(more.runs.end()));
}

}  // namespace

StepCompiler::StepCompiler(const Config& config, const Mesh& mesh, World* world, c10::Device device,
                           Audience audience)
    : config_(config),
      mesh_(mesh),
      world_(world),
      device_(device),
      audience_(audience),
      costs_(config, world, device) {
  if (world == nullptr) return;
  if (audience == Audience::kJob) {
    groups_ = std::make_unique<WorldGroups>(*world);
  } else {
    groups_ = std::make_unique<HypotheticalGroups>(*world);
  }
}

PipelineOptions StepCompiler::PipelineFor(const Graph& graph, const EpOverlapSection& overlap) {
  PipelineOptions options;
  const CompileSection& compile = config_.compile;
  options.memory = MemoryPolicyOf(compile);
  options.offload = {compile.cpu_offload_budget_gb, compile.cpu_offload_defer_n_layers,
                     compile.cpu_offload_prefetch_n_layers};
  options.reshard_after_forward =
      config_.parallelism.fsdp_reshard_after_forward != ReshardAfterForward::kNever;
  options.reassign_gathers = compile.enable_fsdp_ag_rs_overlap;
  if (compile.fsdp_bucketing) options.bucket_prefetch = compile.fsdp_prefetch;
  options.dense_regions = compile.enable_fsdp_dense_region_overlap;
  if (device_.is_cuda() && compile.inductor_compilation != InductorCompilation::kNone) {
    options.fuse = FuseOptionsOf(compile, graph.modules());
  }
  if (overlap.enabled == AutoSwitch::kFalse) return options;
  if (overlap.strategy == ChunkStrategy::kGraph) {
    options.chunk = {.modules = overlap.module_fqn,
                     .dim = overlap.chunk_dim,
                     .chunks = overlap.num_chunks,
                     .strict = overlap.disable_early_grad_accumulation,
                     .keep_across_roots = overlap.keep_chunks_across_roots};
    options.concretize = true;
  }
  options.isolate_ep_group = overlap.isolate_process_group;
  options.overlap = {.mode = overlap.schedule,
                     .memory_headroom = overlap.memory_headroom,
                     .pair_first = CutsMixtures(graph.modules(), overlap.module_fqn)};
  return options;
}

JobFacts StepCompiler::Facts() {
  JobFacts facts;
  facts.groups = groups_.get();
  facts.costs = [this](const Graph& graph) { return costs_.For(graph); };
  facts.memory_budget = [this] { return MemoryCapacity(config_, world_, device_); };
  facts.constant_bytes = [this](const Graph& graph) {
    const CategoryBytes constant = MeasureMemory(graph, StepMemory(config_, mesh_)).constant;
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
  return ChangedPipeline(DefaultPipeline(options_), config_.compile.passes);
}

PipelineReport StepCompiler::Run(PassList passes, Graph& graph, PassContext& context) {
  PassManagerOptions options;
  options.disabled = config_.compile.disable_passes;
  options.reproducer_folder = config_.dump_folder;
  // A job waits for this; who looks into passes wants to know of each.
  options.check_changed = options.verify_each = config_.compile.debug_graph_passes;
  if (config_.compile.debug_graph_passes) options.dump_folder = config_.dump_folder + "/passes";
  return PassManager(std::move(passes), options).Run(graph, context);
}

PipelineReport StepCompiler::Compile(Graph& graph, const EpOverlapSection& overlap) {
  options_ = PipelineFor(graph, overlap);
  unordered_ = nullptr;
  PassList passes = Passes();
  log::Debug("pipeline: {}", PrintPipeline(passes));
  PassContext context(Facts());
  const bool orders = OrdersByCost(options_) && FindSchedule(passes) != passes.end();
  const bool replans =
      orders && overlap.replan_interval > 0 && audience_ == Audience::kJob && world_ != nullptr;
  if (!replans) return Run(std::move(passes), graph, context);
  PassList rest = TakeFromSchedule(passes);
  PipelineReport report = Run(std::move(passes), graph, context);
  unordered_ = graph.Clone();
  Append(report, Run(std::move(rest), graph, context));
  return report;
}

PipelineReport StepCompiler::Order(Graph& graph) {
  PassList passes = Passes();
  PassContext context(Facts());
  return Run(TakeFromSchedule(passes), graph, context);
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
