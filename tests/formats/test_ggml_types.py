"""The type table agrees with the `gguf` package, and every id that may not be read says so by name."""

from __future__ import annotations

import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from edgellm.formats.ggml_types import BITNET, GGML, IK, REMOVED, TYPES, TYPES_BY_NAME, row_bytes

# gguf-py still has Q8_1 with two f32; ggml-common.h has two f16 since 2024, and no file stores it.
_OUTDATED_IN_GGUF = {"Q8_1"}


@pytest.mark.parametrize("known", list(GGMLQuantizationType), ids=lambda known: known.name)
def test_agrees_with_the_package(known: GGMLQuantizationType) -> None:
    kind = TYPES[known.value]
    assert (kind.name, kind.origin) == (known.name, GGML)
    if kind.name not in _OUTDATED_IN_GGUF:
        assert (kind.block, kind.block_bytes) == GGML_QUANT_SIZES[known]


def test_no_id_below_43_is_unknown() -> None:
    assert set(range(43)) <= TYPES.keys()


def test_ids_and_names_are_unique() -> None:
    assert all(kind.id == id for id, kind in TYPES.items())
    assert len(TYPES_BY_NAME) == len(TYPES)


@pytest.mark.parametrize(
    "id, name, origin",
    [
        (4, "Q4_2", REMOVED),
        (5, "Q4_3", REMOVED),
        (31, "Q4_0_4_4", REMOVED),
        (33, "Q4_0_8_8", REMOVED),
        (38, "IQ4_NL_8_8", REMOVED),
        (36, "I2_S", BITNET),
        (133, "Q6_0", IK),
        (134, "IQ1_BN", IK),
        (151, "Q8_KV", IK),
        (157, "IQ2_KL", IK),
        (202, "Q4_0_R8", IK),
        (344, "IQ4_KS_R4", IK),
        (399, "Q8_K_R8", IK),
    ],
)
def test_refusal_names_type_and_origin(id: int, name: str, origin: str) -> None:
    kind = TYPES[id]
    assert (kind.name, kind.origin, kind.has_layout) == (name, origin, False)
    assert name in kind.refusal and origin in kind.refusal and ";" in kind.refusal


def test_row_bytes() -> None:
    assert row_bytes(TYPES_BY_NAME["Q4_K"], 512) == 288
    assert row_bytes(TYPES_BY_NAME["F32"], 7) == 28
    assert row_bytes(TYPES_BY_NAME["Q4_0"], 0) == 0
    with pytest.raises(ValueError, match="33 elements"):
        row_bytes(TYPES_BY_NAME["Q8_0"], 33)
    with pytest.raises(ValueError, match="no known layout"):
        row_bytes(TYPES_BY_NAME["IQ4_K"], 256)
