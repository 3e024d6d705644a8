"""Audio encoders, found by file name: edgellm/arch/audio/<projector type>.py builds the graphs that a projector file holds."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Protocol, cast

from edgellm.arch._by_type import encoder_of, types_of
from edgellm.arch._stages import Stage, graphs_of
from edgellm.arch.audio._keys import AudioKeys
from edgellm.audio_spec import AudioSpec
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph

BY_HEAD = (".pos_bias_u", ".pos_bias_v")  # vectors with a row for each head

__all__ = ["AudioKeys", "Stage", "find", "load_encoder", "names"]


class AudioEncoderFile(Protocol):
    """The functions that each file of this folder has."""

    def stages(self, keys: AudioKeys) -> tuple[Stage, ...]:
        """The graphs from frames to the rows that the model takes."""
        ...

    def audio(self, keys: AudioKeys) -> AudioSpec:
        """The form in which it takes clips. Raises BadHParam."""
        ...


def names() -> list[str]:
    """All projector types that can be run."""
    return types_of(sys.modules[__name__])


def find(keys: AudioKeys) -> AudioEncoderFile:
    """The module of a file's projector type. Raises Unsupported."""
    field = "clip.audio.projector_type"
    found = encoder_of(sys.modules[__name__], keys.projector_type, file=keys.file, field=field, medium="audio")
    return cast(AudioEncoderFile, found)


def load_encoder(gguf: GGUFFile) -> tuple[AudioKeys, tuple[Stage, ...], list[Graph], AudioSpec]:
    """Keys, stages, their verified graphs, and the form of audio of a projector file.

    Raises Unsupported, BadHParam, BadTensorInfo and ShapeMismatch.
    """
    keys = AudioKeys(gguf)
    for name, tensor in gguf.tensors.items():  # kernels are matrices with a row for each output
        if name.startswith("a.") and len(tensor.shape) > 2 and not name.endswith(".bias"):
            gguf.tensors[name] = replace(tensor, shape=(tensor.shape[0], math.prod(tensor.shape[1:])))
        elif name.endswith(BY_HEAD):
            gguf.tensors[name] = replace(tensor, shape=(math.prod(tensor.shape),))
    encoder = find(keys)
    stages, spec = encoder.stages(keys), encoder.audio(keys)
    for stage in stages:
        if stage.depth:
            keys.check_depth(stage.depth, math.prod(stage.taps))
    own = {name: info for name, info in gguf.tensors.items() if name.startswith(("a.", "mm.a."))}
    graphs = graphs_of(stages, own, keys.file, [f"{stage.depth}." for stage in stages if stage.depth])
    return keys, stages, graphs, spec
