"""The schema of models.toml: every field that an entry may have, checked when the file is read."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any  # what TOML holds before it is checked

from edgellm.errors import OptionError
from edgellm.options.option import Option
from edgellm.options.sampling import SAMPLING

NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")
PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]{0,95}==[0-9][\w.]{0,30}", re.ASCII)
BUNDLED = re.compile(r"[a-z0-9][a-z0-9.-]{0,58}\.gguf")
REPOSITORY = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
KINDS = ("chat", "embedding", "test")
COUNT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([KMB])")
MAX_NUMBER = 1e6


@dataclass(frozen=True, slots=True)
class FilePart:
    """One file of a repository: its path there, its bytes, and its sha256 where that is known."""

    path: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One quantisation of a model: a single file, or split files in order; in a repository of the hub, in a Python package, or, a
    bundled one, in edgellm itself."""

    type: str
    repository: str
    parts: tuple[FilePart, ...]
    revision: str | None = None  # commit; None: the repository's newest
    gated: bool = False  # its makers want their terms accepted on the hub first
    bundled: bool = False  # lies in the package's own data folder; repository is ""
    package: str = ""  # a wheel that holds it, as pip names it: NAME==VERSION; repository is ""

    @property
    def size(self) -> int:
        """Bytes of all parts together."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalogue.

    `context` in tokens, None where only the file says; `memory_gb` for a context of 4096; `sampling` holds the defaults that
    its makers recommend; `active`: the parameters that one token uses, where that is not all of them.
    """

    name: str
    architecture: str
    parameters: str
    licence: str
    memory_gb: float
    default: str
    files: tuple[ModelFile, ...]
    context: int | None = None
    kind: str = "chat"
    active: str | None = None
    tags: tuple[str, ...] = ()
    sampling: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def file(self, type_name: str | None = None) -> ModelFile | None:
        """The file of that quantisation (any case), the default one for None."""
        wanted = (type_name or self.default).lower()
        return next((f for f in self.files if f.type.lower() == wanted), None)

    @property
    def share_read(self) -> float:
        """The part of its weights that one token reads: 1, or less for a mixture of experts."""
        return parameters(self.active) / parameters(self.parameters) if self.active else 1.0


@dataclass(frozen=True, slots=True)
class Catalogue:
    """One models.toml: its entries by name in the file's order, and folders that hold more models."""

    entries: Mapping[str, Entry]
    folders: tuple[str, ...] = ()


def parameters(text: str) -> float:
    """A count like 596M or 7.24B as a number. ValueError for anything else."""
    match = COUNT.fullmatch(text)
    if match is None or not float(match[1]):
        raise ValueError(f"{_shown(text)} is not a count of parameters like 596M or 7.2B")
    return float(match[1]) * {"K": 1e3, "M": 1e6, "B": 1e9}[match[2]]


def parse(text: str) -> Catalogue:
    """Read a catalogue. Raises ValueError that names the entry and the field for anything outside the schema."""
    document = tomllib.loads(text)
    if document.pop("schema", None) != 1:
        raise ValueError("a catalogue must say schema = 1")
    folders = _texts(document, "folders", "the catalogue")
    if unusable := [folder for folder in folders if not folder or not folder.isprintable()]:
        raise ValueError(f"the catalogue: folders has {_shown(unusable[0])}, which cannot be a path")
    tables = _take(document, "model", list, "the catalogue", [])
    _nothing_left(document, "the catalogue")
    result: dict[str, Entry] = {}
    for table in tables:
        if not isinstance(table, dict):
            raise ValueError("the catalogue: model must be a table, written [[model]]")
        entry = _entry(table)
        if entry.name in result:
            raise ValueError(f"{entry.name} is in the catalogue twice")
        result[entry.name] = entry
    return Catalogue(MappingProxyType(result), folders)


def _entry(table: dict[str, Any]) -> Entry:
    name = _take(table, "name", str, "an entry")
    if not NAME.fullmatch(name):
        raise ValueError(f"{_shown(name)} is not a name for an entry: lower case letters, digits, dots and dashes")
    repository = _take(table, "repository", str, name, None)
    sampling = _take(table, "sampling", dict, name, {})
    rows = [row for row in SAMPLING if row.name in sampling]
    if unknown := sampling.keys() - {row.name for row in rows}:
        raise ValueError(f"{name}: sampling has the unknown option {_shown(min(unknown))}")
    active = _take(table, "active", str, name, None)
    entry = Entry(
        name=name,
        architecture=_take(table, "architecture", str, name),
        parameters=_count(_take(table, "parameters", str, name), name),
        context=_take(table, "context", int, name, None),
        kind=_kind(_take(table, "kind", str, name, "chat"), name),
        active=_count(active, name) if active is not None else None,
        tags=_texts(table, "tags", name),
        licence=_take(table, "licence", str, name),
        memory_gb=_number(_take(table, "memory_gb", (int, float), name), f"{name}: memory_gb"),
        default=_take(table, "default", str, name),
        files=tuple(_file(f, repository, name) for f in _take(table, "file", list, name)),
        sampling=MappingProxyType({row.name: _recommended(row, sampling[row.name], name) for row in rows}),
    )
    _nothing_left(table, name)
    if entry.file() is None:
        raise ValueError(f"{name}: no file has the default type {entry.default}")
    return entry


def _recommended(row: Option, value: Any, name: str) -> float:
    """The value of a sampling option, a whole number where the option is one."""
    number = _number(value, f"{name}: {row.name}")
    recommended: float = int(number) if row.kind is int and number.is_integer() else number
    try:
        row.check(recommended)
    except OptionError as error:
        raise ValueError(f"{name}: {error}") from error
    return recommended


def _file(table: Any, repository: str | None, name: str) -> ModelFile:
    if not isinstance(table, dict):
        raise ValueError(f"{name}: file must be a table, written [[model.file]]")
    type_name = _take(table, "type", str, name)
    where = f"{name}:{type_name}"
    if "bundled" in table:
        return _bundled(table, type_name, where)
    if "package" in table:
        return _packaged(table, type_name, where)
    repository = _repository(_take(table, "repository", str, where, _REQUIRED if repository is None else repository), where)
    revision = _take(table, "revision", str, where, None)
    if revision is not None and not re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(f"{where}: revision {_shown(revision)} is not a commit of 40 hex digits")
    gated = table.pop("gated", False) is True
    pieces = _take(table, "parts", list, where, None)
    if pieces is None:
        pieces = [{key: table.pop(key) for key in ("path", "size", "sha256") if key in table}]
    if not pieces:
        raise ValueError(f"{where}: parts lists no file")
    _nothing_left(table, where)
    return ModelFile(type_name, repository, tuple(_part(piece, where) for piece in pieces), revision, gated)


def _bundled(table: dict[str, Any], type_name: str, where: str) -> ModelFile:
    path = _take(table, "bundled", str, where)
    if not BUNDLED.fullmatch(path):
        raise ValueError(f"{where}: bundled = {_shown(path)} is not a name of a .gguf file in lower case")
    piece = {"path": path} | {key: table.pop(key) for key in ("size", "sha256") if key in table}
    _nothing_left(table, where)
    return ModelFile(type_name, "", (_part(piece, where),), bundled=True)


def _packaged(table: dict[str, Any], type_name: str, where: str) -> ModelFile:
    package = _take(table, "package", str, where)
    if not PACKAGE.fullmatch(package):
        raise ValueError(f"{where}: package = {_shown(package)} is not a package and version like name==1.0")
    part = _part({key: table.pop(key) for key in ("path", "size", "sha256") if key in table}, where)
    _nothing_left(table, where)
    if part.sha256 is None:
        raise ValueError(f"{where}: a file of a package needs a sha256")
    return ModelFile(type_name, "", (part,), package=package)


def _part(table: Any, where: str) -> FilePart:
    if not isinstance(table, dict):
        raise ValueError(f"{where}: each of parts must be a table with path and size")
    path, size = _take(table, "path", str, where), _take(table, "size", int, where)
    sha256 = _take(table, "sha256", str, where, None)
    _nothing_left(table, where)
    if not path.endswith(".gguf") or not path.isprintable() or path.startswith("/") or "\\" in path or ".." in path.split("/"):
        raise ValueError(f"{where}: {_shown(path)} is not a path of a .gguf file inside a repository")
    if not 0 < size < 2**63 or (sha256 is not None and not re.fullmatch("[0-9a-f]{64}", sha256)):
        raise ValueError(f"{where}: {path} needs a positive size and a sha256 of 64 hex digits")
    return FilePart(path, size, sha256)


def _number(value: Any, where: str) -> float:
    """A finite number; `memory_gb` and the sampling options are such."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MAX_NUMBER <= value <= MAX_NUMBER:
        raise ValueError(f"{where} = {_shown(value)} is not a number below {MAX_NUMBER:g}")
    return float(value)


def _texts(table: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = _take(table, key, list, where, [])
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{where}: {key} = {_shown(values)} must be texts in quotes")
    return tuple(values)


def _count(value: str, where: str) -> str:
    try:
        parameters(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return value


def _kind(value: str, where: str) -> str:
    if value not in KINDS:
        raise ValueError(f"{where}: kind {_shown(value)} is none of {', '.join(KINDS)}")
    return value


def _repository(value: str, where: str) -> str:
    if not REPOSITORY.fullmatch(value):
        raise ValueError(f"{where}: {_shown(value)} is not a repository like owner/name")
    return value


_REQUIRED: Any = object()  # Any: stands for "no default" beside defaults of every type


def _take(table: dict[str, Any], key: str, kind: type | tuple[type, ...], where: str, default: Any = _REQUIRED) -> Any:
    """Remove `key` from the table and return it; its type must be `kind`."""
    value = table.pop(key, default)
    if value is _REQUIRED:
        raise ValueError(f"{where}: {key} is missing")
    if value is not default and (not isinstance(value, kind) or isinstance(value, bool)):
        raise ValueError(f"{where}: {key} = {_shown(value)} has the wrong type")
    return value


def _nothing_left(table: dict[str, Any], where: str) -> None:
    if table:
        raise ValueError(f"{where}: unknown field {_shown(min(table))}")


def _shown(value: object) -> str:
    """A value for an error text, short whatever the file holds."""
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."
