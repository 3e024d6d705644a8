"""The encoders of a projector file: of images, of audio, or both."""

from __future__ import annotations

from edgellm.arch import audio, vision
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph


def media_of(gguf: GGUFFile) -> tuple[bool, bool]:
    """True for images, and for audio, if a projector file encodes them. Files that say nothing are old ones for images."""
    hears = gguf.metadata.get("clip.has_audio_encoder") is True
    return gguf.metadata.get("clip.has_vision_encoder", not hears) is not False, hears


def graphs_of(gguf: GGUFFile) -> list[Graph]:
    """The verified graphs of all encoders. Raises Unsupported, BadHParam, BadTensorInfo and ShapeMismatch."""
    sees, hears = media_of(gguf)
    found = vision.load_encoder(gguf)[2] if sees or not hears else []
    return found + (audio.load_encoder(gguf)[2] if hears else [])
