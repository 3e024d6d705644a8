"""Builds the wheel, checks what is in it, installs it into a fresh environment and imports every module there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(".venv", ".git", "build", "dist", "*.egg-info", "__pycache__", ".*_cache")
IMPORT_ALL = """
import importlib.util, pathlib, pkgutil, platform, sys
import edgellm
assert pathlib.Path(edgellm.__file__).is_relative_to(sys.prefix), edgellm.__file__
names = [module.name for module in pkgutil.walk_packages(edgellm.__path__, "edgellm.")]
mlx = importlib.util.find_spec("mlx") is not None
assert mlx == (sys.platform == "darwin" and platform.machine() == "arm64"), "mlx is for Apple Silicon alone"
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if mlx or error.name not in ("mlx", "mlx.core") or not name.startswith("edgellm.backends.mlx."):
            raise
from edgellm.catalogue.registry import entries
print(f"{len(names)} modules imported, {len(entries())} catalogue entries read", flush=True)
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="edgellm-wheel-") as folder:
        wheel = build(Path(folder))
        check_contents(wheel)
        install_and_import(wheel, Path(folder) / "venv")


def build(folder: Path) -> Path:
    """The wheel of a clean copy of the checkout, so that nothing left over from an earlier build gets in."""
    copy = folder / "copy"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(copy))
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """Every source file, the catalogue, the guide and the type marker are in it, and nothing else but metadata."""
    sources = [path for folder in ("edgellm", "formats") for path in (ROOT / folder).rglob("*.py")]
    relative = (path.relative_to(ROOT).as_posix() for path in sources)
    wanted = {f"edgellm/{name}" if name.startswith("formats/") else name for name in relative}
    wanted |= {"edgellm/models.toml", "edgellm/py.typed", "edgellm/data/guide.gguf", "edgellm/data/guide.md"}
    wanted.add("edgellm/checkpoints/defaults.json")
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "edgellm" / "server" / "page").rglob("*") if path.is_file()}
    names = set(zipfile.ZipFile(wheel).namelist())
    found = {name for name in names if ".dist-info/" not in name}
    if found != wanted:
        raise SystemExit(f"{wheel.name}: missing {sorted(wanted - found)}, too much {sorted(found - wanted)}")
    if not any(name.endswith("licenses/LICENSE") for name in names):
        raise SystemExit(f"{wheel.name}: the licence is missing")
    print(f"{wheel.name}: {len(found)} files, {wheel.stat().st_size / 1e3:.0f} kB", flush=True)


def install_and_import(wheel: Path, folder: Path) -> None:
    """Use the wheel as a stranger would: a new environment, another folder."""
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    run(
        str(programs / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        f"edgellm[serve] @ {wheel.as_uri()}",
    )
    run(str(programs / "python"), "-I", "-c", IMPORT_ALL, cwd=folder)
    run(str(programs / "edgellm"), "--version", cwd=folder)


def run(*command: str, cwd: Path | None = None) -> None:
    subprocess.run(command, check=True, cwd=cwd)


if __name__ == "__main__":
    main()
