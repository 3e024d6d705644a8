"""From what a user typed to one file: a path, a catalogue name, hf:owner/repo, ollama:name, or the name of an imported model."""

from __future__ import annotations

import difflib
import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from edgellm.catalogue import hub_cache, spelling, stores
from edgellm.catalogue.entries import NAME, REPOSITORY, Entry, ModelFile
from edgellm.catalogue.file_selection import narrow
from edgellm.catalogue.paths import models_folder, own_data
from edgellm.catalogue.registry import entries
from edgellm.catalogue.stores import Found
from edgellm.errors import ModelNotFound, OptionError, shown

HUB_PREFIX, OLLAMA_PREFIX = spelling.HUB, spelling.OLLAMA


@dataclass(frozen=True, slots=True)
class HubName:
    """`hf:owner/repo[:TYPE or :FILE.gguf]`, parsed; `wanted` is "" where only the repository was named."""

    repository: str
    wanted: str


def resolve(name: str | os.PathLike[str]) -> Path:
    """The model file that `name` means: a path, `NAME[:TYPE]` of the catalogue, `hf:owner/repo[:TYPE|FILE]`, `ollama:NAME`.

    Other spellings are understood as `meant` says. Names lead to files that are already here; nothing is fetched. Raises
    ModelNotFound with what to do.
    """
    try:
        text = os.fspath(name)
    except TypeError as error:
        raise OptionError(f"{shown(name)} is not the name or path of a model; give a text or a path.") from error
    if not isinstance(text, str):
        raise OptionError(f"{shown(name)} is not a text; give the name or path as str (os.fsdecode makes one of bytes).")
    text, _ = meant(text)
    found = on_disk(text)
    if found is not None:
        return found
    if text.startswith(OLLAMA_PREFIX):
        raise _not_in_ollama(text)
    if (asked := hub_name(text)) is not None:
        raise ModelNotFound(_not_fetched(asked))
    if _lookup(text) is not None:
        entry, file = find_entry(text)
        if file is None:
            has = ", ".join(f.type for f in entry.files)
            type_name = text.partition(":")[2]
            near = spelling.near_type(type_name, [f.type for f in entry.files])
            hint = f"did you mean {entry.name}:{near}?" if near else f"it has {has}"
            raise ModelNotFound(f"{entry.name} has no {_shown(type_name)} file in the catalogue: {hint}")
        if file.bundled:
            raise ModelNotFound(missing(file))
        raise ModelNotFound(
            f"{entry.name}:{file.type} is not on this machine; fetch it ({file.size / 1e9:.1f} GB) with: "
            f"{fetch_command(entry, file.type)}"
        )
    return _from_path(text)


def meant(text: str) -> tuple[str, str]:
    """The name that edgellm has for what was typed, and how to say so in a line; the text itself and "" where it is a name already.

    Taken as well: addresses of the hub, `owner/repo[:TYPE]`, Ollama's spelling (`qwen3:0.6b`) and that of files and repositories
    (`Qwen3-0.6B-Q8_0`). A family (`llama3.2`) means its model that is here, else the smallest. Raises ModelNotFound for an
    address that cannot be followed.
    """
    if "\0" in text or not text.strip() or _lookup(text) is not None or _at_path(text) is not None or _imported(text):
        return text, ""
    if (page := _page(text)) is not None:
        if _here(page) is None and (stored := _in_stores(text)) is not None:
            return stored.name, f"{_cut(text)} means {stored.name}"
        return page, f"{_cut(text)} means {page}"
    if text.startswith((HUB_PREFIX, OLLAMA_PREFIX)):
        return text, ""
    if spelling.ADDRESS.match(text) and not spelling.LIBRARY.fullmatch(text):
        raise ModelNotFound(
            f"{_shown(text)} is not a model's page on the hub: download the file and give its path, or write "
            "hf:owner/repository[:TYPE or :FILE.gguf]"
        )
    choices = spelling.variants(text, entries())
    if not any(entry_file(file) is not None for _, file in choices) and (stored := _in_stores(text)) is not None:
        return stored.name, f"{_cut(text)} means {stored.name}"
    if not choices:
        return text, ""
    here = [pair for pair in choices if len(choices) > 1 and entry_file(pair[1]) is not None]
    entry, file = (here or choices)[0]
    name = entry.name if file.type == entry.default else f"{entry.name}:{file.type}"
    others = [other.name for other, _ in choices if other is not entry]
    why = f", {'which is here' if here else 'the smallest'}; others: {some(others)}" if others else ""
    return name, f"{_cut(text)} means {name}{why}"


def named_file(text: str) -> Path | None:
    """The file that another spelling of a name means, as in `meant`, if it is on this machine; never one at a path.

    Raises ModelNotFound where several files have this name.
    """
    page = spelling.page(text, os.environ.get("HF_ENDPOINT", ""))
    if page is not None and not page.revision and (found := _here(page.name)) is not None:
        return found
    if not os.path.isabs(text) and (stored := _in_stores(text)) is not None:
        return stored.path
    return next((path for _, file in spelling.variants(text, entries()) if (path := entry_file(file)) is not None), None)


def _in_stores(text: str) -> Found | None:
    """The model that another program's name means: Ollama's with or without its tag, a file's name, or its publisher's folder.

    Raises ModelNotFound where several files have this name.
    """
    wanted = text.lower().removesuffix(":latest")
    models = {os.path.realpath(model.path): model for model in reversed(stores.all_found()) if wanted in stores.aliases(model)}
    if len(models) > 1:
        some_names = some(sorted(str(model.path) for model in models.values()))
        raise ModelNotFound(f"{_shown(text)} is the name of several models here; give the path of one: {some_names}")
    return next(iter(models.values()), None)


def _here(page: str) -> Path | None:
    """The file of an `hf:` name; None where it is not here, or is one of several."""
    try:
        asked = hub_name(page)
        return _of_hub(asked) if asked is not None else None
    except ModelNotFound:
        return None


def _page(text: str) -> str | None:
    """The `hf:` name of an address of the hub, or of `owner/repo` where no folder `owner` is here. Raises ModelNotFound."""
    page = spelling.page(text, os.environ.get("HF_ENDPOINT", ""))
    if page is None or (page.name.startswith(HUB_PREFIX + text) and kind(text.partition("/")[0]) == "folder"):
        return None
    if page.revision:
        raise ModelNotFound(
            f"{_shown(text)} names the version {_shown(page.revision)}, and edgellm fetches the newest alone; "
            f"write {page.name} for that one, or download the file and give its path"
        )
    return page.name


def on_disk(name: str) -> Path | None:
    """The file that a name means, if it is on this machine. Raises ModelNotFound for a name that can mean nothing."""
    if "\0" in name or not name.strip():
        raise ModelNotFound(f"{_shown(name)} is not a model's name: give a .gguf file or a name in the catalogue")
    if name.startswith(OLLAMA_PREFIX):
        wanted = name.removesuffix(":latest")
        return next((model.path for model in stores.named("ollama") if model.name == wanted), None)
    if (asked := hub_name(name)) is not None:
        return _of_hub(asked)
    if (found := _lookup(name)) is not None:
        entry, type_name = found
        files = [entry.file(type_name)] if type_name else [entry.file(), *(file for file in entry.files if file.package)]
        return next((path for file in files if file is not None and (path := entry_file(file)) is not None), None)
    return _at_path(name) or _imported(name)


def hub_name(text: str) -> HubName | None:
    """An `hf:` name, parsed; None for other names. Raises ModelNotFound where it names no repository."""
    if not text.startswith(HUB_PREFIX):
        return None
    repository, _, wanted = text.removeprefix(HUB_PREFIX).partition(":")
    if repository.count("/") > 1 and not wanted:
        owner, name, wanted = repository.split("/", 2)
        repository = f"{owner}/{name}"
    if not REPOSITORY.fullmatch(repository):
        raise ModelNotFound(f"{_shown(text)} is not a model of the hub: write hf:owner/repository[:TYPE or :FILE.gguf]")
    return HubName(repository, wanted)


def find_entry(name: str) -> tuple[Entry, ModelFile | None]:
    """The catalogue entry that a name means, and the file of the type in it. Raises ModelNotFound for all other names."""
    found = _lookup(name)
    if found is None:
        if name.startswith(OLLAMA_PREFIX):
            raise _not_in_ollama(name)
        if kind(name):
            raise ModelNotFound(f"{_shown(name)} is a path on this machine, not the name of a model that can be fetched")
        raise ModelNotFound(f"{_shown(name)} {_not_found(name, Path(name))}")
    return found[0], found[0].file(found[1])


def entry_of(name: str | os.PathLike[str]) -> Entry | None:
    """The catalogue entry that a name (with or without a type) refers to; None for paths and other names."""
    found = _lookup(os.fspath(name))
    return found[0] if found else None


def entry_file(file: ModelFile) -> Path | None:
    """A file of the catalogue, in the hub's cache or where another program keeps the same one."""
    if file.bundled:
        return own_data(file.parts[0].path)
    if file.package:
        return stores.same_file(file.parts[0])
    return _in_cache(file) or (stores.same_file(file.parts[0]) if len(file.parts) == 1 else None)


def installed() -> list[tuple[str, Path]]:
    """(name, file) of the chat models that were fetched or imported: those of the catalogue, then those of our own folder.

    A name is `NAME:TYPE` where it is not the default type.
    """
    result = []
    for entry in entries().values():
        for file in sorted(entry.files, key=lambda f: f.type != entry.default):
            path = entry_file(file) if file.package else _in_cache(file)
            if entry.kind == "chat" and not file.bundled and path is not None:
                result.append((entry.name if file.type == entry.default else f"{entry.name}:{file.type}", path))
    own = models_folder()
    return result + [(model.name, model.path) for model in stores.named("folders") if model.path.parent == own]


def missing(file: ModelFile) -> str:
    """The error for a built-in file that is missing."""
    return f"{file.parts[0].path} comes with edgellm, but this installation lacks it: install edgellm again"


def fetch_command(entry: Entry, type_name: str | None = None) -> str:
    """The command line that fetches an entry's file of that type, or its default one. KeyError if there is none."""
    file = entry.file(type_name)
    if file is None:
        raise KeyError(type_name)
    return f"edgellm pull {entry.name}" + (f":{file.type}" if file.type != entry.default else "")


def kind(path: str | Path) -> str:
    """The kind of a path: "file", "folder", another kind in words, or "" for nothing."""
    try:
        mode = os.stat(os.path.expanduser(path)).st_mode
    except PermissionError:
        return "not readable for you"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a symbolic link that points to itself"
        return "a broken symbolic link" if os.path.islink(os.path.expanduser(path)) else ""
    except ValueError:
        return ""
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"


def some(names: list[str]) -> str:
    """A list for a message: the first names, printable whatever they hold."""
    listed = ", ".join(name if name.isprintable() else repr(name) for name in names[:12])
    return listed + (", ..." if len(names) > 12 else "")


def _lookup(text: str) -> tuple[Entry, str | None] | None:
    """The entry and the type asked for. A file that exists under exactly this name wins over the catalogue."""
    name, _, type_name = text.partition(":")
    if not NAME.fullmatch(name.lower()) or kind(text) == "file":
        return None  # before the catalogue is opened: a path needs none
    entry = entries().get(name.lower())
    if entry is None:
        return None
    return entry, None if type_name == "latest" else type_name or None


def _at_path(name: str) -> Path | None:
    """The file, or the folder of the MLX community, that lies at a path."""
    path = os.path.expanduser(name)
    is_model = kind(path) == "file" or (kind(path) == "folder" and kind(os.path.join(path, "config.json")) == "file")
    return Path(path) if is_model else None


def _imported(name: str) -> Path | None:
    """A model of our own folder; of a split one the first part."""
    if not NAME.fullmatch(name) or ".." in name:
        return None
    folder = models_folder()
    try:
        candidates = [folder / f"{name}.gguf", *sorted(folder.glob(f"{name}-00001-of-*.gguf"))]
        return next((path for path in candidates if kind(path) == "file"), None)
    except PermissionError:  # nothing that could be read
        return None


def _in_cache(file: ModelFile) -> Path | None:
    """The first part of a file, if every part is in the hub's cache."""
    found = [hub_cache.find_file(file.repository, part.path, file.revision) for part in file.parts]
    return found[0] if all(found) else None


def _of_hub(asked: HubName) -> Path | None:
    """The file of a repository that is meant. Raises ModelNotFound where several are here."""
    files = hub_cache.model_files(asked.repository)
    chosen = narrow(files, asked.wanted, Path.as_posix)
    if len(chosen) > 1:
        names = some([p.name for p in chosen])
        raise ModelNotFound(f"hf:{asked.repository} has several files here; write hf:{asked.repository}:FILE with one of {names}")
    return chosen[0] if chosen else None


def _not_fetched(asked: HubName) -> str:
    name = f"{HUB_PREFIX}{asked.repository}" + (f":{asked.wanted}" if asked.wanted.isprintable() and asked.wanted else "")
    here = some([p.name for p in hub_cache.model_files(asked.repository)])
    beside = f" (here: {here})" if here else ""
    command = f"edgellm pull {name}" if re.fullmatch(r"[\w./:-]{1,300}", name) else "edgellm pull hf:owner/repository:FILE"
    return f"{_shown(name)} is not in {hub_cache.cache_root()}{beside}; fetch it with: {command}"


def _from_path(text: str) -> Path:
    """Raises ModelNotFound: no file is there. What is there, or near, is named."""
    path = Path(os.path.expanduser(text))
    what = kind(text)  # a Path has no slash at its end, behind which there can be no file
    if what == "folder":
        inside = sorted(p.name for p in path.glob("*.gguf"))
        advice = f"name a file in it: {some(inside)}" if inside else "give a .gguf file (there is none in it)"
        raise ModelNotFound(f"{_shown(text)} is a folder: {advice}")
    if what:
        raise ModelNotFound(f"{_shown(text)} is {what}, not a model file")
    raise ModelNotFound(f"{_shown(text)} {_not_found(text, path)}")


def _not_found(text: str, path: Path) -> str:
    """Why a name led nowhere, with the nearest names that do exist."""
    if os.sep in text or "/" in text or text.lower().endswith(".gguf"):
        try:
            names = [p.name for p in path.parent.iterdir() if p.suffix == ".gguf"]
        except (OSError, ValueError):
            names = []
        near = [str(path.parent / n) for n in difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)]
        if known := spelling.same_file_name(text, entries()):
            near.append(f"{known} of the catalogue")
        return f"does not exist: did you mean {some(near)}?" if near else "does not exist: check the path" + _or_hub(text)
    near = spelling.near(text, entries())
    if near:
        meaning = f"did you mean {some(near)}?"
    elif len(text.split()) > 1:
        meaning = "if it is a prompt, the model comes before it, as in edgellm run guide PROMPT"
    else:
        meaning = f"give a .gguf file, hf:owner/repository, or one of {some(list(entries()))}"
    return f"is neither a file nor in the catalogue: {meaning}"


def _or_hub(text: str) -> str:
    is_page = spelling.page(text) is not None
    return f", or write hf:{text} for the hub" if is_page else ""


def _not_in_ollama(text: str) -> ModelNotFound:
    """Ollama's models, and the command that fetches a missing one."""
    names, wanted = [model.name for model in stores.named("ollama")], text.removeprefix(OLLAMA_PREFIX)
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.5) or names
    sound = re.fullmatch(r"[\w./:-]{1,300}", wanted, re.ASCII)
    fetch = f"fetch it with: ollama pull {wanted}" if sound else "give a name that ollama list shows"
    return ModelNotFound(f"{_shown(text)} is not here; {f'there are {some(near)}; or ' if near else ''}{fetch}")


def _shown(text: str) -> str:
    """A name as it may stand in a message: quoted, control characters escaped, not longer than a line."""
    return repr(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
