"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: fused query-key-value and gate-up matrices, as GGUF has them."""

from edgellm.checkpoints.families._family import INNER, Family

SPLIT = ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up")
PARTS = {name: ours for name, ours in INNER.items() if not ours.startswith(SPLIT)}
PARTS |= {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}

FAMILIES = (Family("phi3", ("phi3",), PARTS, slides=True, turns_part=True),)
