"""glm4v: the encoder of GLM-4.1V, GLM-4.5V and GLM-OCR; squares of patches become one row by a convolution."""

from __future__ import annotations

import math

from edgellm.arch.vision._blocks import encoded, gated, optional_norm, patches, positions, rope_2d
from edgellm.arch.vision._keys import VisionKeys
from edgellm.arch.vision.qwen3vl_merger import images_of
from edgellm.graph import Builder
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import activation, add, matmul
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import merge_rows, patch_conv

EPS = 1e-5  # of PyTorch's LayerNorm


def build(keys: VisionKeys, g: Builder) -> None:
    encoder(keys, g)


def encoder(keys: VisionKeys, g: Builder, gate_limit: float = math.inf) -> None:
    """Learned positions (not in GLM-OCR) and rotary ones; gated products after the convolution. `gate_limit`: see `gated`."""
    x = optional_norm(g, "rms", patches(g, keys, still=True), "v.norm_embd", keys.eps)
    if "v.position_embd.weight" in g.tensors:
        x = add(g, x, positions(g, keys, "bicubic"))
    x = encoded(g, keys, x, "rms", rotation=rope_2d(keys, 10000.0), gate_limit=gate_limit)
    x = merge_rows(g, x, keys.merge("spatial_merge_size", 2) ** 2, "channels")
    x = patch_conv(g, x, "mm.patch_merger.weight", keys.n_out, "mm.patch_merger.bias", keys.n_embd)
    x = activation(g, "gelu_erf", layer_norm(g, matmul(g, x, "mm.model.fc", keys.n_out), "mm.post_norm", EPS))
    n = keys.rows("mm.up.weight")
    x = gated(g, keys.activation, matmul(g, x, "mm.gate", n), matmul(g, x, "mm.up", n), gate_limit)
    g.output("rows", matmul(g, x, "mm.down", keys.n_out))


def images(keys: VisionKeys) -> ImageSpec:
    return images_of(keys, marks=("<|begin_of_image|>", "<|end_of_image|>"))
