"""Image encoders, found by file name: edgellm/arch/vision/<clip.projector_type>.py builds the graph that a projector file holds."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, cast, runtime_checkable

from edgellm.arch._by_type import encoder_of, types_of
from edgellm.arch._stages import Stage, graphs_of
from edgellm.arch.vision._keys import ARCHITECTURE, VisionKeys, rows_width
from edgellm.errors import Unsupported
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Builder, Graph
from edgellm.hparams import architecture_of
from edgellm.image_spec import ImageSpec
from edgellm.ops._spec import Array

__all__ = ["ARCHITECTURE", "Stage", "VisionKeys", "find", "is_projector", "load_encoder", "names", "rows_width"]


BATCHED = ("v.position_embd.weight", "v.class_embd")  # may have leading dimensions of 1, as PyTorch's batches
GRID = "v.sam.pos_embd.weight"  # has dimensions for rows and for columns
AUDIO = ("a.", "mm.a.")  # of an audio encoder in the same file


class VisionEncoder(Protocol):
    """The functions that most files of this folder have, but for `row`."""

    def build(self, keys: VisionKeys, g: Builder) -> None:
        """Emit the graph from pixels to the output "rows" (R, n), which may be followed by "rows_1" and so on for deepstack."""
        ...

    def images(self, keys: VisionKeys) -> ImageSpec:
        """The form in which it takes images. Raises BadHParam."""
        ...

    def row(self, keys: VisionKeys, name: str, read: Callable[[str], Array]) -> Array:
        """One of the spec's `line_rows` (1, n_out), where it has any. `read`: a tensor of the file."""
        ...


@runtime_checkable
class StagedEncoder(Protocol):
    """Those of files whose encoder is several graphs."""

    def stages(self, keys: VisionKeys) -> tuple[Stage, ...]:
        """The graphs from patches to the rows that the model takes."""
        ...

    def images(self, keys: VisionKeys) -> ImageSpec:
        """The form in which it takes images. Raises BadHParam."""
        ...


def names() -> list[str]:
    """All projector types that can be run."""
    return types_of(sys.modules[__name__])


def is_projector(gguf: GGUFFile) -> bool:
    """True if a file is a projector, not a model."""
    return gguf.metadata.get("general.architecture") == ARCHITECTURE


def find(keys: VisionKeys) -> VisionEncoder:
    """The module of a file's projector type. Raises Unsupported."""
    found = encoder_of(sys.modules[__name__], keys.projector_type, file=keys.file, field="clip.projector_type")
    return cast(VisionEncoder, found)


def load_encoder(gguf: GGUFFile) -> tuple[VisionKeys, tuple[Stage, ...], list[Graph], ImageSpec]:
    """Keys, stages, their verified graphs and the image form of a projector file.

    Raises Unsupported, BadHParam, BadTensorInfo and ShapeMismatch.
    """
    if architecture_of(gguf) != ARCHITECTURE:
        raise Unsupported(
            f"is a model of architecture '{architecture_of(gguf)[:64]}', not a projector; give a file mmproj-*.gguf",
            file=gguf.path,
            field="general.architecture",
        )
    for name in BATCHED:
        if (tensor := gguf.tensors.get(name)) is not None and tensor.shape:
            rest = tuple(itertools.dropwhile(lambda n: n == 1, tensor.shape[:-1]))
            rest = (rest[0] ** 2,) if len(rest) == 2 and rest[0] == rest[1] != 2 else rest  # a grid (Kimi K2.5), no two axes
            gguf.tensors[name] = replace(tensor, shape=(*rest, tensor.shape[-1]))
    table = gguf.tensors.get(GRID)
    if table is not None and len(table.shape) >= 3 and table.shape[-3] == table.shape[-2]:
        gguf.tensors[GRID] = replace(table, shape=(math.prod(table.shape[:-1]), table.shape[-1]))
    keys = VisionKeys(gguf)
    encoder = find(keys)
    spec = encoder.images(keys)
    if isinstance(encoder, StagedEncoder):
        stages = encoder.stages(keys)
    else:
        stages = (Stage(lambda g: encoder.build(keys, g), layers=True),)
    graphs = graphs_of(stages, gguf.tensors, keys.file, AUDIO)
    for name in filter(None, (spec.begin_row, spec.end_row, spec.newline, spec.separator)):
        keys.check_row(name, keys.n_out)
    return keys, stages, graphs, spec
