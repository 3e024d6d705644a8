"""Fetching models against kills, full disks and other programs: what was fetched stays, and nothing is half under a final name."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import hub_server
import pytest
from hub_server import LocalHub, cut
from pulled import DATA, FILE, NAME, SHA256, blobs, check_whole, client, refused
from seeds import seed

from edgellm.catalogue import partial_file as part_module
from edgellm.catalogue import pull as pulling
from edgellm.catalogue.pull import pull

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills need fork")
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_end_in_right_files(count: int, server: LocalHub, cache: Path) -> None:
    """kill -9 while bytes come, at random places; the next run goes on from what the dead process had written."""
    small, rng = DATA[:50_000], random.Random(seed(200))
    sha256 = server.put("o/small", FILE, small)
    blob, resumed = cache / "models--o--small" / "blobs" / sha256, 0
    for _ in range(count):
        fatal, size = rng.randrange(len(small)), rng.randrange(100, 9000)

        def in_pieces(answer: hub_server.Answer, data: bytes, start: int, size: int = size) -> None:
            answer.piece = size

        def die(file: str, done: int, total: int, fatal: int = fatal) -> None:
            if done >= fatal:
                os.kill(os.getpid(), signal.SIGKILL)

        server.misbehave(in_pieces)
        child = os.fork()
        if child == 0:
            try:
                pull("hf:o/small", hub=client(server), progress=die)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL and not blob.exists()
        server.requests.clear()
        server.misbehave()
        place = pull("hf:o/small", hub=client(server))
        assert place.read_bytes() == small
        resumed += any("range" in request.headers for request in server.asked("bytes"))
        place.unlink()
        blob.unlink()
    assert resumed > count * 0.3  # the others died before the first byte, or late


def test_two_hundred_cuts_at_any_byte_end_in_the_right_file(server: LocalHub, cache: Path) -> None:
    """As a kill does, only faster: the part keeps a random beginning, its hash is lost, and the next run goes on."""
    small = DATA[:50_000]
    sha256 = server.put("o/small", FILE, small)
    rng = random.Random(seed(201))
    blob = cache / "models--o--small" / "blobs" / sha256
    blob.parent.mkdir(parents=True)
    for _ in range(200):
        n = rng.randrange(len(small) + 1)
        blob.with_name(f"{sha256}.incomplete").write_bytes(small[:n])
        server.requests.clear()
        place = pull(f"hf:o/small:{FILE}", hub=client(server))
        assert place.read_bytes() == small
        asked = server.asked("bytes")
        assert [request.headers.get("range") for request in asked] == ([f"bytes={n}-" if n else None] if n < len(small) else [])
        place.unlink()
        blob.unlink()


CHILD = """
import sys
from edgellm.catalogue.hub import Hub
from edgellm.catalogue.pull import pull
print(pull("hf:o/r", hub=Hub(), progress=lambda *report: print(report[1], flush=True)), flush=True)
"""


def test_kill_nine_in_the_middle(server: LocalHub, cache: Path, tmp_path: Path) -> None:
    rng = random.Random(5)
    environment = os.environ | server.environment()
    for k in range(6):
        dead = threading.Event()

        def stop_before_the_end(answer: hub_server.Answer, data: bytes, start: int, dead: threading.Event = dead) -> None:
            cut(len(answer.body) - 1)(answer, data, start)
            answer.piece, answer.after = 20_000, lambda: dead.wait(120) and None

        server.misbehave(stop_before_the_end)
        child = subprocess.Popen([sys.executable, "-c", CHILD], env=environment, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        limit = len(DATA) * (k + 1) // 8 + rng.randrange(20_000)
        for line in child.stdout:
            if int(line) > limit:
                break
        child.send_signal(signal.SIGKILL)
        child.wait()
        dead.set()
        child.stdout.close()
        assert [blob.name for blob in blobs(cache)] == [f"{SHA256}.incomplete"] and not list(cache.glob("models--*/snapshots/*/*"))
        assert blobs(cache)[0].read_bytes() == DATA[: blobs(cache)[0].stat().st_size]
    server.misbehave()
    check_whole(pull(NAME, hub=client(server)), cache)
    assert int(server.asked("bytes")[-1].headers["range"].removeprefix("bytes=").removesuffix("-")) > len(DATA) // 2


def test_damage_in_the_kept_half_is_found(server: LocalHub, cache: Path) -> None:
    part = cache / "models--o--r" / "blobs" / f"{SHA256}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(400_000))
    assert "other bytes" in refused(server) and not part.exists()
    part.write_bytes(bytes(len(DATA) + 10))  # more than the file has
    check_whole(pull(NAME, hub=client(server)), cache)


@pytest.mark.parametrize("n", [0, 1, 4095, 100_000, 262_144, 262_145, 500_000, 699_999, *range(10_000, 700_000, 58_000)])
def test_a_full_disk_leaves_a_beginning(n: int, server: LocalHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = part_module.os.fdopen

    class FullDisk:
        """A file on a disk that holds n bytes."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._file, self._written = real(*arguments, **options), 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, data: memoryview) -> int:
            if self._written == n:
                raise OSError(28, "No space left on device")
            written: int = self._file.write(data[: n - self._written])
            self._written += written
            return written

    with monkeypatch.context() as full:
        full.setattr(part_module.os, "fdopen", FullDisk)
        assert f"full after {n} of" in refused(server)
    assert blobs(cache)[0].read_bytes() == DATA[:n]
    check_whole(pull(NAME, hub=client(server)), cache)
    assert server.asked("bytes")[-1].headers.get("range", "bytes=0-") == f"bytes={n}-"


def test_room_is_looked_for_first(server: LocalHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = int(len(DATA) * 1.04)
    monkeypatch.setattr(pulling.shutil, "disk_usage", lambda path: type("Usage", (), {"free": free}))
    assert "free space" in refused(server) and not server.asked("bytes") and not cache.exists()
    part = cache / "models--o--r" / "blobs" / f"{SHA256}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA[:100_000])  # what is here already needs no room
    check_whole(pull(NAME, hub=client(server)), cache)


def test_one_download_at_a_time(server: LocalHub, cache: Path) -> None:
    from filelock import FileLock

    lock = cache / ".locks" / "models--o--r" / f"{SHA256}.lock"
    lock.parent.mkdir(parents=True)
    with FileLock(lock):
        assert "another program is fetching" in refused(server)
    check_whole(pull(NAME, hub=client(server)), cache)


def test_a_cache_that_cannot_be_written(server: LocalHub, cache: Path) -> None:
    cache.write_text("a file in its place")
    assert "cannot be written" in refused(server)


def test_without_links_the_file_itself_is_placed(server: LocalHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: Path, target: object) -> None:
        raise OSError(1314, "A required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", none)
    place = pull(NAME, hub=client(server))
    assert place.read_bytes() == DATA and not place.is_symlink() and blobs(cache) == []
    server.requests.clear()
    assert pull(NAME, hub=client(server)) == place and server.requests == []


def test_a_link_in_the_place_of_the_part_is_not_followed(server: LocalHub, cache: Path, tmp_path: Path) -> None:
    target = tmp_path / "edgellm_data"
    target.write_text("precious")
    part = cache / "models--o--r" / "blobs" / f"{SHA256}.incomplete"
    part.parent.mkdir(parents=True)
    part.symlink_to(target)
    assert "cannot be written" in refused(server) and target.read_text() == "precious"
