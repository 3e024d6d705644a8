"""The encoder of Whisper, which many models hear with: two convolutions over frames, learned positions, pre-norm layers."""

from __future__ import annotations

from collections.abc import Callable

from edgellm.arch._stages import Stage
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.vision._blocks import blocks, optional_norm
from edgellm.graph import Builder, Value
from edgellm.ops.dense import activation, add, matmul
from edgellm.ops.vision import features, grid_embed, merge_rows

POSITIONS = "a.position_embd.weight"
LEAST = 640  # samples whose rows can be averaged by two


def convolution(name: str, channels: int, n: int, taps: int, act: str = "gelu_erf") -> Callable[[Builder], None]:
    """The product of a convolution and its activation; `taps` of each of `channels`."""

    def build(g: Builder) -> None:
        y = activation(g, act, matmul(g, features(g, channels * taps), name, n))
        g.output("rows", merge_rows(g, y, 1))

    return build


def whisper(keys: AudioKeys, project: Callable[[Builder, Value], Value], *, pooled: bool = False) -> tuple[Stage, ...]:
    """The stages to the encoder's rows, which are averaged by two if `pooled`, normed, and then projected."""
    n = keys.n_embd

    def layers(g: Builder) -> None:
        x = activation(g, "gelu_erf", matmul(g, features(g, 3 * n), "a.conv1d.2", n))
        x = add(g, x, grid_embed(g, "a.position_embd", keys.rows(POSITIONS), n, "rows"))
        x = merge_rows(g, blocks(g, keys, x), 2 if pooled else 1, "mean")
        g.output("rows", project(g, optional_norm(g, "layer", x, "a.post_ln", keys.eps)))

    return (
        Stage(convolution("a.conv1d.1", keys.bins, n, 3), (3, 1), around=1),
        Stage(layers, (3, 1), stride=2, around=1, layers=True, merged=2 if pooled else 1),
    )


def window(keys: AudioKeys) -> int:
    """Frames that there are positions for: of 30 seconds."""
    return 2 * keys.rows(POSITIONS)
