"""The cost of constraints: the mask's share of a token, and how long another thread waits for the first constrained call.

    .venv/bin/python scripts/bench_constraint.py MODEL [--tokens 200]

Runs schemas, tools and a regular expression on MODEL with drawn tokens. Prints the time in masks and in accepting tokens beside
that of a token, the slowest call, the CPU time for which the first constrained answer holds the GIL at a stretch, which a busy
machine changes little, and the longest gap of a thread that ticks while the second one is begun beside that of an answer without a
form, which is the machine's noise.
"""

from __future__ import annotations

import argparse
import gc
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any  # options of any kind

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import edgellm
from edgellm.api.forms.grammar_vocabulary import GrammarVocabulary
from edgellm.chat import ChatTemplate
from edgellm.sampling import matcher
from edgellm.sampling.channels import ChannelConstraint
from edgellm.sampling.constraint import GrammarConstraint

PERSON = {"name": {"type": "string"}, "born": {"type": "string", "format": "date"}, "score": {"type": "number"}}
PEOPLE = {
    "type": "array",
    "items": {"type": "object", "properties": PERSON, "required": [*PERSON], "additionalProperties": False},
    "minItems": 50,
}
TOOL = {
    "name": "save",
    "description": "",
    "parameters": {"type": "object", "properties": {"people": PEOPLE}, "required": ["people"]},
}
FORMS: dict[str, dict[str, Any]] = {
    "schema": {"schema": PEOPLE},
    "numbers": {"schema": {"type": "array", "items": {"type": "number"}, "minItems": 500}},
    "regex": {"regex": r"([A-Za-z ,.]{1,60}\n){50}"},
    "tools": {"tools": [TOOL], "tool_choice": "save"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=200)
    asked = parser.parse_args()
    times = _measured()
    with edgellm.load(asked.model, context=4096) as model:
        model._loaded.template = ChatTemplate("{{ tools }}{{ messages[0].content }}{# <tool_call> #}")
        model.generate("Hello", max_tokens=4)  # compiles and warms what is no constraint's
        held = max(_held(lambda: model.generate("Hello", max_tokens=8, **FORMS["schema"])))
        print(
            f"{model.n_vocab:,} words; the first constrained answer holds the GIL for {held * 1e3:.0f} ms of CPU time at most, ",
            end="",
        )
        started = time.thread_time()
        gc.collect()
        print(f"of which a full garbage collection, which may come at any time, takes {(time.thread_time() - started) * 1e3:.0f}")
    with edgellm.load(asked.model, context=4096) as model:
        model._loaded.template = ChatTemplate("{{ tools }}{{ messages[0].content }}{# <tool_call> #}")
        free, first = (
            max(_gaps(lambda form=form: model.generate("Hello", max_tokens=8, **form))) for form in ({}, FORMS["schema"])
        )
        print(f"loaded again: another thread waits {first * 1e3:.0f} ms at most, {free * 1e3:.0f} ms where there is no form")
        for name, form in FORMS.items():
            times.clear()
            limits: dict[str, Any] = {"max_tokens": asked.tokens, "seed": 1, "temperature": 1.0, **form}
            if "tools" in form:
                answer = model.chat([{"role": "user", "content": "Hello"}], **limits)
            else:
                answer = model.generate("Hello", **limits)
            token = 1 / answer.stats.tokens_per_second
            spent = sum(times) / max(1, answer.stats.generated_tokens)
            ranked = [each * 1e6 for each in sorted(times)]
            print(f"  {name}: {spent * 1e6:.0f} us of {token * 1e3:.1f} ms a token, {spent / token:.2%}; ", end="")
            print(f"a call {statistics.median(ranked):.0f} us, p99 {ranked[int(len(ranked) * 0.99)]:.0f}, at most {ranked[-1]:.0f}")


def _measured() -> list[float]:
    """The seconds of each call of the outermost constraint from now on."""
    times, depth = list[float](), [0]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            depth[0] += 1
            started = time.perf_counter()
            try:
                return function(*args)
            finally:
                depth[0] -= 1
                if depth[0] == 0:
                    times.append(time.perf_counter() - started)

        return call

    for kind in (GrammarConstraint, ChannelConstraint):
        for name in ("mask", "accept"):
            setattr(kind, name, timed(getattr(kind, name)))
    return times


def _held(work: Callable[[], object]) -> list[float]:
    """The CPU time between two looks of the main thread at its signals, where it may give the GIL away; C functions that let others
    run count for nothing. The vocabulary is built in the main thread."""
    stretches, last, library = list[float](), [0.0], matcher._functions()

    def tick(*_: object) -> None:
        if last[0]:
            stretches.append(time.thread_time() - last[0])
            last[0] = time.thread_time()

    def released(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            tick()
            last[0] = 0.0
            result = function(*args)
            last[0] = time.thread_time()
            return result

        return call

    beside = GrammarVocabulary._start_building
    GrammarVocabulary._start_building = lambda self: self._built()  # type: ignore[method-assign,assignment,return-value]
    for name, *_ in matcher.FUNCTIONS if library is not None else ():
        setattr(library, name, released(getattr(library, name)))
    signal.signal(signal.SIGPROF, tick)
    last[0] = time.thread_time()
    signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
    work()
    signal.setitimer(signal.ITIMER_PROF, 0)
    GrammarVocabulary._start_building = beside  # type: ignore[method-assign]
    matcher._functions.cache_clear()
    return stretches


def _gaps(work: Callable[[], object]) -> list[float]:
    """How long a thread that sleeps a millisecond at a time is away, while `work` is done."""
    ended, gaps = threading.Event(), list[float]()

    def tick() -> None:
        last = time.perf_counter()
        while not ended.is_set():
            time.sleep(0.001)
            gaps.append(time.perf_counter() - last)
            last = time.perf_counter()

    thread = threading.Thread(target=tick)
    thread.start()
    work()
    ended.set()
    thread.join()
    return gaps


if __name__ == "__main__":
    main()
