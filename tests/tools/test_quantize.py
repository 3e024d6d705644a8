"""`edgellm quantize`: llama.cpp's types and values in the file, errors that say what to do, whole files or none."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mix_cases import CASES, Model, metadata_of, tensors_of

from edgellm.errors import EdgeError, OptionError, ShapeMismatch, Unsupported
from edgellm.formats.codecs import CODECS
from edgellm.formats.ggml_types import TYPES_BY_NAME, row_bytes
from edgellm.formats.gguf import open_gguf
from edgellm.formats.gguf_tensors import TensorInfo
from edgellm.formats.writer import GGUFWriter, NewTensor
from edgellm.tools import encoder
from edgellm.tools.encoder import TensorEncoder
from edgellm.tools.importance import read_importance, write_importance
from edgellm.tools.mixes import MIXES, Wishes, choose_types, find_mix
from edgellm.tools.quantize import QuantizeOptions, plan, quantize

# What llama-quantize (llama-cpp-python 0.3.36) chooses for `CASES`: the first 4 bytes of the sha256 of "name type" lines.
# In the order of MIXES, without those of 16 and 32 bits, our MXFP4, and Q2_K_S, which needs an importance matrix.
LLAMA_CPP = {
    "plain": (
        "4ddc7937 5553c960 c59d7898 3b07a9c2 522c7807 3a7641e8 79ea57d2 aa8f5b7f 7c18e5f7 c089878d 7fd359fb 0ab139d6 "
        "4ddc7937 3227c50f 3e42e69f a71f2a72 66e8823b b0942023 2918b765"
    ),
    "shared": (
        "5a4c20a1 b2158f34 ec0ccfb4 6c41aac1 6df6cdf0 6d965d0f e7acfeee b9a1cb21 785ad321 108761ad b1c01f11 224df690 "
        "5a4c20a1 aeb325b6 d7aa495f 87dde534 0e6a56c9 cee79018 409484cd"
    ),
    "tied": (
        "d2fbd9bc 8579f956 f2a9d368 0cea727e faf60957 2f009f07 85f24749 76ff678c 8ab832c8 8a98ddff 3f354ad6 7fe699ec "
        "d2fbd9bc bd78df94 bd0a2963 50f68734 dd128ed1 a7f5cc1b 68c7cb97"
    ),
    "experts": (
        "2931882c 7c98aebf 60345136 133667db 73a9848a 678bcf66 239a2862 cf1c3d27 fba5e7da 0256cee8 066fddc3 0df1bc4a "
        "26661860 31fc4652 53f7f7c6 2725dee6 74246e66 09126589 9af87261"
    ),
    "few-experts": (
        "02dfa024 3b5f474f b8bb0486 ce7ff986 2d6a79fc c34581e4 d9e17da4 1c1734bc bd1c81a0 add6cd10 00d46466 80442fd8 "
        "e2669625 bd7f3c23 317881c5 67f5f630 0ca05c3c c25701fd 14a67897"
    ),
    "grouped-70b": (
        "4645d2a2 a84ac196 09b930b5 02a3b55e bd092590 af7219c1 974af129 cfd08b8c 61cdde0a 2484d039 6bf2f208 8ff6d206 "
        "4645d2a2 dd277ad3 02a40bc0 5db7d9ea f0b6a0b6 0a0ab29b 655a9ce2"
    ),
    "falcon": (
        "9a510109 1c07fae3 d438f5f7 e07c9b2a aa4e1f79 d042edff 439555cf 2fd653b1 ee4407eb cbd626d5 896fbb95 c3c36d26 "
        "9a510109 e3b54b0c 9f37b813 df39f3f2 1d937baa b2491cc2 9358a728"
    ),
    "narrow": (
        "f7125edb f7125edb e8dbb179 47cc2f9a 47cc2f9a f8c50cc4 dccfce6b 58d52c9d a80ca1a0 8d6a91a7 35844548 35844548 "
        "f7125edb d2c7a885 1b9a2518 8d6a91a7 8d6a91a7 77b04d27 77b04d27"
    ),
    "odd": (
        "14493d88 14493d88 14493d88 14493d88 14493d88 14493d88 14493d88 14493d88 14493d88 14493d88 14493d88 14493d88 "
        "14493d88 14493d88 14493d88 14493d88 14493d88 14493d88 14493d88"
    ),
}
MIXED = [mix for mix in MIXES if mix not in ("F32", "F16", "BF16", "MXFP4", "Q2_K_S")]
F32, F16 = TYPES_BY_NAME["F32"], TYPES_BY_NAME["F16"]


def infos(model: Model) -> dict[str, TensorInfo]:
    return {t.name: TensorInfo(t.name, t.shape, t.type, 0, 0, t.nbytes) for t in tensors_of(model)}


@pytest.mark.parametrize("model", CASES, ids=lambda model: model.name)
def test_types_are_llama_cpps(model: Model) -> None:
    for name, expected in zip(MIXED, LLAMA_CPP[model.name].split(), strict=True):
        types = choose_types(infos(model), metadata_of(model), MIXES[name], Wishes(), has_importance=False)
        lines = "\n".join(f"{tensor} {types[tensor].name}" for tensor in sorted(types))
        assert hashlib.sha256(lines.encode()).hexdigest()[:8] == expected, name


def write_model(path: Path, *, columns: int = 512, tensors: list[NewTensor] | None = None, spoil: float | None = None) -> Path:
    """A file with the shapes of a small model and random values."""
    if tensors is None:
        tensors = [
            NewTensor("token_embd.weight", (300, columns), F32),
            NewTensor("output_norm.weight", (columns,), F32),
            *(
                NewTensor(f"blk.{layer}.{name}.weight", (256, columns), F32 if layer else F16)
                for layer in range(2)
                for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down", "ffn_up")
            ),
            NewTensor("blk.1.ffn_gate_exps.weight", (3, 64, columns), F32),
        ]
    random = np.random.default_rng(5)
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.attention.head_count": 4,
        "general.name": "x",
        "llama.attention.head_count_kv": 4,
        "tokenizer.ggml.tokens": ["a", "b"],
        "split.count": np.uint16(1),
    }
    with GGUFWriter(path, metadata, tensors) as writer:
        for tensor in tensors:
            values = random.standard_normal(tensor.shape).astype(np.float32) * np.float32(0.05)
            if spoil is not None:
                values.flat[7] = spoil
            writer.write(tensor.name, values.astype(np.float16) if tensor.type is F16 else values)
    return path


def decoded(path: Path | str, name: str) -> npt.NDArray[np.float32]:
    with open_gguf(path) as file:
        info = file.tensors[name]
        raw = file.raw(name).reshape(-1, row_bytes(info.type, info.shape[-1]))
        return CODECS[info.type.name].dequantize(raw).reshape(info.shape)


@pytest.mark.parametrize("type_", ["Q8_0", "Q4_K_M", "BF16"])
def test_a_file_is_quantised(tmp_path: Path, type_: str) -> None:
    source, out = write_model(tmp_path / "source.gguf"), tmp_path / "out.gguf"
    seen: list[tuple[str, int, int]] = []
    made = quantize(source, out, QuantizeOptions(type=type_, threads=2), progress=lambda *report: seen.append(report))
    assert made.paths == (str(out),) and made.nbytes == out.stat().st_size < made.source_bytes and seen[-1][1:] == (15, 15)
    with open_gguf(source) as before, open_gguf(out) as after:
        assert list(after.tensors) == list(before.tensors) and after.metadata["general.name"] == "x"
        assert after.metadata["general.file_type"] == find_mix(type_).file_type
        assert after.metadata["general.quantization_version"] == 2 and "split.count" not in after.metadata
        assert {name: info.type for name, info in after.tensors.items()} == dict(made.plan.types)
        for name, info in after.tensors.items():
            expected = decoded(source, name)
            if info.type is not before.tensors[name].type:
                codec = CODECS[info.type.name]
                expected = codec.dequantize(codec.quantize(expected))
            assert np.array_equal(decoded(out, name), expected), name


def test_wishes_come_before_the_mix(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source.gguf")
    options = QuantizeOptions(
        type="q4_k_m", tensor_types=("attn_[qk]=Q8_0", "attn_k=Q2_K", "FFN_DOWN=q5_1"), token_embedding_type="f16"
    )
    types = {name: kind.name for name, kind in plan(source, options).types.items()}
    assert types["blk.0.attn_q.weight"] == types["blk.1.attn_k.weight"] == "Q8_0"
    assert types["blk.0.ffn_down.weight"] == "Q5_1" and types["token_embd.weight"] == "F16"
    assert types["blk.0.ffn_up.weight"] == "Q4_K" and types["output_norm.weight"] == "F32"
    pure = plan(source, QuantizeOptions(type="Q4_K", pure=True)).types
    assert {kind.name for kind in pure.values()} == {"Q4_K", "F32"}
    tied = plan(source, QuantizeOptions(type="Q4_K", output_type="Q5_0")).types
    assert tied["token_embd.weight"].name == "Q5_0"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"type": "Q4_X"}, OptionError, "did you mean IQ4_XS"),
        ({"type": "seven"}, OptionError, "choose one of F32"),
        ({"type": "Q8_0", "tensor_types": ("ffn",)}, OptionError, "PATTERN=TYPE"),
        ({"type": "Q8_0", "tensor_types": ("ffn=Q9",)}, OptionError, "not a type of weights"),
        ({"type": "Q8_0", "tensor_types": ("(=Q8_0",)}, OptionError, "regular expression"),
        ({"type": "Q8_0", "output_type": "I8"}, OptionError, "--output-type"),
        ({"type": "Q2_K_S"}, OptionError, "--imatrix"),
        ({"type": "Q4_K", "tensor_types": ("ffn=IQ2_XS",)}, OptionError, "--imatrix"),
    ],
)
def test_options_that_cannot_be_met(tmp_path: Path, options: dict[str, Any], error: type[EdgeError], message: str) -> None:
    source = write_model(tmp_path / "source.gguf")
    with pytest.raises(error, match=message):
        quantize(source, tmp_path / "out.gguf", QuantizeOptions(**options))
    assert os.listdir(tmp_path) == ["source.gguf"]


def test_what_would_spoil_a_file_is_refused(tmp_path: Path) -> None:
    source, out = write_model(tmp_path / "source.gguf"), tmp_path / "out.gguf"
    quantize(source, out, QuantizeOptions(type="Q8_0"))
    with pytest.raises(OptionError, match="--force"):
        quantize(source, out, QuantizeOptions(type="Q4_0"))
    with pytest.raises(OptionError, match="the source itself"):
        quantize(out, out, QuantizeOptions(type="Q4_0", allow_requantize=True, force=True))
    with pytest.raises(Unsupported, match=r"token_embd.weight: is Q8_0 already.*--allow-requantize"):
        quantize(out, tmp_path / "twice.gguf", QuantizeOptions(type="Q4_0"))
    quantize(out, tmp_path / "twice.gguf", QuantizeOptions(type="Q4_0", allow_requantize=True))
    with open_gguf(tmp_path / "twice.gguf") as file:
        assert file.tensors["blk.1.attn_q.weight"].type.name == "Q4_0"
    quantize(source, out, QuantizeOptions(type="Q4_0", force=True))
    with pytest.raises(OptionError, match="folder"):
        quantize(tmp_path, tmp_path / "x.gguf", QuantizeOptions(type="Q4_0"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("type_", ["Q8_0", "Q4_0"])
def test_values_that_are_no_numbers(tmp_path: Path, type_: str, value: float) -> None:
    source = write_model(tmp_path / "source.gguf", spoil=value)
    with pytest.raises(Unsupported, match="NaN or Inf"):
        quantize(source, tmp_path / "out.gguf", QuantizeOptions(type=type_))
    assert os.listdir(tmp_path) == ["source.gguf"]


@pytest.mark.parametrize("type_", ["Q8_0", "Q4_0", "Q4_1", "IQ4_NL"])
def test_values_beyond_the_scales_of_blocks(tmp_path: Path, type_: str) -> None:
    source = write_model(tmp_path / "source.gguf", tensors=[NewTensor("blk.0.ffn_up.weight", (4, 32), F32)], spoil=3e7)
    with pytest.raises(Unsupported, match=f"ffn_up.weight: has values too large for the scales of {type_}"):
        quantize(source, tmp_path / "out.gguf", QuantizeOptions(type=type_))
    assert os.listdir(tmp_path) == ["source.gguf"]
    source = write_model(tmp_path / "large.gguf", tensors=[NewTensor("blk.0.ffn_up.weight", (4, 32), F32)], spoil=70000)
    quantize(source, tmp_path / "out.gguf", QuantizeOptions(type=type_))


def test_values_beyond_f16(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source.gguf", tensors=[NewTensor("blk.0.ffn_up.weight", (4, 32), F32)], spoil=70000)
    with pytest.raises(Unsupported, match="choose BF16"):
        quantize(source, tmp_path / "out.gguf", QuantizeOptions(type="F16"))
    quantize(source, tmp_path / "out.gguf", QuantizeOptions(type="BF16"))


def test_split_output(tmp_path: Path) -> None:
    source = write_model(tmp_path / "source.gguf")
    made = quantize(source, tmp_path / "out.gguf", QuantizeOptions(type="Q8_0", split_bytes=500_000))
    assert len(made.paths) > 2 and made.paths[0].endswith(f"out-00001-of-{len(made.paths):05d}.gguf")
    whole = quantize(source, tmp_path / "whole.gguf", QuantizeOptions(type="Q8_0"))
    again = quantize(made.paths[0], tmp_path / "again.gguf", QuantizeOptions(type="Q8_0"))
    assert Path(again.paths[0]).read_bytes() == Path(whole.paths[0]).read_bytes()


def test_parts_replace_neither_the_source_nor_other_files(tmp_path: Path) -> None:
    parts = quantize(
        write_model(tmp_path / "source.gguf"), tmp_path / "m.gguf", QuantizeOptions(type="F16", split_bytes=1_000_000)
    ).paths
    before = [Path(path).read_bytes() for path in parts]
    half = QuantizeOptions(type="Q8_0", split_bytes=530_000, pure=True, force=True)
    made = quantize(parts[0], tmp_path / "n.gguf", half)
    assert len(made.paths) == len(parts) > 1
    with pytest.raises(OptionError, match="the source itself"):
        quantize(parts[0], tmp_path / "m.gguf", half)
    assert [Path(path).read_bytes() for path in parts] == before
    Path(made.paths[0]).unlink()
    with pytest.raises(OptionError, match=r"n-00002-of-.*--force"):
        quantize(parts[0], tmp_path / "n.gguf", dataclasses.replace(half, force=False))


def test_nothing_that_is_read_is_written_over(tmp_path: Path) -> None:
    source, matrix = write_model(tmp_path / "m.gguf.part"), tmp_path / "imatrix.gguf"
    write_matrix(matrix, {"blk.0.ffn_up.weight": (1, 512)})
    before = source.read_bytes(), matrix.read_bytes()
    options = QuantizeOptions(type="Q4_0", imatrix=str(matrix), force=True)
    places = ((tmp_path / "m.gguf", "at first, which is a source"), (matrix, "the source itself"), (tmp_path, "is a folder"))
    for out, said in places:
        with pytest.raises(OptionError, match=said):
            quantize(source, out, options)
    assert (source.read_bytes(), matrix.read_bytes()) == before and sorted(tmp_path.iterdir()) == [matrix, source]


def test_a_plan_is_refused_where_the_file_would_be(tmp_path: Path) -> None:
    small = tmp_path / "small.gguf"
    quantize(write_model(tmp_path / "source.gguf"), small, QuantizeOptions(type="Q8_0"))
    with pytest.raises(Unsupported, match="quantising twice"):
        plan(small, QuantizeOptions(type="Q4_0"))
    assert plan(small, QuantizeOptions(type="Q4_0", allow_requantize=True)).types


def write_matrix(path: Path, entries: dict[str, tuple[int, int]]) -> dict[str, npt.NDArray[np.float32]]:
    random = np.random.default_rng(9)
    sums = {name: (random.random(shape, np.float32) * 8, np.full((shape[0], 1), 4, np.float32)) for name, shape in entries.items()}
    write_importance(path, sums, datasets=["wiki.txt"], chunks=3, chunk_size=512)
    return {name: both[0] / both[1] for name, both in sums.items()}


def test_importance_guides_the_rounding(tmp_path: Path) -> None:
    source, matrix = write_model(tmp_path / "source.gguf"), tmp_path / "imatrix.gguf"
    means = write_matrix(matrix, {"blk.0.ffn_up.weight": (1, 512), "blk.1.ffn_gate_exps.weight": (3, 512), "other": (1, 8)})
    out = tmp_path / "out.gguf"
    quantize(source, out, QuantizeOptions(type="Q4_0", imatrix=str(matrix)))
    codec = CODECS["Q4_0"]
    for name, experts in (("blk.0.ffn_up.weight", 1), ("blk.1.ffn_gate_exps.weight", 3)):
        values = decoded(source, name).reshape(experts, -1, 512)
        expected = [codec.dequantize(codec.quantize(values[k], means[name][k])) for k in range(experts)]
        assert np.array_equal(decoded(out, name).reshape(experts, -1, 512), expected)
        plain = codec.dequantize(codec.quantize(values))
        worse, better = (np.sum(np.square(v - values) * means[name][:, None]) for v in (plain, np.array(expected)))
        assert better < worse
    with open_gguf(out) as file:
        keys = {key: value for key, value in file.metadata.items() if key.startswith("quantize.")}
        assert keys == {
            "quantize.imatrix.file": str(matrix),
            "quantize.imatrix.dataset": "wiki.txt",
            "quantize.imatrix.entries_count": 3,
            "quantize.imatrix.chunks_count": 3,
        }


def test_importance_of_another_model(tmp_path: Path) -> None:
    source, matrix = write_model(tmp_path / "source.gguf"), tmp_path / "imatrix.gguf"
    write_matrix(matrix, {"blk.0.ffn_up.weight": (1, 256)})
    with pytest.raises(ShapeMismatch, match="another model"):
        quantize(source, tmp_path / "out.gguf", QuantizeOptions(type="Q4_0", imatrix=str(matrix)))
    with pytest.raises(Unsupported, match="imatrix"):
        read_importance(source)


def test_kernels_are_those_of_the_encoder() -> None:
    from edgellm.backends.cpu.kernels.encode import encode, encode_groups

    assert set(encode.VARIANTS) == encoder.KERNELS and set(encode.WIDENED) == encoder.WIDENED
    assert encode_groups.SCRATCH_BYTES <= encoder._SCRATCH_BYTES


def odd_rows() -> npt.NDArray[np.float32]:
    """Rows of zeros, constants, one sign, tiny and wide values among usual ones; no whole number of sixteen groups."""
    random = np.random.default_rng(2)
    x = (random.standard_t(3, (37, 768)) * 0.02).astype(np.float32)
    x[1, :300], x[2], x[3], x[4], x[5], x[6] = 0, 0, 0.25, -0.5, np.abs(x[5]), -np.abs(x[6])
    x[7] *= np.float32(1e-7)
    x[8, ::7] *= 1000
    x[9] = np.round(x[9] * 50) / 50
    return x


def check_kernels(plain: list[str], weighted: list[str]) -> None:
    """All in one process: kernels that were compiled apart must not take each other's helpers."""
    x, importance = odd_rows(), np.random.default_rng(3).random(768, np.float32)
    importance[5:90] = 0
    encode = TensorEncoder(["F16", "BF16"], plain, weighted=False)
    for names, weights in ((plain, None), (weighted, importance)):
        if weights is not None and names:
            encode = TensorEncoder(["F16", "BF16"], names, weighted=True)
        for name in names:
            made = encode.encode(x.view(np.uint8), F32, TYPES_BY_NAME[name], weights)
            assert np.array_equal(made, CODECS[name].quantize(x, weights)), (name, weights is not None)
    for name in encoder.WIDENED:
        raw = CODECS[name].quantize(x)
        assert np.array_equal(encode.decode(raw, TYPES_BY_NAME[name]), CODECS[name].dequantize(raw))


def test_kernels_do_what_codecs_do() -> None:
    check_kernels(["Q8_0", "Q4_0", "Q5_1"], [])


@pytest.mark.slow
def test_all_kernels_do_what_codecs_do() -> None:
    """Of those by importance one of each way to search."""
    check_kernels(sorted(name for name in encoder.KERNELS if "+" not in name), ["Q4_0", "Q4_1", "Q3_K", "Q4_K"])


@pytest.mark.slow
def test_kernels_on_the_generic_isa_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_ISA", "generic")
    check_kernels(["Q8_0", "Q5_0", "MXFP4", "Q3_K", "Q4_K", "IQ4_NL"], [])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from edgellm.cli.app import run

    source, out = write_model(tmp_path / "source.gguf"), tmp_path / "out.gguf"
    command = ["quantize", str(source), str(out), "q8_0"]
    assert run([*command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["paths"] == [str(out)] and facts["bytes"] == out.stat().st_size and facts["tensors"] == {"Q8_0": 14, "F32": 1}
    assert run(command) == 2 and "--force" in capsys.readouterr().err
    assert run([*command, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 15 and "bits per weight" in printed.err
    assert run([*command, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == out.stat().st_size
    assert run([*command, "--force"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n" and "14 Q8_0, 1 F32" in printed.err
    for wrong in (["--threads", "0"], ["--split-max-size", "5"], ["--split-max-size", "²G"], ["--tensor-type", "x"]):
        assert run([*command, *wrong]) == 2 and wrong[0] in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_sigkill_leaves_no_half_file(tmp_path: Path) -> None:
    """Killed at a tensor, no file; killed at any moment, a whole file or none."""
    tensors = [NewTensor(f"blk.{k}.ffn_up.weight", (1024, 1024), F32) for k in range(24)]
    source, out = write_model(tmp_path / "source.gguf", tensors=tensors), tmp_path / "out.gguf"
    program = """
import os, signal, sys
from edgellm.tools.quantize import *

def progress(what, done, total):
    if (what, done) == ("quantising", int(sys.argv[3])):
        os.kill(os.getpid(), signal.SIGKILL)

print("ready", flush=True)
quantize(sys.argv[1], sys.argv[2], QuantizeOptions(type="Q8_0", threads=1), progress=progress)
"""

    def run(kill_at: int, seconds: float | None) -> float:
        """The seconds from ready to the end of one run, killed at that tensor or after so many seconds."""
        out.unlink(missing_ok=True)
        command = [sys.executable, "-c", program, str(source), str(out), str(kill_at)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None and child.stdout.readline() == b"ready\n"
            start = time.monotonic()
            if seconds is not None:
                time.sleep(seconds)
                child.kill()
            code = child.wait()
            assert code in ((-signal.SIGKILL,) if kill_at else (0,) if seconds is None else (0, -signal.SIGKILL))
            return time.monotonic() - start

    for kill_at in (1, 2, 7, 12, 20, 24):
        run(kill_at, None)
        assert not out.exists()
    run(0, None)
    assert out.exists()
    whole, random = run(0, None), np.random.default_rng(1)
    for _ in range(14):
        run(0, random.uniform(0, 1.1 * whole))
        if out.exists():
            with open_gguf(out) as file:
                assert len(file.tensors) == len(tensors)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_model(tmp_path: Path) -> None:
    tensors = [NewTensor(f"blk.{k}.ffn_up.weight", (8192, 4096), F16) for k in range(8)]
    with GGUFWriter(tmp_path / "source.gguf", {"general.architecture": "llama"}, tensors) as writer:
        values = np.random.default_rng(0).standard_normal(8192 * 4096 // 8).astype(np.float16)
        for tensor in tensors:
            for _ in range(8):
                writer.write(tensor.name, values)
    program = (
        "import sys\nfrom edgellm.tools.quantize import *\n"
        "quantize(sys.argv[1], sys.argv[2], QuantizeOptions(type='Q8_0', threads=2))\n"
        "print(next(line for line in open('/proc/self/status') if 'VmHWM' in line).split()[1])"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "source.gguf"), str(tmp_path / "out.gguf")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 400_000  # KiB; the source has 512 MiB, one tensor 64
