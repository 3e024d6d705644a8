"""The cost of constraints: the mask's share of a token, and how long another thread waits for the first constrained call.

    .venv/bin/python scripts/bench_constraint.py MODEL [--tokens 200]

Runs schemas, tools and a regular expression on MODEL with drawn tokens. Prints the time in masks and in accepting tokens beside
that of a token, the slowest call, and the longest gap of a thread that ticks while the first constrained answer is begun, beside
that of an answer without a form.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any  # options of any kind

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import edgellm
from edgellm.chat import ChatTemplate
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
        free, first = (
            max(_gaps(lambda form=form: model.generate("Hello", max_tokens=8, **form))) for form in ({}, FORMS["schema"])
        )
        print(f"{model.n_vocab:,} words; the first constrained answer: another thread waits {first * 1e3:.0f} ms at most, ", end="")
        print(f"{free * 1e3:.0f} ms where there is no form")
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
