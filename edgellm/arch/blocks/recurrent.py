"""Layers that keep a state instead of keys and values: Mamba, Mamba 2, the gated delta net."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from edgellm.graph import Builder, Value
from edgellm.hparams import MAX_LAYERS, MAX_WIDTH, Keys
from edgellm.ops.conv import causal_conv
from edgellm.ops.dense import activation, columns, head_columns, matmul, mul
from edgellm.ops.heads import join
from edgellm.ops.norm import rms_norm
from edgellm.ops.scan import delta_net, ssm_scan

MOST_TAPS = 64  # of a convolution; real models have 3 or 4
PERIOD = 4  # every fourth layer attends where the file says nothing else
LENGTH_EPSILON = 1e-6  # added to squared lengths of queries and keys: the models' makers have it in their code


@dataclass(frozen=True, slots=True)
class Ssm:
    """The sizes of recurrent layers, by their keys."""

    taps: int  # ssm.conv_kernel
    inner: int  # ssm.inner_size
    state: int  # ssm.state_size
    rank: int  # ssm.time_step_rank
    groups: int  # ssm.group_count


def ssm_sizes(keys: Keys) -> Ssm:
    """Raises BadHParam."""
    sizes = Ssm(
        keys.integer("ssm.conv_kernel", 2, MOST_TAPS),
        keys.integer("ssm.inner_size", 1, MAX_WIDTH),
        keys.integer("ssm.state_size", 1, 2**16),
        keys.integer("ssm.time_step_rank", 1, MAX_WIDTH),
        keys.integer("ssm.group_count", 0, 2**16, default=1) or 1,
    )
    if sizes.state % 8:
        raise keys.bad("ssm.state_size", f"{sizes.state} is not a multiple of 8")
    return sizes


def delta_sizes(keys: Keys) -> Ssm:
    """Those of gated delta nets: `rank` heads of values share `groups` heads of keys. Raises BadHParam."""
    sizes = ssm_sizes(keys)
    if sizes.rank % sizes.groups or sizes.inner % sizes.rank or sizes.inner // sizes.rank % 8:
        raise keys.bad("ssm.time_step_rank", f"{sizes.rank} heads cannot share {sizes.inner} columns, {sizes.groups} heads of keys")
    return sizes


def mamba2_sizes(keys: Keys) -> Ssm:
    """Those of Mamba 2: `rank` heads share `inner` columns, and `groups` of B and C. Raises BadHParam."""
    sizes = ssm_sizes(keys)
    if sizes.inner % sizes.rank or sizes.inner == sizes.rank:
        raise keys.bad("ssm.time_step_rank", f"{sizes.rank} heads cannot share {sizes.inner} columns")
    if sizes.rank % sizes.groups:
        raise keys.bad("ssm.group_count", f"{sizes.groups} does not divide the {sizes.rank} heads")
    return sizes


def mamba(g: Builder, block: str, x: Value, sizes: Ssm, norm_eps: float | None, *, norm_weights: bool = False) -> Value:
    """A Mamba layer. `norm_eps`: dt, B and C are normalised (Falcon Mamba; Jamba with weights); None: they are not."""
    inner, rank, state = sizes.inner, sizes.rank, sizes.state
    both = matmul(g, x, f"{block}.ssm_in", 2 * inner)
    y = activation(g, "silu", causal_conv(g, columns(g, both, 0, inner), f"{block}.ssm_conv1d", sizes.taps))
    mixed = matmul(g, y, f"{block}.ssm_x", rank + 2 * state)
    dt, b, c = (columns(g, mixed, *part) for part in ((0, rank), (rank, rank + state), (rank + state, rank + 2 * state)))
    if norm_eps is not None:
        dt, b, c = (
            rms_norm(g, part, f"{block}.ssm_{name}_norm" if norm_weights else None, norm_eps)
            for name, part in (("dt", dt), ("b", b), ("c", c))
        )
    step = matmul(g, dt, f"{block}.ssm_dt", inner)
    y = ssm_scan(g, y, step, b, c, block, heads=inner, d_state=state)
    return matmul(g, mul(g, activation(g, "silu", columns(g, both, inner, 2 * inner)), y), f"{block}.ssm_out", g.n(x))


def mamba2(g: Builder, block: str, x: Value, sizes: Ssm, eps: float, *, normalised: bool = True) -> Value:
    """A Mamba 2 layer. `normalised`: the groups of what leaves the scan are, after the gate."""
    inner, heads = sizes.inner, sizes.rank
    mixed, shared = inner + 2 * sizes.groups * sizes.state, inner + sizes.groups * sizes.state
    both = matmul(g, x, f"{block}.ssm_in", inner + mixed + heads)
    gate, dt = activation(g, "silu", columns(g, both, 0, inner)), columns(g, both, inner + mixed, inner + mixed + heads)
    y = activation(g, "silu", causal_conv(g, columns(g, both, inner, inner + mixed), f"{block}.ssm_conv1d", sizes.taps))
    y, b, c = (columns(g, y, *part) for part in ((0, inner), (inner, shared), (shared, mixed)))
    y = mul(g, gate, ssm_scan(g, y, dt, b, c, block, heads=heads, d_state=sizes.state))
    if normalised:
        y = rms_norm(g, y, f"{block}.ssm_norm", eps, sizes.groups, own=True)
    return matmul(g, y, f"{block}.ssm_out", g.n(x))


def recurrent_layers(keys: Keys, drafting: int = 0) -> tuple[bool, ...]:
    """True if a layer is recurrent. `drafting`: last layers, which a file need not list."""
    listed = keys.sliding_layers("attention.recurrent_layers", drafting)
    period = keys.integer("full_attention_interval", 1, MAX_LAYERS, default=PERIOD)
    return listed or tuple((layer + 1) % period != 0 for layer in range(keys.n_layers))


def gated_delta_net(g: Builder, block: str, x: Value, sizes: Ssm, eps: float, *, grouped: bool = False) -> Value:
    """A gated delta net layer of Qwen 3.5. `grouped`: see ops.scan.delta_net; betas and alphas come by head of keys then."""
    dim, k_heads, v_heads = sizes.state, sizes.groups, sizes.rank
    dim_v = sizes.inner // v_heads
    mixed, gate = _projected(g, block, x, sizes)
    mixed = activation(g, "silu", causal_conv(g, mixed, f"{block}.ssm_conv1d", sizes.taps))
    if grouped:
        both, each = matmul(g, x, f"{block}.ssm_ba", 2 * v_heads), v_heads // k_heads
        beta, alpha = (head_columns(g, both, k_heads, start, start + each) for start in (0, each))
    else:
        alpha, beta = (matmul(g, x, f"{block}.{name}", v_heads) for name in ("ssm_alpha", "ssm_beta"))
    y = delta_net(
        g, mixed, alpha, beta, block, k_heads=k_heads, v_heads=v_heads, dim_k=dim, dim_v=dim_v, grouped=grouped, eps=LENGTH_EPSILON
    )
    y = rms_norm(g, y, f"{block}.ssm_norm", eps, v_heads)
    return matmul(g, mul(g, activation(g, "silu", gate), y), f"{block}.ssm_out", g.n(x))


def _projected(g: Builder, block: str, x: Value, sizes: Ssm) -> tuple[Value, Value]:
    """Queries, keys and values side by side, and the gate of the output."""
    keys, heads = sizes.groups * sizes.state, sizes.groups
    if f"{block}.ssm_in.weight" not in g.tensors:
        return matmul(g, x, f"{block}.attn_qkv", 2 * keys + sizes.inner), matmul(g, x, f"{block}.attn_gate", sizes.inner)
    both = matmul(g, x, f"{block}.ssm_in", 2 * keys + 2 * sizes.inner)  # Qwen3-Next's first files: by heads of keys
    edges = list(accumulate((sizes.state, sizes.state, sizes.inner // heads, sizes.inner // heads), initial=0))
    q, k, v, gate = (head_columns(g, both, heads, *part) for part in pairwise(edges))
    return join(g, join(g, q, k, 1), v, 1), gate
