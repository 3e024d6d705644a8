"""Tokens per second and time to the first token of `edgellm serve` for several streaming clients, beside the library's own rate and
llama-server.

    python scripts/bench_server.py MODEL [--clients 1 2 4 8 16 32] [--tokens 64] [--alike] [--rounds 3]
        [--threads 2] [--llama-server PATH] [--background 4]

Library, server and llama-server (`-np` as many as clients, continuous batching) run in processes of their own, in turn; the
clients are here, and their prompts have from ten to 600 words. Requests go to loopback only. With --background, one client asks
alone and then beside so many that ask in the background all the time: its times to the first token.
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
QUESTIONS = 15  # of the client in the foreground
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
        counts = await asyncio.gather(*(ask(model, prompt, firsts) for prompt in prompts))
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
    parser.add_argument("--alike", action="store_true", help="prompts begin alike, and every fourth is the same")
    parser.add_argument("--llama-server", help="its path")
    parser.add_argument("--background", type=int, default=0, help="clients beside one in the foreground")
    asked = parser.parse_args()
    if asked.background:
        return foreground(asked)
    head = "clients  library tok/s  server tok/s  ratio  TTFT p50     p95"
    print(head + ("  llama-server tok/s  TTFT p50     p95  tok/s x  p95 x" if asked.llama_server else ""))
    for clients in asked.clients:
        found: dict[str, list[Measured]] = {"library": [], "server": [], "peer": []}
        for _ in range(asked.rounds):
            found["library"].append(of_library(asked, clients))
            found["server"].append(of_server(edgellm_server(asked, clients), prompts(asked, clients), asked.tokens))
            if asked.llama_server:
                found["peer"].append(of_server(llama_server(asked, clients), prompts(asked, clients), asked.tokens))
        library, server = rate(found["library"]), rate(found["server"])
        p50, p95 = first_tokens(found["server"])
        line = f"{clients:7} {library:14.1f} {server:13.1f} {server / library:6.2f} {p50:8.3f}s {p95:6.3f}s"
        if found["peer"]:
            peer, (other50, other95) = rate(found["peer"]), first_tokens(found["peer"])
            line += f" {peer:19.1f} {other50:8.3f}s {other95:6.3f}s {server / peer:8.2f} {p95 / other95:6.2f}"
        print(line, flush=True)


def foreground(asked: argparse.Namespace) -> None:
    """Times to the first token of one client, alone and beside others in the background, which llama-server knows nothing of."""
    servers = {"edgellm": edgellm_server, **({"llama-server": llama_server} if asked.llama_server else {})}
    alone, beside = ({name: list[float]() for name in servers} for _ in range(2))
    for _ in range(asked.rounds):
        for name, command in servers.items():
            with started(command(asked, asked.background + 1)) as address:
                for times, n in ((alone, 0), (beside, asked.background)):
                    times[name] += asyncio.run(_beside(address, asked.tokens, n))
    print("server        alone TTFT p50     p95  beside p50     p95  p50 x")
    for name in servers:
        (one50, one95), (all50, all95) = (first_tokens([(0, 0.0, times[name])]) for times in (alone, beside))
        print(f"{name:12} {one50:14.3f}s {one95:6.3f}s {all50:10.3f}s {all95:6.3f}s {all50 / one50:6.2f}")


async def _beside(address: str, tokens: int, n: int) -> list[float]:
    """Times to the first token of questions one after the other, while `n` clients ask in the background."""

    async def all_the_time(k: int) -> None:
        while True:
            number[0] += 1
            await ask(address, f"{number[0]}. {PROMPTS[k % len(PROMPTS)]}", 2 * tokens, [], background=True)

    firsts, number = list[float](), [0]
    await ask(address, "Hello", 1, [])
    others = [asyncio.ensure_future(all_the_time(k)) for k in range(n)]
    await asyncio.sleep(3.0 if n else 0.0)
    for k in range(QUESTIONS):
        await ask(address, f"{k}. {n}. {PROMPTS[1]}", 8, firsts)
        await asyncio.sleep(0.2 * (k % 5))
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return firsts


def rate(found: list[Measured]) -> float:
    """The median of tokens per second."""
    return statistics.median(tokens / seconds for tokens, seconds, _ in found)


def first_tokens(found: list[Measured]) -> tuple[float, float]:
    """Median and 95th percentile of the times to the first token."""
    times = sorted(first for _, _, firsts in found for first in firsts)
    return times[int(0.5 * (len(times) - 1))], times[int(0.95 * (len(times) - 1))]


def prompts(asked: argparse.Namespace, clients: int) -> list[str]:
    """Of short and long prompts one for each client; unless they are alike, none begins as another does."""
    return [("" if asked.alike else f"{k}. ") + PROMPTS[k % len(PROMPTS)] for k in range(clients)]


def of_library(asked: argparse.Namespace, clients: int) -> Measured:
    given = json.dumps([asked.model, clients, asked.tokens, prompts(asked, clients), asked.threads, CONTEXT])
    done = subprocess.run([sys.executable, "-c", LIBRARY, given], capture_output=True, text=True, check=True, timeout=1200)
    count, seconds, firsts = json.loads(done.stdout)
    return count, seconds, firsts


def of_server(command: list[str], texts: list[str], tokens: int) -> Measured:
    """The same, through HTTP."""
    with started(command) as address:
        return asyncio.run(ask_all(address, texts, tokens))


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


async def ask_all(address: str, texts: list[str], tokens: int) -> Measured:
    firsts = list[float]()
    await ask(address, "Hello", tokens, [])
    since = time.perf_counter()
    counts = await asyncio.gather(*(ask(address, text, tokens, firsts) for text in texts))
    return sum(counts), time.perf_counter() - since, firsts


async def ask(address: str, text: str, tokens: int, firsts: list[float], *, background: bool = False) -> int:
    """One stream; the tokens that its usage tells."""
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0}
    data = json.dumps({**body, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    head += "X-Priority: background\r\n" if background else ""
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
