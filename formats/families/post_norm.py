"""OLMo 2 and 3, EXAONE 4 and GLM-4: norms behind the halves of a layer; and the first GLM-4, without them."""
from ._family import INNER, Family

POST = INNER | {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
GLM = INNER | {"mlp.gate_up_proj": "ffn_up"}
GLM4 = GLM | {"post_self_attn_layernorm": "post_attention_norm",
              "post_mlp_layernorm": "post_ffw_norm"}

FAMILIES = (
    Family("olmo2", ("olmo2", "olmo3"), POST, slides=True),
    Family("exaone4", ("exaone4",), POST, slides=True),
    Family("glm4", ("glm4",), GLM4),
    Family("chatglm", ("glm",), GLM, defaults={"partial_rotary_factor": 0.5}),
)
