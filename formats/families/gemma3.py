"""Gemma 3: four norms a layer, all stored less 1; of models that see images, the language model."""
from ._family import INNER, Family

PARTS = INNER | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                 "post_feedforward_layernorm": "post_ffw_norm"}

FAMILIES = (
    Family("gemma3", ("gemma3_text", "gemma3"), PARTS, activations=("gelu_pytorch_tanh",), norms_from_zero=True, slides=True,
           skipped=r"(?:model\.)?(?:vision_tower|multi_modal_projector)\..*"),
)
