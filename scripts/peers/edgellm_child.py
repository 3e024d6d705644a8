"""Runs tests for bench_peers.py with edgellm: MODEL THREADS CONTEXT CONVERSATIONS [--no-mmap]; one test a line in, seconds out.

`bytesN` answers how many bytes a token reads that sees N others; `overhead` the peak memory in MiB beside weights, keys and values.
"""

from __future__ import annotations

import random
import resource
import sys
import time

import edgellm
from edgellm.bench.batched import measure
from edgellm.bench.measure import bytes_of_token

MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def main() -> None:
    path, threads, context, most = sys.argv[1], *(int(argument) for argument in sys.argv[2:5])
    with edgellm.load(path, threads=threads, context=context, parallel=most, mmap="--no-mmap" not in sys.argv) as model:
        rng = random.Random(0)
        deep: list[int] = []  # the last prompt of a test at depth: rounds of one test share it
        for line in sys.stdin:
            if line.startswith("bytes"):
                print(bytes_of_token(model, int(line.removeprefix("bytes"))), flush=True)
                continue
            if line.startswith("overhead"):
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_UNIT
                print((peak - model.info.file_bytes - model.info.kv_bytes) / 2**20, flush=True)
                continue
            kind, (length, depth, conversations) = line[:2], [int(part) for part in line[2:].split(",")]
            if conversations > 1:
                print(measure(model, conversations, depth, length).seconds, flush=True)
                continue
            prompt = [rng.randrange(model.n_vocab) for _ in range(length if kind == "pp" else depth + 1)]
            if kind == "tg" and depth:  # the prompt is computed before the clock starts, and reused after it
                deep = prompt = deep if len(deep) == len(prompt) else prompt
                model.generate(prompt, max_tokens=1, temperature=0, ignore_eos=True)
            start = time.perf_counter()
            model.generate(prompt, max_tokens=1 if kind == "pp" else length, temperature=0, ignore_eos=True)
            print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
