#!/usr/bin/env python3
"""Copies of one job that run beside each other for a while, compared step by step.

  bench/soak.py [--gt PATH] [--copies 12] [--seconds 180] [--keep DIR] FLAG...

Flags are those of `gt train`. What differs rarely (a race, a kernel that depends on what else the machine does) shows
in thousands of steps under load, where a test of twenty steps sees nothing. Losses, norms and hashes of gradients,
parameters and buffers of all copies are compared; the first step at which a copy parts from most others is printed,
with the first number that differs, and what it is in both. Exits with 1 if one does.

  bench/soak.py --device cuda --ranks 4 --mesh 2x2 --compile.enable_autoparallel --debug.share_gpu --training.deterministic
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUMBERS = ["loss", "grad_norm", "gradient_hash", "parameter_hash", "buffer_hash"]


def start(options, flags, folder):
    command = [options.gt, "train", "--training.steps", "1000000", "--metrics.hashes", "--checkpoint.last_save_in_hf=false",
               *flags, "--dump_folder", str(folder)]
    folder.mkdir(parents=True)
    with open(folder / "log.txt", "w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                env={"GT_HOME": str(ROOT), "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **os.environ})


def steps_of(folder):
    """What was written, without a line that the end cut short."""
    steps = []
    try:
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            steps.append(json.loads(line))
    except (OSError, json.JSONDecodeError):
        pass
    return steps


def partings(copies):
    """(copy, step, name of the number, its own, that of most) of every copy that parts from the others."""
    together = dict(enumerate(copies))
    for step in range(max(map(len, copies), default=0)):
        for name in NUMBERS:
            numbers = {copy: steps[step].get(name) for copy, steps in together.items() if len(steps) > step}
            if len(set(numbers.values())) < 2:
                continue
            most = collections.Counter(numbers.values()).most_common(1)[0][0]
            for copy, number in numbers.items():
                if number != most:
                    yield copy, step + 1, name, number, most
                    del together[copy]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gt", default=str(ROOT / "build/release/gt"))
    parser.add_argument("--copies", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--keep", default="", help="folder for the logs and metrics of all copies")
    options, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        folders = [pathlib.Path(options.keep or temporary) / str(copy) for copy in range(options.copies)]
        if any(folder.exists() for folder in folders):
            sys.exit(f"{options.keep} has copies of an earlier run: name another folder")
        jobs = []
        try:
            jobs.extend(start(options, flags, folder) for folder in folders)
            end = time.monotonic() + options.seconds
            while time.monotonic() < end and any(job.poll() is None for job in jobs):
                time.sleep(0.2)
        finally:  # also when it is interrupted: they would run for days
            for job in jobs:
                job.kill()
                job.wait()
        copies = [steps_of(folder) for folder in folders]
        for copy, steps in enumerate(copies):
            if not steps:
                said = (folders[copy] / "log.txt").read_text(encoding="utf-8").strip().splitlines()
                sys.exit(f"copy {copy} has made no step: {said[-1] if said else 'it said nothing'}")
    found = list(partings(copies))
    for copy, step, name, number, most in found:
        print(f"copy {copy} parts at step {step}: {name} {number}, the others {most}")
    print(f"{options.copies} copies, {sum(map(len, copies))} steps in all: {len(found)} part from the others")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
