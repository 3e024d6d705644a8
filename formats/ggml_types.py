"""Every tensor type id that a GGUF file can carry: name, block size and origin, also of types that edgellm cannot run.

Sources: `enum ggml_type` and `GGML_QUANT_SIZES` of llama.cpp, `ggml/include/ggml.h` of ik_llama.cpp and of BitNet.
"""

from __future__ import annotations

from dataclasses import dataclass

GGML = "ggml"
IK = "ik_llama.cpp"
BITNET = "BitNet"
REMOVED = "removed"
MLX = "MLX"  # groups of folders of the MLX community; none of them occurs in a GGUF file
FLOAT_GROUPS = {"mxfp4": (4, 32), "nvfp4": (4, 16), "mxfp8": (8, 32)}  # MLX's modes of small floats: bits, elements of a group

_ADVICE = {
    GGML: "quantise the model again to a type such as Q4_K_M or Q8_0 with llama-quantize",
    IK: "get a file made by llama.cpp, or quantise the original model again with its llama-quantize",
    BITNET: "get the model as TQ1_0, TQ2_0 or another type of llama.cpp",
    MLX: 'load it with backend="mlx" (--backend mlx)',
    REMOVED: "get a newer file, or quantise the original model again with llama-quantize",
}


@dataclass(frozen=True, slots=True)
class GGMLType:
    """One tensor type: a row is a whole number of blocks of `block` elements in `block_bytes` bytes each.

    `origin` says who made it: "ggml" (llama.cpp), "ik_llama.cpp", "BitNet" or "removed". Types of other origins than
    "ggml" have no layout here: block and block_bytes are 0.
    """

    id: int
    name: str
    block: int
    block_bytes: int
    origin: str = GGML
    note: str = ""

    @property
    def has_layout(self) -> bool:
        """True if the size of a tensor of this type is known, so that a file with it can be opened."""
        return self.block > 0

    @property
    def refusal(self) -> str:
        """Why a tensor of this type cannot be read, then what to do; follows the tensor's name."""
        who = {
            MLX: f"{self.name}, a type that only the MLX back end reads",
            GGML: f"{self.name}, a type that edgellm cannot read yet",
            REMOVED: f"{self.name} (id {self.id}), a type that llama.cpp has removed",
        }.get(self.origin, f"{self.name} (id {self.id}), a type of {self.origin} that edgellm cannot read")
        return f"uses {who}{f' ({self.note})' if self.note else ''}; {_ADVICE[self.origin]}"


_GGML_TYPES = (
    # id, name, elements per block, bytes per block
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)

_REMOVED_TYPES = (
    (4, "Q4_2", ""),
    (5, "Q4_3", ""),
    (31, "Q4_0_4_4", ""),
    (32, "Q4_0_4_8", ""),
    (33, "Q4_0_8_8", ""),
    (37, "IQ4_NL_4_8", "BitNet calls the same id I8_S"),
    (38, "IQ4_NL_8_8", "BitNet calls the same id TL1"),
)

_BITNET_TYPES = ((36, "I2_S", "llama.cpp used the same id for IQ4_NL_4_4, since removed"),)

_IK_TYPES = (
    (97, "Q8_2_X4"),
    (98, "Q8_0_X4"),
    (99, "Q8_1_X4"),
    (133, "Q6_0"),
    (134, "IQ1_BN"),
    (135, "IQ2_BN"),
    (136, "Q8_K64"),
    (137, "IQ2_K"),
    (138, "IQ3_K"),
    (139, "IQ4_K"),
    (140, "IQ5_K"),
    (141, "IQ6_K"),
    (142, "IQ2_TN"),
    (143, "IQ1_TN"),
    (144, "IQ4_KS"),
    (145, "IQ2_KS"),
    (146, "IQ4_KSS"),
    (147, "Q8_K16"),
    (148, "Q8_K32"),
    (149, "Q8_KR8"),
    (150, "Q8_K128"),
    (151, "Q8_KV"),
    (152, "IQ5_KS"),
    (153, "IQ2_KT"),
    (154, "IQ3_KT"),
    (155, "IQ4_KT"),
    (156, "IQ3_KS"),
    (157, "IQ2_KL"),
    (158, "IQ1_KT"),
    (202, "Q4_0_R8"),
    (206, "Q5_0_R4"),
    (208, "Q8_0_R8"),
    (210, "Q2_K_R4"),
    (211, "Q3_K_R4"),
    (212, "Q4_K_R4"),
    (213, "Q5_K_R4"),
    (214, "Q6_K_R4"),
    (216, "IQ2_XXS_R4"),
    (217, "IQ2_XS_R4"),
    (218, "IQ3_XXS_R4"),
    (219, "IQ1_S_R4"),
    (220, "IQ4_NL_R4"),
    (221, "IQ3_S_R4"),
    (222, "IQ2_S_R4"),
    (223, "IQ4_XS_R8"),
    (229, "IQ1_M_R4"),
    (230, "BF16_R16"),
    (233, "Q6_0_R4"),
    (335, "IQ2_BN_R4"),
    (337, "IQ2_K_R4"),
    (338, "IQ3_K_R4"),
    (339, "IQ4_K_R4"),
    (340, "IQ5_K_R4"),
    (344, "IQ4_KS_R4"),
    (352, "IQ5_KS_R4"),
    (397, "Q8_K_R16"),
    (398, "Q8_KV_R8"),
    (399, "Q8_K_R8"),
)

TYPES: dict[int, GGMLType] = {
    kind.id: kind
    for kind in (
        *(GGMLType(id, name, block, block_bytes) for id, name, block, block_bytes in _GGML_TYPES),
        *(GGMLType(id, name, 0, 0, REMOVED, note) for id, name, note in _REMOVED_TYPES),
        *(GGMLType(id, name, 0, 0, BITNET, note) for id, name, note in _BITNET_TYPES),
        *(GGMLType(id, name, 0, 0, IK) for id, name in _IK_TYPES),
    )
}
"""Every known type by its id in a GGUF file."""

TYPES_BY_NAME: dict[str, GGMLType] = {kind.name: kind for kind in TYPES.values()}
"""The same types by name ("Q4_K")."""


def row_bytes(kind: GGMLType, n: int) -> int:
    """Bytes of one row of `n` elements. ValueError if `n` is not a whole number of blocks or the layout is unknown."""
    if not kind.has_layout:
        raise ValueError(f"{kind.name} of {kind.origin} has no known layout")
    if n % kind.block:
        raise ValueError(f"a row of {n} elements is not a whole number of {kind.name} blocks of {kind.block}")
    return n // kind.block * kind.block_bytes
