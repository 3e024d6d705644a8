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

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

if system.is_arm():  # numba in this process: LLVM asks more of a processor's name than of its features
    compiler.set_target(system.usable_isas()[-1])


def pytest_addoption(parser: pytest.Parser) -> None:
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
