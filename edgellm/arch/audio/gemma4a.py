"""gemma4a: the conformer of Gemma 4 E2B and E4B, whose rows see the second before them."""

from __future__ import annotations

import math

from edgellm.arch._stages import Stage
from edgellm.arch.audio._conformer import attend_by_distance, convolved, half_step
from edgellm.arch.audio._keys import AudioKeys
from edgellm.arch.audio.gemma4ua import PROMPT
from edgellm.arch.vision._blocks import linear, optional_norm
from edgellm.audio_spec import AudioSpec
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.ops.dense import activation, add, matmul, scale, scaled_by
from edgellm.ops.norm import layer_norm, rms_norm
from edgellm.ops.vision import features, merge_rows

EPS, SOFTCAP, SEEN = 1e-6, 50.0, 12  # rows of 40 ms; in no file, or as old converters got them wrong
WINDOW = 3000  # frames: of 30 seconds, as in the makers' processor
LONGEST_WAVE = 10000.0


def stages(keys: AudioKeys) -> tuple[Stage, ...]:
    """Two convolutions halve frames and bins. Queries and keys have factors for each of their dims."""
    first, second = (keys.rows(f"a.conv1d.{number}.weight") for number in range(2))
    bins = ((keys.bins + 1) // 2 + 1) // 2

    def halved(number: int, inputs: int, channels: int) -> Stage:
        def build(g: Builder) -> None:
            name = f"a.conv1d.{number}"
            y = matmul(g, features(g, 9 * inputs), name, channels)
            if f"{name}.norm.weight" in g.tensors:
                y = layer_norm(g, y, f"{name}.norm", EPS)
            g.output("rows", merge_rows(g, activation(g, "relu", y), 1))

        return Stage(build, (3, 3), stride=2, around=1)

    def layers(g: Builder) -> None:
        x = linear(g, keys, features(g, second * bins), "a.input_projection", keys.n_embd)
        for layer in range(keys.n_layers):
            x = _block(g, keys, x, f"a.blk.{layer}")
        if "a.pre_encode.out.weight" in g.tensors:
            x = linear(g, keys, x, "a.pre_encode.out", keys.rows("a.pre_encode.out.weight"))
        soft = "mm.a.soft_emb_norm"
        x = rms_norm(g, merge_rows(g, x, 1), soft if f"{soft}.weight" in g.tensors else None, EPS)
        g.output("rows", linear(g, keys, x, "mm.a.input_projection", keys.n_out))

    return halved(0, 1, first), halved(1, first, second), Stage(layers, (1, 0), order="tfc", layers=True)


def _block(g: Builder, keys: AudioKeys, x: Value, block: str) -> Value:
    heads, n, pairs = keys.n_heads, keys.n_embd, max(keys.n_embd // 2 - 1, 1)
    spec = RopeSpec(n, "neox", LONGEST_WAVE ** (n / 2 / pairs))  # the last pair has the longest wave
    x = half_step(g, keys, "rms", x, block, "", EPS)
    before = "attn_pre_norm" if f"{block}.attn_pre_norm.weight" in g.tensors else "ln1"
    y = optional_norm(g, "rms", x, f"{block}.{before}", EPS)
    q, k, v = (linear(g, keys, y, f"{block}.attn_{name}", n) for name in "qkv")
    q = _of_dims(g, scale(g, q, keys.head_dim**-0.5 / math.log(2)), f"{block}.per_dim_scale.weight", heads)
    k = _of_dims(g, scale(g, k, math.log1p(math.e) / math.log(2)), f"{block}.per_dim_k_scale.weight", heads)
    y = attend_by_distance(g, keys, (q, q), k, v, f"{block}.attn_k_rel", spec, 1.0, softcap=SOFTCAP, window=SEEN)
    y = linear(g, keys, y, f"{block}.attn_out", n)
    x = add(g, x, optional_norm(g, "rms", y, f"{block}.attn_post_norm", EPS))
    x = convolved(g, keys, "rms", x, block, ("conv_norm", "norm_conv"), EPS, causal=True)  # files have the names the other way
    return optional_norm(g, "rms", half_step(g, keys, "rms", x, block, "_1", EPS), f"{block}.ln2", EPS)


def _of_dims(g: Builder, x: Value, name: str, heads: int) -> Value:
    return scaled_by(g, x, name, heads=heads) if name in g.tensors else x


def audio(keys: AudioKeys) -> AudioSpec:
    return AudioSpec("gemma", keys.bins, WINDOW, begin="<|audio>", end="<audio|>", prompt=PROMPT)
