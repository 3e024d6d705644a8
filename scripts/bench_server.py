"""Tokens per second and time to the first token of `edgellm serve` for several streaming clients, beside the library's own rate and
llama-server.

    python scripts/bench_server.py MODEL [--clients 1 2 4 8 16 32] [--tokens 64] [--rounds 3] [--threads 2] [--llama-server PATH]

Library, server and llama-server (`-np` as many as clients, continuous batching) run in processes of their own, in turn; the
clients are here, and their prompts have from ten to 600 words. Requests go to loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

WORDS = ("What is edgellm?", "Name three rivers, and say where they rise.", "Write about the sea.", "How do I install a model?")
REPEATS = (1, 15, 4, 60)  # of a prompt's sentence
PROMPTS = tuple(" ".join([text] * n) for text, n in zip(WORDS, REPEATS, strict=True))
CONTEXT = 2048  # tokens of each client's conversation
Measured = tuple[int, float, list[float]]  # tokens, seconds, times to the first token
LIBRARY = """
import asyncio, json, sys, time, edgellm
path, clients, tokens, prompts, threads, context = json.loads(sys.argv[1])
async def ask(model, text, firsts):
    since, n = time.perf_counter(), 0
    options = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    async for piece in await model.achat([{"role": "user", "content": text}], stream=True, **options):
        if not n: firsts.append(time.perf_counter() - since)
        n += piece.token_id is not None
    return n
async def main():
    with edgellm.load(path, parallel=clients, threads=threads, context=context) as model:
        await ask(model, "Hello", [])
        firsts, since = [], time.perf_counter()
        counts = await asyncio.gather(*(ask(model, prompts[k % len(prompts)], firsts) for k in range(clients)))
        print(json.dumps([sum(counts), time.perf_counter() - since, firsts]))
asyncio.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama-server", help="its path")
    asked = parser.parse_args()
    head = "clients  library tok/s  server tok/s  ratio  TTFT p50     p95"
    print(head + ("  llama-server tok/s  TTFT p50     p95  tok/s x  p95 x" if asked.llama_server else ""))
    for clients in asked.clients:
        found: dict[str, list[Measured]] = {"library": [], "server": [], "peer": []}
        for _ in range(asked.rounds):
            found["library"].append(of_library(asked, clients))
            found["server"].append(of_server(edgellm_server(asked, clients), clients, asked.tokens))
            if asked.llama_server:
                found["peer"].append(of_server(llama_server(asked, clients), clients, asked.tokens))
        library, server = rate(found["library"]), rate(found["server"])
        p50, p95 = first_tokens(found["server"])
        line = f"{clients:7} {library:14.1f} {server:13.1f} {server / library:6.2f} {p50:8.3f}s {p95:6.3f}s"
        if found["peer"]:
            peer, (other50, other95) = rate(found["peer"]), first_tokens(found["peer"])
            line += f" {peer:19.1f} {other50:8.3f}s {other95:6.3f}s {server / peer:8.2f} {p95 / other95:6.2f}"
        print(line, flush=True)


def rate(found: list[Measured]) -> float:
    """The median of tokens per second."""
    return statistics.median(tokens / seconds for tokens, seconds, _ in found)


def first_tokens(found: list[Measured]) -> tuple[float, float]:
    """Median and 95th percentile of the times to the first token."""
    times = sorted(first for _, _, firsts in found for first in firsts)
    return times[int(0.5 * (len(times) - 1))], times[int(0.95 * (len(times) - 1))]


def of_library(asked: argparse.Namespace, clients: int) -> Measured:
    given = json.dumps([asked.model, clients, asked.tokens, PROMPTS, asked.threads, CONTEXT])
    done = subprocess.run([sys.executable, "-c", LIBRARY, given], capture_output=True, text=True, check=True, timeout=1200)
    count, seconds, firsts = json.loads(done.stdout)
    return count, seconds, firsts


def of_server(command: list[str], clients: int, tokens: int) -> Measured:
    """The same, through HTTP."""
    with started(command) as address:
        return asyncio.run(ask_all(address, clients, tokens))


def edgellm_server(asked: argparse.Namespace, clients: int) -> list[str]:
    options = ["--parallel", clients, "--threads", asked.threads, "--context", CONTEXT, "--prefix-cache", "off"]
    return [sys.executable, "-m", "edgellm", "serve", asked.model, *map(str, options)]


def llama_server(asked: argparse.Namespace, clients: int) -> list[str]:
    options = ["-np", clients, "-c", clients * CONTEXT, "-t", asked.threads, "-cb", "--no-webui"]
    return [asked.llama_server, "-m", asked.model, *map(str, options)]


@contextmanager
def started(command: list[str]) -> Iterator[str]:
    """A server that answers, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    quiet = subprocess.DEVNULL
    with subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port)], stdout=quiet, stderr=quiet) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            while not _answers(address):
                assert server.poll() is None, f"{command} has ended"
                time.sleep(0.1)
            yield address
        finally:
            server.terminate()
            server.communicate(timeout=60)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


async def ask_all(address: str, clients: int, tokens: int) -> Measured:
    firsts = list[float]()
    await ask(address, "Hello", tokens, [])
    since = time.perf_counter()
    counts = await asyncio.gather(*(ask(address, PROMPTS[k % len(PROMPTS)], tokens, firsts) for k in range(clients)))
    return sum(counts), time.perf_counter() - since, firsts


async def ask(address: str, text: str, tokens: int, firsts: list[float]) -> int:
    """One stream; the tokens that its usage tells."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0}
    data = json.dumps({**body, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    since, count = time.perf_counter(), 0
    writer.write(head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    async for line in reader:
        if b'"content":"' in line and b'"content":""' not in line and not count:
            firsts.append(time.perf_counter() - since)
            count = 1
        if b'"completion_tokens":' in line:
            count = json.loads(line.removeprefix(b"data: "))["usage"]["completion_tokens"]
    writer.close()
    return count


if __name__ == "__main__":
    main()
