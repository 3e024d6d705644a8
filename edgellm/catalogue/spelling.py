"""Names as people paste them (a page of the hub, owner/repo, Ollama's or a file's spelling) in the form that edgellm uses."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from edgellm.catalogue.entries import REPOSITORY, Entry, ModelFile, parameters

HUB, OLLAMA = "hf:", "ollama:"
HOSTS = ("huggingface.co", "hf.co", "www.huggingface.co")
LIBRARY = re.compile(r"(?:https?://)?(?:www\.)?(?:registry\.)?ollama\.(?:com|ai)/(?:library/)?([\w.:-]+)/?", re.ASCII)
ADDRESS = re.compile(r"(?:[a-z][a-z+]*://)", re.IGNORECASE)
NO_OWNERS = frozenset({"models", "datasets", "spaces", "collections", "docs", "papers", "blog", "api"})  # pages of the hub
FILLERS = frozenset({"gguf", "instruct", "it", "chat", "meta"})  # of repositories' names, which ours leave out
TYPE_AT_END = re.compile(r"[-_.:]((?:ud-)?(?:i?q\d[0-9a-z_]*|bf16|fp?16|fp?32|mxfp4)(?:-qat)?)$")
SIZE = re.compile(r"(.+?)[-_ ](e?\d+(?:\.\d+)?)([bm]?)(?:[-_ ].*)?")
CLOSE = 0.6  # difflib's ratio


@dataclass(frozen=True, slots=True)
class Page:
    """The parts of a hub address: `hf:owner/repo[:FILE]`, and the version that it names, "" for the newest."""

    name: str
    revision: str


def page(text: str, endpoint: str = "") -> Page | None:
    """A parsed address of the hub (with or without https://), or `owner/repo[:TYPE]`; None for anything else.

    `endpoint`: the user's own HF_ENDPOINT, whose addresses count too.
    """
    if text.lower().startswith("hf://"):
        text = f"{HOSTS[0]}/{text[5:].lstrip('/')}"
    elif text.startswith(HUB) and ADDRESS.match(text.removeprefix(HUB)):
        text = text.removeprefix(HUB)
    parts = _split(text if ADDRESS.match(text) else f"https://{text}")
    if parts is None:
        return None
    host, path, shown = parts
    if host not in HOSTS and (not endpoint or host != (_split(endpoint) or ("",))[0]):
        owner = text.partition("/")[0]
        is_name = REPOSITORY.fullmatch(text.partition(":")[0]) and owner not in NO_OWNERS and not text.endswith(".gguf")
        return Page(HUB + text, "") if is_name else None
    owner, repository, *rest = [*(unquote(part) for part in path.strip("/").split("/")), "", ""]
    rest = [part for part in rest if part]
    repository, _, wanted = repository.partition(":")
    if owner in NO_OWNERS or not REPOSITORY.fullmatch(f"{owner}/{repository}"):
        return None
    revision = ""
    if rest and rest[0] in ("tree", "blob", "resolve", "raw"):
        revision, rest = "".join(rest[1:2]), rest[2:]
    if rest and rest[-1].lower().endswith(".gguf"):
        wanted = "/".join(rest)
    wanted = wanted or shown
    return Page(f"{HUB}{owner}/{repository}" + (f":{wanted}" if wanted else ""), "" if revision == "main" else revision)


def _split(address: str) -> tuple[str, str, str] | None:
    """Host and port, path, and the file that the hub's page shows for `?show_file_info=`."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    host = parts.netloc.rpartition("@")[2].lower()
    return host, parts.path, parse_qs(parts.query).get("show_file_info", [""])[0]


def variants(text: str, entries: Mapping[str, Entry]) -> list[tuple[Entry, ModelFile]]:
    """The models that another spelling of a name means: one, several of a family, smallest first, or none.

    `qwen3:0.6b`, `Qwen3-0.6B-Q8_0`, `Llama-3.2-1B-Instruct` are one model; `llama3.2` and `mistral` are families.
    """
    if (match := LIBRARY.fullmatch(text)) is not None:
        text = match[1]
    joined = text.lower().replace(":", "-").removesuffix("-latest")
    found = _of_type(joined, None, entries)
    if not found and (match := TYPE_AT_END.search(joined)) is not None:
        found = _of_type(joined[: match.start()], match[1].replace("fp", "f"), entries)
    return found


def _of_type(name: str, type_name: str | None, entries: Mapping[str, Entry]) -> list[tuple[Entry, ModelFile]]:
    for squeezed in dict.fromkeys((_squeezed(name), _squeezed(name, FILLERS))):
        if not squeezed:
            continue
        same = [entry for entry in entries.values() if squeezed in (_squeezed(entry.name), _squeezed(entry.name, FILLERS))]
        if found := [(entry, file) for entry in same[:1] or _family(squeezed, entries) if (file := entry.file(type_name))]:
            return found
    return []


def _family(squeezed: str, entries: Mapping[str, Entry]) -> list[Entry]:
    """The entries of which a name says the beginning: those that say a size next, or else all."""
    sized, others = list[Entry](), list[Entry]()
    for entry in entries.values():
        parts = entry.name.split("-")
        for k in range(1, len(parts)):
            if _squeezed("-".join(parts[:k])) == squeezed and entry.kind == "chat":
                (sized if SIZE.fullmatch(f"x-{parts[k]}") and parts[k][-1] in "bm" else others).append(entry)
    return sorted(sized or others, key=lambda entry: entry.memory_gb)


def _squeezed(name: str, without: frozenset[str] = frozenset()) -> str:
    return "".join(part for part in re.split(r"[-_ ]+", name.lower()) if part not in without)


def near_type(text: str, types: Sequence[str]) -> str:
    """The type that was meant by another spelling of it (q4km for Q4_K_M), or the one most like it; "" for none."""
    squeezed = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in types}
    wanted = re.sub(r"[^a-z0-9]", "", text.lower())
    found = difflib.get_close_matches(wanted, squeezed, n=1, cutoff=CLOSE)
    return squeezed[found[0]] if found else ""


def near(text: str, entries: Mapping[str, Entry]) -> list[str]:
    """The names most like one that does not exist: of its family those of the nearest size, else those spelt alike."""
    joined = text.lower().replace(":", "-")
    if (match := SIZE.fullmatch(joined)) is not None:
        asked = float(match[2].removeprefix("e")) * {"m": 1e6}.get(match[3], 1e9)
        if asked and (family := list(_relatives(match[1], entries))):
            family.sort(key=lambda entry: abs(math.log(parameters(entry.parameters) / asked)))
            return [entry.name for entry in family[:3]]
    return difflib.get_close_matches(joined, entries, n=3, cutoff=CLOSE)


def _relatives(family: str, entries: Mapping[str, Entry]) -> Iterator[Entry]:
    """The chat models of a family, or of those that are called like it and more: llama means llama3.2."""
    squeezed = _squeezed(family, FILLERS)
    stems = {
        entry.name: _squeezed(match[1])
        for entry in entries.values()
        if entry.kind == "chat" and (match := SIZE.fullmatch(entry.name)) is not None
    }
    same = [name for name, stem in stems.items() if stem == squeezed]
    yield from (entries[name] for name in same or [name for name, stem in stems.items() if stem.startswith(squeezed)])


def same_file_name(path: str, entries: Mapping[str, Entry]) -> str:
    """The name by which the catalogue knows a file of the hub, "" where it does not."""
    wanted = os.path.basename(path).lower()
    for entry in entries.values():
        for file in entry.files:
            if any(os.path.basename(part.path).lower() == wanted for part in file.parts):
                return entry.name if file.type == entry.default else f"{entry.name}:{file.type}"
    return ""
