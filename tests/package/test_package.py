"""The project as a whole: its packages, its start-up, and what its code must not contain."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

SOURCES = sorted(
    path
    for folder in ("edgellm", "formats", "scripts")
    for path in (ROOT / folder).rglob("*.py")
    if path.relative_to(ROOT).parts[:2] != ("edgellm", "formats")
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def in_fresh_python(code: str) -> str:
    """The output of a program that starts with nothing imported."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_folder_is_a_package_of_the_wheel() -> None:
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in SOURCES if "scripts" not in path.parts}
    assert listed == {f"edgellm.{name}" if name.startswith("formats") else name for name in folders}


def test_every_package_says_what_it_is_for() -> None:
    for path in SOURCES:
        document = re.match(r'(?:#[^\n]*\n)*r?"""(.+?)"""', path.read_text(encoding="utf-8"), re.DOTALL)
        assert document and "TODO" not in document[1], path


def test_docstrings_name_their_thing() -> None:
    for path in SOURCES:
        assert re.findall(r'^\s*r?"""(?:What|Whether|Who) .*', path.read_text(encoding="utf-8"), re.MULTILINE) == [], path


def test_no_two_public_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for name in re.findall(r"^ *class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            if "scripts" not in path.parts:
                places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_formats_is_imported_under_one_name_only() -> None:
    code = """
import importlib, pkgutil, sys, edgellm
for module in pkgutil.walk_packages(edgellm.__path__, "edgellm."):
    importlib.import_module(module.name)
print("edgellm.formats.gguf" in sys.modules, "formats" in sys.modules, any(name.startswith("formats.") for name in sys.modules))
"""
    assert in_fresh_python(code).split() == ["True", "False", "False"]


def test_a_checkout_beside_a_program_does_not_hide_the_package(tmp_path: Path) -> None:
    (tmp_path / "edgellm" / "edgellm").mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import edgellm; print(edgellm.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
    assert Path(done.stdout.strip()).resolve() == ROOT / "edgellm" / "__init__.py"


HEAVY = (
    "numpy",
    "numba",
    "llvmlite",
    "mlx",
    "tokenizers",
    "sentencepiece",
    "jinja2",
    "huggingface_hub",
    "prompt_toolkit",
    "psutil",
)


@pytest.mark.parametrize(
    "code",
    [
        "import edgellm",
        "import edgellm; edgellm.EdgeError; edgellm.ContextFull; edgellm.__version__",
        "from edgellm.cli.app import run; run(['--help'])",
        "from edgellm.cli.app import run; run(['run', '--help'])",
        "from edgellm.cli.app import run; run(['show', 'no-such-model'])",
    ],
)
def test_light_starts_import_nothing_heavy(code: str) -> None:
    printed = in_fresh_python(f"{code}\nimport sys\nprint('IMPORTED', *[m for m in {HEAVY!r} if m in sys.modules])")
    assert printed.rsplit("IMPORTED", 1)[1].split() == []


CALLS = {"eval", "exec", "compile", "__import__"}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


def forbidden(tree: ast.AST) -> Iterator[str]:
    """Names in a module that run text as code, read objects from bytes, or start a shell."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                yield node.func.id
            if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) in ("os.system", "os.popen"):
                yield ast.unparse(node.func)
            if any(keyword.arg == "shell" and getattr(keyword.value, "value", True) for keyword in node.keywords):
                yield "shell"
            if any(keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) for keyword in node.keywords):
                yield "allow_pickle"
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in MODULES)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in MODULES:
            yield node.module


@pytest.mark.parametrize(
    "code, found",
    [
        ("eval('1')", ["eval"]),
        ("import pickle", ["pickle"]),
        ("from marshal import loads", ["marshal"]),
        ("subprocess.run('x', shell=True)", ["shell"]),
        ("subprocess.run(['x'], shell=False)", []),
        ("os.system('x')", ["os.system"]),
        ("np.load(f, allow_pickle=True)", ["allow_pickle"]),
        ("re.compile('x')", []),
        ("model.eval()", []),
    ],
)
def test_the_search_finds_what_it_is_for(code: str, found: list[str]) -> None:
    assert list(forbidden(ast.parse(code))) == found


def test_no_code_from_text_no_pickle_no_shell() -> None:
    words = re.compile(rf"\b({'|'.join(CALLS | MODULES)}|shell|allow_pickle|system|popen)\b")
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert words.search(text) is None or list(forbidden(ast.parse(text))) == [], path


def test_every_dependency_has_a_range_and_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = text.split("dependencies = [", 1)[1].split("\n]", 1)[0].strip().splitlines()
    assert len(lines) == len(PROJECT["project"]["dependencies"])
    for line in lines:
        assert ">=" in line and "#" in line, line


def test_the_command_exists() -> None:
    assert PROJECT["project"]["scripts"] == {"edgellm": "edgellm.cli:main"}
    assert (ROOT / "scripts" / "edgellm").stat().st_mode & 0o111 and (ROOT / "scripts" / "test").stat().st_mode & 0o111


def test_pyinstaller_finds_the_hook() -> None:
    from importlib.metadata import entry_points

    from edgellm.__pyinstaller import get_hook_dirs

    (folder,) = get_hook_dirs()
    assert (Path(folder) / "hook-edgellm.py").is_file()
    assert PROJECT["project"]["entry-points"]["pyinstaller40"] == {"hook-dirs": "edgellm.__pyinstaller:get_hook_dirs"}
    assert all(point.load() is get_hook_dirs for point in entry_points(group="pyinstaller40") if point.value.startswith("edgellm"))
