#!/usr/bin/env python3
"""Runs that must end in the same bits, compared by the hash of their final state.

  bench/bits.py [--gt PATH] [--device cpu|cuda] [--flavor tiny] [--steps 20] [--jobs N] [--only PATTERN]
                [--keep DIR]

A row is a set of runs of one job: eager, captured with generated kernels and without, every memory policy, with CUDA
graphs and without; chunked steps; expert-parallel ranks; placed steps. Exits with 1 if a row has two hashes. On a GPU
the last lines count the generated kernels that were admitted and say which were left to operators, and why.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

FAMILIES = {  # name: (family, what its flavors end in, has experts)
    "llama3": ("llama3", "", False),
    "qwen3": ("qwen3", "", False),
    "qwen3_moe": ("qwen3", "_moe", True),
    "deepseek_v3": ("deepseek_v3", "", True),
}
DTYPES = {"f32": "float32", "bf16": "bfloat16"}
EAGER = ["--compile.mode", "eager"]
NO_KERNELS = ["--compile.inductor_compilation", "none"]
BACKEND = ["--compile.inductor_compilation", "autoparallel_backend"]
NO_GRAPHS = ["--compile.cuda_graphs=false"]
KERNELS = {
    "kernels": [],
    "operators": NO_KERNELS,
    "blocks": ["--compile.inductor_compilation", "regional"],
    "no graphs": NO_GRAPHS,
    "backend": BACKEND,
}
POLICIES = {f"policy {policy}": ["--compile.memory_policy", policy]
            for policy in ("default", "eager", "full", "sac_and_offload")}
CHUNKS = ["--compile.ep_overlap.enabled"]
BY_MODULE = ["--compile.ep_overlap.strategy", "eager"]
STRICT = ["--compile.ep_overlap.disable_early_grad_accumulation"]


def rows(flavor):
    """(name of the job, flags of all its runs, {name of a run: its flags})"""
    for family, (model_name, ending, experts) in FAMILIES.items():
        model = ["--model.name", model_name, "--model.flavor", flavor + ending]
        for dtype_name, dtype in DTYPES.items():
            for attention in ("sdpa", "flex"):
                job = [*model, "--model.attn", attention, "--training.mixed_precision_param", dtype]
                name = f"{family} {dtype_name} {attention}"
                policies = POLICIES if attention == "sdpa" else {"policy full": POLICIES["policy full"]}
                yield name, job, {"eager": EAGER, **KERNELS, **policies}
                placed = [*job, "--ranks", "4", "--mesh", "2x2", "--compile.enable_autoparallel"]
                yield f"{name} placed", placed, {"kernels": [], "operators": NO_KERNELS, "backend": BACKEND, "no graphs": NO_GRAPHS}
                if experts:
                    yield f"{name} chunks", [*job, *CHUNKS], {"eager": [*EAGER, *BY_MODULE], "by module": BY_MODULE,
                                                              "graph": STRICT, "policy full": [*STRICT, *POLICIES["policy full"]]}
                    ranks = [*job, "--ranks", "4", "--parallelism.expert_parallel_degree", "4"]
                    yield f"{name} EP 4", ranks, {"eager": EAGER, "kernels": [], "operators": NO_KERNELS,
                                                  "no graphs": NO_GRAPHS, **policies}
            job = [*model, "--model.dropout", "0.1", "--training.mixed_precision_param", dtype]
            yield f"{family} {dtype_name} dropout", job, {"eager": EAGER, "kernels": [], "policy full": POLICIES["policy full"]}


def final_state(options, name, flags, kernels):
    """Hash of the state after the last step, or what went wrong. Counts generated kernels in `kernels`."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.keep or temporary) / re.sub("[^a-z0-9_]+", "_", name.lower())
        command = [options.gt, "train", "--device", options.device, "--training.deterministic", "--training.steps",
                   str(options.steps), "--training.seq_len", "64", "--training.local_batch_size", "2",
                   "--checkpoint.last_save_in_hf=false", "--dump_folder", str(folder), *flags]
        if options.device == "cuda" and "--ranks" in flags:
            command.append("--debug.share_gpu")
        done = subprocess.run(command, capture_output=True, text=True,
                              env={"GT_HOME": str(ROOT), "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **os.environ})
        said = done.stdout + done.stderr
        if options.keep:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "log.txt").write_text(said)
        # A run that has said its hash has ended well, whatever a library does afterwards.
        found = re.search(r"state hash ([0-9a-f]{16})", said)
        for admitted in re.findall(r"generated kernels: .* (\d+) admitted", said):
            kernels["admitted"] += int(admitted)
        for left in re.findall(r"left to operators: (.*)", said):
            kernels.update(re.sub(r" *[0-9.]+ ms", "", one) for one in left.split("; "))
        return found.group(1) if found else "failed: " + "; ".join(said.strip().splitlines()[-2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gt", default=str(ROOT / "build/release/gt"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--flavor", default="debugmodel", help="or tiny")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--keep", default="", help="folder for the logs, losses and plans of all runs")
    parser.add_argument("--only", default="", help="rows whose name contains this regular expression")
    options = parser.parse_args()
    equal = different = 0
    kernels = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        pending = [(name, {run: pool.submit(final_state, options, f"{name} {run}", job + flags, kernels) for run, flags in runs.items()})
                   for name, job, runs in rows(options.flavor) if re.search(options.only, name)]
        for name, runs in pending:
            states = {run: future.result() for run, future in runs.items()}
            same = len(set(states.values())) == 1 and not any(s.startswith("failed") for s in states.values())
            equal, different = equal + same, different + (not same)
            print(f"{name:<32} {len(states):>2} runs  {'equal' if same else 'DIFFERENT'}  {next(iter(states.values()))[:16]}",
                  flush=True)
            if not same:
                for run, state in states.items():
                    print(f"    {run:<16} {state}", flush=True)
    print(f"{equal} rows equal, {different} different")
    if options.device == "cuda":
        print(f"generated kernels, over all runs: {kernels.pop('admitted', 0)} admitted, {kernels.total()} left to operators")
        for why, times in kernels.most_common():
            print(f"    {times:>4} x {why}")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
