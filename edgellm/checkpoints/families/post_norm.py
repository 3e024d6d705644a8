"""OLMo 2 and 3, EXAONE 4 and GLM-4: norms behind the halves of a layer; and the first GLM-4, without them."""

from __future__ import annotations

from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families._pieces import Config
from edgellm.checkpoints.families.gemma4 import FULL

HALF = {"partial_rotary_factor": 0.5}

POST = INNER | {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
GLM = INNER | {"mlp.gate_up_proj": "ffn_up"}
GLM4 = GLM | {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}


def some_slide(config: Config) -> str:
    """EXAONE 4 turns layers that see everything where none slides, and has a window only where some do."""
    kinds = config.get("layer_types")
    return "layer_types" if kinds and config.get("sliding_window") and set(kinds) == {FULL} else ""


FAMILIES = (
    Family("olmo2", ("olmo2", "olmo3"), POST, slides=True),
    Family("exaone4", ("exaone4",), POST, slides=True, refuses=some_slide),
    Family("glm4", ("glm4",), GLM4, turns_part=True, defaults=HALF, only={"rope_traditional": (True,)}),
    Family("chatglm", ("glm",), GLM, turns_part=True, defaults=HALF),
)
