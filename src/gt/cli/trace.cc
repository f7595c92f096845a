// gt trace: captures the train step of a configured model without allocating its weights, and
// reports on the graph.
#include <fmt/format.h>

#include <array>
#include <fstream>
#include <map>

#include "gt/base/error.h"
#include "gt/cli/commands.h"
#include "gt/config/command_line.h"
#include "gt/exec/device.h"
#include "gt/ir/text.h"
#include "gt/train/metrics.h"
#include "gt/train/setup.h"
#include "gt/train/step.h"

namespace gt::cli {
namespace {

void PrintTable(const Graph& graph, const CaptureReport& report) {
  std::array<int64_t, 3> phases = {};
  std::map<std::string, int64_t> operators;
  for (const Node* node : graph.nodes()) {
    ++phases[static_cast<size_t>(node->meta().phase)];
    ++operators[node->op().name.str()];
  }
  std::array<int64_t, 4> inputs = {};
  for (const auto& input : graph.inputs()) ++inputs[static_cast<size_t>(input->role)];
  const ShapeEnv& shapes = graph.shapes();
  double per_node = 1e6 * report.capture_seconds / static_cast<double>(report.captured_nodes);
  auto row = [](std::string_view name, const std::string& value) {
    fmt::print("  {:<22} {}\n", name, value);
  };
  row("nodes captured", fmt::format("{} in {:.1f} ms ({:.1f} us a node)", report.captured_nodes,
                                    report.capture_seconds * 1e3, per_node));
  row("nodes after passes",
      fmt::format("{} ({:.1f} ms)", report.nodes, report.passes.seconds * 1e3));
  row("  forward", std::to_string(phases[0]));
  row("  loss", std::to_string(phases[1]));
  row("  backward", std::to_string(phases[2]));
  row("operators", fmt::format("{} different", operators.size()));
  row("inputs", fmt::format("{} parameters, {} buffers, {} of the step, {} constants", inputs[0],
                            inputs[1], inputs[2], inputs[3]));
  row("outputs", std::to_string(graph.outputs().size()));
  row("memory of the process", FormatBytes(MemoryOf(c10::kCPU).peak));
  row("symbols", std::to_string(shapes.symbols().size()));
  for (const Symbol& symbol : shapes.symbols()) {
    row("  " + symbol.name,
        fmt::format("{}, hint {}, range [{}, {}]",
                    symbol.kind == Symbol::Kind::kInput ? "input" : "data", symbol.hint, symbol.low,
                    symbol.high == kUnbounded ? "inf" : std::to_string(symbol.high)));
  }
  row("guards", std::to_string(shapes.guards().size()));
  for (const Guard& guard : shapes.guards()) {
    row("", fmt::format("{}  by {} in '{}'", guard.predicate.ToString(shapes.Namer()),
                        guard.op.empty() ? "the program" : guard.op.str(), guard.module.str()));
  }
}

}  // namespace

int RunTrace(Arguments args) {
  Config config;
  std::string output;
  bool symbolic_batch = true;
  CommandLine line("gt trace",
                   "captures the train step of a model as a graph, without allocating its weights");
  line.Flag("symbolic_batch", &symbolic_batch, "leave the batch size open instead of fixing it")
      .Flag("output", &output, "write the graph to this file, as .gtir")
      .WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  // A step for a GPU can be captured on a machine without one.
  c10::Device device =
      config.device == DeviceChoice::kCuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
  ModelPtr model = BuildConfiguredModel(config);
  CaptureReport report;
  Captured captured = CaptureStep(*model, config, device,
                                  symbolic_batch && config.training.local_batch_size > 1, &report);
  fmt::print("{}: {} parameters\n", ModelTitle(config),
             FormatCount(static_cast<double>(nn::ParameterCount(*model))));
  PrintTable(*captured.graph, report);
  if (!output.empty()) {
    std::ofstream file(output, std::ios::binary);
    file << Print(*captured.graph);
    file.close();
    if (!file) Fail(ErrorCode::kCannotWrite, "cannot write the graph to '{}'", output);
    fmt::print("  {:<22} {}\n", "written to", output);
  }
  return 0;
}

}  // namespace gt::cli
