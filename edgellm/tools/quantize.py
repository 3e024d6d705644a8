"""From a GGUF file to one of smaller types: tensor by tensor, in pieces that threads take, whatever the model's size."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgellm.backends.base import Progress
from edgellm.backends.cpu.system import usable_cores
from edgellm.errors import OptionError, Unsupported, Unwritable
from edgellm.formats.ggml_types import TYPES_BY_NAME, GGMLType, row_bytes
from edgellm.formats.gguf import GGUFFile
from edgellm.formats.gguf_tensors import TensorInfo
from edgellm.formats.mapped import Bytes
from edgellm.formats.whole_file import check_place
from edgellm.formats.writer import GGUFWriter, NewTensor, part_path
from edgellm.tools.encoder import Floats, TensorEncoder, check_encodable
from edgellm.tools.importance import Importance, read_importance
from edgellm.tools.mixes import Mix, Wishes, choose_types, find_mix
from edgellm.tools.places import check_out, open_source

PIECE = 1 << 19  # values that a thread quantises at a time: 2 MiB of f32
_DROPPED = 32 << 20  # bytes written from a tensor before its pages in the source are given back
_PLAIN = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """`type`: a name of mixes.MIXES, where there is no `target`. The others: llama-quantize's options of the same names."""

    type: str = ""  # or a size:
    target: float | None = None  # bits per weight of all tensors together; types by error measured on `text`
    text: str = ""
    tensor_types: tuple[str, ...] = ()  # PATTERN=TYPE, the first that matches holds
    output_type: str | None = None
    token_embedding_type: str | None = None
    imatrix: str | None = None
    pure: bool = False
    allow_requantize: bool = False
    force: bool = False  # replace a file that is there
    threads: int | None = None
    split_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run: the types by tensor, in the file's order, and what they sum up to."""

    mix: Mix
    tensors: Mapping[str, TensorInfo]
    types: Mapping[str, GGMLType]
    file_bytes: int = 0  # of the files that will be written, headers included; where that was asked for

    @property
    def new_tensors(self) -> list[NewTensor]:
        """The tensors of the new file."""
        return [NewTensor(name, self.tensors[name].shape, kind) for name, kind in self.types.items()]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.new_tensors)

    @property
    def bits_per_weight(self) -> float:
        """Of all tensors together."""
        return 8 * self.nbytes / max(sum(math.prod(info.shape) for info in self.tensors.values()), 1)

    def counts(self) -> dict[str, int]:
        """How many tensors have each type, the most frequent first."""
        return dict(Counter(kind.name for kind in self.types.values()).most_common())


@dataclass(frozen=True, slots=True)
class Quantized:
    """The result of a run: the files, their bytes and those of the source, the plan, and how long it took."""

    paths: tuple[str, ...]
    nbytes: int
    source_bytes: int
    plan: Plan
    seconds: float


@dataclass(slots=True)
class _Job:
    """One run: what its pieces share."""

    gguf: GGUFFile
    plan: Plan
    importance: Importance | None
    encoder: TensorEncoder
    unread: int = field(default=0)  # bytes of the present tensor that were written since its pages were given back


def plan(source: str | os.PathLike[str], options: QuantizeOptions) -> Plan:
    """The types that `quantize` would choose. Reads only headers. Raises OptionError and the FormatErrors, as it would."""
    with open_source(source) as gguf:
        importance = _importance(options)
        planned = _plan(gguf, options, importance, None)
        _check(gguf, planned, options)
        metadata = gguf.typed_metadata() | _about(planned.mix, importance)
        return replace(
            planned, file_bytes=GGUFWriter("new.gguf", metadata, planned.new_tensors, split_bytes=options.split_bytes).nbytes
        )


def quantize(
    source: str | os.PathLike[str], out: str | os.PathLike[str], options: QuantizeOptions, *, progress: Progress | None = None
) -> Quantized:
    """Write `source` with the types of `options.type` to `out`.

    Nothing stands under the name of `out` before the file is complete. Memory stays below some 100 MiB whatever the model's size.
    progress(what, done, of) counts tensors. Raises OptionError, Unwritable and the FormatErrors.
    """
    began = time.monotonic()
    with open_source(source) as gguf:
        importance = _importance(options)
        if options.target is not None:  # it is measured for long
            _check_place(gguf, [out if options.split_bytes is None else part_path(os.fspath(out), 0, 1)], 0, options)
        planned = _plan(gguf, options, importance, progress)
        _check(gguf, planned, options)
        metadata = gguf.typed_metadata() | _about(planned.mix, importance)
        writer = GGUFWriter(out, metadata, planned.new_tensors, split_bytes=options.split_bytes)
        _check_place(gguf, writer.paths, planned.nbytes, options)
        changed = {name for name, kind in planned.types.items() if kind is not gguf.tensors[name].type}
        encoder = TensorEncoder(
            {gguf.tensors[name].type.name for name in changed},
            {planned.types[name].name for name in changed},
            weighted=importance is not None,
            progress=progress,
        )
        with writer:
            _write(_Job(gguf, planned, importance, encoder), writer, options.threads or usable_cores(), progress)
        nbytes = sum(os.path.getsize(path) for path in writer.paths)
        return Quantized(writer.paths, nbytes, gguf.nbytes, planned, time.monotonic() - began)


def _importance(options: QuantizeOptions) -> Importance | None:
    return None if options.imatrix is None else read_importance(options.imatrix)


def _plan(gguf: GGUFFile, options: QuantizeOptions, importance: Importance | None, progress: Progress | None) -> Plan:
    if options.target is not None:
        from edgellm.tools.target import choose_for_size

        found = choose_for_size(gguf.path, options.target, options.text, progress=progress)
        return Plan(found.mix, gguf.tensors, found.types)
    mix = find_mix(options.type)
    patterns = tuple(_pattern(text) for text in options.tensor_types)
    wishes = Wishes(
        patterns,
        _type_name("--output-type", options.output_type),
        _type_name("--token-embedding-type", options.token_embedding_type),
        options.pure,
    )
    types = choose_types(gguf.tensors, gguf.metadata, mix, wishes, has_importance=importance is not None)
    return Plan(mix, gguf.tensors, types)


def _pattern(text: str) -> tuple[re.Pattern[str], str]:
    pattern, equals, kind = text.rpartition("=")
    name = _type_name(f"--tensor-type {text}", kind) if equals else None
    if not pattern or name is None:
        raise OptionError(f"--tensor-type {text}: give PATTERN=TYPE, such as ffn_down=Q6_K.")
    try:
        return re.compile(pattern, re.IGNORECASE), name
    except re.error as error:
        raise OptionError(f"--tensor-type {text}: {pattern!r} is not a regular expression ({error}).") from error


def _type_name(option: str, name: str | None) -> str | None:
    if name is None:
        return None
    kind = TYPES_BY_NAME.get(name.upper())
    if kind is None or not kind.has_layout or name.upper() in ("I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"):
        raise OptionError(f"{option}: {name!r} is not a type of weights; give one such as Q4_K, Q6_K, Q8_0 or F16.")
    return kind.name


def _check(gguf: GGUFFile, planned: Plan, options: QuantizeOptions) -> None:
    """Refuse what would spoil the model, before anything is written."""
    for name, kind in planned.types.items():
        info = gguf.tensors[name]
        if kind is info.type:
            continue
        check_encodable(info.type, gguf.path, name)
        check_encodable(kind, gguf.path, name)
        if info.type.name not in _PLAIN and not options.allow_requantize:
            raise Unsupported(
                f"is {info.type.name} already, and quantising twice loses more than once from the original; take the "
                "F16 or F32 file, or say --allow-requantize",
                file=gguf.path,
                field=name,
            )


def _check_place(gguf: GGUFFile, paths: Sequence[str | os.PathLike[str]], nbytes: int, options: QuantizeOptions) -> None:
    """Checks that all files of a run may be written."""
    sources = [*gguf.paths, *([options.imatrix] if options.imatrix else [])]
    for path in paths:
        check_out(path, sources, force=options.force)
    folder = os.path.dirname(os.path.abspath(paths[0]))
    if os.path.isdir(folder) and (free := shutil.disk_usage(folder).free) < nbytes:
        raise Unwritable(f"needs {nbytes} bytes and the disk has {free} left; make room or write elsewhere", file=paths[0])
    for path in paths:
        check_place(path)


def _about(mix: Mix, importance: Importance | None) -> dict[str, Any]:
    """The metadata that says how the file was made, under llama.cpp's keys."""
    keys: dict[str, Any] = {"general.quantization_version": np.uint32(2), "general.file_type": np.uint32(mix.file_type)}
    if importance is not None:
        keys["quantize.imatrix.file"] = importance.file
        if importance.datasets:
            keys["quantize.imatrix.dataset"] = importance.datasets[0]
        keys["quantize.imatrix.entries_count"] = np.uint32(len(importance.entries))
        if importance.chunks:
            keys["quantize.imatrix.chunks_count"] = np.uint32(importance.chunks)
    return keys


def _write(job: _Job, writer: GGUFWriter, threads: int, progress: Progress | None) -> None:
    waiting: deque[tuple[str, Future[Bytes]]] = deque()
    names, before = list(job.plan.types), ""
    with ThreadPoolExecutor(threads, thread_name_prefix="edgellm-quantize") as pool:
        try:
            for index, name in enumerate(names):
                if progress is not None:
                    progress("quantising", index + 1, len(names))
                for raw, importance in _pieces(job, name):
                    waiting.append((name, pool.submit(_encode, job, name, raw, importance)))
                    while len(waiting) > threads + 1:
                        _store(job, writer, *waiting.popleft())
                if before:
                    job.gguf.drop(before)
                before = name
            while waiting:
                _store(job, writer, *waiting.popleft())
        except BaseException:
            for _, future in waiting:
                future.cancel()
            raise


def _store(job: _Job, writer: GGUFWriter, name: str, future: Future[Bytes]) -> None:
    data = future.result()
    writer.write(name, data)
    job.unread += data.nbytes
    if job.unread > _DROPPED:
        job.gguf.drop(name)
        job.unread = 0


def _pieces(job: _Job, name: str) -> Iterator[tuple[Bytes, Floats | None]]:
    """Rows of a tensor, some at a time and of one expert, with the importance of their columns."""
    info = job.gguf.tensors[name]
    raw = job.gguf.raw(name)
    if not raw.size:
        return
    if job.plan.types[name] is info.type:
        for first in range(0, len(raw), 4 * PIECE):
            yield raw[first : first + 4 * PIECE], None
        return
    columns = info.shape[-1]
    rows = raw.reshape(-1, row_bytes(info.type, columns))
    importance = job.importance.of(info) if job.importance is not None else None
    experts = len(importance) if importance is not None else 1
    of_expert, step = len(rows) // experts, max(PIECE // columns, 1)
    for expert in range(experts):
        for first in range(0, of_expert, step):
            begin = expert * of_expert + first
            end = min(begin + step, (expert + 1) * of_expert)
            yield rows[begin:end], None if importance is None else importance[expert]


def _encode(job: _Job, name: str, raw: Bytes, importance: Floats | None) -> Bytes:
    source, target = job.gguf.tensors[name].type, job.plan.types[name]
    if target is source:
        return raw
    try:
        data = job.encoder.encode(raw, source, target, importance)
    except OverflowError as error:
        raise Unsupported(
            f"has values too large for the scales of {target.name}; choose BF16 for it, with --tensor-type",
            file=job.gguf.path,
            field=name,
        ) from error
    except ValueError as error:
        raise Unsupported(
            "has NaN or Inf among its values; the file is damaged or was converted wrongly", file=job.gguf.path, field=name
        ) from error
    if target.name == "F16" and np.isinf(data.view("<f2")).any():
        raise Unsupported("has values above 65504, which F16 cannot hold; choose BF16", file=job.gguf.path, field=name)
    return data
