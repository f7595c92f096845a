// gt simulate: how the train step of a configured model, or a stored graph, would run on a cluster:
// what of its communication is hidden behind compute. Nothing runs and nothing is allocated.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "gt/cli/commands.h"
#include "gt/cli/configured_step.h"
#include "gt/cli/graph_files.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_advice.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/step_costs.h"
#include "gt/config/command_line.h"
#include "gt/dist/mesh.h"
#include "gt/dist/world.h"
#include "gt/ir/verifier.h"
#include "gt/job/config.h"
#include "gt/report/chrome_trace.h"
#include "gt/report/overlap_report.h"
#include "gt/report/placement_report.h"
#include "gt/sim/memory_curve.h"
#include "gt/sim/timeline.h"

namespace gt::cli {
namespace {

struct SimulateFlags {
  std::string graph;  // a stored graph to simulate; empty: the step of the configured model
  std::string trace;  // file to write; empty: none
  int64_t tokens = 0;
};

ConfiguredStep CaptureConfigured(const Config& config, World& world, const JobCluster& cluster) {
  ConfiguredStep planned = CompileConfigured(config, world, cluster);
  for (const std::string& line : planned.step.choice) fmt::print("{}\n", line);
  if (const std::string line = WhatMemoryCosts(planned.step.passes); !line.empty()) {
    fmt::print("{}\n", line);
  }
  return planned;
}

// What sharing links and multiprocessors costs, if it costs anything.
std::string WithoutContention(Config config, World& world, const Graph& graph, double step,
                              const JobCluster& cluster) {
  if (!config.comm.contention) return "";
  config.comm.contention = false;
  StepCosts costs(config, &world, DeviceOf(config), cluster);
  const OverlapSummary free = SummarizeOverlap(Simulate(graph, *costs.For(graph)));
  if (free.step >= step) return "";
  return fmt::format("  without contention  {:>11.3f} ms  {:.1f} % of communication hidden\n",
                     free.step / 1e3, 100 * free.hidden_share());
}

ConfiguredStep ReadStored(const Config& config, const std::string& path, World& world) {
  ConfiguredStep planned{.mesh = Mesh(config.parallelism, world.size(), world.rank())};
  planned.step.graph = ReadGraph(path);
  Verify(*planned.step.graph);
  // No model asks for the groups along the mesh, which the graph may name.
  for (size_t axis = 0; axis < kMeshAxes; ++axis) {
    world.Along(planned.mesh, static_cast<MeshAxis>(axis));
  }
  return planned;
}

std::string TitleOf(const Config& config, const World& world, const ConfiguredStep& planned,
                    const SimulateFlags& wanted) {
  std::string title = wanted.graph.empty()
                          ? fmt::format("{}: {} x {} tokens", ModelTitle(config),
                                        config.training.local_batch_size, config.training.seq_len)
                          : wanted.graph;
  if (world.size() > 1) {
    title += fmt::format(", rank {} of {}: {}", world.rank(), world.size(),
                         DescribeLayout(planned.step.placed.get(), planned.mesh));
  }
  for (const std::string& line : PlacementLines(*planned.step.graph)) title += "\n" + line;
  return title;
}

int RunSimulation(const Config& config, World& world, const JobCluster& cluster,
                  const SimulateFlags& wanted) {
  const ConfiguredStep planned = wanted.graph.empty() ? CaptureConfigured(config, world, cluster)
                                                      : ReadStored(config, wanted.graph, world);
  const Graph& graph = *planned.step.graph;
  StepCosts costs(config, &world, DeviceOf(config), cluster);
  Timeline timeline = Simulate(graph, *costs.For(graph));
  MemoryCurve memory =
      MeasureMemory(graph, StepMemory(config, planned.mesh, MeshOf(planned.step.placed.get())));
  fmt::print("{}\n{}\n{}{}", TitleOf(config, world, planned, wanted), costs.Describe(),
             OverlapTable(graph, timeline, memory.peak),
             WithoutContention(config, world, graph, timeline.step, cluster));
  if (!wanted.trace.empty()) {
    ChromeTrace trace(wanted.trace);
    WriteTimeline(trace, graph, timeline, fmt::format("rank {}, predicted", world.rank()));
    trace.Finish();
    fmt::print("written to {}\n", wanted.trace);
  }
  const JobSummary summary =
      Summarize(config, world, planned, memory, timeline, cluster, wanted.tokens);
  fmt::print("{}", SummaryText(summary));
  return summary.fits() ? 0 : kDoesNotFitStatus;
}

}  // namespace

int RunSimulate(Arguments args) {
  Config config;
  SimulateFlags wanted;
  CommandLine line(
      "gt simulate",
      "predicts how long the train step of a model takes on a cluster, and what of its "
      "communication is hidden behind compute");
  line.Flag("graph", &wanted.graph,
            "simulate this graph, as .gtir, in place of the configured model's; - is stdin")
      .Flag("trace", &wanted.trace,
            "write a lane for each stream and process group to this file, for ui.perfetto.dev")
      .Flag("tokens", &wanted.tokens, AtLeast(0), kTokensHelp)
      .WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}\n{}", line.Help(), kPlanningHelp);
    return 0;
  }
  PlanForCluster(&config);
  const JobCluster cluster = ClusterOfPlan(config);
  int status = 0;
  World::Run(config, [&](World& world) { status = RunSimulation(config, world, cluster, wanted); });
  return status;
}

}  // namespace gt::cli
