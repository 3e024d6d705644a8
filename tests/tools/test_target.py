"""quantize --target: types by measured error, within the size that is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from story_text import story_text
from tiny_models import tiny_model

from edgellm.cli import app
from edgellm.errors import OptionError
from edgellm.formats.ggml_types import TYPES_BY_NAME
from edgellm.formats.gguf import open_gguf
from edgellm.tools.quantize import QuantizeOptions, quantize
from edgellm.tools.target import Choice, SizeTarget, allocate, choose_for_size


def choice(name: str, nbytes: int, cost: float) -> Choice:
    return Choice(TYPES_BY_NAME[name], nbytes, cost)


def test_bytes_go_where_they_save_most() -> None:
    choices = {
        "careful": [choice("Q4_K", 40, 9.0), choice("Q6_K", 60, 1.0), choice("Q8_0", 80, 0.5)],
        "robust": [choice("Q4_K", 40, 0.2), choice("Q6_K", 60, 0.1), choice("Q8_0", 80, 0.0)],
        "odd": [choice("Q4_K", 40, 1.0), choice("Q5_0", 50, 2.0), choice("Q6_K", 60, 0.9)],  # a larger type that is worse
    }

    def chosen(budget: int) -> list[str]:
        found = allocate(choices, budget)
        assert sum(one.nbytes for one in found.values()) <= budget
        return [found[name].kind.name for name in choices]

    assert chosen(120) == chosen(139) == ["Q4_K", "Q4_K", "Q4_K"]
    assert chosen(140) == ["Q6_K", "Q4_K", "Q4_K"]
    assert chosen(160) == ["Q8_0", "Q4_K", "Q4_K"]
    assert chosen(10_000) == ["Q8_0", "Q8_0", "Q6_K"]


@pytest.fixture(autouse=True)
def one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a text's four, which would take four times as long."""
    monkeypatch.setattr("edgellm.tools.target.WINDOWS", 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(
        tmp_path_factory.mktemp("target") / "m.gguf", "llama", "F16", tokenizer="spm", n_layers=1, n_embd=256, n_ff=256, head_dim=64
    )


def test_the_size_is_kept_and_used(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, costs = {}, list[float]()

    def chosen(*arguments: Any, **options: Any) -> SizeTarget:
        costs.append((target := choose_for_size(*arguments, **options)).cost)
        return target

    monkeypatch.setattr("edgellm.tools.target.choose_for_size", chosen)
    for bits in (4.0, 6.0):
        made = quantize(model, tmp_path / f"{bits}.gguf", QuantizeOptions(target=bits, text=story_text(40)))
        assert bits - 0.6 < made.plan.bits_per_weight <= bits
        with open_gguf(tmp_path / f"{bits}.gguf") as gguf:
            assert gguf.metadata["general.file_type"] in (10, 12, 14, 15, 16, 17, 18, 7, 25, 30, 11, 13, 8)
            assert all(info.type.name == "F32" for name, info in gguf.tensors.items() if "norm" in name)
        found[bits] = costs[-1]
    assert len(costs) == 2 and 0 < found[6.0] < found[4.0] / 4
    with pytest.raises(OptionError, match=r"--target 1: this model's smallest file has 2\.\d\d bits per weight; give more"):
        choose_for_size(model, 1.0, story_text(40))
    with pytest.raises(OptionError, match="give a longer text"):
        choose_for_size(model, 4.0, "short")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "give a TYPE, such as Q4_K_M, or --target with bits per weight"),
        ("Q4_0 --target 4", "not both"),
        ("--target 4", "give --calibrate TEXT"),
        ("--target nan --calibrate t", "give bits per weight, from 2 to 16"),
        ("Q4_0 --calibrate t", "is for --target"),
        ("--target 4 --calibrate t --pure", "leave out --tensor-type"),
    ],
)
def test_wishes_that_contradict_each_other(line: str, said: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["quantize", str(model), "out.gguf", *line.split()]) == 2
    assert said in capsys.readouterr().err


def test_on_the_command_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text(story_text(40), encoding="utf-8")
    assert app.run(["quantize", str(model), str(tmp_path / "o.gguf"), "--target", "5", "--calibrate", str(text), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bits_per_weight"] <= 5
