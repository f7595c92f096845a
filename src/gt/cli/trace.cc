// gt trace: captures the train step of a configured model without allocating its weights, and
// reports on the graph.
#include <fmt/format.h>
#include <torch/version.h>

#include <array>
#include <map>

#include "gt/analysis/collectives.h"
#include "gt/base/build_id.h"
#include "gt/base/byte_text.h"
#include "gt/base/machine_memory.h"
#include "gt/cli/commands.h"
#include "gt/cli/configured_step.h"
#include "gt/compile/compile.h"
#include "gt/compile/configured_model.h"
#include "gt/config/command_line.h"
#include "gt/dist/world.h"
#include "gt/fusion/kernel_files.h"
#include "gt/ir/text.h"
#include "gt/job/config.h"
#include "gt/job/fingerprint.h"
#include "gt/report/rewrite_summary.h"
#include "gt/sim/type_sizes.h"
#include "gt/storage/checksum.h"
#include "gt/storage/file_writer.h"
#include "gt/torch_bridge/device.h"
#include "gt/train/metrics.h"

namespace gt::cli {
namespace {

void PrintTable(const CompiledStep& step) {
  const Graph& graph = *step.graph;
  std::array<int64_t, 3> phases = {};
  std::map<std::string, int64_t> operators;
  for (const Node* node : graph.nodes()) {
    ++phases[static_cast<size_t>(node->meta().phase)];
    ++operators[node->op().name.str()];
  }
  std::array<int64_t, 4> inputs = {};
  for (const auto& input : graph.inputs()) ++inputs[static_cast<size_t>(input->role)];
  const ShapeEnv& shapes = graph.shapes();
  double per_node = 1e6 * step.capture_seconds / static_cast<double>(step.captured_nodes);
  auto row = [](std::string_view name, const std::string& value) {
    fmt::print("  {:<22} {}\n", name, value);
  };
  row("nodes captured", fmt::format("{} in {:.1f} ms ({:.1f} us a node)", step.captured_nodes,
                                    step.capture_seconds * 1e3, per_node));
  row("nodes after passes",
      fmt::format("{} ({:.1f} ms)", graph.node_count(), step.passes.seconds * 1e3));
  for (const std::string& line : RewriteLines(step.passes, graph)) fmt::print("  {}\n", line);
  row("  forward", std::to_string(phases[0]));
  row("  loss", std::to_string(phases[1]));
  row("  backward", std::to_string(phases[2]));
  row("operators", fmt::format("{} different", operators.size()));
  row("inputs", fmt::format("{} parameters, {} buffers, {} of the step, {} constants", inputs[0],
                            inputs[1], inputs[2], inputs[3]));
  row("outputs", std::to_string(graph.outputs().size()));
  row("memory of the process", ByteText(PeakResidentMemory()));
  row("symbols", std::to_string(shapes.symbols().size()));
  constexpr size_t kShown = 12;  // a mixture of experts has several for every layer and rank
  for (size_t i = 0; i < std::min(kShown, shapes.symbols().size()); ++i) {
    const Symbol& symbol = shapes.symbols()[i];
    row("  " + symbol.name,
        fmt::format("{}, hint {}, range [{}, {}]",
                    symbol.kind == Symbol::Kind::kInput ? "input" : "data", symbol.hint, symbol.low,
                    symbol.high == kUnbounded ? "inf" : std::to_string(symbol.high)));
  }
  if (shapes.symbols().size() > kShown) {
    row("", fmt::format("and {} more", shapes.symbols().size() - kShown));
  }
  row("guards", std::to_string(shapes.guards().size()));
  for (size_t i = 0; i < std::min(kShown, shapes.guards().size()); ++i) {
    const Guard& guard = shapes.guards()[i];
    row("", fmt::format("{}  by {} in '{}'", guard.predicate.ToString(shapes.Namer()),
                        guard.op.empty() ? "the program" : guard.op.str(), guard.module.str()));
  }
}

// One line for each kind of collective in each group, in the order of first use. Bytes are those of the
// larger side of the exchange: what was gathered, what is scattered, what a rank sends.
void PrintCollectives(const Graph& graph, const World& world) {
  struct Row {
    std::string kind, group;
    int64_t forward = 0, backward = 0, bytes = 0;
  };
  std::vector<Row> rows;
  SymbolValues hints = graph.shapes().Hints();
  std::map<std::pair<std::string, std::string>, size_t> places;
  for (const Node* node : graph.nodes()) {
    const Operator& op = node->op();
    if (!LaunchesCollective(op)) continue;
    std::string kind = op.name.str().substr(op.name.str().find("::") + 2);
    const std::string& group = std::get<std::string>(node->arg(op.group_arg));
    auto [place, fresh] = places.try_emplace({kind, group}, rows.size());
    if (fresh) rows.push_back({kind, group});
    Row& row = rows[place->second];
    ++(node->meta().phase == Phase::kBackward ? row.backward : row.forward);
    int64_t bytes = 0;
    for (int32_t i = 0; i < node->operand_count(); ++i) {
      bytes += StorageBytes(node->operand(i)->type(), hints);
    }
    int64_t results = 0;
    for (int32_t i = 0; i < node->result_count(); ++i) {
      results += StorageBytes(node->result(i)->type(), hints);
    }
    row.bytes += std::max(bytes, results);
  }
  if (rows.empty()) return;
  fmt::print("  collectives of a step\n    {:<24} {:<14} {:>6} {:>8} {:>9} {:>12}\n", "kind",
             "group", "ranks", "forward", "backward", "bytes");
  for (const Row& row : rows) {
    fmt::print("    {:<24} {:<14} {:>6} {:>8} {:>9} {:>12}\n", row.kind, row.group,
               world.Find(row.group)->size(), row.forward, row.backward, ByteText(row.bytes));
  }
}

// What a stored copy of the step would be found by.
std::string Fingerprint(Config config, const World& world, c10::Device device) {
  config.ranks = world.size();
  config.device = device.is_cuda() ? DeviceChoice::kCuda : DeviceChoice::kCpu;
  SettlePrecision(&config, device.is_cuda());
  return ChecksumText(
      ConfigFingerprint(config, fmt::format("libtorch {} gt {}", TORCH_VERSION, BuildId())));
}

void WriteKernels(const Graph& graph, const std::string& folder) {
  const fusion::KernelFiles files = fusion::WriteKernelFiles(graph, folder);
  fmt::print("  {:<22} {} for {} groups of operators, in {}\n", "kernels", files.kernels,
             files.groups, folder);
}

struct TraceFlags {
  std::string output, kernels;
  bool symbolic_batch = true;
};

void Trace(const Config& config, World& world, const TraceFlags& flags) {
  const c10::Device device = DeviceOf(config);
  Mesh mesh(config.parallelism, world.size(), world.rank());
  ModelPtr model = BuildConfiguredModel(config, world, mesh);
  const CompiledStep step =
      Compile({.model = *model,
               .config = config,
               .device = device,
               .mesh = mesh,
               .world = &world,
               .symbolic_batch = flags.symbolic_batch && config.training.local_batch_size > 1});
  fmt::print("{}: {} parameters\n", ModelTitle(config),
             FormatCount(static_cast<double>(nn::ParameterCount(*model))));
  if (world.size() > 1) {
    fmt::print("  {:<22} {} of {}: {}\n", "rank", world.rank(), world.size(),
               DescribeLayout(step.placed.get(), mesh));
  }
  PrintTable(step);
  fmt::print("  {:<22} {}\n", "fingerprint", Fingerprint(config, world, device));
  PrintCollectives(*step.graph, world);
  if (!flags.kernels.empty()) WriteKernels(*step.graph, flags.kernels);
  if (flags.output.empty()) return;
  WriteFile(flags.output, Print(*step.graph));
  fmt::print("  {:<22} {}\n", "written to", flags.output);
}

}  // namespace

int RunTrace(Arguments args) {
  Config config;
  TraceFlags flags;
  CommandLine line("gt trace",
                   "captures the train step of a model as a graph, without allocating its weights");
  line.Flag("symbolic_batch", &flags.symbolic_batch,
            "leave the batch size open instead of fixing it")
      .Flag("output", &flags.output, "write the graph to this file, as .gtir")
      .Flag("kernels", &flags.kernels,
            "write the generated kernels of a step for a GPU to this folder, as CUDA C++")
      .WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}", line.Help());
    return 0;
  }
  ShowStepOfThisMachine(&config);
  World::Run(config, [&](World& world) { Trace(config, world, flags); });
  return 0;
}

}  // namespace gt::cli
