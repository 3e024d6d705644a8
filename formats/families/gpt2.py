"""GPT-2 and its fine-tunes; PyTorch's checkpoints store its matrices as (inputs, outputs), and masks beside them."""
from ._family import Family

OUTER = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output"}
PARTS = {"ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up",
         "mlp.c_proj": "ffn_down"}

FAMILIES = (Family("gpt2", ("gpt2",), PARTS, OUTER, activations=("gelu_new", "gelu_pytorch_tanh"),
                   transposed=frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"}), skipped=r".*\.attn\.(?:masked_)?bias"),)
