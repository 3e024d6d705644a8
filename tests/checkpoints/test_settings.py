"""Hostile values in the config.json of every family: an error that names the file, soon, whatever the type or the size."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hf_checkpoints import LAYOUTS, config_of, write_checkpoint

from edgellm.arch import load_graph
from edgellm.checkpoints.config import find_family, read_config, transformers_defaults
from edgellm.checkpoints.folder import open_mlx_folder
from edgellm.checkpoints.settings import MAX_DEPTH
from edgellm.errors import BadHParam, EdgeError
from edgellm.tools.convert import convert

NESTED: Any = 1
for _ in range(MAX_DEPTH + 2):
    NESTED = [NESTED]
VALUES: tuple[Any, ...] = ([], [1], ["x"], {}, {"a": [1]}, "x", "", True, -1, 1.5, 1e300, 10**40, 1 << 63, 0, 33, 1 << 20, 1 << 31)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MORE = ("rope_scaling", "rope_parameters", "quantization_config", "layer_types", "text_config", "tie_word_embeddings", "hidden_act")


@pytest.mark.parametrize("every", [len(VALUES), pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", sorted(LAYOUTS))
def test_values_of_other_types(tmp_path: Path, kind: str, every: int) -> None:
    """Each setting with some of the values, in turn: a file, or an EdgeError."""
    folder, usual = write_checkpoint(tmp_path / "hf", kind), config_of(kind)
    keys: list[tuple[str, ...]] = sorted(
        (key,) for key in {*usual, *MORE, *transformers_defaults().get(str(usual["model_type"]), ())}
    )
    keys += [(outer, key) for outer, inner in usual.items() if isinstance(inner, dict) for key in inner]
    start = time.process_time()
    for turn, (key, *inner) in enumerate(keys):
        for value in VALUES[turn % every :: every]:
            (folder / "config.json").write_text(json.dumps(usual | {key: usual[key] | {inner[0]: value} if inner else value}))
            try:
                convert(folder, tmp_path / "model.gguf")
            except EdgeError as error:
                assert str(tmp_path) in str(error)
    assert time.process_time() - start < 120


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"model_type": {"a": 1}}, "model_type"),
        ({"text_config": {"model_type": ["llama"]}}, "text_config.model_type"),
        ({"architectures": 1e300}, "architectures"),
        ({"architectures": ["a", 1]}, "architectures"),
        ({"hidden_act": ["silu"]}, "hidden_act"),
        ({"num_hidden_layers": 1 << 40}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"rope_scaling": {"factor": [10**30]}}, "rope_scaling"),
        ({"head_dim": 1 << 31}, "head_dim"),
        ({"text_config": {"linear_key_head_dim": 1 << 31}}, "text_config.linear_key_head_dim"),
        ({"num_kv_shared_layers": 1 << 31}, "num_kv_shared_layers"),
        ({"a": NESTED}, "a"),
    ],
)
def test_what_no_setting_is(tmp_path: Path, config: dict[str, Any], field: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama") | config))
    with pytest.raises(BadHParam, match=rf"config\.json: {field}: .* isn't a possible value"):
        read_config(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "config", "field"),
    [
        ("mistral4", {"kv_lora_rank": 33}, r"attention\.kv_lora_rank: 33 is odd"),
        ("llama", {"rope_scaling": LLAMA3 | {"rope_theta": -1.0}}, "rope_scaling: .* rope_theta -1 and factor .* give no angles"),
        ("rwkv7", {"a_low_rank_dim": 1 << 20}, "a rank of 1048576 for rows of 32"),
    ],
)
def test_sizes_that_no_graph_has(tmp_path: Path, kind: str, config: dict[str, Any], field: str) -> None:
    with pytest.raises(BadHParam, match=field), open_mlx_folder(write_checkpoint(tmp_path / "hf", kind, **config)) as folder:
        load_graph(folder)


GEMMAS = ("gemma2", "gemma3_text", "gemma3n_text")
LLAMAS = ("llama", "mistral", "ministral3", "mixtral")
OTHERS = ("olmo3", "exaone4", "cohere2", "gpt_oss", "afmoe", "exaone_moe", "mellum", "laguna", "granite_swa")
ALL_ALIKE = ("phi3", "starcoder2", "phimoe")  # whose definitions read no list


@pytest.mark.parametrize("kind", [*LLAMAS, *GEMMAS, *OTHERS, *ALL_ALIKE])
@pytest.mark.parametrize("first", ["full_attention", "sliding_attention"])
def test_layers_slide_as_listed(tmp_path: Path, kind: str, first: str) -> None:
    """In the graph; layers that share keys have no state of their own."""
    other = "sliding_attention" if first == "full_attention" else "full_attention"
    kinds = [(first, other)[layer % 2] for layer in range(config_of(kind)["num_hidden_layers"])]
    with open_mlx_folder(write_checkpoint(tmp_path / "hf", kind, layer_types=kinds, sliding_window=3)) as folder:
        windows = [state.window for state in load_graph(folder)[1].kv_states]
    assert windows == [3 if kind in ALL_ALIKE or each == "sliding_attention" else None for each in kinds][: len(windows)]


def test_usual_settings_are_read() -> None:
    for kind in LAYOUTS:
        find_family(config_of(kind), kind)
