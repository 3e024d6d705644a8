"""`edgellm serve` under bad clients and long use: what it answers meanwhile, its memory, threads and files, and how it ends.

    python scripts/soak_server.py [MODEL] [--only slow mid_stream mid_prompt many stop kill] [--requests 10000] [--clients 200]

Each check starts a server of its own, with the guide unless MODEL names another one, prints its figures, and fails where a limit is
broken. Requests go to loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any  # Any: JSON
from urllib.parse import urlsplit

import psutil
from agent_day import cache, sentence

MOST_STOP, MOST_ANSWER = 2.0, 2.0  # seconds
MOST_GROWTH = 1.05  # of the RSS after the first round, in which kernels for steps of all sizes are met
LEAST_SAVED = 256  # tokens of a prefix that is saved
TEXTS = ("What is edgellm?", "Name three rivers.", "How do I install a model?", "Hello")


class Server:
    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.place = process, urlsplit(address).netloc
        self.host, self.port = urlsplit(address).hostname, urlsplit(address).port
        self.watched = psutil.Process(process.pid)

    def resources(self) -> tuple[float, int, int]:
        """RSS in MiB, threads, descriptors."""
        return self.watched.memory_info().rss / 2**20, self.watched.num_threads(), self.watched.num_fds()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port)

    def request(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """The bytes of a request."""
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{'POST' if body is not None else 'GET'} {path} HTTP/1.1\r\nHost: {self.place}\r\nConnection: close\r\n"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if data else ""
        return f"{head}{kind}\r\n".encode() + data

    async def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """Status and all that follows."""
        reader, writer = await self.connect()
        writer.write(self.request(path, body))
        data = await reader.read()
        writer.close()
        return int(data.split(b" ", 2)[1]) if data else 0, data

    async def idle(self) -> None:
        """Nothing is being answered."""
        while b"edgellm_running" in (found := (await self.ask("/metrics"))[1]) and not (
            _gauge(found, "running") == _gauge(found, "waiting") == 0
        ):
            await asyncio.sleep(0.02)


def _gauge(metrics: bytes, name: str) -> int:
    return sum(int(line.split()[-1]) for line in metrics.splitlines() if line.startswith(b"edgellm_" + name.encode() + b"{"))


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0, **more}


async def slow(server: Server, asked: argparse.Namespace) -> None:
    """Clients that send heads and bodies byte by byte; others are answered meanwhile, and each is cut off by the deadline."""
    head = server.request("/v1/chat/completions", chat("Hello"))

    async def one(number: int) -> float:
        since = time.monotonic()
        reader, writer = await server.connect()
        with suppress(ConnectionError):
            if number % 2:
                writer.write(head[: head.index(b"\r\n\r\n") + 4])  # the body comes slowly
            for byte in head[-60:] if number % 2 else head:
                writer.write(bytes([byte]))
                await writer.drain()
                if await _ended(reader, 1.0):
                    break
        writer.close()
        return time.monotonic() - since

    clients = [asyncio.ensure_future(one(number)) for number in range(asked.clients)]
    await asyncio.sleep(2)
    answers = list[float]()
    while len(answers) < 10:
        since = time.monotonic()
        status, _ = await server.ask("/v1/chat/completions", chat("Hello"))
        answers.append(time.monotonic() - since)
        assert status == 200
        await asyncio.sleep(0.5)
    lives = await asyncio.gather(*clients)
    print(f"  {len(lives)} slow clients, cut off after {max(lives):.0f} s at most; answers meanwhile within {max(answers):.2f} s")
    assert max(answers) <= MOST_ANSWER and max(lives) < 40


async def _ended(reader: asyncio.StreamReader, seconds: float) -> bool:
    try:
        await asyncio.wait_for(reader.read(1), seconds)
        return True
    except TimeoutError:
        return False


async def mid_stream(server: Server, asked: argparse.Namespace) -> None:
    """Clients that leave while their answer is written."""
    await _leave(server, asked, lambda: chat(random.choice(TEXTS), stream=True, max_tokens=500, ignore_eos=True), b"data: ")


async def mid_prompt(server: Server, asked: argparse.Namespace) -> None:
    """Clients that leave before the first word."""
    await _leave(server, asked, lambda: chat(" ".join(random.choices(TEXTS, k=60)), stream=True, max_tokens=500), b"")


async def _leave(server: Server, asked: argparse.Namespace, body: Callable[[], dict[str, Any]], until: bytes) -> None:
    freed, found = list[float](), list[tuple[float, int, int]]()

    async def one() -> None:
        reader, writer = await server.connect()
        writer.write(server.request("/v1/chat/completions", body()))
        await writer.drain()
        if until:
            with suppress(asyncio.IncompleteReadError):
                await reader.readuntil(until)
        else:
            await asyncio.sleep(random.random() / 20)
        writer.transport.abort()

    for _ in range(4):
        for _ in range(asked.disconnects // 80):
            await asyncio.gather(*(one() for _ in range(20)))
            since = time.monotonic()
            await server.idle()
            freed.append(time.monotonic() - since)
        found.append(server.resources())
    print(f"  {asked.disconnects} disconnects; all places free within {max(freed):.2f} s; {_rounds(found)}")
    assert found[-1][0] <= MOST_GROWTH * found[1][0]


async def many(server: Server, asked: argparse.Namespace) -> None:
    """Short requests of all kinds, 16 at a time, in four rounds."""
    statuses, kinds = dict[int, int](), (
        ("/v1/chat/completions", chat("Hello")),
        ("/v1/chat/completions", chat("Name three rivers.", stream=True)),
        ("/v1/completions", {"prompt": "Once", "max_tokens": 4}),
        ("/v1/messages", {**chat("Hi"), "stream": True}),
        ("/api/chat", {"messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 4}}),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 4}),
        ("/tokenize", {"content": "Hello"}),
        ("/v1/models", None),
        ("/v1/chat/completions", {"messages": 3}),
        ("/nothing", None),
    )  # fmt: skip

    async def worker(n: int) -> None:
        for _ in range(n):
            status, _ = await server.ask(*random.choice(kinds))
            statuses[status] = statuses.get(status, 0) + 1

    found = []
    for _ in range(4):
        await asyncio.gather(*(worker(asked.requests // 64) for _ in range(16)))
        found.append(server.resources())
    print(f"  {sum(statuses.values())} requests: {statuses}; {_rounds(found)}")
    assert set(statuses) <= {200, 400, 404, 429} and found[-1][0] <= MOST_GROWTH * found[1][0]


async def stop(server: Server, asked: argparse.Namespace) -> None:
    """SIGTERM while streams, long prompts and a whole queue are under way: streams end as they should."""
    streams = [
        asyncio.ensure_future(server.ask("/v1/chat/completions", chat(text, stream=True, max_tokens=900, ignore_eos=True)))
        for text in TEXTS * 8
    ]
    await asyncio.sleep(1.0)
    since = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(server.process.wait, 30)
    seconds = time.monotonic() - since
    answers = await asyncio.gather(*streams, return_exceptions=True)
    begun = [each[1] for each in answers if not isinstance(each, BaseException) and b"data: " in each[1]]
    clean = sum(data.rstrip().endswith(b"0") and b"[DONE]" in data for data in begun)
    print(f"  ended in {seconds:.2f} s with code {code}; {clean} of {len(begun)} streams that had begun ended cleanly")
    assert seconds <= MOST_STOP and code == 0 and clean == len(begun)


async def kill(server: Server, asked: argparse.Namespace) -> None:
    """SIGKILL while answers and beginnings of prompts are written: the next server answers, and finds each that was saved."""
    rng, saved, looked = random.Random(0), list[str](), 0
    with cache() as environment:
        for number in range(asked.kills):
            async with running(asked.model, "1G", environment) as other:
                for system in saved:
                    looked += 1
                    assert await _cached(other, system, "Again?") >= LEAST_SAVED, "a saved prefix was lost"
                for _ in range(2):
                    saved += await _saved(other, sentence(rng, 300), Path(environment["EDGELLM_CACHE"]) / "prefixes")
                talk = [{"role": "system", "content": sentence(rng, 300)}, {"role": "user", "content": "Hello"}]
                body = {"messages": talk, "max_tokens": 100, "ignore_eos": True, "stream": True}
                streams = [asyncio.ensure_future(other.ask("/v1/chat/completions", body)) for _ in range(8)]
                await asyncio.sleep(0.05 * number)
                other.process.kill()
                await asyncio.gather(*streams, return_exceptions=True)
    print(f"  {asked.kills} kills; {len(saved)} saved prefixes were looked for {looked} times, and all were found")
    assert looked


async def _saved(server: Server, system: str, folder: Path) -> list[str]:
    """A system prompt that is used twice, if that has saved it."""
    before = set(folder.glob("*.state"))
    for text in ("Hello", "And now?"):
        await _cached(server, system, text)
    for _ in range(200):
        if set(folder.glob("*.state")) - before:
            return [system]
        await asyncio.sleep(0.02)
    return []


async def _cached(server: Server, system: str, text: str) -> int:
    """Tokens of a prompt that were not computed."""
    body = chat(text)
    body["messages"].insert(0, {"role": "system", "content": system})
    status, data = await server.ask("/v1/chat/completions", body)
    assert status == 200, data
    cached: int = json.loads(data.partition(b"\r\n\r\n")[2])["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def _rounds(found: list[tuple[float, int, int]]) -> str:
    """Resources after each round."""
    rss = ", ".join(f"{each[0]:.1f}" for each in found)
    return f"RSS {rss} MiB, threads {[each[1] for each in found]}, descriptors {[each[2] for each in found]}"


@asynccontextmanager
async def running(model: str, saves: str = "off", environment: dict[str, str] | None = None) -> AsyncIterator[Server]:
    command = [sys.executable, "-m", "edgellm", "serve", model, "--port", "0", "--parallel", "8", "--prefix-cache", saves]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        lines = process.stderr
        address = next(line.split(" on ")[1].split(";")[0] for line in lines if " on http" in line)
        rest = asyncio.ensure_future(asyncio.to_thread(lines.read))  # so that its log has room
        try:
            yield Server(process, address)
        finally:
            if process.poll() is None:
                process.terminate()
            log = await rest
            assert "Traceback" not in log, log[-3000:]


CHECKS: dict[str, Callable[[Server, argparse.Namespace], Awaitable[None]]] = {
    each.__name__: each for each in (slow, mid_stream, mid_prompt, many, stop, kill)
}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="guide")
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS))
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--disconnects", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--clients", type=int, default=200)
    asked = parser.parse_args()
    for name in asked.only:
        async with running(asked.model) as server:
            print(name, flush=True)
            await CHECKS[name](server, asked)


if __name__ == "__main__":
    asyncio.run(main())
