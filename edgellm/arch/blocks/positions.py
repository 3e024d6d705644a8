"""Rotary positions, as a file's keys stretch them."""

from __future__ import annotations

from typing import Literal

from edgellm.errors import BadHParam
from edgellm.graph import Builder, RopeSpec
from edgellm.hparams import MAX_CONTEXT, Keys
from edgellm.rope import yarn_magnitude

MAX_BASE = 1e12  # of rotary frequencies; real ones stay below 2e8
FACTORS = "rope_freqs.weight"  # llama3's per-pair divisors
Yarn = tuple[float, float, float, int]
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


def rope_spec(keys: Keys, g: Builder, dim: int, style: Literal["norm", "neox"]) -> RopeSpec:
    """The rotation of heads of `dim` where all tokens are seen; longrope's long factors serve contexts past the original one."""
    n_rot = _rotated_dims(keys, "rope.dimension_count", dim)
    factor_key = "rope.scaling.factor" if keys.has("rope.scaling.factor") else "rope.scale_linear"
    kind = keys.text(
        "rope.scaling.type", default="linear" if keys.has(factor_key) else "none", choices=("none", "linear", "yarn", "longrope")
    )
    factor = keys.number(factor_key, default=1.0)
    original = keys.integer("rope.scaling.original_context_length", 0, MAX_CONTEXT, default=0) or keys.context_length
    magnitude, yarn = _magnitude_and_yarn(keys, kind, factor, original)
    base = keys.number("rope.freq_base", above=1.0, high=MAX_BASE, default=10000.0)
    if (alpha := keys.optional("rope.scaling.alpha")) and dim > 2:
        base *= alpha ** (dim / (dim - 2))
    factors = FACTORS if FACTORS in g.tensors else LONG if g.context > original else SHORT
    return RopeSpec(
        n_rot=n_rot,
        style=style,
        base=base,
        freq_scale=1.0 / factor if kind in ("linear", "yarn") else 1.0,
        factors=factors if factors in g.tensors else None,
        magnitude=magnitude,
        yarn=yarn,
    )


def has_sections(keys: Keys) -> bool:
    """True if the file splits heads among the coordinates of an image, as M-RoPE does."""
    return any(keys.integers("rope.dimension_sections")[:2])


def sliding_rope(keys: Keys, dim: int, base: float) -> RopeSpec:
    """The rotation of heads of `dim` in sliding layers, which no scaling touches. `base`: of files that name none."""
    return RopeSpec(
        _rotated_dims(keys, "rope.dimension_count_swa", dim),
        "neox",
        keys.optional("rope.freq_base_swa", above=1.0, high=MAX_BASE) or base,
    )


def _rotated_dims(keys: Keys, key: str, dim: int) -> int:
    n_rot = keys.integer(key, 1, dim, default=dim)
    if n_rot % 2:
        raise BadHParam(
            f"{n_rot} rotary dims cannot be paired; the file is damaged or needs an even number",
            file=keys.file,
            field=f"{keys.architecture}.{key}",
        )
    return n_rot


def _magnitude_and_yarn(keys: Keys, kind: str, factor: float, original: int) -> tuple[float, Yarn | None]:
    """The factor of cos and sin, and YaRN's parameters. Bad values are refused in files of all kinds."""
    magnitude, replaced = keys.number("rope.scaling.attn_factor", default=1.0), keys.optional("rope.scaling.yarn_attn_factor")
    ext_factor = keys.number("rope.scaling.yarn_ext_factor", default=1.0, zero=True)
    beta_fast = keys.number("rope.scaling.yarn_beta_fast", default=32.0)
    beta_slow = keys.number("rope.scaling.yarn_beta_slow", default=1.0)
    if kind != "yarn":
        return magnitude, None
    return magnitude * (replaced or yarn_magnitude(factor)), (ext_factor, beta_fast, beta_slow, original)


def temperature(keys: Keys) -> tuple[float, int, int] | None:
    """By how much queries grow, and each time after how many tokens; None where the file has none of it."""
    growth = keys.optional("attention.temperature_scale")
    every = (
        keys.integer("attention.temperature_length", 0, MAX_CONTEXT, default=0)
        or keys.integer("rope.scaling.original_context_length", 0, MAX_CONTEXT, default=0)
        or keys.context_length
    )
    return None if growth is None else (growth, every, 0)
