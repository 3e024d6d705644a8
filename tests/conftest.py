"""Fixtures of all tests: modules imported by name, the folder of reference files, and the option that writes golden files."""

from __future__ import annotations

import importlib.util
import os
import sys
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

os.environ["EDGELLM_CACHE"] = str(folders.user_cache())  # where a test sets another home, kernels need not be compiled again

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

if system.is_arm():  # numba in this process: LLVM asks more of a processor's name than of its features
    compiler.set_target(system.usable_isas()[-1])


@pytest.fixture
def mlx_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX's own products for any number of rows, also in its CPU build: a row has the same bits in every step."""
    if importlib.util.find_spec("mlx") is not None:
        monkeypatch.setattr("edgellm.backends.mlx.matrices.SEVERAL", sys.maxsize)


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the first case of each test for `--quick`, of those that the usual run has."""
    if not config.getoption("--quick"):
        return
    first = dict[str, pytest.Item]()
    for item in items:
        if not item.get_closest_marker("slow"):
            first.setdefault(item.nodeid.partition("[")[0], item)
    kept = {*first.values()}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = first.values()
