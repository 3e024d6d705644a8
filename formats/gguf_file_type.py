"""The name of a GGUF model's quantisation: what its `general.file_type` states, else its commonest type."""

from __future__ import annotations

from .gguf import GGUFFile

# llama.h, enum llama_ftype
NAMES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
}


def file_type(gguf: GGUFFile) -> str:
    """The name of the type, "" for a file without tensors."""
    stated = gguf.metadata.get("general.file_type")
    if isinstance(stated, int) and stated in NAMES:
        return NAMES[stated]
    nbytes = bytes_by_type(gguf)
    return max(nbytes, key=nbytes.__getitem__, default="")


def bytes_by_type(gguf: GGUFFile) -> dict[str, int]:
    """The bytes of all tensors of a type, by its name."""
    nbytes: dict[str, int] = {}
    for info in gguf.tensors.values():
        nbytes[info.type.name] = nbytes.get(info.type.name, 0) + info.nbytes
    return nbytes
