"""Many conversations through the API: tokens/s of streams read at once, and what a request loses to background ones beside it.

    .venv/bin/python scripts/bench_sessions.py MODEL.gguf [--streams 1,2,4,8] [--beside 4] [--prompt 128] [--new 64] [--threads 2]
                       [--rounds 3]

Streams are each read by a thread of their own, then by tasks of one event loop. The background requests decode all the while; each
round runs a foreground one alone, then one beside them. Medians are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import edgellm
from edgellm.sampling import SamplingKeywords

GREEDY: SamplingKeywords = {"temperature": 0, "ignore_eos": True}
SHORT = 16  # tokens of the prompts whose time does not count
LONGEST = 400  # tokens of a background answer; then the next one begins
BEGUN = 8  # tokens of each background answer before the foreground request starts


@dataclass(frozen=True, slots=True)
class Request:
    """Seconds to the first token, and tokens per second after it."""

    first: float
    speed: float


def tokens(model: edgellm.Model, n: int) -> list[int]:
    return [random.randrange(model.n_vocab) for _ in range(n)]


def by_threads(model: edgellm.Model, n: int, new: int) -> float:
    """Tokens per second of `n` streams, from the first token of the last one to the end of the first one."""

    def read(_: int) -> list[float]:
        with model.session() as session:
            stream = session.stream(tokens(model, SHORT), max_tokens=new, **GREEDY)
            return [time.perf_counter() for _ in stream]

    with ThreadPoolExecutor(n) as pool:
        return together(list(pool.map(read, range(n))))


def by_tasks(model: edgellm.Model, n: int, new: int) -> float:
    """The same under asyncio."""

    async def read() -> list[float]:
        with model.session() as session:
            stream = session.astream(tokens(model, SHORT), max_tokens=new, **GREEDY)
            return [time.perf_counter() async for _ in stream]

    async def all_of_them() -> list[list[float]]:
        return await asyncio.gather(*(read() for _ in range(n)))

    return together(asyncio.run(all_of_them()))


def together(came: list[list[float]]) -> float:
    """Tokens per second while all of them were written; when each token of each came."""
    begin, end = max(times[0] for times in came), min(times[-1] for times in came)
    return sum(begin < moment <= end for times in came for moment in times) / (end - begin)


def request(model: edgellm.Model, prompt: int, new: int) -> Request:
    """A foreground request with random tokens, measured."""
    with model.session() as session:
        came = [time.perf_counter()]
        for _ in session.stream(tokens(model, prompt), max_tokens=new, **GREEDY):
            came.append(time.perf_counter())
    return Request(came[1] - came[0], (new - 1) / (came[-1] - came[1]))


@contextmanager
def decoding(model: edgellm.Model, n: int) -> Iterator[None]:
    """`n` background requests, all of them past their prompts."""
    ended, done = threading.Event(), [0] * n

    def work(k: int) -> None:
        with model.session(priority="background") as session:
            while not ended.is_set():
                for _ in session.stream(tokens(model, SHORT), max_tokens=LONGEST, **GREEDY):
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
    parser.add_argument("--streams", default="1,2,4,8")
    for name, usual in (("beside", 4), ("prompt", 128), ("new", 64), ("threads", 2), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    counts = [int(count) for count in asked.streams.split(",")]
    context, most = max(asked.prompt + asked.new, LONGEST + SHORT) + 1, max(*counts, asked.beside + 1)
    with edgellm.load(asked.model, threads=asked.threads, context=context, parallel=most) as model:
        request(model, asked.prompt, asked.new)  # warms up
        for n in counts:
            speeds = [(by_threads(model, n, asked.new), by_tasks(model, n, asked.new)) for _ in range(asked.rounds)]
            threads, tasks = (statistics.median(each) for each in zip(*speeds, strict=True))
            print(f"{n} stream{'s' if n > 1 else ''}: {threads:.1f} tokens/s by threads, {tasks:.1f} by asyncio", flush=True)
        alone, beside = list[Request](), list[Request]()
        for _ in range(asked.rounds):
            alone.append(request(model, asked.prompt, asked.new))
            with decoding(model, asked.beside):
                beside.append(request(model, asked.prompt, asked.new))
    one, other = (statistics.median(each.first for each in runs) for runs in (alone, beside))
    fast, slow = (statistics.median(each.speed for each in runs) for runs in (alone, beside))
    print(
        f"a request of {asked.prompt} tokens, alone and beside {asked.beside}: first token after {one * 1e3:.0f} and "
        f"{other * 1e3:.0f} ms, {(other - 1 / slow) / one:.2f} x and a step of {1e3 / slow:.0f} ms; then {fast:.1f} and "
        f"{slow:.1f} tokens/s, {slow / fast:.2f} x"
    )


if __name__ == "__main__":
    main()
