"""A short run of scripts/fuzz.py, and the cases by which it, and people, once found something."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from seeds import seed
from tiny_models import tiny_model

import edgellm
from edgellm.catalogue import registry
from edgellm.errors import BadCatalogue, EdgeError, OptionError, TemplateError

SCRIPT = ROOT / "scripts" / "fuzz.py"


def fuzz() -> Any:  # Any: a module
    """The script as a module."""
    specification = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["fuzz"] = module
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_damaged_files_are_used_or_refused(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "EDGELLM_CONFIG", "EDGELLM_DATA", "HF_HUB_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME", "OLLAMA_MODELS"):
        monkeypatch.setenv(variable, "/nonexistent")  # restored after the script has set its own
    done, refused, faults = fuzz().run(["gguf", "folder", "catalogue", "settings"], seed(2297460088), count)
    assert done == 4 * count and count / 4 < refused < done and not faults, "\n".join(faults[:5])


FOLDERS: list[tuple[str, str, Any]] = [
    ("config.json", "partial_rotary_factor", 1e308),
    ("config.json", "partial_rotary_factor", "x"),
    ("config.json", "head_dim", 10**400),
    ("config.json", "rms_norm_eps", 10**400),
    ("tokenizer.json", "merges", 5),
    ("tokenizer.json", "merges", [["th", None]]),
    ("tokenizer.json", "merges", {"a": 1}),
]


@pytest.mark.parametrize(("name", "key", "value"), FOLDERS)
def test_folders_that_ended_in_other_errors(name: str, key: str, value: Any, tmp_path: Path) -> None:
    module = fuzz()
    config, whole = {**module.BASE, "rope_scaling": None}, module.tokenizer_json()
    (config if name == "config.json" else whole["model"])[key] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    (tmp_path / "model.safetensors").write_bytes(module.safetensors(module.tensors_of("llama"), random.Random(0)))
    with pytest.raises(EdgeError) as caught:
        module.use(tmp_path)
    assert len(str(caught.value)) < 500 and str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "schema = 1\nx = " + "[" * 20_000,
        'schema = 1\nfolders = ["\\u0000"]',
        "schema = 1\nmodel = 1",
        "schema = 1\nmodel = [1]",
        "schema = " + "9" * 5000,
        "schema = 1\n# " + "x" * 5_000_000,
        'schema = 1\nfolders = ["' + "x" * 9999 + '", 1]',
        "\xff",
    ],
)
def test_catalogues_that_ended_in_other_errors(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_CONFIG", str(tmp_path))
    (tmp_path / "models.toml").write_text(text, encoding="latin-1")
    registry._read.cache_clear()
    with pytest.raises(BadCatalogue, match="correct it or move it away") as caught:
        registry.folders()
    assert len(str(caught.value)) < 500


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> edgellm.Model:
    return edgellm.load(tiny_model(tmp_path_factory.mktemp("m") / "m.gguf", tokenizer="spm"), threads=1)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 10**400},
        {"temperature": 10**5000},
        {"temperature": "x" * 9999},
        {"top_k": 10**400},
        {"repeat_penalty": 1e300},
        {"repeat_penalty": 1e-300},
        {"frequency_penalty": 1e300},
        {"presence_penalty": -1e300},
        {"logit_bias": {1: 1e300}},
        {"logit_bias": {1: 10**400}},
        {"logit_bias": {10**5000: 1.0}},
        {"logit_bias": 10**5000},
        {"max_tokens": -(10**5000)},
        {"stop": [10**5000]},
        {"processors": 10**5000},
        {"progress": 10**5000},
        {"dry_base": 1e300},
        {"dry_sequence_breakers": 10**5000},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_beyond_every_number(options: dict[str, Any], model: edgellm.Model) -> None:
    with pytest.raises(OptionError) as caught:
        model.generate("the", **options)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "options",
    [
        {"repeat_penalty": 1e6, "frequency_penalty": 1e6, "presence_penalty": -1e6},
        {"logit_bias": {1: 1e6, 5: -1e6}},
        {"temperature": 1e6, "dynatemp_range": 1e6},
        {"dry_multiplier": 1e6, "dry_base": 1e6},
        {"temperature": 1e-300},
    ],
)
def test_the_ends_of_the_ranges_give_an_answer(options: dict[str, Any], model: edgellm.Model) -> None:
    assert model.generate("the the the", max_tokens=4, ignore_eos=True, seed=1, **options).stop_reason == "length"


@pytest.mark.parametrize("options", [{"context": 10**5000}, {"threads": 10**5000}, {"sinks": 10**5000}, {"backend": "x" * 9999}])
def test_load_options_beyond_every_number(options: dict[str, Any], model: edgellm.Model) -> None:
    with pytest.raises(OptionError) as caught:
        edgellm.load(model.path, **options)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", [b"m.gguf", 5, None])
def test_names_that_are_no_text(name: Any) -> None:
    with pytest.raises(OptionError, match=r"text|name"):
        edgellm.load(name)


def test_memory_that_the_system_refuses(model: edgellm.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with force=True and a context of a thousand million tokens: what cannot be allocated is a typed error."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise MemoryError("Unable to allocate 1.00 TiB")

    monkeypatch.setattr("edgellm.loading.load.WeightStore", refuse)
    with pytest.raises(edgellm.NotEnoughMemory, match=r"context of 128 tokens.*1\.00 TiB.*shorter context"):
        edgellm.load(model.path, force=True)


def test_a_full_context_of_learned_positions_forgets_nothing(tmp_path: Path) -> None:
    with edgellm.load(tiny_model(tmp_path / "g.gguf", "gpt2", n_kv_heads=4), threads=1) as gpt2:
        stats = gpt2.generate([1] * gpt2.context).stats
        assert (stats.evicted_tokens, stats.generated_tokens) == (0, 1)


def test_a_template_that_is_a_number(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "t.gguf", tokenizer="spm", metadata={"tokenizer.chat_template": 5})
    with pytest.raises(TemplateError, match="not a text but int"):
        edgellm.load(path)
