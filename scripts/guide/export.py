"""Writes the trained guide as a GGUF file of the llama architecture: weights, tokenizer, template, sampling defaults, origin.

python scripts/guide/export.py /tmp/guide/run edgellm/data/guide.gguf --type Q8_0
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch
from model import Guide, Shape
from tokenizer import BOS, EOS, TEMPLATE, UNKNOWN, GuideTokenizer

TYPES = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16, "Q8_0": gguf.GGMLQuantizationType.Q8_0}
FILE_TYPES = {"F32": gguf.LlamaFileType.ALL_F32, "F16": gguf.LlamaFileType.MOSTLY_F16, "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
NAME = "edgellm guide"
DESCRIPTION = (
    "The guide of edgellm: a tiny chat model, trained from scratch by scripts/guide of the edgellm project on "
    "conversations that the project's own writer made. It explains edgellm and knows hardly anything else."
)
# Low: it is asked for facts, and it is too small to be let loose.
SAMPLING = {"temp": 0.3, "top_p": 0.9, "min_p": 0.1}
Floats = npt.NDArray[np.float32]


def load_trained(folder: Path) -> tuple[Guide, GuideTokenizer]:
    """Model and tokenizer of a training run."""
    state = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
    guide = Guide(Shape(**state["shape"]))
    guide.load_state_dict(state["model"])
    return guide.eval(), GuideTokenizer(folder / "tokenizer.model")


def tensors(guide: Guide) -> dict[str, Floats]:
    """The weights under GGUF's names; rows of queries and keys in the order of neighbouring pairs."""
    shape = guide.shape
    found = {"token_embd.weight": guide.token_embd.weight, "output_norm.weight": guide.output_norm}
    for number, block in enumerate(guide.blocks):
        at, width, kv = f"blk.{number}", shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        q, k, v = torch.split(block.qkv.weight, [width, kv, kv])
        gate, up = block.gate_up.weight.chunk(2)
        found |= {
            f"{at}.attn_norm.weight": block.attn_norm,
            f"{at}.attn_q.weight": _paired(q, shape.heads),
            f"{at}.attn_k.weight": _paired(k, shape.kv_heads),
            f"{at}.attn_v.weight": v,
            f"{at}.attn_output.weight": block.attn_output.weight,
            f"{at}.ffn_norm.weight": block.ffn_norm,
            f"{at}.ffn_gate.weight": gate,
            f"{at}.ffn_up.weight": up,
            f"{at}.ffn_down.weight": block.ffn_down.weight,
        }
    return {name: np.ascontiguousarray(value.detach().float().numpy()) for name, value in found.items()}


def _paired(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """From pairs (i, i + size/2) of a head to pairs (2i, 2i + 1), as llama files have them."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).transpose(1, 2).reshape(rows.shape)


def write(guide: Guide, tokenizer: GuideTokenizer, path: Path, type_name: str) -> None:
    """Write the file. Norms stay F32."""
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, guide.shape, type_name)
    _tokens(writer, tokenizer)
    for name, value in tensors(guide).items():
        kind = TYPES[type_name] if value.ndim == 2 else TYPES["F32"]
        writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, shape: Shape, type_name: str) -> None:
    writer.add_name(NAME)
    writer.add_basename("edgellm-guide")
    writer.add_author("the edgellm authors")
    writer.add_license("MIT")
    writer.add_description(DESCRIPTION)
    writer.add_languages(["en"])
    writer.add_file_type(FILE_TYPES[type_name])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocabulary)
    for key, value in SAMPLING.items():
        writer.add_float32(f"general.sampling.{key}", value)


def _tokens(writer: gguf.GGUFWriter, tokenizer: GuideTokenizer) -> None:
    pieces = tokenizer.pieces
    types = [
        gguf.TokenType.UNKNOWN
        if pieces.is_unknown(i)
        else gguf.TokenType.CONTROL
        if pieces.is_control(i)
        else gguf.TokenType.BYTE
        if pieces.is_byte(i)
        else gguf.TokenType.NORMAL
        for i in range(len(tokenizer))
    ]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([pieces.id_to_piece(i).encode() for i in range(len(tokenizer))])
    writer.add_token_scores([pieces.get_score(i) for i in range(len(tokenizer))])
    writer.add_token_types(types)
    writer.add_unk_token_id(UNKNOWN)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the training run")
    parser.add_argument("output", type=Path)
    parser.add_argument("--type", choices=tuple(TYPES), default="Q8_0")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    guide, tokenizer = load_trained(options.folder)
    write(guide, tokenizer, options.output, options.type)
    print(
        f"{options.output}: {options.type}, {guide.parameters_in_all / 1e6:.2f} M parameters, "
        f"{options.output.stat().st_size / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main()
