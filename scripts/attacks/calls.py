"""Calls from many threads: answers, streams, cancelling and sessions at once, each right or ended in order."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tiny_models import tiny_model

import edgellm
from attacks import Figure, count
from edgellm.errors import EdgeError

THREADS, PROMPTS, LENGTH = 16, 12, 12


def from_threads(folder: Path, seed: int, n: int) -> Figure:
    """Figure 28: every whole answer is the one that the prompt gets alone, every cancelled one a beginning of it."""
    source = random.Random(seed)
    prompts = [[source.randrange(3, 96) for _ in range(source.randrange(1, 20))] for _ in range(PROMPTS)]
    with edgellm.load(tiny_model(folder / "m.gguf"), threads=2, parallel=4) as model:
        alone = [tuple(model.generate(prompt, max_tokens=LENGTH, temperature=0, ignore_eos=True).token_ids) for prompt in prompts]

        def call(case: int) -> str:
            own = random.Random(f"{seed} {case}")
            which, kind = own.randrange(PROMPTS), own.choice(("generate", "stream", "cancel", "session", "wrong"))
            if kind == "wrong":
                try:
                    model.generate([-1], max_tokens=own.choice((1, -5)))
                except EdgeError:
                    return "refused"
                raise AssertionError("accepted a wrong token")
            if kind == "generate":
                got = model.generate(prompts[which], max_tokens=LENGTH, temperature=0, ignore_eos=True).token_ids
            elif kind == "session":
                with model.session() as session:
                    got = session.generate(prompts[which], max_tokens=LENGTH, temperature=0, ignore_eos=True).token_ids
            else:
                stream = model.stream(prompts[which], max_tokens=LENGTH, temperature=0, ignore_eos=True)
                for k, _ in enumerate(stream):
                    if kind == "cancel" and k == own.randrange(LENGTH):
                        stream.close()
                        break
                got = stream.result.token_ids
            whole = alone[which][: len(got)] if kind == "cancel" else alone[which]
            return "right" if tuple(got) == whole else f"wrong {kind}"

        faults, ends = list[str](), list[str]()
        with ThreadPoolExecutor(THREADS) as pool:
            for case, done in enumerate([pool.submit(call, case) for case in range(n)]):
                try:
                    ends.append(done.result(timeout=600))
                except BaseException as error:
                    faults.append(f"{case}: {error!r}")
                else:
                    faults += [f"{case}: {ends[-1]}"] if ends[-1].startswith("wrong") else []
    return Figure(f"{n:,} calls from {THREADS} threads on one model", f"{count(ends)}", faults)
