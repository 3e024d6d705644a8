"""What all tests share: modules imported by name, the folder of reference files, and the option that writes golden files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

if system.is_arm():  # numba in this process: LLVM asks more of a processor's name than of its features
    compiler.set_target(system.usable_isas()[-1])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="a part of the tests that takes less than a minute, for the edit loop")
    parser.addoption("--update", action="store_true", help="write the golden graphs of tests/data/graphs again")


@pytest.fixture(scope="session")
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference files beside the checkout; tests that need it skip without it."""
    from places import SHARED

    if not (SHARED / "conformance" / "suite.json").is_file():
        pytest.skip("no ../shared beside the checkout: reference files are not here")
    return SHARED


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what takes longest for `--quick`."""
    return True if config.getoption("--quick") and collection_path.stem in NOT_QUICK else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the first case of each test for `--quick`."""
    if not config.getoption("--quick"):
        return
    first = dict[str, pytest.Item]()
    for item in items:
        first.setdefault(item.nodeid.split("[")[0], item)
    config.hook.pytest_deselected(items=[item for item in items if item not in first.values()])
    items[:] = first.values()
