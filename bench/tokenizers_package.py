"""Encodes a text with the `tokenizers` package on one thread and prints the seconds of the best try and a checksum of
the ids; bench/tokenizer_bench.cc runs it beside gt.

    python3 bench/tokenizers_package.py TOKENIZER.json TEXT [TRIES]
"""
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402


def checksum(ids):
    """FNV-1a over the ids; gt computes the same."""
    value = 0xCBF29CE484222325
    for token in ids:
        value = ((value ^ token) * 0x100000001B3) % 2**64
    return value


def main():
    tokenizer = Tokenizer.from_file(sys.argv[1])
    with open(sys.argv[2], "rb") as file:
        documents = file.read().decode("utf-8", errors="replace").split("\n\n")
    tries = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    # encode_batch_fast leaves offsets out, which gt does not compute either.
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    best, ids = float("inf"), []
    for _ in range(tries):
        start = time.perf_counter()
        encodings = encode(documents, add_special_tokens=False)
        best = min(best, time.perf_counter() - start)
        ids = [token for encoding in encodings for token in encoding.ids]
    print(f"{best:.6f} {len(ids)} {checksum(ids)}")


if __name__ == "__main__":
    main()
