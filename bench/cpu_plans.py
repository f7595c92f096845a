#!/usr/bin/env python3
"""Jobs on CPU ranks: plans that AutoParallel finds beside the best hand-written layout.

  bench/cpu_plans.py [--jobs 20] [--seed 0] [--rounds 5] [--steps 8]

Draws jobs at random (model, batch, sequence length, layers) and trains each under every hand-written layout and under
the plan that is found, on thread ranks of this machine, with the same sequences in every step. The three fastest layouts of the first round stay. The runs of
a round follow each other, so that what else the machine does meets all of them; a job's ratio is the median over
rounds of the plan's step time by that of the fastest layout. Exits with 1 if one is above --limit.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARALLELISM = "--parallelism."
# Name, degrees, whether it needs experts, ranks that share the sequences of one.
LAYOUTS = [
    ("FSDP 4", {}, False, 1),
    ("DDP 4", {"data_parallel_replicate_degree": 4, "data_parallel_shard_degree": 1}, False, 1),
    ("HSDP 2 x 2", {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 2}, False, 1),
    ("FSDP 2 x TP 2", {"tensor_parallel_degree": 2}, False, 2),
    ("DDP 2 x TP 2", {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 1,
                      "tensor_parallel_degree": 2}, False, 2),
    ("EP 4", {"expert_parallel_degree": 4}, True, 1),
    ("FSDP 2 x EP 2", {"expert_parallel_degree": 2}, True, 1),
]
RANKS = 4
PLAN = ["--compile.enable_autoparallel"]


def draw(random_numbers):
    """The flags of a job, the sequences of a rank, and whether it has experts."""
    model, flavor, experts = random_numbers.choice([
        ("llama3", "debugmodel", False), ("qwen3", "debugmodel", False),
        ("qwen3", "debugmodel_moe", True), ("deepseek_v3", "debugmodel", True)])
    layers = random_numbers.choice([2, 3, 4])
    batch = random_numbers.choice([1, 2, 4])
    length = random_numbers.choice([32, 64, 128, 256])
    flags = {"model.name": model, "model.flavor": flavor, "model.n_layers": layers, "training.seq_len": length}
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))], batch, experts


def batch_of(sequences):
    return ["--training.local_batch_size", str(sequences)]


def step_seconds(options, flags, folder):
    """Median time of a step, without the first two; None if the job is refused."""
    command = [options.gt, "train", "--device", "cpu", "--ranks", str(RANKS), "--training.steps", str(options.steps),
               "--checkpoint.last_save_in_hf=false", "--overwrite", *flags, "--dump_folder", str(folder)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                         env={**os.environ, "GT_HOME": str(ROOT)})
    if run.returncode != 0:
        return None, run.stdout.strip().splitlines()[-1]
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return statistics.median(step["seconds"] for step in steps[2:]), run.stdout


def compare(options, flags, batch, experts, folder):
    """Median ratio of the plan's step to the fastest layout's, that layout, and its step in seconds."""
    layouts = {name: batch_of(batch * sharing) +
               [word for degree, value in degrees.items() for word in (f"{PARALLELISM}{degree}", str(value))]
               for name, degrees, needs_experts, sharing in LAYOUTS if experts or not needs_experts}
    times = {name: [] for name in layouts}
    plan = []
    for number in range(options.rounds):
        for name, degrees in layouts.items():
            seconds, output = step_seconds(options, flags + degrees, folder)
            if seconds is None and number > 0:
                sys.exit(f"{name}: {output}")
            times[name].append(seconds if seconds is not None else float("inf"))
        seconds, output = step_seconds(options, flags + batch_of(batch) + PLAN, folder)
        if seconds is None:
            sys.exit(output)
        plan.append(seconds)
        if number == 0:
            layouts = dict(sorted(layouts.items(), key=lambda layout: times[layout[0]][0])[:3])
            found = next((line.strip() for line in output.splitlines() if line.startswith("placement on")), "")
    best = min(layouts, key=lambda name: statistics.median(times[name]))
    ratios = [mine / theirs for mine, theirs in zip(plan, times[best])]
    return statistics.median(ratios), best, statistics.median(times[best]), found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gt", default=str(ROOT / "build/release/gt"))
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--limit", type=float, default=1.1)
    options = parser.parse_args()
    if options.rounds < 1 or options.steps < 3:
        parser.error("--rounds takes 1 or more, --steps 3 or more")
    random_numbers = random.Random(options.seed)
    all_ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for job in range(options.jobs):
            flags, batch, experts = draw(random_numbers)
            ratio, best, seconds, found = compare(options, flags, batch, experts, pathlib.Path(folder) / str(job))
            all_ratios.append(ratio)
            print(f"{job + 1:>2}  {ratio:5.2f} x {best:<14} {1e3 * seconds:8.1f} ms  {' '.join(flags + batch_of(batch))}\n"
                  f"      {found}", flush=True)
    print(f"{len(all_ratios)} jobs: median {statistics.median(all_ratios):.2f}, most {max(all_ratios):.2f}, "
          f"{sum(ratio > options.limit for ratio in all_ratios)} above {options.limit}")
    sys.exit(max(all_ratios) > options.limit)


if __name__ == "__main__":
    main()
