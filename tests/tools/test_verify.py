"""Verification of model files: what is sound, and every kind of fault, each as one finding and never as a traceback."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_models import tiny_model

from edgellm.cli.app import run
from edgellm.formats.gguf import open_gguf
from edgellm.tools.verify import verify
from edgellm.tools.verify_text import Diagnosis

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}<|im_start|>assistant\n"
)


@pytest.fixture(autouse=True)
def no_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    yield


def found(path: Path, check: str = "", name: str = "") -> list[Diagnosis]:
    """Findings that are neither ok nor skipped; of one check only, if named."""
    return [one for one in verify(path, name=name) if one.status not in ("ok", "skipped") and check in ("", one.check)]


@pytest.mark.parametrize(
    ("arch", "quant", "tokenizer"),
    [
        ("llama", "Q4_K", "spm"),
        ("qwen3", "Q8_0", "bpe"),
        ("gemma3", "BF16", "spm"),
        ("gpt2", "MXFP4", None),
        ("phi3", "IQ4_XS", None),
    ],
)
def test_sound_files_have_no_faults(tmp_path: Path, arch: str, quant: str, tokenizer: str | None) -> None:
    path = tiny_model(tmp_path / "m.gguf", arch, quant, tokenizer=tokenizer, template=CHATML if tokenizer == "bpe" else None)
    assert found(path) == []
    checks = {one.check: one for one in verify(path)}
    assert list(checks) == ["container", "hash", "types", "values", "tensors", "tokenizer", "template"]
    assert checks["hash"].status == "skipped"
    assert (checks["template"].text == "'default' renders; it takes system messages and tools") == (tokenizer == "bpe")


@pytest.mark.parametrize("quant", ["F32", "F16", "BF16", "Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_inf_are_found_in_every_type(tmp_path: Path, quant: str, value: float) -> None:
    """One scale, or value, in the middle of a matrix."""
    path = tiny_model(tmp_path / "m.gguf", "llama", quant)
    with open_gguf(path) as gguf:
        info = gguf.tensors["blk.1.ffn_up.weight"]
    scale = {"F32": ("<f4", 0), "BF16": ("<u2", 0), "Q6_K": ("<f2", 208)}.get(quant, ("<f2", 0))
    bad = np.array([value], np.float32).view("<u4") >> 16 if quant == "BF16" else np.array([value])
    data = bytearray(path.read_bytes())
    at = info.offset + 7 * info.type.block_bytes + scale[1]
    data[at : at + np.dtype(scale[0]).itemsize] = bad.astype(scale[0]).tobytes()
    path.write_bytes(data)
    findings = found(path, "values")
    assert len(findings) == 1 and findings[0].status == "error" and "blk.1.ffn_up.weight: 1 " in findings[0].text


@pytest.mark.parametrize(
    ("tensor", "array", "message"),
    [
        ("blk.0.ffn_down.weight", np.zeros((64, 96), np.float32), "nothing but zeros"),
        ("output_norm.weight", np.full(64, 1e7, np.float32), "up to 1e+07"),
    ],
)
def test_what_cannot_be_true_is_a_warning(tmp_path: Path, tensor: str, array: np.ndarray, message: str) -> None:
    findings = found(tiny_model(tmp_path / "m.gguf", tensors={tensor: array}))
    assert [(one.check, one.status) for one in findings] == [("values", "warning")] and f"{tensor}: " in findings[0].text
    assert message in findings[0].text


def test_missing_and_unknown_tensors_are_all_counted(tmp_path: Path) -> None:
    path = tiny_model(
        tmp_path / "m.gguf",
        tensors={"blk.0.attn_q.weight": None, "blk.1.ffn_down.weight": None, "blk.0.strange.weight": np.ones((64, 64), np.float32)},
    )
    missing, strange = found(path, "tensors")
    assert missing.status == strange.status == "error"
    assert "2 are missing: blk.0.attn_q.weight, blk.1.ffn_down.weight" in missing.text and "blk.0.strange.weight" in strange.text


def test_wrong_shapes_and_unknown_architectures(tmp_path: Path) -> None:
    (shape,) = found(tiny_model(tmp_path / "a.gguf", tensors={"blk.0.attn_q.weight": np.ones((32, 64), np.float32)}), "tensors")
    assert shape.status == "error" and "(32, 64)" in shape.text
    (other,) = found(tiny_model(tmp_path / "b.gguf", metadata={"general.architecture": "marmoset"}), "tensors")
    assert other.status == "warning" and "marmoset" in other.text


@pytest.mark.parametrize(
    ("metadata", "status", "message"),
    [
        ({"tokenizer.ggml.eos_token_id": 99999}, "error", "99999"),
        ({"tokenizer.ggml.pre": "a-new-way"}, "warning", "a-new-way"),
        ({"tokenizer.ggml.eos_token_id": 5}, "warning", "not marked as a control token"),
    ],
)
def test_faults_of_tokenizers(tmp_path: Path, metadata: dict[str, object], status: str, message: str) -> None:
    path = tmp_path / "m.gguf"
    import gguf
    from tiny_tokenizers import MERGES, bpe_vocabulary

    tokens, types = bpe_vocabulary()
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(kind) for kind in types],
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": len(tokens) - 3,
        "tokenizer.ggml.eos_token_id": len(tokens) - 3,
    }
    writer = gguf.GGUFWriter(str(path), "llama")
    for key, value in (keys | metadata).items():
        (writer.add_string if isinstance(value, str) else writer.add_array if isinstance(value, list) else writer.add_uint32)(
            key, value
        )  # type: ignore[arg-type]  # each gets its own type
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    findings = found(path, "tokenizer")
    assert [one.status for one in findings] == [status] and message in findings[0].text


@pytest.mark.parametrize(
    ("template", "status", "message"),
    [
        ("{% for m in messages %}", "error", "the template 'default'"),
        ("{{ raise_exception('no') }}", "error", "no"),
        ("nothing", "warning", "leaves out what the user says"),
        ("{{ messages[0].content }}<|eot_id|>", "warning", "<|eot_id|>, which is not a token"),
        ("{{ messages[0].content }}{% if tools %}{{ tools.nothing.here }}{% endif %}", "warning", "with tools"),
        (
            "{{ messages[0].content }}{{ tools | tojson if tools }}{# <odd:tool_call> #}",
            "warning",
            "with <odd:tool_call>, a format",
        ),
    ],
)
def test_faults_of_templates(tmp_path: Path, template: str, status: str, message: str) -> None:
    (finding,) = found(tiny_model(tmp_path / "m.gguf", tokenizer="bpe", template=template), "template")
    assert finding.status == status and message in finding.text


@pytest.mark.parametrize(
    ("template", "tools"),
    [
        ("{{ messages[0].content }}{% if xml_tools %}{{ xml_tools[:] }}{% endif %}", True),
        ("{% for m in messages %}{{ m.content }}{{ m['tools'] if m.role == 'system' and m['tools'] }}{% endfor %}", True),
        ("{{ messages[0].content }}{{ tools | tojson }}", True),
        ("{{ messages[0].content }}{# tools #}", False),
    ],
)
def test_tools_are_found_under_other_names(tmp_path: Path, template: str, tools: bool) -> None:
    checks = verify(tiny_model(tmp_path / "m.gguf", tokenizer="bpe", template=template))
    (finding,) = [check for check in checks if check.check == "template"]
    assert finding.status == "ok" and ("and no tools" not in finding.text and "tools" in finding.text) == tools


def test_the_hub_cache_knows_hashes(tmp_path: Path) -> None:
    """A blob is called by its sha256; a byte that changed shows."""
    whole = tiny_model(tmp_path / "m.gguf")
    blob = tmp_path / "hub" / "models--a--b" / "blobs" / hashlib.sha256(whole.read_bytes()).hexdigest()
    blob.parent.mkdir(parents=True)
    shutil.copy(whole, blob)
    link = tmp_path / "hub" / "models--a--b" / "snapshots" / ("c" * 40) / "m.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    assert next(one for one in verify(link) if one.check == "hash").status == "ok"
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    (finding,) = found(link, "hash")
    assert finding.status == "error" and "fetch the file again" in finding.text


def test_the_catalogue_knows_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_model(tmp_path / "own.gguf")
    for digest, status in ((hashlib.sha256(path.read_bytes()).hexdigest(), []), ("0" * 64, ["warning"])):
        folder = tmp_path / f"config{len(status)}"
        folder.mkdir()
        (folder / "models.toml").write_text(f"""schema = 1
[[model]]
name = "own"
repository = "a/b"
architecture = "llama"
parameters = "1M"
licence = "mit"
memory_gb = 1
default = "F32"
  [[model.file]]
  type = "F32"
  path = "own.gguf"
  size = {path.stat().st_size}
  sha256 = "{digest}"
""")
        monkeypatch.setenv("EDGELLM_CONFIG", str(folder))
        assert [one.status for one in found(path, "hash")] == status
    assert [one.status for one in found(path, "hash", "own")] == ["error"]


def test_any_damage_is_a_finding(tmp_path: Path) -> None:
    """Cut at many places, and with bytes turned over in header and data."""
    path = tiny_model(tmp_path / "m.gguf", "llama", "Q4_0", tokenizer="spm", template=CHATML)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for at in (0, 3, 24, 100, 5000, len(data) // 2, len(data) - 40):
        path.write_bytes(data[:at])
        assert any(one.status == "error" for one in verify(path))
    for at in rng.integers(0, 20_000, 60):
        hurt = bytearray(data)
        hurt[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(hurt)
        assert all(one.text for one in verify(path))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_model(tmp_path / "m.gguf", tokenizer="bpe", template=CHATML)
    assert run(["verify", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7 and lines[0].startswith("ok       container")
    path.write_bytes(path.read_bytes()[:1000])
    assert run(["verify", str(path), "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["errors"] == 1 and report["findings"][0]["check"] == "container"
    assert run(["verify", str(tmp_path / "absent.gguf")]) == 3


def test_reference_files_are_sound(shared: Path) -> None:
    for path in sorted((shared / "models").glob("*.gguf")):
        assert found(path) == [], path
