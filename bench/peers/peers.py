#!/usr/bin/env python3
"""gt beside plain PyTorch: the same architectures on the same GPU in the same run.

  python3 bench/peers/peers.py [--gt PATH] [--cases llama3,deepseek_v3,...] [--modes eager,block,whole,graphs]

Prints milliseconds a step and GiB at the peak, and gt's ratio to each peer. PyTorch runs the models of models.py with
bf16 parameters, fused AdamW and clipped gradients: eager, each block compiled, the whole model with its loss compiled,
and that with CUDA graphs. gt runs with and without generated kernels. Every measurement is a process of its own, so that
no one's memory or compiler cache is another's; times are medians after the first steps.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = 32000
CASES = {  # model, flavor, layers, batch, length
    "llama3": ("llama3", "8B", 8, 2, 4096),
    "llama3_small": ("llama3", "8B", 8, 1, 256),
    "deepseek_v3": ("deepseek_v3", "16B", 6, 2, 4096),
    "deepseek_v3_small": ("deepseek_v3", "16B", 6, 1, 512),
}


def run_torch(case, mode, steps):
    model, _, layers, batch, length = CASES[case]
    command = [sys.executable, str(HERE / "models.py"), model, mode, str(layers), str(batch), str(length), str(VOCAB),
               str(steps)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1:]
    return json.loads(done.stdout.strip().splitlines()[-1]), None


def run_gt(gt, case, flags, steps):
    model, flavor, layers, batch, length = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        command = [gt, "train", "--device", "cuda", "--model.name", model, "--model.flavor", flavor, "--model.n_layers",
                   str(layers), "--model.vocab_size", str(VOCAB), "--model.tokenizer_path", "bytes",
                   "--training.dtype", "bfloat16", "--training.local_batch_size", str(batch), "--training.seq_len",
                   str(length), "--training.steps", str(steps), "--checkpoint.last_save_in_hf=false", "--dump_folder",
                   folder, *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return None, done.stderr.strip().splitlines()[-1:]
        rows = [json.loads(line) for line in open(os.path.join(folder, "metrics.jsonl"))]
        times = [1e3 * batch * length / row["tokens_per_second"] for row in rows[4:]]
        peak = float(re.search(r"peak memory ([0-9.]+) GiB", done.stdout + done.stderr).group(1))
        return {"ms": statistics.median(times), "best_ms": min(times), "gib": peak}, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gt", default=str(HERE.parent.parent / "build/release/gt"))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--modes", default="eager,block,whole,graphs")
    parser.add_argument("--steps", type=int, default=14)
    args = parser.parse_args()
    for case in args.cases.split(","):
        print(f"{case}: {CASES[case][0]} {CASES[case][1]} widths, {CASES[case][2]} layers, "
              f"{CASES[case][3]} x {CASES[case][4]}, vocabulary {VOCAB}", flush=True)
        results = {}
        for name, flags in (("gt", []), ("gt, operators one by one", ["--compile.inductor_compilation", "none"])):
            results[name], problem = run_gt(args.gt, case, flags, args.steps)
            if problem:
                print(f"  {name}: {problem}", flush=True)
        for mode in args.modes.split(","):
            results["torch " + mode], problem = run_torch(case, mode, args.steps)
            if problem:
                print(f"  torch {mode}: {problem}", flush=True)
        ours = results.get("gt")
        for name, row in results.items():
            if row is None:
                continue
            ratio = "" if name == "gt" or not ours else \
                f"   gt / this: time {ours['ms'] / row['ms']:.3f}, memory {ours['gib'] / row['gib']:.3f}"
            print(f"  {name:<28} {row['ms']:8.2f} ms (best {row['best_ms']:.2f})  {row['gib']:6.2f} GiB{ratio}",
                  flush=True)


if __name__ == "__main__":
    main()
