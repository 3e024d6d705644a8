"""Checks that drafts change no answer, and measures what they bring: plain and drafted answers of one model in turns.

    scripts/check_drafts.py MODEL.gguf [--draft ngram|SMALL.gguf] [--ids 10000] [--rounds 5]

First as many ids as asked for, at temperatures 0 and 1, with drafts that are never switched off: how many differ. Then the speed
of greedy answers to a prompt that repeats itself and of sampled ones to random ids, medians of alternating rounds. Ends with 1
where an id differs.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any  # options of generate

import numpy as np

import edgellm
from edgellm import Model
from edgellm.engine.speculate.drafter import Drafter

ANSWER = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--draft", default="ngram")
    parser.add_argument("--ids", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128, help="of an answer that is timed")
    options = parser.parse_args()
    with edgellm.load(options.model, context=1024) as model:
        differing = compare(model, options.draft, options.ids) if options.ids else 0
        if options.rounds:
            speed(model, options.draft, options.rounds, options.tokens)
    raise SystemExit(1 if differing else 0)


def compare(model: Model, draft: str, ids: int) -> int:
    """How many ids differ."""
    note, chance = Drafter.note, np.random.default_rng(1)
    total = differing = drafted = accepted = 0
    try:
        Drafter.note = lambda self, n, made, seconds: note(self, n, made, float(not n))  # type: ignore[method-assign]
        while total < ids:
            prompt = repeating(model, chance)
            wanted: dict[str, Any] = {
                "max_tokens": ANSWER,
                "temperature": float(total // ANSWER % 2),
                "seed": total,
                "ignore_eos": True,
            }
            plain = model.generate(prompt, **wanted).token_ids
            guessed = model.generate(prompt, draft=draft, **wanted)
            differing += sum(a != b for a, b in zip(plain, guessed.token_ids, strict=True))
            total += len(plain)
            drafted, accepted = drafted + guessed.stats.drafted_tokens, accepted + guessed.stats.accepted_tokens
    finally:
        Drafter.note = note  # type: ignore[method-assign]
    print(f"{differing} of {total} ids differ; {accepted} of {drafted} drafted tokens were right", flush=True)
    return differing


def repeating(model: Model, chance: np.random.Generator) -> list[int]:
    """A prompt in which some random ids come again and again."""
    phrase = chance.integers(3, model.n_vocab, 12).tolist()
    return [*phrase * 8, *phrase[:3]]


def speed(model: Model, draft: str, rounds: int, tokens: int) -> None:
    chance = np.random.default_rng(2)
    cases: dict[str, tuple[list[int], dict[str, Any]]] = {
        "text that repeats": (repeating(model, chance), {"temperature": 0.0, "processors": [follow]}),
        "random text": (chance.integers(3, model.n_vocab, 100).tolist(), {"temperature": 1.0, "processors": [flatten]}),
    }
    for name, (prompt, wanted) in cases.items():
        rates: dict[str | None, list[float]] = {None: [], draft: []}
        for turn in range(rounds + 1):
            for way, found in rates.items():
                done = model.generate(prompt, draft=way, max_tokens=tokens, ignore_eos=True, seed=turn, **wanted)
                if turn:  # the first only warms up
                    found.append(done.stats.tokens_per_second)
        plain, drafted = (statistics.median(found) for found in rates.values())
        print(f"{name:<18} {plain:8.1f} tokens/s, with drafts {drafted:8.1f}: {drafted / plain:.2f} x", flush=True)


def follow(ids: Any, logits: Any) -> Any:
    """Makes the id likely that followed the newest one before, in every answer alike."""
    found = np.flatnonzero(np.asarray(ids[:-1]) == ids[-1])
    if len(found):
        logits[ids[int(found[-1]) + 1]] += 50
    return logits


def flatten(ids: Any, logits: Any) -> Any:
    """Makes all ids equally likely."""
    logits[:] = 0
    return logits


if __name__ == "__main__":
    main()
