"""ldp: CLIP's encoder and the light projector of MobileVLM, whose convolutions halve both sides of the grid."""

from __future__ import annotations

from dataclasses import replace

from edgellm.arch.vision import mlp
from edgellm.arch.vision._keys import VisionKeys
from edgellm.graph import Builder, Value
from edgellm.image_spec import ImageSpec
from edgellm.ops.dense import activation, add, matmul, mul
from edgellm.ops.neighbours import depth_conv, image_mean, merged_neighbours, neighbours
from edgellm.ops.norm import layer_norm

MERGE = 2  # patches of a side that become one row


def build(keys: VisionKeys, g: Builder) -> None:
    """Two inverted residual blocks of MobileNetV3 with layer norms, the second of which halves the grid."""
    n = keys.n_out
    x = matmul(g, mlp.encoder(keys, g), "mm.model.mlp.1", n)
    x = matmul(g, activation(g, "gelu_erf", x), "mm.model.mlp.3", n)
    x = add(g, x, _block(g, keys, x, "mm.model.mb_block.1.block", halved=False))
    g.output("rows", _block(g, keys, x, "mm.model.mb_block.2.block", halved=True))


def _block(g: Builder, keys: VisionKeys, x: Value, name: str, *, halved: bool) -> Value:
    """A convolution of each channel, gates from the mean of the image, and a product of the channels."""
    n, beside = keys.n_out, neighbours(g)
    x = layer_norm(g, depth_conv(g, x, beside, f"{name}.0.0.weight", halved=halved), f"{name}.0.1", keys.eps)
    x = mul(g, activation(g, "hard_sigmoid", x), x)
    mean = image_mean(g, x, merged_neighbours(g, MERGE) if halved else beside)
    gates = activation(g, "relu", matmul(g, mean, f"{name}.1.fc1", keys.rows(f"{name}.1.fc1.weight")))
    gates = activation(g, "hard_sigmoid", matmul(g, gates, f"{name}.1.fc2", n))
    return layer_norm(g, matmul(g, mul(g, gates, x), f"{name}.2.0", n), f"{name}.2.1", keys.eps)


def images(keys: VisionKeys) -> ImageSpec:
    return replace(mlp.images(keys), merge=MERGE, size=keys.square(MERGE))
