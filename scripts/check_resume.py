"""Measure how saved conversations come back: time to resume and to fork, the same logits, and what kill -9 leaves behind.

python scripts/check_resume.py model.gguf                  # a conversation of 4,096 tokens
python scripts/check_resume.py model.gguf --kills 100      # and 100 kills at random moments of saving
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import edgellm
from edgellm.errors import SessionError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--kills", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ok = resume(options.model, options.tokens, Path(folder) / "s")
        if options.kills:
            ok = kills(options.model, options.kills, Path(folder) / "k") and ok
    return 0 if ok else 1


def resume(name: str, tokens: int, file: Path) -> bool:
    """Save a conversation, go on in another load of the model; the same logits and the time that it took."""
    chance = np.random.default_rng(1)
    with edgellm.load(name, context=tokens + 64) as model, model.session() as session:
        prompt = chance.integers(0, model.n_vocab, tokens).tolist()
        first = session.generate(prompt, max_tokens=1, temperature=0, ignore_eos=True)
        started = time.perf_counter()
        session.save(file, sync=False)
        saving = time.perf_counter() - started
        forks = sorted(forked(session) for _ in range(9))
        wanted = logits_of(session, [*prompt, *first.token_ids])
    with edgellm.load(name, context=tokens + 64) as model:
        started = time.perf_counter()
        with model.resume(file) as session:
            seconds = [time.perf_counter() - started]
            got = logits_of(session, [*prompt, *first.token_ids])
        for _ in range(4):
            started = time.perf_counter()
            model.resume(file).close()
            seconds.append(time.perf_counter() - started)
    same = np.array_equal(wanted, got)
    later = ", ".join(f"{s * 1e3:.0f}" for s in seconds[1:])
    print(
        f"{tokens} tokens, {file.stat().st_size / 2**20:.1f} MiB: saved in {saving * 1e3:.0f} ms, resumed in "
        f"{seconds[0] * 1e3:.0f} ms (again {later}), forked in {forks[4] * 1e3:.2f} ms; "
        f"logits {'the same' if same else 'DIFFER'}"
    )
    return same


def forked(session: edgellm.Session) -> float:
    """Seconds that a fork takes."""
    started = time.perf_counter()
    fork = session.fork()
    seconds = time.perf_counter() - started
    fork.close()
    return seconds


def logits_of(session: edgellm.Session, ids: list[int]) -> np.ndarray:
    """The logits of 8 tokens that follow, all bits of them."""
    rows: list[np.ndarray] = []

    def note(ids: np.ndarray, logits: np.ndarray) -> np.ndarray:
        rows.append(logits.copy())
        return logits

    session.generate(ids, max_tokens=8, temperature=0, ignore_eos=True, processors=[note])
    return np.stack(rows)


def kills(name: str, times: int, file: Path) -> bool:
    """Kill a process while it saves over and over: the file must be an old or a new state each time."""
    chance, whole, lengths = random.Random(2), 0, []
    for _ in range(times):
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            save_for_ever(name, file, told)
        os.close(told)
        os.read(ready, 1)
        time.sleep(chance.random() * 0.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        with edgellm.load(name, context=512) as model:
            try:
                with model.resume(file) as session:
                    lengths.append(session.n_tokens)
                    whole += 1
            except SessionError as error:
                print(error)
    print(f"killed {times} times: {whole} whole states, of {min(lengths)} to {max(lengths)} tokens")
    return whole == times


def save_for_ever(name: str, file: Path, told: int) -> None:
    """The child: a growing conversation, saved after each token."""
    try:
        with edgellm.load(name, context=512) as model, model.session() as session:
            for k, _ in enumerate(session.stream([1], max_tokens="unlimited", ignore_eos=True)):
                session.save(file)
                if k == 0:
                    os.write(told, b".")
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
