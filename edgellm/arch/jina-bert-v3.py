"""jina-bert-v3: Jina Embeddings 3; XLM-R's blocks with rotary positions."""
from __future__ import annotations

from collections.abc import Mapping

from edgellm.arch.blocks.attention import heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ends import norm_epsilon, token_embedding
from edgellm.arch.blocks.ffn import ffn_lengths, plain_ffn
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder
from edgellm.hparams import Keys
from edgellm.ops.dense import add, embed, matmul
from edgellm.ops.norm import layer_norm


def build(keys: Keys, tensors: Mapping[str, tuple[int, ...]], g: Builder) -> None:
    """Post-norm blocks with biases and a plain feed-forward; every token is of the first type."""
    eps, heads = norm_epsilon(keys), heads_of(keys)
    rope = rope_spec(keys, tensors, g.context, heads[0].dim_k, "neox")
    x = token_embedding(g, keys)
    if "token_types.weight" in tensors:
        x = add(g, x, embed(g, "token_types", keys.rows("token_types.weight"), keys.n_embd, "first"))
    x = layer_norm(g, x, "token_embd_norm", eps)
    for layer, (head, n_ff) in enumerate(zip(heads, ffn_lengths(keys), strict=True)):
        block = f"blk.{layer}"
        y = rotated_attention(g, head, *project_qkv(g, head, block, x), rope)
        x = layer_norm(g, add(g, matmul(g, y, f"{block}.attn_output", keys.n_embd), x), f"{block}.attn_output_norm", eps)
        x = layer_norm(g, add(g, plain_ffn(g, block, x, n_ff, "gelu_erf"), x), f"{block}.layer_output_norm", eps)
    embedding(g, keys, x)
