"""Quantised checkpoints whose matrices answer as floats, or as blocks of the GGUF type that holds them exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgellm.checkpoints.packings.float4 import floats_of_4_bits
from edgellm.checkpoints.packings.fused4 import divided
from edgellm.checkpoints.packings.gptq_awq import unpacked_integers
from edgellm.checkpoints.packings.mlx_groups import grouped
from edgellm.checkpoints.packings.scaled import scaled
from edgellm.checkpoints.packings.ternary import ternary
from edgellm.formats.safetensors import SafeTensorsFile


def unpacked(file: SafeTensorsFile, config: Mapping[str, Any]) -> SafeTensorsFile:
    """The file, or where its matrices are packed or have scales beside them, one that gives their values."""
    return unpacked_integers(floats_of_4_bits(divided(scaled(grouped(ternary(file, config), config), config))), config)
