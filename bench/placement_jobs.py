#!/usr/bin/env python3
"""gt place over many jobs: how good its plans are, how well they are proven, how fast they are found.

  bench/placement_jobs.py hand    plans beside the best hand-written layout, judged by the same costs
  bench/placement_jobs.py gap     certified gap, seconds and memory of large models, capture included

Every row is a ratio against a peer of the same run: the best hand-written layout, or the proven bound.
"""

import argparse
import math
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Published configuration, ranks, cluster, sequences of each rank.
HAND = [
    (model, ranks, cluster, batch)
    for model, sizes in {
        "llama3_1B": (8, 64),
        "llama3_8B": (8, 64, 256),
        "llama3_70B": (64, 256),
        "qwen3_0.6B": (8, 32),
        "qwen3_4B": (32, 128),
        "qwen3_14B": (64,),
        "qwen3_30B-A3B": (64, 128),
        "deepseek_v3_16B": (16, 64, 256),
        "deepseek_v3_671B": (512,),
    }.items()
    for ranks in sizes
    for cluster in ("h100", "ethernet")
    for batch in (1, 2)
]
LEFT_OUT = {("deepseek_v3_671B", 512, "ethernet", 2)}  # takes longest, and shows nothing new

GAP = [
    ("llama3_1B", "8"), ("llama3_1B", "4x8"), ("llama3_8B", "64"), ("llama3_8B", "8x8"),
    ("llama3_70B", "64"), ("llama3_70B", "8x8"), ("llama3_70B", "32x8"), ("llama3_405B", "64x8"),
    ("qwen3_4B", "64"), ("qwen3_4B", "8x8"), ("qwen3_30B-A3B", "64"), ("qwen3_30B-A3B", "8x8"),
    ("deepseek_v3_16B", "64"), ("deepseek_v3_16B", "8x8"),
    ("deepseek_v3_671B", "512"), ("deepseek_v3_671B", "64x8"), ("deepseek_v3_671B", "32x16"),
    ("llama3_8B", "4x4x4"), ("llama3_8B", "4x8x8"), ("llama3_70B", "4x8x8"),
    ("qwen3_4B", "4x8x8"), ("qwen3_30B-A3B", "4x8x8"),
    ("deepseek_v3_16B", "4x8x8"), ("deepseek_v3_671B", "4x8x16"), ("llama3_8B", "2x2x2x8"),
]


def place(binary, model, ranks, mesh, *flags):
    """Output, processor seconds and peak memory in MB of one call."""
    command = [binary, "place", "--config", f"{ROOT}/configs/{model}.toml", "--device", "cuda",
               "--ranks", str(ranks), "--mesh", mesh, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               cwd=ROOT, env={**os.environ, "GT_HOME": ROOT})
    output = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    return output, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def number(pattern, text):
    found = re.search(pattern, text)
    return float(found.group(1)) if found else None


def hand(binary, models):
    print(f"{'model':<18} {'ranks':>5} {'cluster':<9} {'batch':>5} {'mesh':>8} {'step ms':>10} "
          f"{'gap %':>6} {'best by hand':<20} {'ratio':>6} {'cpu s':>6}")
    ratios, misfits = [], 0
    for job in HAND:
        if job in LEFT_OUT or models not in job[0]:
            continue
        model, ranks, cluster, batch = job
        output, seconds, _ = place(binary, model, ranks, "auto", "--comm.cluster", cluster,
                                   "--training.local_batch_size", str(batch),
                                   "--training.seq_len", "4096", "--memory_gb", "73.6",
                                   "--parallelism.tensor_parallel_degree", "1",
                                   "--parallelism.expert_parallel_degree", "1")
        row = f"{model:<18} {ranks:>5} {cluster:<9} {batch:>5}"
        step = number(r"step ([0-9.]+) ms", output)
        if step is None:
            misfits += 1
            print(f"{row} {output.strip().splitlines()[-1][:90]}")
            continue
        rivals = re.findall(r"^  (\S.*?) +[0-9.]+ ms .*?([0-9.]+) x the plan$", output, re.M)
        name, ratio = min(rivals, key=lambda rival: float(rival[1]), default=("none fits", "nan"))
        if rivals:
            ratios.append(float(ratio))
        mesh = re.search(r"mesh (\S+)", output).group(1)
        print(f"{row} {mesh:>8} {step:>10.2f} {number(r'gap ([0-9.]+) %', output):>6.2f} {name:<20} "
              f"{float(ratio):>6.3f} {seconds:>6.1f}", flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))
    print(f"{len(ratios)} jobs with a hand-written layout that fits, {misfits} without any placement; "
          f"geometric mean {mean:.4f}, least {min(ratios, default=1):.4f}, "
          f"most {max(ratios, default=1):.4f}")
    return min(ratios, default=1) >= 0.9995


def gap(binary, models, memory_gb):
    print(f"{'model':<18} {'mesh':>8} {'step ms':>10} {'bound ms':>10} {'gap %':>6} {'cpu s':>6} "
          f"{'MB':>5}")
    for model, mesh in GAP:
        if models not in model:
            continue
        ranks = math.prod(map(int, mesh.split("x")))
        output, seconds, megabytes = place(binary, model, ranks, mesh, "--compare=false",
                                           "--memory_gb", str(memory_gb))
        step = number(r"step ([0-9.]+) ms", output)
        if step is None:
            print(f"{model:<18} {mesh:>8} {output.strip().splitlines()[-1][:90]}", flush=True)
            continue
        bound = number(r"takes less than ([0-9.]+) ms", output)
        print(f"{model:<18} {mesh:>8} {step:>10.2f} {bound:>10.2f} {100 * (1 - bound / step):>6.3f} "
              f"{seconds:>6.2f} {megabytes:>5.0f}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["hand", "gap"])
    parser.add_argument("--binary", default=f"{ROOT}/build/release/gt")
    parser.add_argument("--memory_gb", type=float, default=73.6)
    parser.add_argument("--models", default="", help="only those whose name has this in it")
    arguments = parser.parse_args()
    if arguments.what == "hand":
        done = hand(arguments.binary, arguments.models)
    else:
        done = gap(arguments.binary, arguments.models, arguments.memory_gb)
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
