"""Fetching models from a hub that misbehaves: what is under a final name is whole and right, or is not there."""
from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hub_server
import pytest
from hub_server import COMMIT, LocalHub, Misbehaviour, both, corrupt, cut, etag, ignore_range, redirect, stall, status

from edgellm.catalogue import part as part_module
from edgellm.catalogue import pull as pulling
from edgellm.catalogue import web
from edgellm.catalogue.hub import Hub
from edgellm.catalogue.names import resolve
from edgellm.catalogue.pull import pull
from edgellm.catalogue.web import Limits
from edgellm.errors import DownloadError, EdgeError, ModelNotFound

DATA = b"GGUF" + random.Random(1).randbytes(700_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
FILE, NAME = "model-Q8_0.gguf", "hf:o/r"
FAST = Limits(silence=0.3, connect=2.0, tries=4, pause=0.0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and nobody's home folder."""
    for variable in ("HF_HUB_CACHE", "EDGELLM_CONFIG", "EDGELLM_DATA", "OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    for variable in ("HF_TOKEN", "HF_HUB_OFFLINE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "hf_hub_cache"


@pytest.fixture
def server() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        hub.put("o/r", FILE, DATA)
        yield hub


def client(server: LocalHub, limits: Limits = FAST, **environment: str) -> Hub:
    return Hub(server.environment(**environment), limits, sleep=lambda seconds: None)


def blobs(cache: Path) -> list[Path]:
    return sorted(cache.glob("models--*/blobs/*"))


def check_whole(place: Path, cache: Path, data: bytes = DATA) -> None:
    assert place.read_bytes() == data and [blob.name for blob in blobs(cache)] == [hashlib.sha256(data).hexdigest()]


def refused(server: LocalHub, name: str = NAME, hub: Hub | None = None) -> str:
    with pytest.raises(EdgeError) as caught:
        pull(name, hub=hub or client(server))
    text = str(caught.value)
    assert text.isprintable() and len(text) < 500
    return text


def nothing_outside(tmp_path: Path) -> bool:
    """Whether only the cache and our own ledger were written."""
    return {path.name for path in tmp_path.iterdir()} <= {"hf_hub_cache", "edgellm_data", "edgellm_config"}


def test_pull_puts_the_file_where_every_program_of_the_hub_finds_it(server: LocalHub, cache: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    place = pull(NAME, hub=client(server), progress=lambda *report: seen.append(report))
    check_whole(place, cache)
    folder = cache / "models--o--r"
    assert place == folder / "snapshots" / COMMIT / FILE and os.readlink(place) == f"../../blobs/{SHA256}"
    assert (folder / "refs" / "main").read_text() == COMMIT
    assert (folder / "blobs" / SHA256).stat().st_mode & 0o777 == 0o444
    assert seen[0] == (FILE, 0, len(DATA)) and seen[-1] == (FILE, len(DATA), len(DATA))
    from huggingface_hub import hf_hub_download, scan_cache_dir

    assert hf_hub_download("o/r", FILE, cache_dir=cache, local_files_only=True) == str(place)
    report = scan_cache_dir(cache)
    assert not report.warnings and next(iter(report.repos)).size_on_disk == len(DATA)


def test_what_is_here_is_not_asked_for_again(server: LocalHub, cache: Path) -> None:
    first = pull(NAME, hub=client(server))
    server.requests.clear()
    assert pull(NAME, hub=client(server)) == pull(f"{NAME}:Q8_0", hub=client(server)) == resolve(NAME) == first
    assert server.requests == []


def test_the_token_goes_to_the_hub_alone(server: LocalHub) -> None:
    server.gated, server.token = {"o/r"}, "secret"
    pull(NAME, hub=client(server, HF_TOKEN="secret\n"))
    assert {request.headers.get("authorization") for request in server.requests if request.server == "hub"} == {"Bearer secret"}
    assert server.asked("bytes") and all("authorization" not in request.headers for request in server.asked("bytes"))


def test_the_token_file_is_read_and_may_be_switched_off(server: LocalHub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("filed\n")
    home = {"HF_HOME": str(tmp_path)}
    Hub(server.environment() | home, FAST).facts("o/r", FILE, "main")
    Hub(server.environment(HF_HUB_DISABLE_IMPLICIT_TOKEN="1") | home, FAST).facts("o/r", FILE, "main")
    assert [request.headers.get("authorization") for request in server.requests] == ["Bearer filed", None]


SURVIVED: dict[str, tuple[Misbehaviour, ...]] = {
    "cut short": (cut(100_000),),
    "cut again and again": tuple(cut(270_000) for _ in range(2)),
    "cut before the first byte": (cut(0), cut(0)),
    "no Range: the whole file again": (cut(300_000), ignore_range),
    "no Range, twice": (cut(300_000), both(ignore_range, cut(400_000)), ignore_range),
    "another piece than asked for": (cut(300_000), hub_server.wrong_range),
    "500 three times": (status(500), status(503), status(502)),
    "500 in the middle": (cut(300_000), status(500)),
    "429 with Retry-After": (status(429, Retry_After="1"),),
    "stall": (stall(1.0),),
    "drip": (hub_server.drip(0.005),),
    "too short a Content-Length": (hub_server.lie(1000),),
    "a web page with status 200": (hub_server.web_page,),
    "416": (cut(300_000), status(416)),
    "the ETag changes midway, the bytes do not": (cut(300_000), both(ignore_range, etag('"cdn-2"'))),
}


@pytest.mark.parametrize("case", SURVIVED)
def test_misbehaviour_that_is_survived(case: str, server: LocalHub, cache: Path, tmp_path: Path) -> None:
    server.misbehave(*SURVIVED[case])
    check_whole(pull(NAME, hub=client(server)), cache)
    assert len(server.asked("bytes")) >= len(SURVIVED[case]) and nothing_outside(tmp_path)


REFUSED: dict[str, tuple[tuple[Misbehaviour, ...], str]] = {
    "wrong bytes": ((corrupt, corrupt), "other bytes"),
    "too long": ((hub_server.too_long,), "more than the"),
    "too long a Content-Length": ((hub_server.lie(10**15),) * 4, "stopped at 0"),
    "gzip bomb": ((hub_server.compressed,), "compressed"),
    "redirect to a file": ((redirect("file:///etc/passwd"),), "does not follow"),
    "redirect to another scheme": ((redirect("ftp://127.0.0.1/x"),), "does not follow"),
    "redirect to a private address": ((redirect("https://192.168.1.1/x"),), "private network"),
    "redirect to the cloud's metadata": ((redirect("http://169.254.169.254/latest"),), "does not follow"),
    "redirect to a mapped private address": ((redirect("https://[::ffff:10.0.0.1]/x"),), "private network"),
    "redirect to no host": ((redirect("https:///x"),), "does not follow"),
    "redirect to a port that is none": ((redirect("https://example.com:99999/x"),), "does not follow"),
    "redirect to a host that is none": ((redirect("https://[::1/x"),), "no address"),
    "redirect to letters beyond ASCII": ((redirect("https://ex\u00e4mple.com/\u00fc"),), "no address"),
    "redirect to a host with a space": ((redirect("https://a b/x"),), "no address"),
    "redirect to a host with a user": ((redirect("https://u:p@127.0.0.1:1/x"),) * 4, "cannot be reached"),
    "redirect for ever": ((redirect("/o/r/model-Q8_0.gguf"),) * 9, "redirects more than"),
    "TLS where there is none": ((redirect("https://127.0.0.1:1/x"),) * 4, "cannot be reached"),
    "always 500": ((status(500),) * 4, "answers 500"),
    "forbidden": ((status(403),), "accept"),
    "teapot": ((status(418),), "answers 418"),
    "always cut": ((cut(10),) * 4, "stopped at 40 of"),
    "always the whole file, cut": (tuple(both(ignore_range, cut(300_000)) for _ in range(9)), "stopped at 300000"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_misbehaviour_that_ends_in_one_sentence(case: str, server: LocalHub, cache: Path, tmp_path: Path) -> None:
    wrong, said = REFUSED[case]
    server.misbehave(*wrong)
    assert said in refused(server) and nothing_outside(tmp_path)
    assert all(blob.name == f"{SHA256}.incomplete" for blob in blobs(cache)) and not list(cache.glob("models--*/snapshots/*/*"))
    server.misbehave()
    check_whole(pull(NAME, hub=client(server)), cache)


def test_a_loopback_redirect_needs_a_loopback_hub() -> None:
    local, remote = ("http", "127.0.0.1", 80), ("https", "huggingface.co", 443)
    web._check_scheme(urlsplit("http://127.0.0.1:9/x"), "", local)
    web._check_address("127.0.0.1", urlsplit("http://127.0.0.1:9/x"), local)
    for check in (lambda: web._check_scheme(urlsplit("http://127.0.0.1/x"), "", remote),
                  lambda: web._check_address("127.0.0.1", urlsplit("https://innocent.example/x"), remote),
                  lambda: web._check_address("::1", urlsplit("https://innocent.example/x"), remote),
                  lambda: web._check_address("fe80::1", urlsplit("https://innocent.example/x"), remote)):
        with pytest.raises(DownloadError):
            check()


def test_a_changed_file_is_never_glued_to_an_old_half(server: LocalHub, cache: Path) -> None:
    server.misbehave(*(cut(100_000),) * 3, *(cut(0),) * 4)
    refused(server)
    assert [blob.stat().st_size for blob in blobs(cache)] == [300_000]
    changed = DATA[:-1] + b"!"
    server.put("o/r", FILE, changed)
    server.commit = "d" * 40
    server.misbehave()
    place = pull(NAME, hub=client(server))
    assert place.read_bytes() == changed and place.parent.name == "d" * 40
    assert "range" not in server.asked("bytes")[-1].headers


def test_a_file_that_changes_during_the_download_is_taken_new(server: LocalHub, cache: Path) -> None:
    changed = b"GGUF" + bytes(len(DATA) - 4)

    def change(answer: hub_server.Answer, data: bytes, start: int) -> None:
        cut(300_000)(answer, data, start)
        server.put("o/r", FILE, changed)
        server.commit, server.etag = "d" * 40, '"cdn-2"'

    server.misbehave(change)
    with pytest.raises(DownloadError, match="no version"):       # the pinned commit is gone: said, and nothing glued
        pull(NAME, hub=client(server))
    assert pull(NAME, hub=client(server)).read_bytes() == changed


def test_other_bytes_of_the_same_length_under_a_new_etag_start_over(server: LocalHub, cache: Path) -> None:
    changed = b"GGUF" + bytes(len(DATA) - 4)

    def change(answer: hub_server.Answer, data: bytes, start: int) -> None:
        cut(300_000)(answer, data, start)
        server.put("o/r", FILE, changed)
        server.etag = '"cdn-2"'

    server.misbehave(change)
    place = pull(NAME, hub=client(server))
    assert place.read_bytes() == changed
    assert server.asked("bytes")[1].headers["if-range"] == '"cdn-1"'


@pytest.mark.parametrize("facts, said", [
    ({"X-Repo-Commit": "../../../tmp"}, "which version"),
    ({"X-Repo-Commit": ""}, "which version"),
    ({"X-Linked-Size": "-5"}, "how long"),
    ({"X-Linked-Size": "many"}, "how long"),
    ({"X-Linked-Etag": '"../../evil"'}, "no sha256"),
    ({"X-Linked-Etag": '"' + "a" * 40 + '"'}, "no sha256"),
    ({"X-Linked-Size": "99" + "9" * 12}, "free space"),
    ({"Location": "file:///etc/passwd"}, "does not follow"),
])
def test_facts_that_cannot_be(facts: dict[str, str], said: str, server: LocalHub, cache: Path, tmp_path: Path) -> None:
    server.facts = facts
    assert said in refused(server, f"{NAME}:{FILE}") and nothing_outside(tmp_path)


def test_what_the_hub_refuses(server: LocalHub) -> None:
    assert "knows no repository o/none" in refused(server, "hf:o/none:x.gguf")
    assert "HF_TOKEN has no access" in refused(server, "hf:o/none", client(server, HF_TOKEN="t"))
    assert "several files" not in refused(server, f"{NAME}:Q2_K") and FILE in refused(server, f"{NAME}:Q2_K")
    assert FILE in refused(server, f"{NAME}:other.gguf")
    server.gated = {"o/r"}
    assert "accept them on" in refused(server) and "HF_TOKEN" in refused(server)
    assert "HF_HUB_OFFLINE" in refused(server, hub=client(server, HF_HUB_OFFLINE="1"))
    server.requests.clear()
    refused(server, hub=client(server, HF_HUB_OFFLINE="yes"))
    assert server.requests == []


def test_a_renamed_repository_is_followed(server: LocalHub, cache: Path) -> None:
    server.renamed = {"old/name": "o/r"}
    assert pull("hf:old/name", hub=client(server)).read_bytes() == DATA
    assert (cache / "models--old--name").is_dir()


def test_the_hub_itself_may_fail_for_a_while(server: LocalHub, cache: Path) -> None:
    server.hub_failures = [500, 503, 429]
    check_whole(pull(NAME, hub=client(server)), cache)
    server.hub_failures = [500] * 20
    assert "4 tries" in refused(server, "hf:o/other")


@pytest.mark.parametrize("endpoint", ["ftp://x", "nonsense", "file:///etc", "http://", "https://[::1", "https://\u00e4.de"])
def test_endpoints_that_are_none(endpoint: str) -> None:
    with pytest.raises(DownloadError, match="HF_ENDPOINT"):
        Hub({"HF_ENDPOINT": endpoint, "HF_HOME": "/nonexistent"}, FAST).facts("o/r", FILE, "main")


def test_no_server_at_all() -> None:
    gone = Hub({"HF_ENDPOINT": "http://127.0.0.1:1", "HF_HOME": "/nonexistent"}, FAST, sleep=lambda seconds: None)
    with pytest.raises(DownloadError, match="cannot be reached"):
        pull(NAME, hub=gone)


def test_split_files_are_fetched_in_order(server: LocalHub, cache: Path) -> None:
    parts = [f"q/m-Q4_0-0000{k}-of-00003.gguf" for k in (1, 2, 3)]
    for k, path in enumerate(parts):
        server.put("o/split", path, b"GGUF" + bytes([k]) * 1000)
    place = pull("hf:o/split", hub=client(server))
    assert place.name == "m-Q4_0-00001-of-00003.gguf" and len(list(place.parent.iterdir())) == 3
    assert resolve("hf:o/split:Q4_0") == place
    server.listed["o/less"] = [{"type": "file", "path": parts[0], "size": 5, "lfs": {"oid": "a" * 64, "size": 5}}]
    assert "lacks q/m-Q4_0-00002-of-00003.gguf" in refused(server, "hf:o/less")


HOSTILE_PATHS = [
    "../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "a/./evil.gguf", "..\\evil.gguf", "C:\\evil.gguf", "C:evil.gguf",
    "a//evil.gguf", "evil\0.gguf", "evil\n.gguf", "\x1b[2Jevil.gguf", "\u202eevil.gguf", "con.gguf", "NUL.gguf", "aux/evil.gguf",
    "lpt1.x.gguf", "-rf.gguf", "~/evil.gguf", "~root.gguf", " evil.gguf", "evil .gguf ",
    "x" * 300 + ".gguf", "x/" * 600 + "evil.gguf",
    "a./evil.gguf", ".", "..", "", "/", "//evil.gguf", "evil.gguf/", "evil.gguf/..", "evil?.gguf", "evil*.gguf", 'evil".gguf',
    "evil|.gguf", "a<b.gguf", "\ud800evil.gguf", "../.gguf", "..../../evil.gguf", ".../\x7f.gguf", "blobs/../../../evil.gguf",
]


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_hostile_paths_in_a_listing_write_nothing_outside(path: str, server: LocalHub, cache: Path, tmp_path: Path) -> None:
    server.listed["o/evil"] = [{"type": "file", "path": path, "size": 4, "lfs": {"oid": "a" * 64, "size": 4}}]
    refused(server, "hf:o/evil")
    assert nothing_outside(tmp_path) and not list(cache.rglob("*.gguf"))


@pytest.mark.parametrize("listing", [
    {"no": "list"}, [1, "x", None, {"type": "file"}, {"type": "file", "path": 3}, {"type": "file", "path": "m.gguf", "size": -1}],
    [{"type": "file", "path": "m.gguf", "size": 4, "lfs": {"oid": "../x", "size": 4}}], "text", None,
])
def test_listings_that_are_none(listing: Any, server: LocalHub, tmp_path: Path) -> None:
    server.listed["o/evil"] = listing
    refused(server, "hf:o/evil")
    assert nothing_outside(tmp_path)


def test_names_that_differ_in_case_alone_are_one_file(server: LocalHub, cache: Path) -> None:
    for path in ("Model-Q4_0.gguf", "model-q4_0.gguf", "MODEL-Q4_0.GGUF"):
        server.put("o/case", path, b"GGUF" + path.encode())
    assert pull("hf:o/case", hub=client(server)).name == "MODEL-Q4_0.GGUF"
    assert len(list(cache.glob("models--o--case/snapshots/*/*"))) == 1


def test_a_catalogue_entry_is_pinned_and_checked(server: LocalHub, tmp_path: Path) -> None:
    own = tmp_path / "edgellm_config" / "models.toml"
    own.parent.mkdir()
    text = f'''schema = 1
[[model]]
name = "mine"
repository = "o/r"
architecture = "llama"
parameters = "1B"
licence = "mit"
memory_gb = 1
default = "Q8_0"
[[model.file]]
type = "Q8_0"
revision = "{COMMIT}"
path = "{FILE}"
size = {len(DATA)}
sha256 = "{SHA256}"
'''
    own.write_text(text)
    server.put("o/r", FILE, DATA[:-1] + b"!")
    assert "replaced it" in refused(server, "mine")
    server.put("o/r", FILE, DATA)
    assert "has no such file" in refused(server, "mine:Q2_K") and "did you mean mine" in refused(server, "mina")
    own.write_text(text + "gated = true\n")
    os.utime(own, ns=(1, 1))
    server.requests.clear()
    assert "accept them on" in refused(server, "mine") and server.requests == []
    place = pull("mine:q8_0", hub=client(server, HF_TOKEN="t"))
    assert resolve("mine") == place and not (place.parents[2] / "refs").exists()


# --- interrupted from outside ------------------------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills need fork")
def test_two_hundred_kills_end_in_two_hundred_right_files(server: LocalHub, cache: Path) -> None:
    """kill -9 while bytes come, at random places; the next run goes on from what the dead process had written."""
    small, seed = DATA[:50_000], random.randrange(2**32)
    sha256 = server.put("o/small", FILE, small)
    print("seed", seed)
    rng = random.Random(seed)
    blob, resumed = cache / "models--o--small" / "blobs" / sha256, 0
    for _ in range(200):
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
    assert resumed > 60                                      # the others died before the first byte, or late


def test_two_hundred_cuts_at_any_byte_end_in_the_right_file(server: LocalHub, cache: Path) -> None:
    """As a kill does, only faster: the part keeps a random beginning, its hash is lost, and the next run goes on."""
    small = DATA[:50_000]
    sha256 = server.put("o/small", FILE, small)
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
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
        def crawl(answer: hub_server.Answer, data: bytes, start: int) -> None:
            answer.piece, answer.pause = 20_000, 0.01

        server.misbehave(crawl)
        child = subprocess.Popen([sys.executable, "-c", CHILD], env=environment, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        limit = len(DATA) * (k + 1) // 8 + rng.randrange(20_000)
        for line in child.stdout:
            if int(line) > limit:
                break
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert [blob.name for blob in blobs(cache)] == [f"{SHA256}.incomplete"] and not list(cache.glob("models--*/snapshots/*/*"))
        assert blobs(cache)[0].read_bytes() == DATA[:blobs(cache)[0].stat().st_size]
    server.misbehave()
    check_whole(pull(NAME, hub=client(server)), cache)
    assert int(server.asked("bytes")[-1].headers["range"].removeprefix("bytes=").removesuffix("-")) > len(DATA) // 2


def test_damage_in_the_kept_half_is_found(server: LocalHub, cache: Path) -> None:
    part = cache / "models--o--r" / "blobs" / f"{SHA256}.incomplete"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(400_000))
    assert "other bytes" in refused(server) and not part.exists()
    part.write_bytes(bytes(len(DATA) + 10))                  # more than the file has
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
            written: int = self._file.write(data[:n - self._written])
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
    part.write_bytes(DATA[:100_000])                         # what is here already needs no room
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


def test_a_proxy_is_used(server: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.bytes_endpoint)
    monkeypatch.setenv("no_proxy", "")
    far = Hub({"HF_ENDPOINT": "http://hub.example", "HF_HOME": "/nonexistent"}, Limits(tries=1, pause=0.0))
    with pytest.raises(DownloadError):                       # our server refuses CONNECT, but was asked
        far.facts("o/r", FILE, "main")
    assert not server.asked("hub")


def test_names_that_are_no_models(server: LocalHub) -> None:
    for name in ("", "\0", "hf:", "hf:a", "hf:../..", "hf:a/b/../../../x.gguf", "no-such-model", "C:\\x", "http://x/y"):
        with pytest.raises((ModelNotFound, DownloadError)):
            pull(name, hub=client(server))
