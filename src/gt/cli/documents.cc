#include "gt/cli/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "gt/base/error.h"
#include "gt/base/resources.h"
#include "gt/base/text.h"
#include "gt/job/options_markdown.h"
#include "gt/job/torchtitan.h"
#include "gt/ops/operators_page.h"
#include "gt/passes/framework/registry.h"
#include "gt/report/architecture.h"

namespace gt::cli {
namespace {

constexpr const char* kTorchtitanIntroduction = R"(# Coming from torchtitan

<!-- Made by `gt docs torchtitan`; do not edit. -->

gt takes its names from torchtitan, and reads its TOML files (`--config FILE`, `--job.config_file FILE`)
and flags as far as they mean the same:

```
./gt train --job.dump_folder out --optimizer.name AdamW --activation_checkpoint.mode selective --compile.enable --training.steps 5
```

- **Same names, same meaning.** Most options of `[model]`, `[training]`, `[optimizer]`,
  `[lr_scheduler]`, `[parallelism]`, `[checkpoint]`, `[comm]`, `[metrics]` and `[validation]` are
  called as there. `./gt train --help` lists all of gt's with their defaults, which may differ: what a
  file leaves out is gt's default.
- **Other names** are translated by the table below, in files and as flags.
- **Without effect** are options that change neither what is trained nor what is written, or that
  belong to a part that gt does by itself. They are named once when a command starts.
- **Not possible** are options that would change what is trained. All of them are listed in one error,
  each with what to use instead.

Differences that no table shows: data sets are files (`training.dataset_path`), not names of the
Hugging Face hub; `activation_checkpoint.mode selective` with `op` is `compile.memory_policy eager`,
and no policy changes a bit of the results; the step is always captured as one graph, which gives
the bits of the eager step. `compile.inductor_compilation` is `full` unless it is set, its kernels
are gt's own and keep eager's bits ([kernels.md](kernels.md)), and `autoparallel_backend` is the
policy of AutoParallel's own compile backend ([design.md](design.md), policies after the trace),
which torchtitan no longer has; its `ac_stage_size_in_GiB`, `max_topo_span`, `max_compute_pre_fetch`
and `max_in_flight_gb` are options of `[compile]`. Like there it needs `compile.mode aot_fx_trace`;
replicas, context parallelism, and tensor parallelism for mixtures of experts are no reason to
refuse it.

## Metrics, TensorBoard and Weights & Biases

| wanted | in torchtitan | in gt |
|---|---|---|
| a line for each step on the terminal | `metrics.log_freq` | `metrics.log_freq` |
| numbers of every step as a file | | `dump_folder/metrics.jsonl`, always |
| TensorBoard | `metrics.enable_tensorboard`, in `save_tb_folder` | `metrics.enable_tensorboard`, in `dump_folder/tb` |
| Weights & Biases | `metrics.enable_wandb` | `metrics.jsonl`, as below |

Each line of `metrics.jsonl` is a JSON object: `step`, `loss`, `grad_norm`, `lr`, `tokens`,
`tokens_per_second`, `mfu`, `memory`, `data_wait`, and where they apply `validation_loss` and
`load_imbalance`. These lines send a run to Weights & Biases while it is running, or afterwards:

```python
# tail -n +1 -F outputs/metrics.jsonl | python to_wandb.py
import json, sys, wandb

run = wandb.init(project="gt")
for line in sys.stdin:
    metrics = json.loads(line)
    run.log(metrics, step=metrics["step"])
```

`wandb.init(sync_tensorboard=True)` and `wandb sync` read the event files of `dump_folder/tb` as well.

## Options
)";

std::string ErrorsMarkdown() {
  std::vector<ErrorInfo> errors(AllErrors().begin(), AllErrors().end());
  std::sort(errors.begin(), errors.end(),
            [](const ErrorInfo& a, const ErrorInfo& b) { return a.code < b.code; });
  std::string text =
      "# Errors\n\nEvery message that a user can meet begins with one of these codes. Made by `gt "
      "docs errors`; do not "
      "edit.\n\n| code | cause | cure |\n|---|---|---|\n";
  for (const ErrorInfo& error : errors) {
    text += fmt::format("| {} | {} | {} |\n", CodeName(error.code), error.cause, error.cure);
  }
  return text;
}

std::string Code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", text); }

std::string InGt(const TorchtitanOption& option) {
  using enum TorchtitanOption::Answer;
  std::string values(option.values);
  std::replace(values.begin(), values.end(), '|', ',');
  switch (option.answer) {
    case kRenamed:
    case kCombined:
      return Code(option.target) + (values.empty() ? "" : fmt::format(" ({})", values));
    case kIgnored:
      return "no effect";
    case kRefused:
      return values.empty() ? "an error unless empty" : fmt::format("an error unless {}", values);
  }
  return "";
}

std::string TorchtitanMarkdown() {
  std::string text = kTorchtitanIntroduction;
  text += "\n| torchtitan | gt | |\n|---|---|---|\n";
  for (const TorchtitanOption& option : TorchtitanOptions()) {
    text += fmt::format("| {} | {} | {} |\n", Code(option.key), InGt(option), option.note);
  }
  return text;
}

// Needs the sources, which an installation does not have.
std::string ArchitecturePage() {
  return ArchitectureMarkdown(ResourcePath("src/gt/folders.txt").parent_path());
}

struct Page {
  std::string_view name;  // docs/<name>.md
  std::string (*text)();
};

constexpr Page kPages[] = {
    {"architecture", ArchitecturePage}, {"errors", ErrorsMarkdown},
    {"operators", OperatorsMarkdown},   {"options", OptionsMarkdown},
    {"passes", PassesMarkdown},         {"torchtitan", TorchtitanMarkdown},
};

}  // namespace

std::vector<std::string> DocumentNames() {
  std::vector<std::string> names;
  for (const Page& page : kPages) names.emplace_back(page.name);
  return names;
}

std::string DocumentText(std::string_view name) {
  for (const Page& page : kPages) {
    if (page.name == name) return page.text();
  }
  const std::vector<std::string> known = DocumentNames();
  Fail(ErrorCode::kUnknownOption, "there is no page '{}'{}; pages: {}", name,
       DidYouMean(name, known), Join(known, ", "));
}

}  // namespace gt::cli
