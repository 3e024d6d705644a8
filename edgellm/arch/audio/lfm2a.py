"""lfm2a: the FastConformer of LFM2-Audio (NVIDIA's NeMo), a row for each 80 ms."""

from __future__ import annotations

from edgellm.arch._stages import Stage
from edgellm.arch.audio._conformer import attend_by_distance, convolved, half_step
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.vision._blocks import two_products
from edgellm.audio_spec import AudioSpec
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.ops.dense import activation, add, add_bias, matmul
from edgellm.ops.norm import layer_norm
from edgellm.ops.vision import features, merge_rows

EPS, WAVE_BASE = 1e-5, 10000.0
LEAST_SAMPLES = 3200  # two frames at least have a deviation
WINDOW = 6000  # frames: a minute, so that memory is bounded; the makers encode clips as a whole


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    def layers(g: Builder) -> None:
        x = fast_conformer(g, keys)
        x = layer_norm(g, merge_rows(g, x, 1), "mm.a.mlp.0", EPS)
        g.output("rows", two_products(g, keys, x, "mm.a.mlp.1", "mm.a.mlp.3"))

    return (*subsampled(keys), Stage(layers, (1, 0), layers=True))


def subsampled(keys: AudioKeys) -> tuple[Stage, ...]:
    """Three convolutions halve frames and bins, two of which are of each channel for itself, then of channels alone."""
    channels = keys.rows("a.conv1d.0.weight")

    def of_channels(number: int, inputs: int) -> Stage:
        def build(g: Builder) -> None:
            y = activation(g, "relu", matmul(g, features(g, inputs), f"a.conv1d.{number}", channels))
            g.output("rows", merge_rows(g, y, 1))

        return Stage(build, (3, 3), stride=2, around=1, depth=f"a.conv1d.{number - 1}" if number else "")

    return of_channels(0, 9), of_channels(3, channels), of_channels(6, channels)


def fast_conformer(g: Builder, keys: AudioKeys) -> Value:
    """All layers, from the frames that the convolutions leave."""
    bins = keys.bins
    for _ in range(3):
        bins = (bins + 1) // 2
    n, spec = keys.n_embd, RopeSpec(keys.n_embd, "norm", WAVE_BASE)
    x = matmul(g, features(g, keys.rows("a.conv1d.6.weight") * bins), "a.pre_encode.out", n)
    for layer in range(keys.n_layers):
        block = f"a.blk.{layer}"
        x = half_step(g, keys, "layer", x, block, "", EPS)
        y = layer_norm(g, x, f"{block}.ln1", EPS)
        q, k, v = (matmul(g, y, f"{block}.attn_{name}", n) for name in "qkv")
        biased = add_bias(g, q, f"{block}.pos_bias_u"), add_bias(g, q, f"{block}.pos_bias_v")
        y = attend_by_distance(g, keys, biased, k, v, f"{block}.linear_pos", spec, keys.head_dim**-0.5)
        x = add(g, x, matmul(g, y, f"{block}.attn_out", n))
        x = convolved(g, keys, "layer", x, block, ("norm_conv", "conv_norm"), EPS, causal=False)
        x = layer_norm(g, half_step(g, keys, "layer", x, block, "_1", EPS), f"{block}.ln2", EPS)
    return x


def audio(keys: AudioKeys) -> AudioSpec:
    return AudioSpec("nemo", keys.bins, WINDOW, least_samples=LEAST_SAMPLES, prompt="Perform ASR.")
