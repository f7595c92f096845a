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
};

CompiledStep CaptureConfigured(const Config& config, World& world) {
  CompiledStep step = CompileConfigured(config, world);
  for (const std::string& line : step.choice) fmt::print("{}\n", line);
  if (const std::string line = WhatMemoryCosts(step.passes); !line.empty()) {
    fmt::print("{}\n", line);
  }
  return step;
}

// What sharing links and multiprocessors costs, if it costs anything.
std::string WithoutContention(Config config, World& world, const Graph& graph, double step) {
  if (!config.comm.contention) return "";
  config.comm.contention = false;
  StepCosts costs(config, &world, DeviceOf(config));
  const OverlapSummary free = SummarizeOverlap(Simulate(graph, *costs.For(graph)));
  if (free.step >= step) return "";
  return fmt::format("  without contention  {:>11.3f} ms  {:.1f} % of communication hidden\n",
                     free.step / 1e3, 100 * free.hidden_share());
}

CompiledStep ReadStored(const std::string& path, World& world, const Mesh& mesh) {
  CompiledStep step;
  step.graph = ReadGraph(path);
  Verify(*step.graph);
  // No model asks for the groups along the mesh, which the graph may name.
  for (size_t axis = 0; axis < kMeshAxes; ++axis) world.Along(mesh, static_cast<MeshAxis>(axis));
  return step;
}

std::string TitleOf(const Config& config, const World& world, const Mesh& mesh,
                    const CompiledStep& step, const SimulateFlags& wanted) {
  std::string title = wanted.graph.empty()
                          ? fmt::format("{}: {} x {} tokens", ModelTitle(config),
                                        config.training.local_batch_size, config.training.seq_len)
                          : wanted.graph;
  if (world.size() > 1) {
    title += fmt::format(", rank {} of {}: {}", world.rank(), world.size(),
                         DescribeLayout(step.placed.get(), mesh));
  }
  for (const std::string& line : PlacementLines(*step.graph)) title += "\n" + line;
  return title;
}

void RunSimulation(const Config& config, World& world, const SimulateFlags& wanted) {
  Mesh mesh(config.parallelism, world.size(), world.rank());
  const CompiledStep step = wanted.graph.empty() ? CaptureConfigured(config, world)
                                                 : ReadStored(wanted.graph, world, mesh);
  const Graph& graph = *step.graph;
  StepCosts costs(config, &world, DeviceOf(config));
  Timeline timeline = Simulate(graph, *costs.For(graph));
  MemoryCurve memory = MeasureMemory(graph, StepMemory(config, mesh, MeshOf(step.placed.get())));
  fmt::print("{}\n{}\n{}{}", TitleOf(config, world, mesh, step, wanted), costs.Describe(),
             OverlapTable(graph, timeline, memory.peak),
             WithoutContention(config, world, graph, timeline.step));
  if (wanted.trace.empty()) return;
  ChromeTrace trace(wanted.trace);
  WriteTimeline(trace, graph, timeline, fmt::format("rank {}, predicted", world.rank()));
  trace.Finish();
  fmt::print("written to {}\n", wanted.trace);
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
      .WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  // Nothing runs, so one process represents all ranks.
  config.comm.backend = CommBackend::kFake;
  World::Run(config, [&](World& world) { RunSimulation(config, world, wanted); });
  return 0;
}

}  // namespace gt::cli
