"""What a foreground request loses to background ones decoding beside it: time to its first token, and its tokens/s.

    .venv/bin/python scripts/bench_latency.py MODEL.gguf [--beside 4] [--prompt 128] [--new 32] [--threads 2] [--rounds 5]

Each round runs a request alone, then one while the others decode; the medians are printed.
"""
from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import edgellm

LONGEST = 400                                    # tokens of a background answer; then the next one begins
BEGUN = 8                                        # tokens of each background answer before the foreground request starts


@dataclass(frozen=True, slots=True)
class Request:
    """Seconds to the first token, and tokens per second after it."""

    first: float
    speed: float


def request(model: edgellm.Model, prompt: int, new: int) -> Request:
    """A foreground request with random tokens, measured."""
    with model.session() as session:
        came = [time.perf_counter()]
        for _ in session.stream(tokens(model, prompt), max_tokens=new, temperature=0, ignore_eos=True):
            came.append(time.perf_counter())
    return Request(came[1] - came[0], (new - 1) / (came[-1] - came[1]))


def tokens(model: edgellm.Model, n: int) -> list[int]:
    return [random.randrange(model.n_vocab) for _ in range(n)]


@contextmanager
def decoding(model: edgellm.Model, n: int) -> Iterator[None]:
    """`n` background requests, all of them past their prompts."""
    ended, done = threading.Event(), [0] * n

    def work(k: int) -> None:
        with model.session(priority="background") as session:
            while not ended.is_set():
                for _ in session.stream(tokens(model, 16), max_tokens=LONGEST, temperature=0, ignore_eos=True):
                    done[k] += 1
                    if ended.is_set():
                        break

    threads = [threading.Thread(target=work, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    while min(done) < BEGUN:
        time.sleep(0.01)
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name, usual in (("beside", 4), ("prompt", 128), ("new", 32), ("threads", 2), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    alone, beside = list[Request](), list[Request]()
    context = max(asked.prompt + asked.new, LONGEST + 16) + 16
    with edgellm.load(asked.model, threads=asked.threads, context=context, parallel=asked.beside + 1) as model:
        request(model, asked.prompt, asked.new)                          # warms up
        for _ in range(asked.rounds):
            alone.append(request(model, asked.prompt, asked.new))
            with decoding(model, asked.beside):
                beside.append(request(model, asked.prompt, asked.new))
    one, other = (statistics.median(each.first for each in runs) for runs in (alone, beside))
    fast, slow = (statistics.median(each.speed for each in runs) for runs in (alone, beside))
    print(f"first token of {asked.prompt}: alone {one * 1e3:.0f} ms, beside {asked.beside} {other * 1e3:.0f} ms = "
          f"{(other - 1 / slow) / one:.2f} x + a step of {1e3 / slow:.0f} ms; "
          f"then {fast:.1f} and {slow:.1f} tokens/s = {slow / fast:.2f} x")


if __name__ == "__main__":
    main()
