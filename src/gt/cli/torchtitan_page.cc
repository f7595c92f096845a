#include "gt/cli/torchtitan_page.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "gt/base/text.h"
#include "gt/job/torchtitan.h"
#include "gt/passes/framework/upstream_passes.h"

namespace gt::cli {
namespace {

constexpr std::string_view kIntroduction = R"(# Coming from torchtitan

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
- **Other names** are translated by the table of options below, in files and as flags.
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

[upstream.md](upstream.md) maps each capability of torchtitan's EP overlap and AutoParallel pull requests
to an option, a pass and a test.

## Commands and models

| in torchtitan | in gt |
|---|---|
| `--module graph_trainer.deepseek_v3` | `--model.name deepseek_v3` |
| `--config graph_trainer_deepseek_v3_16b` | `--config configs/deepseek_v3_16B.toml`, or `--model.flavor 16B`: gt reads TOML files |
| flavors `16B_sdpa`, `debugmodel_flex_attn` | `--model.flavor 16B --model.attn sdpa`, `--model.flavor debugmodel --model.attn flex` |
| `--training.deterministic`, `--training.deterministic False`, `--compile.no-enable_passes` | the same; repeating a flag is an error |
| `torchrun --nproc_per_node 4` | `gt launch -n 4 -- train`, `--ranks 4` for threads of one process, or torchrun ([many_ranks.md](many_ranks.md)) |

## Overlapping expert parallelism

The options of `compile.ep_overlap` have torchtitan's names and meaning. The earlier opt-in
`--compile.passes ep_overlap` works too, as text or as a list in a file, and so do the flat names
(`compile.ep_overlap_chunk_dim`, ...).

```
./gt train --model.name deepseek_v3 --ranks 4 --parallelism.expert_parallel_degree 4 --training.local_batch_size 4 --training.seq_len 64 --training.steps 2 --compile.passes ep_overlap
```

| option of `compile.ep_overlap` | in torchtitan | in gt |
|---|---|---|
| `enabled` | true, false | also `auto`: on if the step is predicted to become faster |
| `chunk_dim` | batch, seq | the same |
| `strategy` | eager, graph | the same |
| `module_fqn` | `layers.*`, `layers.*.moe` | any pattern; modules without experts are skipped |
| `disable_early_grad_accumulation` | for comparison with strategy eager | the same, with results equal to strategy eager bit for bit, also on several ranks |
| `num_chunks` | always 2 | any number; the extent need not be a multiple |
| `schedule` | structural | `cost` (predicted time and memory), `structural`, `none` |
| `memory_headroom`, `replan_interval`, `keep_chunks_across_roots` | | see [overlap.md](overlap.md) and [chunking.md](chunking.md) |

## Process groups

With EP overlap, token exchanges that share a process group object with other collectives move to a new
group with the same ranks in the same order and high priority. This is torchtitan's
`isolate_ep_process_group_pass`; here `compile.ep_overlap.isolate_process_group` controls it, on by
default. Groups that merely have equal ranks are left alone. gt creates one group per mesh axis;
`comm.share_groups` lets axes with equal ranks share one. FSDP all-gathers use a group separate from
reductions (`compile.enable_fsdp_ag_rs_overlap`), on by default here.

## Dumps instead of tlparse

| to see | in torchtitan | in gt |
|---|---|---|
| the graph before and after every pass | `TORCH_TRACE=FOLDER`, `--compile.debug_graph_passes`, tlparse | `--compile.debug_graph_passes` writes both, the diff, and what the pass asked of the job to `dump_folder/passes/rank_0` |
| the captured graph | the first entry of tlparse | `gt trace --compile.enable_passes=false --output step.gtir` |
| what a pass does to it | | `gt opt --pass=NAME --diff step.gtir` |
| a picture | | `gt draw --modules layers.1 step.gtir` |
| saved activations | the activation memory table | `gt memory` |
| generated kernels | the output code of tlparse | `gt trace --kernels FOLDER` |
| the placement | `autoparallel_solution` | `gt place --output plan.json --svg plan.svg` |

```
./gt trace --model.flavor tiny --training.seq_len 16 --compile.debug_graph_passes --dump_folder out
./gt opt --pass=cse --diff out/passes/rank_0/02_step.cse.before.gtir
```

## Metrics, TensorBoard and Weights & Biases

| wanted | in torchtitan | in gt |
|---|---|---|
| a line for each step on the terminal | `metrics.log_freq` | `metrics.log_freq` |
| numbers of every step as a file | | `dump_folder/metrics.jsonl`, always |
| TensorBoard | `metrics.enable_tensorboard`, in `save_tb_folder` | `metrics.enable_tensorboard`, in `dump_folder/tb` |
| Weights & Biases | `metrics.enable_wandb` | `metrics.jsonl`, as below |

Each line of `metrics.jsonl` is a JSON object: `step`, `loss`, `grad_norm`, `lr`, `tokens`,
`tokens_per_second`, `mfu`, `memory`, `data_wait`, `seconds` (of the step), `epoch`, and where they
apply `validation_loss` and `load_imbalance`. These lines send a run to Weights & Biases while it is running, or afterwards:

```python
# tail -n +1 -F outputs/latest/metrics.jsonl | python to_wandb.py
import json, sys, wandb

run = wandb.init(project="gt")
for line in sys.stdin:
    metrics = json.loads(line)
    run.log(metrics, step=metrics["step"])
```

`wandb.init(sync_tensorboard=True)` and `wandb sync` read the event files of `dump_folder/tb` as well.
)";

constexpr std::string_view kPasses = R"(
## Passes

`compile.passes`, `compile.disable_passes` and `gt opt --pass` accept torchtitan's names. A name that is an
option here turns it on in `compile.passes` and off in `compile.disable_passes`. A name without
counterpart is an error in `compile.passes` and has no effect in `compile.disable_passes`. Without a
leading `+`, `compile.passes` replaces the passes of the job, and must contain those that other options
need.

| torchtitan | gt | |
|---|---|---|
)";

constexpr std::string_view kOptions = R"(
## Options

| torchtitan | gt | |
|---|---|---|
)";

std::string Code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", text); }

std::string InGt(const TorchtitanOption& option) {
  using enum TorchtitanOption::Answer;
  std::vector<std::string> items = Split(option.values, '|');
  for (std::string& item : items) {
    if (item.empty()) item = "empty";
  }
  const std::string values = Join(items, ", ");
  switch (option.answer) {
    case kRenamed:
    case kCombined:
      return Code(option.target) + (values.empty() ? "" : fmt::format(" ({})", values));
    case kIgnored:
      return "no effect";
    case kRefused:
      return fmt::format("an error unless {}", values.empty() ? "empty" : values);
  }
  return "";
}

std::string InGt(const UpstreamPass& upstream) {
  if (!upstream.pass.empty()) return Code(upstream.pass);
  return upstream.option.empty() ? "none" : fmt::format("the option {}", Code(upstream.option));
}

}  // namespace

std::string TorchtitanMarkdown() {
  std::string text(kIntroduction);
  text += kPasses;
  for (const UpstreamPass& upstream : UpstreamPasses()) {
    text += fmt::format("| {} | {} | {} |\n", Code(upstream.name), InGt(upstream), upstream.note);
  }
  text += kOptions;
  for (const TorchtitanOption& option : TorchtitanOptions()) {
    text += fmt::format("| {} | {} | {} |\n", Code(option.key), InGt(option), option.note);
  }
  return text;
}

}  // namespace gt::cli
