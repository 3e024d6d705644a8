"""One variant of an architecture: a tiny model, and how transformers makes the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tiny_models import tiny_model

PEER = "llama.cpp"  # the family of variants that transformers does not know: their gold is llama.cpp's


@dataclass(frozen=True, slots=True)
class Variant:
    """Arguments of `tiny_model`, and what transformers calls the same thing: a class and the rest of its config."""

    arch: str
    family: str  # the start of transformers' class names
    sizes: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    drafts: tuple[str, ...] = ()  # names of layers that only draft tokens

    def write(self, path: Path) -> Path:
        """The model file."""
        tensors = {name: None if values is None else np.asarray(values, np.float32) for name, values in self.tensors.items()}
        return tiny_model(path, self.arch, seed=7, metadata=self.metadata, tensors=tensors, **self.sizes)
