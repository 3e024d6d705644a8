"""An agent's day against `edgellm serve`: a long system prompt, turns that add to it, a restart in the middle; what was computed.

    python scripts/agent_day.py MODEL [--system 16000] [--turns 20] [--words 80] [--tokens 40] [--kill] [--load "--threads 2"]

`--kill` ends the first server with SIGKILL instead of SIGTERM. Saved prefixes go to a folder of their own, which is deleted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # Any: JSON

from edgellm.folders import user_cache

WORDS = [
    "river",
    "stone",
    "window",
    "paper",
    "engine",
    "garden",
    "signal",
    "copper",
    "lantern",
    "market",
    "bridge",
    "winter",
    "pencil",
    "harbour",
    "velvet",
    "meadow",
]
MOST_COMPUTED, MOST_SECONDS = 1.05, 1.0  # of the new tokens; to the first token after the restart


@dataclass(frozen=True, slots=True)
class Turn:
    prompt: int
    cached: int
    written: int
    first: float  # seconds to the first token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--system", type=int, default=16000, help="tokens of the system prompt, about")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--words", type=int, default=80, help="of each message")
    parser.add_argument("--tokens", type=int, default=40, help="of each answer")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--load", default="", help="options of edgellm serve")
    asked = parser.parse_args()
    turns = list(day(asked))
    new = turns[-1].prompt + turns[-1].written
    computed = sum(turn.prompt - turn.cached + turn.written for turn in turns)
    after = turns[asked.turns // 2].first
    print(f"new tokens {new}, computed {computed}: {computed / new:.3f} (wanted {MOST_COMPUTED} at most)")
    print(f"first token: {turns[0].first:.2f} s at first, {after:.2f} s after the restart (wanted {MOST_SECONDS} at most)")
    sys.exit(computed > MOST_COMPUTED * new or after > MOST_SECONDS)


def day(asked: argparse.Namespace) -> Iterator[Turn]:
    """All turns, with the restart in their middle."""
    rng, context = random.Random(0), asked.system + asked.turns * (3 * asked.words + asked.tokens + 40) + 512
    said: list[dict[str, Any]] = [{"role": "system", "content": sentence(rng, asked.system * 14 // 15)}]
    options = ["--context", str(context), *asked.load.split()]
    with cache() as environment:
        for part in (range(asked.turns // 2), range(asked.turns // 2, asked.turns)):
            with server(asked.model, options, environment, kill=asked.kill) as address:
                for number in part:
                    said.append({"role": "user", "content": sentence(rng, asked.words)})
                    turn, text = ask(address, said, asked.tokens)
                    said.append({"role": "assistant", "content": text})
                    print(f"turn {number + 1:2}: {turn}", flush=True)
                    yield turn


def sentence(rng: random.Random, n: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(n))


@contextmanager
def cache() -> Iterator[dict[str, str]]:
    """A cache folder that has the compiled kernels, and no prefixes."""
    with tempfile.TemporaryDirectory() as folder:
        for each in user_cache().iterdir():
            if each.name != "prefixes":
                (shutil.copytree if each.is_dir() else shutil.copy)(each, Path(folder) / each.name)
        yield {**os.environ, "EDGELLM_CACHE": folder}


@contextmanager
def server(model: str, options: list[str], environment: dict[str, str], *, kill: bool) -> Iterator[str]:
    command = [sys.executable, "-m", "edgellm", "serve", model, "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            yield next(line.split(" on ")[1].split(";")[0] for line in process.stderr if " on http" in line)
        finally:
            since = time.monotonic()
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            process.communicate(timeout=60)
            print(f"the server ended in {time.monotonic() - since:.2f} s")


def ask(address: str, messages: list[dict[str, Any]], tokens: int) -> tuple[Turn, str]:
    body = {"messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    data = json.dumps({**body, "stream_options": {"include_usage": True}}).encode()
    request = urllib.request.Request(f"{address}/v1/chat/completions", data, {"content-type": "application/json"})
    since, first, text, usage = time.perf_counter(), 0.0, "", dict[str, Any]()
    with urllib.request.urlopen(request) as lines:
        for line in lines:
            if line.startswith(b"data: {"):
                chunk = json.loads(line[6:])
                usage = chunk.get("usage") or usage
                for choice in chunk["choices"]:
                    if piece := choice["delta"].get("content"):
                        first = first or time.perf_counter() - since
                        text += piece
    return Turn(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"], first), text


if __name__ == "__main__":
    main()
