"""Selects the files of a repository by a type or a file name: all parts of a split file, and only safe paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import TypeVar

from edgellm.catalogue.hub_cache import is_model, is_projector

T = TypeVar("T")

PROJECTORS = ("F16", "BF16", "F32", "Q8_0")  # types of image projectors, where there are several
HUB_DEFAULT = "Q4_K_M"  # llama.cpp's choice too, where a repository holds several
SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
TYPE = re.compile(r"(?<![A-Za-z0-9])((?:UD-)?(?:I?Q\d(?:_[0-9A-Z]+)*|BF16|F16|F32|MXFP4)(?:_MOE)?)(?![A-Za-z0-9])", re.IGNORECASE)
RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)  # file names that Windows takes for devices
LONGEST_NAME, LONGEST_PATH = 200, 1000  # bytes; file systems take 255 for a name
MAX_PARTS = 1024  # as formats reads


def is_safe(path: str) -> bool:
    """True if a path inside a repository stays there, and means the same file, on every system."""
    names = path.split("/")
    return len(path.encode("utf-8", "replace")) <= LONGEST_PATH and all(_is_safe_name(name) for name in names)


def _is_safe_name(name: str) -> bool:
    return (
        0 < len(name.encode("utf-8", "replace")) <= LONGEST_NAME
        and name.isprintable()
        and name.strip(" ") == name
        and name[0] not in "-~"
        and name[-1] != "."
        and not set(name) & set('\\:*?"<>|')
        and not RESERVED.fullmatch(name)
    )


def type_of(path: str) -> str:
    """The quantisation that a file name states, in capitals; "" where it states none."""
    found = TYPE.findall(PurePosixPath(path).name) or TYPE.findall(path)
    return str(found[-1]).upper() if found else ""


def matches(path: str, wanted: str) -> bool:
    """True if a file is called `wanted`, lies at that path, or names it as its type."""
    if wanted.lower().endswith(".gguf"):
        return f"/{path}".endswith("/" + wanted)
    return bool(re.search(rf"(?:^|[-._/]){re.escape(wanted)}(?:[-.]|$)", path.rpartition("/")[2], re.IGNORECASE))


def narrow(candidates: Sequence[T], wanted: str, path_of: Callable[[T], str]) -> list[T]:
    """Those that `wanted` ("" for anything) means; of several, those of the usual type if there are any."""
    found = [item for item in candidates if matches(path_of(item), wanted)] if wanted else list(candidates)
    if len(found) > 1:
        found = [item for item in found if matches(path_of(item), HUB_DEFAULT)] or found
    return found


def models_of(paths: Iterable[str]) -> list[str]:
    """The models among the files of a repository: safe paths, no projectors, of split files the first part only.

    Of paths that differ in upper and lower case alone only the first is kept: on many disks they are one file.
    """
    kept: dict[str, str] = {}
    for path in sorted(paths):
        if is_model(path.rpartition("/")[2]) and is_safe(path):
            kept.setdefault(path.casefold(), path)
    return list(kept.values())


def projector_of(paths: Iterable[str], model: str) -> str | None:
    """The projector that a repository has for a model: in its folder, or at the top; of several the first by `projector_order`."""
    folder = model.rpartition("/")[0]
    found = [path for path in paths if is_projector(path.rpartition("/")[2]) and is_safe(path)]
    found = [path for path in found if path.rpartition("/")[0] in (folder, "")]
    return min(found, key=lambda path: (path.rpartition("/")[0] != folder, projector_order(path, model)), default=None)


def projector_order(path: str, model: str) -> tuple[int, int, str]:
    """The place of a projector among those that a model may have: one that is named like it comes before one without a name, and
    that before one that is named like another; then the types as in `PROJECTORS`.
    """
    kind = type_of(path)
    named = 0 if is_named_for(path, model) else 2 if _bare_name(path) else 1
    return named, PROJECTORS.index(kind) if kind in PROJECTORS else len(PROJECTORS), path


def is_named_for(projector: str, model: str) -> bool:
    """True if a projector has a name besides its type, and the model's begins with it or it with the model's."""
    name, wanted = _bare_name(projector), _bare_name(model)
    return bool(name and wanted) and (wanted.startswith(name) or name.startswith(wanted))


def _bare_name(path: str) -> str:
    """The letters and digits of a file's name but its type; a projector's may be empty."""
    name = path.rpartition("/")[2].lower()
    name = split[1] if (split := SPLIT.fullmatch(name)) else name.removesuffix(".gguf")
    return re.sub(r"mmproj|(?<![a-z0-9])model(?![a-z0-9])|[^a-z0-9]", "", TYPE.sub("", name))


def parts_of(path: str) -> list[str]:
    """All parts of the split file whose first part `path` is, in order; the path alone where it is not split."""
    match = SPLIT.fullmatch(path)
    if match is None or not 1 <= int(match[3]) <= MAX_PARTS:
        return [path]
    return [f"{match[1]}-{number:05d}-of-{match[3]}.gguf" for number in range(1, int(match[3]) + 1)]
