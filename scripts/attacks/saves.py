"""Processes that save chats into one folder at once: each file is some process's whole chat, never a mixture or a part."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from attacks import Figure, count
from edgellm.cli.chat.session_store import SavedChat, SessionStore
from edgellm.errors import EdgeError

PROCESSES, NAMES = 4, 6


def at_once(folder: Path, seed: int, n: int) -> Figure:
    """Chats of few names, written and read by all; a chat that another process has open is left to it."""
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        done = list(pool.map(_writer, [folder] * PROCESSES, range(seed, seed + PROCESSES), [n // PROCESSES] * PROCESSES))
    left = [path.name for path in folder.iterdir() if path.suffix not in (".json", ".lock")]
    faults = [fault for _, found in done for fault in found] + [f"{name} was left" for name in left]
    return Figure(
        f"{n:,} saves by {PROCESSES} processes under {NAMES} names", count(end for ends, _ in done for end in ends), faults
    )


def _writer(folder: Path, seed: int, n: int) -> tuple[list[str], list[str]]:
    """The ends of all saves and reads, and the faults."""
    store, source, ends, faults, saved = SessionStore(folder), random.Random(seed), list[str](), list[str](), 0
    while saved < n:
        name, other = (f"chat-{source.randrange(NAMES)}" for _ in range(2))
        try:
            if (held := store.lock(name)) is None:
                ends.append("refused as open elsewhere")
            else:
                with contextlib.closing(held):
                    said = f"{seed} {saved} " * source.randrange(1, 400)
                    store.write(name, SavedChat("m", ({"role": "user", "content": said}, {"role": "assistant", "content": said})))
                    if store.read(name).turns[0]["content"] != said:
                        faults.append(f"{name}: another chat under a name that was locked")
                saved += 1
                ends.append("saved")
            if store.text_path(other).exists():
                question, answer = (turn["content"] for turn in store.read(other).turns)
                faults += [f"{other}: a mixture"] if question != answer or len(set(question.split()[::2])) != 1 else []
                ends.append("read whole")
        except (EdgeError, OSError) as error:
            faults.append(f"{name}: {error!r}")
    return ends, faults
