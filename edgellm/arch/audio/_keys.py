"""The keys of an audio encoder in a projector file, which llama.cpp's tools/mtmd/clip-impl.h names."""

from __future__ import annotations

import functools
import math

from edgellm.arch.vision._keys import EncoderKeys
from edgellm.errors import BadHParam, ShapeMismatch
from edgellm.formats.gguf import GGUFFile
from edgellm.hparams import Keys
from edgellm.spec import VECTOR_TYPES

MOST_BINS = 512
MOST_STACKED = 64


class AudioKeys(EncoderKeys):
    """The keys `clip.audio.*` of a projector file."""

    prefix, activation, swapped_ffn = "a", "gelu_erf", False

    def __init__(self, gguf: GGUFFile) -> None:
        """Raises BadHParam where the file has no audio encoder."""
        super().__init__(gguf)
        clip = Keys(gguf)
        self.architecture = "clip.audio"
        kind = gguf.metadata.get("clip.audio.projector_type", gguf.metadata.get("clip.projector_type"))
        if not isinstance(kind, str) or not kind:
            raise BadHParam("is missing; this is no projector file, or a damaged one", file=self.file, field="clip.projector_type")
        if not clip.flag("has_audio_encoder", default=False):
            raise BadHParam("is false: the file encodes no audio, take the model's audio projector", file=self.file,
                            field="clip.has_audio_encoder")  # fmt: skip
        self.projector_type = kind

    @functools.cached_property
    def bins(self) -> int:
        """Bins of a mel spectrogram."""
        return self.integer("num_mel_bins", 1, MOST_BINS)

    def check_depth(self, name: str, taps: int) -> None:
        """Raises BadTensorInfo, ShapeMismatch unless a convolution of each channel for itself has `taps` and a bias."""
        channels = self.rows(f"{name}.weight")
        for part, wanted in (("weight", channels * taps), ("bias", channels)):
            tensor = self._needed(f"{name}.{part}")
            if math.prod(tensor.shape) != wanted or tensor.type.name not in VECTOR_TYPES:
                raise ShapeMismatch(
                    f"has shape {tuple(tensor.shape)} in {tensor.type.name}, where {channels} channels belong",
                    file=self.file,
                    field=f"{name}.{part}",
                )

    @functools.cached_property
    def stacked(self) -> int:
        """Rows of the encoder that become one of the model."""
        return self.integer("projector.stack_factor", 1, MOST_STACKED)
