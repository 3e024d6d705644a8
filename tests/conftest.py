"""Fixtures of all tests: modules imported by name, the folder of reference files, and the option that writes golden files."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from edgellm import folders
from edgellm.backends.cpu import system
from edgellm.backends.cpu.jit import compiler

# Modules are imported by their names, wherever they stand here; folders of folders stay out: `mlx` is an installed package.
sys.path.extend(sorted({str(path.parent) for path in Path(__file__).parent.rglob("*.py")}))

pytest_plugins = ["pulled"]  # its fixtures serve several modules

# Folders and modules that `--quick` leaves out: they start programs and servers, compile kernels of other ISA levels, or need a
# trained model.
NOT_QUICK = {"bench", "catalogue", "guide", "jit", "kernels", "mlx", "server", "simd", "tools"} | {
    f"test_{name}"
    for name in (
        "chat_hostile",
        "cli_embed",
        "cli_keyboard",
        "cli_streams",
        "completion",
        "ending",
        "examples",
        "file_cut",
        "fit",
        "fuzz",
        "latent",
        "long_texts",
        "resident",
        "streaming",
        "weight_memory",
    )
}

# Tests that it leaves out too: each takes over half a second of computing.
LONG = {
    f"test_{name}"
    for name in (
        "a_chat_with_recipients",
        "a_damaged_kernel_is_compiled_again",
        "a_damaged_state_costs_time_and_not_the_text",
        "a_decompression_bomb_is_refused_before_it_is_decoded",
        "a_kernel_that_does_not_compile_is_named",
        "a_long_generation_keeps_its_memory",
        "a_machine_of_one_core_and_little_memory",
        "a_model_of_every_template_writes_what_it_wants",
        "a_pipe_that_closes_ends_lists_well_and_answers_as_a_signal_would",
        "a_prompt_with_images_is_found_after_a_restart",
        "a_python_that_was_built_without_some_modules",
        "a_quarter_of_each_limit_costs_less_than_a_quarter",
        "an_answer_needs_no_module_of_other_uses",
        "an_executable_that_nobody_closes_ends_its_threads",
        "another_pooling",
        "arguments_come_in_any_order_once",
        "arguments_follow_their_schema",
        "as_re_matches",
        "bans_beside_a_form",
        "bits_do_not_depend_on_parts",
        "broken_audio",
        "calls_that_break_their_schema_are_listed_and_asked_again",
        "conformance_shapes",
        "drawn_drafts_keep_the_distribution",
        "drawn_tokenizers",
        "draws_after_a_guess_have_the_same_distribution",
        "eight_threads",
        "every_cut_of_the_header",
        "every_damage_is_reported",
        "every_way_to_cut_words_is_recognised",
        "fit_lists_the_catalogue",
        "fit_of_a_file_and_of_the_hub",
        "fit_of_what_does_not_fit",
        "fit_says_the_same_memory_in_the_table_and_alone",
        "fit_takes_folders",
        "formats_is_imported_under_one_name_only",
        "gold_of_all_files",
        "guesses_are_what_the_answer_may_have",
        "hard_schemas_hold_at_a_high_temperature",
        "json_is_compact_or_indented",
        "loading_a_text_model_imports_no_module_of_other_uses",
        "logits_after_an_image_are_those_of_the_golds",
        "many_answers_share_few_threads",
        "many_cancels",
        "mirostat_keeps_the_surprise_near_tau",
        "mxfp4_experts_stay_mxfp4",
        "no_code_from_text_no_pickle_no_shell",
        "no_stream_gets_a_control_character_through",
        "numbers_in_calls_of_json_are_such_as_python_holds",
        "numbers_within_objects_between_tags_are_such_as_python_holds",
        "on_a_terminal_there_is_a_bar",
        "other_vocabularies",
        "pages_fit_narrow_terminals",
        "pieces_cuts_forks_and_files",
        "pieces_that_come_again_are_cut_once",
        "published_templates_take_calls_as_programs_send_them",
        "published_templates_take_system_messages_in_the_middle",
        "quantised_trained_models_err_no_more_than_llama_cpp",
        "random_mutations",
        "real_vocabulary_opens_fast_and_small",
        "reuse_changes_no_answer",
        "rounds_stream_are_counted_and_end_when_cancelled",
        "rows_are_those_of_the_golds",
        "running_a_local_file_imports_nothing_for_the_network",
        "saved_beginnings_are_those_of_the_same_adapters",
        "templates_may_look_back_from_each_message",
        "the_budget_is_kept",
        "the_cpu_answers_with_the_same_bits",
        "the_guide_says_what_has_no_effect_and_refuses",
        "the_log_is_silent_unless_it_is_set_up",
        "the_walk_prints_what_the_page_shows",
        "tokenizers_as_large_as_real_ones",
        "transcribe",
        "types_of_pydantic_are_taken_and_parsed_exists",
        "unigram_ids_are_sentencepieces",
        "unknown_word_cuts_warn_and_name_the_file",
        "what_the_gguf_package_writes",
        "words_that_are_remembered_take_a_bounded_amount_of_memory",
    )
}
QUICK_EXAMPLES = 20  # of hypothesis, for each test of `--quick`

os.environ["EDGELLM_CACHE"] = str(folders.user_cache())  # where a test sets another home, kernels need not be compiled again

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

if system.is_arm():  # numba in this process: LLVM asks more of a processor's name than of its features
    compiler.set_target(system.usable_isas()[-1])


@pytest.fixture
def mlx_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX's own products for any number of rows, also in its CPU build: a row has the same bits in every step."""
    if importlib.util.find_spec("mlx") is not None:
        for least in ("SEVERAL", "KERNEL"):
            monkeypatch.setattr(f"edgellm.backends.mlx.matrices.{least}", sys.maxsize)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="a part of the tests that takes less than a minute, for the edit loop")
    parser.addoption("--update", action="store_true", help="write the golden graphs of tests/data/graphs again")


@pytest.fixture(scope="session")
def update(request: pytest.FixtureRequest) -> bool:
    """True if golden files are written instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference files beside the checkout; tests that need it skip without it."""
    from places import SHARED

    if not (SHARED / "conformance" / "suite.json").is_file():
        pytest.skip("no ../shared beside the checkout: reference files are not here")
    return SHARED


@pytest.fixture(scope="session")
def vision_golds(shared: Path) -> tuple[ModuleType, list[dict[str, Any]]]:
    """The module that judges images, and the entries whose images are stretched, as their makers do it."""
    if not (shared / "vision" / "score.py").is_file():
        pytest.skip("no ../shared/vision beside the checkout: golds of images are not here")
    spec = importlib.util.spec_from_file_location("vision_score", shared / "vision" / "score.py")
    assert spec is not None and spec.loader is not None
    score = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(score)
    return score, [entry for entry in score.load(shared / "vision") if entry["prep"]["resize"] == "stretch"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what takes longest for `--quick`."""
    return True if config.getoption("--quick") and collection_path.stem in NOT_QUICK else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nothing that collecting makes is garbage: to look for some takes half of its time, and later half a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Make one case of each test for `--quick`, of those that the usual run has: to leave out 13,000 later would take seconds."""
    yield
    if metafunc.config.getoption("--quick"):
        calls = metafunc._calls
        calls[:] = [call for call in calls if all(mark.name != "slow" for mark in call.marks)][:1] or calls[:1]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long for `--quick`, and draw few examples."""
    if not config.getoption("--quick"):
        return
    kept, left_out = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        long = item.get_closest_marker("slow") or (isinstance(item, pytest.Function) and item.originalname in LONG)
        (left_out if long else kept).append(item)
    for item in kept:
        test = item.obj if isinstance(item, pytest.Function) else None
        usual = getattr(test, "_hypothesis_internal_use_settings", None)
        if usual is not None:  # @settings of the test, which would win over a profile
            test._hypothesis_internal_use_settings = settings(usual, max_examples=min(usual.max_examples, QUICK_EXAMPLES))
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
