"""Fetching models from a hub that misbehaves: what is under a final name is whole and right, or is not there."""

from __future__ import annotations

import hashlib
import os
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hub_server
import pytest
from hub_server import COMMIT, LocalHub, Misbehaviour, both, corrupt, cut, etag, ignore_range, redirect, stall, status
from pulled import DATA, FAST, FILE, HASTY, NAME, SHA256, blobs, check_whole, client, nothing_outside, refused

from edgellm.catalogue import web
from edgellm.catalogue.connection import HttpLimits, check_address
from edgellm.catalogue.hub import Hub
from edgellm.catalogue.names import resolve
from edgellm.catalogue.pull import pull
from edgellm.errors import DownloadError, ModelNotFound

pytestmark = pytest.mark.usefixtures("cache")


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
    "stall": (stall(20.0),),
    "drip": (hub_server.drip(0.005),),
    "too short a Content-Length": (hub_server.lie(1000),),
    "a web page with status 200": (hub_server.web_page,),
    "416": (cut(300_000), status(416)),
    "the ETag changes midway, the bytes do not": (cut(300_000), both(ignore_range, etag('"cdn-2"'))),
}


@pytest.mark.parametrize("case", SURVIVED)
def test_misbehaviour_that_is_survived(case: str, server: LocalHub, cache: Path, tmp_path: Path) -> None:
    slow = case in ("stall", "drip")
    server.misbehave(*SURVIVED[case])
    check_whole(pull(NAME, hub=client(server, HASTY if slow else FAST)), cache)
    assert len(server.asked("bytes")) >= len(SURVIVED[case]) + slow and nothing_outside(tmp_path)


REFUSED: dict[str, tuple[tuple[Misbehaviour, ...], str]] = {
    "wrong bytes": ((corrupt, corrupt), "other bytes"),
    "too long": ((hub_server.too_long,), "more than the"),
    "too long a Content-Length": ((hub_server.lie(10**15),) * 4, "stopped at 0"),
    "gzip bomb": ((hub_server.compressed,) * 4, "compressed"),
    "redirect to a file": ((redirect("file:///etc/passwd"),), "does not follow"),
    "redirect to another scheme": ((redirect("ftp://127.0.0.1/x"),), "does not follow"),
    "redirect to a private address": ((redirect("https://192.168.1.1/x"),), "private network"),
    "redirect to the cloud's metadata": ((redirect("http://169.254.169.254/latest"),), "does not follow"),
    "redirect to a mapped private address": ((redirect("https://[::ffff:10.0.0.1]/x"),), "private network"),
    "redirect to no host": ((redirect("https:///x"),), "does not follow"),
    "redirect to a port that is none": ((redirect("https://example.com:99999/x"),), "does not follow"),
    "redirect to a host that is none": ((redirect("https://[::1/x"),), "not an address"),
    "redirect to letters beyond ASCII": ((redirect("https://ex\u00e4mple.com/\u00fc"),), "not an address"),
    "redirect to a host with a space": ((redirect("https://a b/x"),), "not an address"),
    "redirect to a host with a user": ((redirect("https://u:p@127.0.0.1:1/x"),) * 4, "can't reach"),
    "redirect for ever": ((redirect("/o/r/model-Q8_0.gguf"),) * 9, "redirects more than"),
    "TLS where there is none": ((redirect("https://127.0.0.1:1/x"),) * 4, "can't reach"),
    "always 500": ((status(500),) * 4, "answers 500"),
    "503 with a long Retry-After": ((status(503, Retry_After="999999"),), "asks to wait 999,999 s"),
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


def test_waits_that_servers_ask_for_are_bounded_together(server: LocalHub) -> None:
    slept = list[float]()
    hub = Hub(server.environment(), FAST, sleep=slept.append)
    server.misbehave(*(status(503, Retry_After="12"),) * 9)
    with pytest.raises(DownloadError, match="asks to wait 12 s; run the command again after that"):
        pull(NAME, hub=hub)
    assert slept == [12.0, 12.0]


def test_a_loopback_redirect_needs_a_loopback_hub() -> None:
    local, remote = ("http", "127.0.0.1", 80), ("https", "huggingface.co", 443)
    web._check_scheme(urlsplit("http://127.0.0.1:9/x"), "", local)
    check_address(ip_address("127.0.0.1"), urlsplit("http://127.0.0.1:9/x"), local)
    for check in (
        lambda: web._check_scheme(urlsplit("http://127.0.0.1/x"), "", remote),
        lambda: check_address(ip_address("127.0.0.1"), urlsplit("https://innocent.example/x"), remote),
        lambda: check_address(ip_address("::1"), urlsplit("https://innocent.example/x"), remote),
        lambda: check_address(ip_address("fe80::1"), urlsplit("https://innocent.example/x"), remote),
    ):
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
    with pytest.raises(DownloadError, match="no version"):  # the pinned commit is gone: said, and nothing glued
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


@pytest.mark.parametrize(
    "facts, said",
    [
        ({"X-Repo-Commit": "../../../tmp"}, "which version"),
        ({"X-Repo-Commit": ""}, "which version"),
        ({"X-Linked-Size": "-5"}, "how long"),
        ({"X-Linked-Size": "many"}, "how long"),
        ({"X-Linked-Etag": '"../../evil"'}, "no sha256"),
        ({"X-Linked-Etag": '"' + "a" * 40 + '"'}, "no sha256"),
        ({"X-Linked-Size": "99" + "9" * 12}, "free space"),
        ({"Location": "file:///etc/passwd"}, "does not follow"),
    ],
)
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
    with pytest.raises(DownloadError, match="can't reach"):
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


@pytest.mark.parametrize("name", ["hf:o/sees:Q4_0", "hf:o/sees:m-Q4_0.gguf"])
def test_the_projector_comes_with_its_model(server: LocalHub, name: str) -> None:
    """The one of the preferred type, beside the model; one for a model in another folder stays where it is."""
    files = {"m-Q4_0.gguf": DATA, "mmproj-m-F32.gguf": b"wide", "m.mmproj-f16.gguf": b"half", "other/mmproj-F16.gguf": b"else"}
    for path, data in files.items():
        server.put("o/sees", path, data)
    seen = list[str]()
    place = pull(name, hub=client(server), progress=lambda file, done, total: seen.append(file))
    assert place.name == "m-Q4_0.gguf" and {*seen} == {"m-Q4_0.gguf", "m.mmproj-f16.gguf"}
    assert (place.parent / "m.mmproj-f16.gguf").read_bytes() == b"half"
    assert resolve("hf:o/sees:Q4_0") == place


def test_the_projector_comes_with_a_catalogue_model_that_sees(server: LocalHub, tmp_path: Path) -> None:
    """Where its entry has the tag; a hub that lists nothing still has the model."""
    folder = tmp_path / "edgellm_config"
    folder.mkdir()
    for name, tags in (("sees", '["vision"]'), ("blind", "[]")):
        data = DATA + name.encode()
        server.put(f"o/{name}", "m-Q8_0.gguf", data)
        server.put(f"o/{name}", "mmproj-F16.gguf", b"half")
        with open(folder / "models.toml", "a", encoding="utf-8") as file:
            file.write(
                ("schema = 1\n" if name == "sees" else "")
                + f"""[[model]]
name = "{name}"
repository = "o/{name}"
architecture = "llama"
parameters = "1B"
licence = "mit"
memory_gb = 1
default = "Q8_0"
tags = {tags}
[[model.file]]
type = "Q8_0"
path = "m-Q8_0.gguf"
size = {len(data)}
sha256 = "{hashlib.sha256(data).hexdigest()}"
"""
            )
    places = {name: pull(name, hub=client(server)) for name in ("sees", "blind")}
    assert (places["sees"].parent / "mmproj-F16.gguf").read_bytes() == b"half"
    assert not (places["blind"].parent / "mmproj-F16.gguf").exists()


HOSTILE_PATHS = [
    "../../evil.gguf",
    "/etc/evil.gguf",
    "a/../../evil.gguf",
    "a/./evil.gguf",
    "..\\evil.gguf",
    "C:\\evil.gguf",
    "C:evil.gguf",
    "a//evil.gguf",
    "evil\0.gguf",
    "evil\n.gguf",
    "\x1b[2Jevil.gguf",
    "\u202eevil.gguf",
    "con.gguf",
    "NUL.gguf",
    "aux/evil.gguf",
    "lpt1.x.gguf",
    "-rf.gguf",
    "~/evil.gguf",
    "~root.gguf",
    " evil.gguf",
    "evil .gguf ",
    "x" * 300 + ".gguf",
    "x/" * 600 + "evil.gguf",
    "a./evil.gguf",
    ".",
    "..",
    "",
    "/",
    "//evil.gguf",
    "evil.gguf/",
    "evil.gguf/..",
    "evil?.gguf",
    "evil*.gguf",
    'evil".gguf',
    "evil|.gguf",
    "a<b.gguf",
    "\ud800evil.gguf",
    "../.gguf",
    "..../../evil.gguf",
    ".../\x7f.gguf",
    "blobs/../../../evil.gguf",
]


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_hostile_paths_in_a_listing_write_nothing_outside(path: str, server: LocalHub, cache: Path, tmp_path: Path) -> None:
    server.listed["o/evil"] = [{"type": "file", "path": path, "size": 4, "lfs": {"oid": "a" * 64, "size": 4}}]
    refused(server, "hf:o/evil")
    assert nothing_outside(tmp_path) and not list(cache.rglob("*.gguf"))


@pytest.mark.parametrize(
    "listing",
    [
        {"no": "list"},
        [1, "x", None, {"type": "file"}, {"type": "file", "path": 3}, {"type": "file", "path": "m.gguf", "size": -1}],
        [{"type": "file", "path": "m.gguf", "size": 4, "lfs": {"oid": "../x", "size": 4}}],
        "text",
        None,
    ],
)
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


def test_a_proxy_is_used(server: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.bytes_endpoint)
    monkeypatch.setenv("no_proxy", "")
    far = Hub({"HF_ENDPOINT": "http://hub.example", "HF_HOME": "/nonexistent"}, HttpLimits(tries=1, pause=0.0))
    with pytest.raises(DownloadError):  # our server refuses CONNECT, but was asked
        far.facts("o/r", FILE, "main")
    assert not server.asked("hub")


def test_names_that_are_no_models(server: LocalHub) -> None:
    for name in ("", "\0", "hf:", "hf:a", "hf:../..", "hf:a/b/../../../x.gguf", "no-such-model", "C:\\x", "http://x/y"):
        with pytest.raises((ModelNotFound, DownloadError)):
            pull(name, hub=client(server))
