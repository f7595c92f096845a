// gt info: what a model weighs, without allocating it.
#include <fmt/format.h>

#include "gt/cli/commands.h"
#include "gt/cli/configured_step.h"
#include "gt/config/command_line.h"
#include "gt/job/config.h"
#include "gt/train/model_report.h"

namespace gt::cli {
namespace {

constexpr const char* kFormulas =
    "--ranks and --parallelism.* mean what they mean for gt train. Parameters, gradients and "
    "optimizer\n"
    "state are divided by all ranks of a replica. The estimates:\n"
    "  activations    tokens x bytes of the compute dtype / tensor_parallel_degree x the inputs\n"
    "                 and outputs of every matrix that a token passes, the outputs of attention's\n"
    "                 matrices and of gates (w1) twice; nothing is recomputed\n"
    "  logits         of one chunk of the loss: logits and their gradient in float32, and the\n"
    "                 gradient in the compute dtype, / tensor_parallel_degree\n"
    "  weight copies  with FSDP, two layers gathered in the compute dtype; without, all\n"
    "                 parameters in the compute dtype if it is another than --training.dtype\n";

}  // namespace

int RunInfo(Arguments args) {
  Config config;
  bool json = false;
  CommandLine line("gt info",
                   "prints a model's parameters by part, its arithmetic per token and its memory "
                   "under a parallelism, without allocating it");
  line.Flag("json", &json, "one JSON object instead of a table").WithConfig(&config);
  if (!line.Parse(args)) {
    fmt::print("{}\n{}", line.Help(), kFormulas);
    return 0;
  }
  PlanForCluster(&config);
  ModelReport report = ReportOnModel(config, DegreesOf(config));
  fmt::print("{}", json ? ToJson(report).dump(2) + "\n" : ToTable(report));
  return 0;
}

}  // namespace gt::cli
