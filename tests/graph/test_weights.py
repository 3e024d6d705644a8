"""The weight store: views without a copy, decoded values, and what is left after closing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quants
from gguf_cases import TENSORS, Tensor, gguf

from edgellm.errors import ModelClosed, Unsupported
from edgellm.formats.gguf import open_gguf
from edgellm.weights import WeightStore


@pytest.fixture
def values() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    shapes = {"vector": (5,), "matrix": (6, 64), "experts": (2, 3, 64)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def path(tmp_path: Path, values: dict[str, np.ndarray]) -> Path:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    for name, value in values.items():
        writer.add_tensor(name, value)
        if value.ndim > 1:
            kind = GGMLQuantizationType.Q8_0
            writer.add_tensor(name + ".q", quants.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_names_shapes_and_values(path: Path, values: dict[str, np.ndarray]) -> None:
    store = WeightStore(open_gguf(path))
    assert sorted(store.names()) == sorted([*values, "matrix.q", "experts.q"]) and len(store) == 5
    assert "matrix" in store and "nothing" not in store
    for name, value in values.items():
        weight = store[name]
        assert weight.shape == value.shape == store.shapes()[name] and weight.type.name == "F32"
        assert weight.data.shape == (value.size // value.shape[-1], value.shape[-1] * 4)
        assert np.array_equal(weight.array(), value)
    with pytest.raises(KeyError):
        store["nothing"]


def test_quantised_rows(path: Path, values: dict[str, np.ndarray]) -> None:
    store = WeightStore(open_gguf(path))
    weight = store["experts.q"]
    assert weight.data.shape == (6, 68) and weight.shape == (2, 3, 64) and weight.type.name == "Q8_0"
    kind = GGMLQuantizationType.Q8_0
    expected = quants.dequantize(quants.quantize(values["experts"], kind), kind)
    assert np.array_equal(weight.array(), expected)


def test_data_are_views_of_the_map_and_the_address_is_theirs(path: Path, values: dict[str, np.ndarray]) -> None:
    store = WeightStore(open_gguf(path))
    weight = store["matrix"]
    assert not weight.data.flags.writeable and not weight.data.flags.owndata and weight.data.flags.c_contiguous
    assert weight.address == weight.data.ctypes.data == store["matrix"].address
    assert store["experts"].address != weight.address and weight.address % 32 == 0
    with pytest.raises(ValueError):
        weight.data[0, 0] = 1


def test_a_type_without_codec_is_refused_by_name_when_decoded(tmp_path: Path) -> None:
    path = tmp_path / "q8_k.gguf"
    path.write_bytes(gguf(tensors=[Tensor("blk.0.ffn_up.weight", (256, 2), 15, 584)]))
    store = WeightStore(open_gguf(path))
    weight = store["blk.0.ffn_up.weight"]
    assert weight.data.shape == (2, 292)
    with pytest.raises(Unsupported, match=r"blk\.0\.ffn_up\.weight.*Q8_K"):
        weight.array()


@pytest.mark.parametrize("dims, shape, rows", [((), (), 1), ((0,), (0,), 1), ((32, 0), (0, 32), 0), ((0, 4), (4, 0), 4)])
def test_odd_shapes(dims: tuple[int, ...], shape: tuple[int, ...], rows: int, tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf(tensors=[Tensor("odd", dims, 0, 4 if dims == () else 0), *TENSORS]))
    weight = WeightStore(open_gguf(path))["odd"]
    assert weight.shape == shape and len(weight.data) == rows and weight.array().shape == shape


def test_close(path: Path, values: dict[str, np.ndarray]) -> None:
    store = WeightStore(open_gguf(path))
    weight = store["matrix"]
    store.close()
    store.close()
    assert np.array_equal(weight.array(), values["matrix"]), "a weight that is still held stays readable"
    for action in (store.names, store.shapes, lambda: store["matrix"], lambda: "matrix" in store):
        with pytest.raises(ModelClosed, match="closed"):
            action()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_close_unmaps(path: Path) -> None:
    store = WeightStore(open_gguf(path))
    assert store["matrix"].array().any() and str(path) in Path("/proc/self/maps").read_text()
    store.close()
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_changed(path: Path) -> None:
    store = WeightStore(open_gguf(path))
    assert not any(file.changed() for file in store.files)
    with path.open("ab") as out:
        out.write(b"x")
    assert any(file.changed() for file in store.files)
