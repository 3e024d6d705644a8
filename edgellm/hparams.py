"""The numbers that shape a model, read from GGUF metadata through typed, range-checked getters."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from edgellm.errors import BadHParam, BadTensorInfo, BadVocab, ShapeMismatch, Unsupported
from edgellm.formats.gguf import GGUFFile

ScalingKind = Literal["none", "linear", "yarn", "longrope"]

MAX_LAYERS = 512                 # llama.cpp's limit
MAX_CONTEXT = 2**31 - 1          # positions are int32 in every file we know
MAX_WIDTH = 2**24                # rows of real models stay below 2**18; a wider one is damage
MAX_FACTOR = 1e6                 # of everything that multiplies; real ones stay below 1,000
MAX_BASE = 1e12                  # of rotary frequencies; real ones stay below 2e8


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How a model stretches its rotary positions. Factors are > 0; `factor` divides frequencies (linear, yarn)."""

    kind: ScalingKind
    factor: float
    original_context: int
    attn_factor: float                # multiplies cos and sin (longrope's magnitude)
    yarn_attn_factor: float | None    # replaces YaRN's 0.1 ln(factor) + 1
    yarn_ext_factor: float
    yarn_beta_fast: float
    yarn_beta_slow: float


@dataclass(frozen=True, slots=True)
class Hparams:
    """Hyperparameters of one model file; every value was checked. Lengths are in elements."""

    file: str
    architecture: str
    n_vocab: int
    n_layers: int
    n_embd: int
    n_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim_k: int
    head_dim_v: int
    context_length: int               # tokens that the model was trained for
    eps: float
    n_rot: int
    rope_base: float
    rope_base_swa: float | None       # of sliding layers, where the file has one
    rope_scaling: RopeScaling
    sliding_window: int | None        # tokens that a sliding layer sees, itself included
    sliding_layers: tuple[bool, ...] | None   # per layer, where the file says
    attn_softcap: float | None
    final_softcap: float | None

    @classmethod
    def from_gguf(cls, gguf: GGUFFile) -> Hparams:
        """Read and check every key. Raises BadHParam, BadVocab, BadTensorInfo, ShapeMismatch, Unsupported (experts)."""
        architecture = architecture_of(gguf)
        keys = _Keys(gguf, architecture)
        n_layers = keys.integer("block_count", 1, MAX_LAYERS)
        if experts := keys.integer("expert_count", 0, 2**16, default=0):
            raise Unsupported(f"a mixture of {experts} experts (as in Mixtral) cannot be run yet; take a dense model "
                              "of the same family", file=keys.file, field=f"{architecture}.expert_count")
        if not keys.flag("attention.causal", default=True):
            raise Unsupported("a model that sees what comes after a token (an embedding model) cannot be run yet; take one that "
                              "writes text", file=keys.file, field=f"{architecture}.attention.causal")
        n_embd = keys.integer("embedding_length", 1, MAX_WIDTH)
        n_heads = keys.integer("attention.head_count", 1, MAX_WIDTH, layers=n_layers)
        n_kv_heads = keys.integer("attention.head_count_kv", 1, MAX_WIDTH, default=n_heads, layers=n_layers)
        if n_heads % n_kv_heads:
            raise keys.bad("attention.head_count_kv", f"{n_kv_heads} does not divide the {n_heads} query heads")
        head_dim_k = keys.integer("attention.key_length", 1, MAX_WIDTH, default=max(n_embd // n_heads, 1))
        if not keys.has("attention.key_length") and n_embd % n_heads:
            raise keys.bad("attention.head_count", f"{n_heads} does not divide embedding_length {n_embd}")
        context_length = keys.integer("context_length", 1, MAX_CONTEXT)
        return cls(
            file=keys.file,
            architecture=architecture,
            n_vocab=_vocabulary_rows(gguf, keys),
            n_layers=n_layers,
            n_embd=n_embd,
            n_ff=keys.integer("feed_forward_length", 1, MAX_WIDTH, layers=n_layers),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim_k=head_dim_k,
            head_dim_v=keys.integer("attention.value_length", 1, MAX_WIDTH, default=head_dim_k),
            context_length=context_length,
            eps=_norm_epsilon(keys),
            n_rot=keys.integer("rope.dimension_count", 1, head_dim_k, default=head_dim_k),
            rope_base=keys.number("rope.freq_base", above=1.0, high=MAX_BASE, default=10000.0),
            rope_base_swa=keys.optional("rope.freq_base_swa", above=1.0, high=MAX_BASE),
            rope_scaling=_rope_scaling(keys, context_length),
            sliding_window=keys.integer("attention.sliding_window", 0, MAX_CONTEXT, default=0) or None,
            sliding_layers=keys.sliding_layers("attention.sliding_window_pattern", n_layers),
            attn_softcap=keys.optional("attn_logit_softcapping"),
            final_softcap=keys.optional("final_logit_softcapping"),
        )

    def rotary_dims(self) -> int:
        """How many dims of a head rotate. Raises BadHParam where they cannot be paired."""
        if self.n_rot % 2:
            raise BadHParam(f"{self.n_rot} rotary dims cannot be paired; the file is damaged or needs an even number",
                            file=self.file, field=f"{self.architecture}.rope.dimension_count")
        return self.n_rot


def architecture_of(gguf: GGUFFile) -> str:
    """`general.architecture`. Raises BadHParam."""
    name = gguf.metadata.get("general.architecture")
    if not isinstance(name, str) or not name:
        raise BadHParam("a model file must name its architecture; this one is damaged or no model",
                        file=gguf.path, field="general.architecture")
    return name


def _vocabulary_rows(gguf: GGUFFile, keys: _Keys) -> int:
    """Rows of the embedding, which must be as many as the tokenizer has tokens."""
    table = gguf.tensors.get("token_embd.weight")
    if table is None:
        raise BadTensorInfo("the token embedding is missing; the file holds a vocabulary only or is incomplete, get "
                            "the whole model", file=keys.file, field="token_embd.weight")
    if len(table.shape) != 2:
        raise ShapeMismatch(f"has shape {table.shape}; a token embedding has two dimensions", file=keys.file,
                            field="token_embd.weight")
    tokens, rows = gguf.metadata.get("tokenizer.ggml.tokens"), int(table.shape[0])
    if tokens is not None and hasattr(tokens, "__len__") and not isinstance(tokens, str):
        if len(tokens) != rows:
            raise BadVocab(f"{len(tokens)} tokens, but token_embd.weight has {rows} rows; convert the model again",
                           file=keys.file, field="tokenizer.ggml.tokens")
    elif keys.integer("vocab_size", 1, 2**31, default=rows) != rows:
        raise keys.bad("vocab_size", f"is not the {rows} rows of token_embd.weight")
    return rows


def _norm_epsilon(keys: _Keys) -> float:
    rms, plain = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
    return keys.number(plain if keys.has(plain) and not keys.has(rms) else rms, high=1.0, zero=True)


def _rope_scaling(keys: _Keys, context_length: int) -> RopeScaling:
    factor_key = "rope.scaling.factor" if keys.has("rope.scaling.factor") else "rope.scale_linear"
    has_factor = keys.has(factor_key)
    kind = keys.text("rope.scaling.type", default="linear" if has_factor else "none")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise keys.bad("rope.scaling.type", f"{_shown(kind)} is none of none, linear, yarn, longrope")
    original_context = keys.integer("rope.scaling.original_context_length", 0, MAX_CONTEXT, default=0)
    return RopeScaling(
        kind=cast(ScalingKind, kind),
        factor=keys.number(factor_key, default=1.0),
        original_context=original_context or context_length,
        attn_factor=keys.number("rope.scaling.attn_factor", default=1.0),
        yarn_attn_factor=keys.optional("rope.scaling.yarn_attn_factor"),
        yarn_ext_factor=keys.number("rope.scaling.yarn_ext_factor", default=1.0, zero=True),
        yarn_beta_fast=keys.number("rope.scaling.yarn_beta_fast", default=32.0),
        yarn_beta_slow=keys.number("rope.scaling.yarn_beta_slow", default=1.0),
    )


class _Keys:
    """Getters over one architecture's keys; each names file, key and value in its error."""

    def __init__(self, gguf: GGUFFile, architecture: str) -> None:
        self._metadata, self._architecture, self.file = gguf.metadata, architecture, str(gguf.path)

    def bad(self, key: str, why: str) -> BadHParam:
        return BadHParam(f"{why}; the file is damaged or was made by a faulty converter", file=self.file,
                         field=f"{self._architecture}.{key}")

    def has(self, key: str) -> bool:
        return f"{self._architecture}.{key}" in self._metadata

    def _value(self, key: str) -> object:
        return self._metadata.get(f"{self._architecture}.{key}")

    def integer(self, key: str, low: int, high: int, *, default: int | None = None, layers: int | None = None) -> int:
        """An integer in low..high; with `layers` also an array with one and the same value per layer."""
        value = self._value(key)
        if value is None and default is not None:
            return default
        if layers is not None and isinstance(value, np.ndarray):
            value = self._same_for_all(key, value, layers)
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise self.bad(key, "is missing" if value is None else f"{_shown(value)} is not an integer")
        if not low <= int(value) <= high:
            raise self.bad(key, f"{value} is not in {low}..{high}")
        return int(value)

    def _same_for_all(self, key: str, values: np.ndarray, layers: int) -> object:
        if values.size != layers:
            raise self.bad(key, f"{values.size} values for {layers} layers")
        if np.any(values != values[0]):
            raise Unsupported(f"layers of different sizes ({_shown(values)}) cannot be run yet; take a model whose "
                              "layers are alike", file=self.file, field=f"{self._architecture}.{key}")
        return values[0]

    def number(self, key: str, *, default: float | None = None, above: float = 0.0, high: float = MAX_FACTOR,
               zero: bool = False) -> float:
        """A float above `above` (or 0, where `zero`) and at most `high`."""
        value = self._value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, (float, np.floating)):
            raise self.bad(key, "is missing" if value is None else f"{_shown(value)} is not a floating-point number")
        if not above < value <= high and not (zero and value == 0):
            raise self.bad(key, f"{value} is not above {above:g} and at most {high:g}")
        return float(value)

    def optional(self, key: str, *, above: float = 0.0, high: float = MAX_FACTOR) -> float | None:
        """As `number`; None where the key is missing or 0, which files write for "off"."""
        return self.number(key, above=above, high=high, zero=True) or None if self.has(key) else None

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._value(key)
        if value is None:
            return default
        if not isinstance(value, (bool, np.bool_)):
            raise self.bad(key, f"{_shown(value)} is not true or false")
        return bool(value)

    def text(self, key: str, *, default: str) -> str:
        value = self._value(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.bad(key, f"{_shown(value)} is not a string")
        return value

    def sliding_layers(self, key: str, n_layers: int) -> tuple[bool, ...] | None:
        """One flag per layer, or a period p: every p-th layer sees everything (0: none does)."""
        value = self._value(key)
        if value is None:
            return None
        if isinstance(value, np.ndarray):
            if value.size != n_layers or value.dtype.kind not in "biu":
                raise self.bad(key, f"{value.size} values of type {value.dtype} for {n_layers} layers")
            return tuple(bool(slides) for slides in value)
        period = self.integer(key, 0, MAX_LAYERS)
        return tuple(period == 0 or layer % period < period - 1 for layer in range(n_layers))


def _shown(value: object) -> str:
    """A value for an error text, short whatever the file holds."""
    text = repr(value[:8].tolist()) if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
