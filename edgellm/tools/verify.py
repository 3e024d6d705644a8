"""Judges a model file: its hash, structure, values, tensors, tokenizer and chat template, a finding each."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from edgellm.arch import build_graph, find, load_graph
from edgellm.arch._projector import graphs_of
from edgellm.arch.vision import is_projector
from edgellm.catalogue.names import entry_of
from edgellm.catalogue.registry import entries
from edgellm.checkpoints.opening import open_model
from edgellm.errors import EdgeError, Unsupported
from edgellm.formats.codecs import CODECS, Codec
from edgellm.formats.gguf import GGUFFile
from edgellm.formats.gguf_file_type import file_type
from edgellm.hparams import architecture_of
from edgellm.spec import UNUSED, matrices, vectors
from edgellm.tools.verify_text import Diagnosis, template_findings, tokenizer_findings

Progress = Callable[[str, int, int], None]
AT_ONCE = 32 << 20  # bytes that are looked at together
LARGEST_VALUE, LARGEST_SCALE = 1e5, 1e4  # beyond, no weight of a real model is known
BLOB = re.compile(r"(?:sha256-)?([0-9a-f]{64})")  # names of files in the hub's cache and in Ollama's store
LISTED = 5  # names of a list that are shown


def verify(path: str | os.PathLike[str], *, name: str = "", progress: Progress | None = None) -> Iterator[Diagnosis]:
    """Findings on the model at `path`, as they are made. `name`: what the user called it, for its entry of the catalogue.

    Reads every byte, a part at a time. A damaged file is a finding, not an error.
    """
    try:
        gguf = open_model(path)
    except EdgeError as error:
        yield Diagnosis("container", "error", str(error))
        return
    with gguf:
        kind = f"GGUF {gguf.version}" if gguf.version else "safetensors"
        many = f" in {len(gguf.paths)} files" if len(gguf.paths) > 1 else ""
        yield Diagnosis("container", "ok", f"{kind}, {len(gguf.tensors)} tensors, {gguf.nbytes} bytes{many}")
        yield from _hashes(gguf, name, progress)
        yield from _types(gguf)
        yield from _values(gguf, progress)
        yield from _tensors(gguf)
        if not is_projector(gguf):
            yield from tokenizer_findings(gguf)
            yield from template_findings(gguf)


def _hashes(gguf: GGUFFile, name: str, progress: Progress | None) -> Iterator[Diagnosis]:
    """Each file's sha256 beside what the catalogue, the hub's cache or Ollama's store call it."""
    for path in gguf.paths:
        known, who, sure = _known_hash(path, name)
        if known is None:
            yield Diagnosis("hash", "skipped", f"{os.path.basename(path)}: no known sha256 to compare with")
            continue
        found = _sha256(path, progress)
        if found in known:
            yield Diagnosis("hash", "ok", f"{os.path.basename(path)}: sha256 {found[:12]}... is what {who} says")
        elif sure:
            yield Diagnosis("hash", "error", f"{path}: sha256 is {found} and {who} says {known[0]}; fetch the file again")
        else:
            yield Diagnosis("hash", "warning", f"{path}: is not the file of this name that {who} knows")


def _known_hash(path: str, name: str) -> tuple[list[str] | None, str, bool]:
    """The sha256 values that a file may have, who says so, and whether another one means damage."""
    real = Path(path).resolve()
    blob = BLOB.fullmatch(real.name)
    if blob is not None and real.parent.name == "blobs":
        return [blob[1]], "the cache", True
    asked = entry_of(name) if name else None
    found = []
    for entry in (asked,) if asked is not None else entries().values():
        parts = [part for file in entry.files for part in file.parts]
        found += [part.sha256 for part in parts if part.sha256 and part.path.rpartition("/")[2] == os.path.basename(path)]
    return (found, "the catalogue", asked is not None) if found else (None, "", False)


def _sha256(path: str, progress: Progress | None) -> str:
    digest, size, done = hashlib.sha256(), os.stat(path).st_size, 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(AT_ONCE):
            digest.update(block)
            done += len(block)
            if progress is not None:
                progress("hashing, MB", done >> 20, size >> 20)
    return digest.hexdigest()


def _types(gguf: GGUFFile) -> Iterator[Diagnosis]:
    foreign = {info.type.name: info.type.refusal for info in gguf.tensors.values() if info.type.name not in CODECS}
    for refusal in foreign.values():
        yield Diagnosis("types", "warning", f"a tensor {refusal}")
    counts: dict[str, int] = {}
    for info in gguf.tensors.values():
        counts[info.type.name] = counts.get(info.type.name, 0) + 1
    if not foreign:
        yield Diagnosis("types", "ok", f"{file_type(gguf)}: " + ", ".join(f"{n} {name}" for name, n in sorted(counts.items())))


def _values(gguf: GGUFFile, progress: Progress | None) -> Iterator[Diagnosis]:
    """NaN, Inf, values that are too large to be true, and matrices of zeros."""
    faults = 0
    for done, name in enumerate(gguf.tensors):
        if progress is not None:
            progress("reading tensors", done, len(gguf.tensors))
        codec = CODECS.get(gguf.tensors[name].type.name)
        if codec is not None and (finding := _values_of(gguf, name, codec)) is not None:
            faults += 1
            yield finding
        gguf.drop(name)
    if not faults:
        yield Diagnosis("values", "ok", "no NaN or Inf, and no value out of range")


def _values_of(gguf: GGUFFile, name: str, codec: Codec) -> Diagnosis | None:
    info, raw = gguf.tensors[name], gguf.raw(name)
    floats = [field for field in codec.dtype.names or () if codec.dtype[field].kind == "f"]
    limit = LARGEST_VALUE if not floats or codec.n == 1 else LARGEST_SCALE
    blocks = raw.reshape(-1, codec.dtype.itemsize)
    step, broken, largest = max(AT_ONCE // codec.dtype.itemsize // (1 if floats else codec.n), 1), 0, 0.0
    for first in range(0, len(blocks), step):
        some = blocks[first : first + step]
        if floats:  # finite scales make finite values
            found = [some.reshape(-1).view(codec.dtype)[field] for field in floats]
        else:
            found = [codec.dequantize(some)]
        for values in found:
            wide = np.abs(values.astype(np.float32))
            finite = np.isfinite(wide)
            broken += int(wide.size - finite.sum())
            largest = max(largest, float(wide[finite].max(initial=0.0)))
    if broken:
        what = "blocks have scales" if codec.n > 1 else "values"
        return Diagnosis("values", "error", f"{name}: {broken} {what} that are NaN or Inf; get the file again, or convert it again")
    if largest > limit and not name.startswith("rope_"):  # factors of pairs that do not rotate are 1e30
        return Diagnosis("values", "warning", f"{name}: has {'scales' if floats and codec.n > 1 else 'values'} up to {largest:.3g}")
    if largest == 0 and len(blocks) and len(info.shape) > 1:
        return Diagnosis("values", "warning", f"{name}: holds nothing but zeros")
    return None


def _tensors(gguf: GGUFFile) -> Iterator[Diagnosis]:
    """The tensors against what the architecture's graph reads."""
    if is_projector(gguf):
        yield _projector(gguf)
        return
    try:
        architecture = architecture_of(gguf)
        find(architecture, gguf.path)
    except Unsupported as error:
        yield Diagnosis("tensors", "warning", _short(error, gguf))
        return
    except EdgeError as error:
        yield Diagnosis("tensors", "error", _short(error, gguf))
        return
    wanted: dict[str, tuple[int, ...]] = {}
    left_out: tuple[str, ...] = ()
    with contextlib.suppress(EdgeError):  # load_graph says the same below
        _, graph, left_out = build_graph(gguf)
        wanted = matrices(graph) | vectors(graph)
    missing = [name for name in wanted if name not in gguf.tensors]
    unused = [name for name in gguf.tensors if name not in wanted] if wanted else []
    strange = [name for name in unused if not UNUSED.fullmatch(name) and not name.startswith(left_out)]
    if missing:
        yield Diagnosis("tensors", "error", f"{len(missing)} are missing: {_some(missing)}; get a complete file")
    if strange:
        yield Diagnosis(
            "tensors", "error", f"{len(strange)} are unknown to {architecture}: {_some(strange)}; edgellm cannot run this variant"
        )
    if missing or strange:
        return
    try:
        load_graph(gguf)
    except EdgeError as error:
        yield Diagnosis("tensors", "error", _short(error, gguf))
        return
    beside = f"; {len(unused)} are not needed: {_some(unused)}" if unused else ""
    yield Diagnosis("tensors", "ok", f"all {len(wanted)} that {architecture} needs are there{beside}")


def _projector(gguf: GGUFFile) -> Diagnosis:
    try:
        graphs = graphs_of(gguf)
    except EdgeError as error:
        return Diagnosis("tensors", "warning" if isinstance(error, Unsupported) else "error", _short(error, gguf))
    kinds = [gguf.metadata.get(key) for key in ("clip.projector_type", "clip.vision.projector_type", "clip.audio.projector_type")]
    needed = {name for graph in graphs for name in (*matrices(graph), *vectors(graph))}
    return Diagnosis("tensors", "ok", f"all {len(needed)} that {', '.join(str(kind) for kind in kinds if kind)} needs are there")


def _some(names: list[str]) -> str:
    return ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")


def _short(error: EdgeError, gguf: GGUFFile) -> str:
    return str(error).removeprefix(f"{gguf.path}: ")
