"""Facts that answers take from one place: what fits where, how models are fetched, what the guide is; tests check them."""
from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from .commands import EXISTS

ROOT = Path(__file__).resolve().parents[3]
# Abilities that are not there yet; add a name when it arrives, and the answers change with it ("=[server]" lines of the topics).
FEATURES: frozenset[str] = frozenset()        # of: server
PARAMETERS = "about five and a half million"   # of the guide; check_export.py compares it with the file
# What we name for a machine with so many GB, and for a Raspberry Pi.
MEMORY = {1: "smollm2-135m", 2: "qwen2.5-0.5b", 4: "qwen3-1.7b", 8: "qwen3-4b", 16: "qwen3-8b", 32: "qwen3-8b"}
PI = {1: "smollm2-135m", 2: "smollm2-360m", 4: "qwen3-0.6b", 8: "qwen3-1.7b"}
SYSTEM_SHARE = 0.75                          # of a machine's memory that a model may take; the rest is for other programs
FIRST = "qwen3-0.6b"                         # the model that we name to somebody who asks for any


@dataclass(frozen=True, slots=True)
class Model:
    """A model's row of the catalogue; sizes in bytes, memory in GB at a context of 4096."""

    name: str
    parameters: str
    licence: str
    memory_gb: float
    repository: str
    path: str
    size: int


@functools.cache
def catalogue() -> dict[str, Model]:
    """The models that edgellm knows by name, with their default file."""
    found = {}
    for entry in tomllib.loads((ROOT / "models.toml").read_text(encoding="utf-8"))["model"]:
        file = next(f for f in entry["file"] if f["type"] == entry["default"])
        parts = file.get("parts", [file])
        if "path" not in parts[0] or "memory_gb" not in entry:
            continue                         # an entry that is not fetched from a repository, such as the guide's own
        repository = file.get("repository", entry.get("repository", ""))
        found[entry["name"]] = Model(entry["name"], entry["parameters"], entry["licence"], float(entry["memory_gb"]), repository,
                                     parts[0]["path"], sum(part["size"] for part in parts))
    return found


def size(n_bytes: int) -> str:
    """A download's size as people say it."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{round(n_bytes / 1e6, -1):.0f} MB"


def fetch(name: str) -> str:
    """The command that fetches a model of the catalogue."""
    return f"edgellm pull {catalogue()[name].name}"


def fill(text: str) -> str:
    """Replace `%{get NAME}`, `%{size NAME}`, `%{need NAME}`, `%{fit GB}`, `%{pi GB}`, `%{first}` and `%{parameters}`.

    NAME may itself be `fit GB` or `pi GB`; without one it is the first model that we recommend.
    """
    def value(match: re.Match[str]) -> str:
        word, _, rest = match[1].partition(" ")
        if word == "parameters":
            return PARAMETERS
        if word not in ("get", "size", "need"):
            return _name(match[1])
        model = catalogue()[_name(rest)]
        return {"get": fetch(model.name), "size": size(model.size), "need": f"{model.memory_gb:g} GB"}[word]

    return re.sub(r"%\{([^}]+)\}", value, text)


def _name(text: str) -> str:
    """The model that `fit GB`, `pi GB`, `first`, a name or nothing stand for."""
    word, _, gigabytes = text.partition(" ")
    if word in ("fit", "pi"):
        return {"fit": MEMORY, "pi": PI}[word][int(gigabytes)]
    return FIRST if word in ("", "first") else word


def holds(condition: str) -> bool:
    """True if a condition of an answer holds: a command or feature by name, or `!name`."""
    name = condition.removeprefix("!")
    return (name in EXISTS or name in FEATURES) != condition.startswith("!")
