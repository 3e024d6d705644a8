"""A transformer bound to a file's keys: embedding, layers and logits, each layer with the tensors that begin with its block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from edgellm.arch.blocks.attention import Heads, fused_qkv, heads_of, project_qkv, rotated_attention
from edgellm.arch.blocks.ffn import ffn_lengths, fused_gated_ffn, gated_ffn, plain_ffn
from edgellm.arch.blocks.moe import Experts, moe_ffn, routes
from edgellm.arch.blocks.pooling import embedding
from edgellm.arch.blocks.positions import rope_spec
from edgellm.graph import Builder, RopeSpec, Value
from edgellm.hparams import MAX_LAYERS, Keys
from edgellm.ops.dense import embed, matmul, scale, select, softcap
from edgellm.ops.norm import rms_norm

Norm = Callable[[Builder, Value, str | None, float, int], Value]  # rms_norm or layer_norm


class Transformer:
    """Keys, graph and sizes that the layers of a model share."""

    def __init__(
        self,
        keys: Keys,
        g: Builder,
        norm: Norm = rms_norm,
        *,
        heads: Sequence[Heads | None] | None = None,
        experts: Experts | None = None,
    ) -> None:
        """`norm`: the kind of all norms; `heads`: of each layer, None for one without attention; those of the keys unless given."""
        self.keys, self.g, self.experts = keys, g, experts
        self.eps, self._norm, self._heads = keys.norm_epsilon, norm, heads

    @cached_property
    def heads(self) -> tuple[Heads | None, ...]:
        return heads_of(self.keys) if self._heads is None else tuple(self._heads)

    @cached_property
    def dim_k(self) -> int:
        """The length of a key in the first layer with attention; 0 where there is none."""
        return next((heads.dim_k for heads in self.heads if heads), 0)

    @cached_property
    def ffn_lengths(self) -> tuple[int, ...]:
        return ffn_lengths(self.keys, experts=self.experts is not None)

    def rope(self, style: Literal["norm", "neox"]) -> RopeSpec:
        return rope_spec(self.keys, self.g, self.dim_k, style)

    def embed(self) -> Value:
        """Rows of the token embedding."""
        return embed(self.g, "token_embd", self.keys.n_vocab, self.keys.n_embd)

    @cached_property
    def drafting(self) -> int:
        """The number of last layers that only draft tokens, which are left out of the graph. Raises BadHParam."""
        n = self.keys.integer("nextn_predict_layers", 0, self.keys.n_layers - 1, default=0)
        for layer in range(self.keys.n_layers - n, self.keys.n_layers):
            self.g.leave_out(f"blk.{layer}.")
        return n

    @cached_property
    def leading_dense(self) -> int:
        """The number of layers before the first one with experts."""
        return self.keys.integer("leading_dense_block_count", 0, MAX_LAYERS, default=0)

    def layers(self, *, drafting: bool = True, prefix: str = "blk") -> Iterator[Layer]:
        """All layers; without the last ones that only draft tokens unless `drafting`. `prefix`: of their tensors' names."""
        n = self.keys.n_layers - (0 if drafting else self.drafting)
        return (Layer(self, index, f"{prefix}.{index}") for index in range(n))

    def norm(self, x: Value, name: str | None = None, groups: int = 1) -> Value:
        return self._norm(self.g, x, name, self.eps, groups)

    def logits(self, x: Value, factor: float | None = None, cap: float | None = None, norm: str | None = "output_norm") -> None:
        """Logits of the wanted rows, which are selected unless they are already, normalised and times `factor`.

        The embedding is the output matrix where the file has no `output.weight`; `output.bias` is added in both cases. `cap`: their
        limit where the file names none. A file that names a pooling is an embedding model: each text gets a vector instead.
        """
        g, keys = self.g, self.keys
        x = self.norm(x if g.rows(x) == "R" else select(g, x), norm)
        if g.pooling is not None:
            return embedding(g, keys, x)
        cap = keys.optional("final_logit_softcapping") if keys.has("final_logit_softcapping") else cap
        if "output.weight" in g.tensors:
            y = matmul(g, x, "output", keys.n_vocab)
        else:
            y = matmul(g, x, "token_embd", keys.n_vocab, "output.bias" if "output.bias" in g.tensors else None)
        y = y if factor is None else scale(g, y, factor)
        g.output("logits", y if cap is None else softcap(g, y, cap))


@dataclass(frozen=True, slots=True)
class Layer:
    """Emits the nodes of one layer."""

    model: Transformer
    index: int
    block: str  # the beginning of its tensors' names

    @property
    def attends(self) -> bool:
        return self.model.heads[self.index] is not None

    @property
    def heads(self) -> Heads:
        heads = self.model.heads[self.index]
        assert heads is not None, f"layer {self.index} has no attention"
        return heads

    @property
    def n_ff(self) -> int:
        """The width of its dense feed-forward."""
        return self.model.ffn_lengths[self.index]

    def has(self, name: str) -> bool:
        """True if the file has one of its weights."""
        return f"{self.block}.{name}.weight" in self.model.g.tensors

    def norm(self, x: Value, name: str | None = None, groups: int = 1) -> Value:
        return self.model.norm(x, name and f"{self.block}.{name}", groups)

    def matmul(self, x: Value, name: str, n: int) -> Value:
        return matmul(self.model.g, x, f"{self.block}.{name}", n)

    def qkv(self, x: Value) -> tuple[Value, Value, Value]:
        """Queries, keys and values from three tensors, or from one where the file has them in one."""
        return project_qkv(self.model.g, self.heads, self.block, x)

    def fused_qkv(self, x: Value) -> tuple[Value, Value, Value]:
        """Queries, keys and values from one tensor."""
        return fused_qkv(self.model.g, self.heads, self.block, x)

    def normed_heads(self, q: Value, k: Value) -> tuple[Value, Value]:
        """Queries and keys, each head normalised by itself."""
        return self.norm(q, "attn_q_norm", self.heads.n), self.norm(k, "attn_k_norm", self.heads.n_kv)

    def normed_heads_if_any(self, q: Value, k: Value) -> tuple[Value, Value]:
        """The same where the file has the weights."""
        return self.normed_heads(q, k) if self.has("attn_q_norm") else (q, k)

    def normed_rows(self, q: Value, k: Value) -> tuple[Value, Value]:
        """Queries and keys, all heads of a token normalised together."""
        return self.norm(q, "attn_q_norm"), self.norm(k, "attn_k_norm")

    def heads_output(
        self,
        q: Value,
        k: Value,
        v: Value,
        rope: RopeSpec | None = None,
        window: int | None = None,
        learned_sinks: str | None = None,
    ) -> Value:
        """The output of all heads, before the output matrix. `rope`: None for a layer that knows no positions."""
        return rotated_attention(self.model.g, self.heads, q, k, v, rope, window, learned_sinks)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        rope: RopeSpec | None = None,
        window: int | None = None,
        learned_sinks: str | None = None,
    ) -> Value:
        """The same through the output matrix."""
        return self.output(self.heads_output(q, k, v, rope, window, learned_sinks))

    def output(self, y: Value) -> Value:
        """Attention's output matrix."""
        return self.matmul(y, "attn_output", self.model.keys.n_embd)

    def gated_ffn(self, x: Value, act: str = "silu", limit: float | None = None) -> Value:
        return gated_ffn(self.model.g, self.block, x, self.n_ff, act, limit=limit)

    def fused_gated_ffn(self, x: Value, act: str = "silu") -> Value:
        """The same with gate and up in one tensor."""
        return fused_gated_ffn(self.model.g, self.block, x, self.n_ff, act)

    def plain_ffn(self, x: Value, act: str) -> Value:
        return plain_ffn(self.model.g, self.block, x, self.n_ff, act)

    def moe(self, x: Value, experts: Experts | None = None, *, gated: bool = False) -> Value:
        """Routed and shared experts, the model's unless given. `gated`: see `moe_ffn`."""
        experts = experts or self.model.experts
        assert experts is not None, "the model has no experts"
        return moe_ffn(self.model.g, self.block, x, experts, gated=gated)

    def dense_or_moe(self, x: Value) -> Value:
        """A dense feed-forward in the layers before the first one with experts, else experts."""
        return self.gated_ffn(x) if self.index < self.model.leading_dense else self.moe(x)

    def any_ffn(self, x: Value, *, gated: bool = False) -> Value:
        """Experts where the layer has a router, else a dense feed-forward, as Qwen's mlp_only_layers have."""
        routed = self.model.experts is not None and routes(self.model.g, self.block)
        return self.moe(x, gated=gated) if routed else self.gated_ffn(x)
