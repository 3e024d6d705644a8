"""Helpers for tests of fetching models: a misbehaving hub with one model, an empty cache, and how they look at both."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import LocalHub

from edgellm.catalogue.connection import HttpLimits
from edgellm.catalogue.hub import Hub
from edgellm.catalogue.pull import pull
from edgellm.errors import EdgeError

DATA = b"GGUF" + random.Random(1).randbytes(700_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
FILE, NAME = "model-Q8_0.gguf", "hf:o/r"
FAST = HttpLimits(connect=30.0, tries=4, pause=0.0)  # a busy machine's server may be silent for seconds
HASTY = HttpLimits(silence=1.0, connect=30.0, tries=9, pause=0.0)


@pytest.fixture
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


def client(server: LocalHub, limits: HttpLimits = FAST, **environment: str) -> Hub:
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
    """True if only the cache and our own ledger were written."""
    return {path.name for path in tmp_path.iterdir()} <= {"hf_hub_cache", "edgellm_data", "edgellm_config"}
