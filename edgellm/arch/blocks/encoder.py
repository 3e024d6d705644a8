"""BERT's encoder: tokens with their type, and blocks that normalise what they add."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgellm.arch.blocks.attention import Heads, heads_of, rotated_attention
from edgellm.arch.blocks.ends import norm_epsilon, token_embedding
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder, Value
from edgellm.hparams import Keys
from edgellm.ops.dense import add, embed, matmul
from edgellm.ops.norm import layer_norm

Shapes = Mapping[str, tuple[int, ...]]
Project = Callable[[Builder, Heads, str, Value], tuple[Value, Value, Value]]
FeedForward = Callable[[int, Value], Value]  # of a layer


def typed_embedding(g: Builder, keys: Keys, tensors: Shapes) -> Value:
    """(T, d) tokens; where a file has types, all of a text is "sentence A", the first one."""
    x = token_embedding(g, keys)
    if "token_types.weight" in tensors:
        x = add(g, x, embed(g, "token_types", keys.rows("token_types.weight"), keys.n_embd, "first"))
    return x


def rotary_encoder(keys: Keys, tensors: Shapes, g: Builder, project: Project, ffn: FeedForward) -> None:
    """Post-norm blocks with rotary positions. `project`: from a block's input to q, k and v."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = layer_norm(g, typed_embedding(g, keys, tensors), "token_embd_norm", eps)
    for layer, head in enumerate(heads):
        block = f"blk.{layer}"
        y = rotated_attention(g, head, *project(g, head, block, x), rope)
        x = layer_norm(g, add(g, matmul(g, y, f"{block}.attn_output", keys.n_embd), x), f"{block}.attn_output_norm", eps)
        x = layer_norm(g, add(g, ffn(layer, x), x), f"{block}.layer_output_norm", eps)
    embedding(g, keys, x)
