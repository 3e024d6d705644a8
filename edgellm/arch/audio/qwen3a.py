"""qwen3a: the encoder of Qwen3-ASR and Qwen3-Omni: convolutions over seconds, layers that see eight of them."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.audio._whisper import POSITIONS, convolution
from edgellm.arch.vision._blocks import blocks, optional_norm, two_products
from edgellm.audio_spec import AudioSpec
from edgellm.graph import Builder
from edgellm.ops.dense import add, matmul
from edgellm.ops.vision import features, grid_embed, merge_rows

CHUNK, WINDOW = 100, 800  # frames of the model's processor and of its attention, in no file
LEAST_SAMPLES = 8000


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    """Three convolutions over frames and bins halve both; positions begin anew with each second."""
    channels, n, bins = keys.rows("a.conv2d.1.weight"), keys.n_embd, keys.bins
    for _ in range(3):
        bins = (bins + 1) // 2

    def layers(g: Builder) -> None:
        x = matmul(g, features(g, channels * bins), "a.conv_out", n)
        x = add(g, x, grid_embed(g, "a.position_embd", keys.rows(POSITIONS), n, "rows"))
        x = optional_norm(g, "layer", merge_rows(g, blocks(g, keys, x), 1), "a.post_ln", keys.eps)
        g.output("rows", two_products(g, keys, x, "mm.a.mlp.1", "mm.a.mlp.2"))

    def halved(number: int, inputs: int) -> Stage:
        build = convolution(f"a.conv2d.{number}", inputs, channels, 9)
        return Stage(build, (3, 3), stride=2, around=1, order="cft")

    return (halved(1, 1), halved(2, channels), halved(3, channels), Stage(layers, (1, 0), layers=True))


def audio(keys: AudioKeys) -> AudioSpec:
    return AudioSpec("whisper", keys.bins, WINDOW, CHUNK, least_samples=LEAST_SAMPLES, begin="<|audio_start|>", end="<|audio_end|>")
