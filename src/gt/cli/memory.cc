// gt memory: what the train step of a configured model needs of the device's memory, without
// allocating any of it.
#include <fmt/format.h>

#include "gt/cli/commands.h"
#include "gt/cli/configured_step.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_capacity.h"
#include "gt/compile/step_costs.h"
#include "gt/config/command_line.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/report/memory_report.h"
#include "gt/sim/memory_curve.h"
#include "gt/sim/timeline.h"
#include "gt/storage/file_writer.h"
#include "gt/train/metrics.h"

namespace gt::cli {
namespace {

struct MemoryFlags {
  std::string json, svg;  // files to write; empty: none
  int64_t top = 20;
  int64_t tokens = 0;
};

void WriteReport(const std::string& path, const std::string& text) {
  WriteFile(path, text);
  fmt::print("written to {}\n", path);
}

int Measure(const Config& config, World& world, const JobCluster& cluster,
            const MemoryFlags& wanted) {
  const ConfiguredStep planned = CompileConfigured(config, world, cluster);
  const CompiledStep& step = planned.step;
  MemoryCurve curve =
      MeasureMemory(*step.graph, StepMemory(config, planned.mesh, MeshOf(step.placed.get())));
  const auto parameters = static_cast<double>(nn::ParameterCount(*planned.model));
  std::string title =
      fmt::format("{}: {} parameters, {} x {} tokens", ModelTitle(config), FormatCount(parameters),
                  config.training.local_batch_size, config.training.seq_len);
  if (world.size() > 1) {
    title += fmt::format(", rank {} of {}: {}", world.rank(), world.size(),
                         DescribeLayout(step.placed.get(), planned.mesh));
  }
  fmt::print("{}\n{}", title, MemoryTable(*step.graph, curve, static_cast<size_t>(wanted.top)));
  if (!wanted.json.empty()) WriteReport(wanted.json, MemoryJson(*step.graph, curve));
  if (!wanted.svg.empty()) WriteReport(wanted.svg, MemorySvg(*step.graph, curve, title));
  StepCosts costs(config, &world, DeviceOf(config), cluster);
  const Timeline timeline = Simulate(*step.graph, *costs.For(*step.graph));
  const JobSummary summary =
      Summarize(config, world, planned, curve, timeline, cluster, wanted.tokens);
  fmt::print("{}", SummaryText(summary));
  return summary.fits() ? 0 : kDoesNotFitStatus;
}

}  // namespace

int RunMemory(Arguments args) {
  Config config;
  MemoryFlags wanted;
  CommandLine line("gt memory",
                   "shows the memory that the train step of a model needs, without allocating it");
  line.Flag("json", &wanted.json, "write curve, categories and tensors to this file, as JSON")
      .Flag("svg", &wanted.svg, "draw the curve into this file")
      .Flag("top", &wanted.top, AtLeast(0), "rows of the table of tensors alive at the peak")
      .Flag("tokens", &wanted.tokens, AtLeast(0), kTokensHelp)
      .WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}\n{}", line.Help(), kPlanningHelp);
    return 0;
  }
  PlanForCluster(&config);
  const JobCluster cluster = ClusterOfPlan(config);
  int status = 0;
  World::Run(config, [&](World& world) { status = Measure(config, world, cluster, wanted); });
  return status;
}

}  // namespace gt::cli
