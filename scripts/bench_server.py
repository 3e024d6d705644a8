"""Tokens per second and time to the first token of `edgellm serve` for several streaming clients, beside the library's own rate.

    python scripts/bench_server.py MODEL [--clients 1 2 4 8] [--tokens 64] [--rounds 3]

Server and library run in processes of their own, in turn; the clients are here. Requests go to loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from typing import Any
from urllib.parse import urlsplit

PROMPTS = ("What is edgellm?", "Name three rivers.", "Write about the sea.", "How do I install a model?")
LIBRARY = """
import asyncio, json, sys, time, edgellm
path, clients, tokens, prompts = json.loads(sys.argv[1])
async def ask(model, text, firsts):
    since, n = time.perf_counter(), 0
    options = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    async for piece in await model.achat([{"role": "user", "content": text}], stream=True, **options):
        if not n: firsts.append(time.perf_counter() - since)
        n += piece.token_id is not None
    return n
async def main():
    with edgellm.load(path, parallel=clients) as model:
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
    asked = parser.parse_args()
    print("clients  library tok/s  server tok/s  ratio  TTFT p50  p95")
    for clients in asked.clients:
        ratios, rates, firsts = list[float](), list[tuple[float, float]](), list[float]()
        for _ in range(asked.rounds):
            library = rate(*of_library(asked.model, clients, asked.tokens)[:2])
            tokens, seconds, times = of_server(asked.model, clients, asked.tokens)
            rates.append((library, rate(tokens, seconds)))
            ratios.append(rates[-1][1] / rates[-1][0])
            firsts += times
        library, server = (statistics.median(each[k] for each in rates) for k in (0, 1))
        firsts.sort()
        p50, p95 = (firsts[int(part * (len(firsts) - 1))] for part in (0.5, 0.95))
        print(f"{clients:7} {library:14.1f} {server:13.1f} {statistics.median(ratios):6.2f} {p50:8.3f}s {p95:.3f}s", flush=True)


def rate(tokens: int, seconds: float) -> float:
    return tokens / seconds


def of_library(model: str, clients: int, tokens: int) -> tuple[int, float, list[float]]:
    """Tokens, seconds, and times to the first token."""
    asked = json.dumps([model, clients, tokens, PROMPTS])
    done = subprocess.run([sys.executable, "-c", LIBRARY, asked], capture_output=True, text=True, check=True, timeout=1200)
    count, seconds, firsts = json.loads(done.stdout)
    return count, seconds, firsts


def of_server(model: str, clients: int, tokens: int) -> tuple[int, float, list[float]]:
    """The same, through HTTP."""
    command = [sys.executable, "-m", "edgellm", "serve", model, "--port", "0", "--parallel", str(clients)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            address = next(line.split(" on ")[1].split(";")[0] for line in server.stderr if " on http" in line)
            return asyncio.run(ask_all(address, clients, tokens))
        finally:
            server.terminate()
            server.communicate(timeout=60)


async def ask_all(address: str, clients: int, tokens: int) -> tuple[int, float, list[float]]:
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
