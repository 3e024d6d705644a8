"""Opens a model whatever it lies in: a GGUF file, or a folder as the MLX community shares them."""

from __future__ import annotations

import os

from edgellm.formats.gguf import GGUFFile, open_gguf


def open_model(path: str | os.PathLike[str]) -> GGUFFile:
    """A GGUF file, or a folder with config.json and safetensors under GGUF's names. Raises the FormatErrors."""
    if os.path.isdir(path):
        from edgellm.checkpoints.folder import open_mlx_folder

        return open_mlx_folder(path)
    return open_gguf(path)
