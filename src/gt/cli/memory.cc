// gt memory: what the train step of a configured model needs of the device's memory, without
// allocating any of it.
#include <fmt/format.h>

#include "gt/cli/commands.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/compile/memory_capacity.h"
#include "gt/config/command_line.h"
#include "gt/dist/world.h"
#include "gt/job/config.h"
#include "gt/report/memory_report.h"
#include "gt/sim/memory_curve.h"
#include "gt/storage/file_writer.h"
#include "gt/train/metrics.h"

namespace gt::cli {
namespace {

struct MemoryFlags {
  std::string json, svg;  // files to write; empty: none
  int64_t top = 20;
};

void WriteReport(const std::string& path, const std::string& text) {
  WriteFile(path, text);
  fmt::print("written to {}\n", path);
}

void Measure(const Config& config, World& world, const MemoryFlags& wanted) {
  // A step for a GPU can be measured on a machine without one.
  c10::Device device =
      config.device == DeviceChoice::kCuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
  Mesh mesh(config.parallelism, world.size(), world.rank());
  ModelPtr model = BuildConfiguredModel(config, world, mesh);
  const CompiledStep step =
      Compile({.model = *model, .config = config, .device = device, .mesh = mesh, .world = &world});
  MemoryCurve curve =
      MeasureMemory(*step.graph, StepMemory(config, mesh, MeshOf(step.placed.get())));
  std::string title = fmt::format("{}: {} parameters, {} x {} tokens", ModelTitle(config),
                                  FormatCount(static_cast<double>(nn::ParameterCount(*model))),
                                  config.training.local_batch_size, config.training.seq_len);
  if (world.size() > 1) {
    title += fmt::format(", rank {} of {}: {}", world.rank(), world.size(),
                         DescribeLayout(step.placed.get(), mesh));
  }
  fmt::print("{}\n{}", title, MemoryTable(*step.graph, curve, static_cast<size_t>(wanted.top)));
  if (!wanted.json.empty()) WriteReport(wanted.json, MemoryJson(*step.graph, curve));
  if (!wanted.svg.empty()) WriteReport(wanted.svg, MemorySvg(*step.graph, curve, title));
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
      .WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  // Nothing runs, so one process represents all ranks.
  config.comm.backend = CommBackend::kFake;
  World::Run(config, [&](World& world) { Measure(config, world, wanted); });
  return 0;
}

}  // namespace gt::cli
