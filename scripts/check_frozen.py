"""Freezes a program that uses edgellm with PyInstaller, as one folder and as one file, and lets both answer where no Python is.

The wheel is built and installed into a fresh environment, as an app's makers do it; the hook comes with the wheel. Each program
opens a model by its path and the guide by its name, and must say what edgellm says unfrozen.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from check_wheel import ROOT, build, run

PYINSTALLER = "pyinstaller>=6.5,<7"
PROGRAM = """\
import sys
import edgellm

for name in sys.argv[1:]:
    with edgellm.load(name, context=128, threads=1) as model:
        print(edgellm.__version__, model.generate("Once", max_tokens=8, temperature=0).token_ids)
"""
SPEC = """\
parts = Analysis(["app.py"])
archive = PYZ(parts.pure)
folder = EXE(archive, parts.scripts, [], exclude_binaries=True, name="app")
COLLECT(folder, parts.binaries, parts.datas, name="app")
EXE(archive, parts.scripts, parts.binaries, parts.datas, name="one")
"""
SECONDS = 900  # kernels are compiled in them, perhaps on a machine that others use too


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="edgellm-frozen-") as folder:
        check(Path(folder))


def check(folder: Path) -> None:
    sys.path.extend(str(ROOT / "tests" / folder) for folder in ("helpers", "models"))
    from tiny_models import tiny_model

    model = tiny_model(folder / "model.gguf", "llama", "Q8_0", tokenizer="bpe")
    environment = folder / "venv"
    venv.create(environment, with_pip=True)
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(build(folder)), PYINSTALLER)
    program = folder / "app.py"
    program.write_text(PROGRAM, encoding="utf-8")
    said = answer([str(python), str(program)], model, folder / "plain")
    (folder / "app.spec").write_text(SPEC, encoding="utf-8")
    began = time.monotonic()
    run(str(python), "-m", "PyInstaller", "--noconfirm", "--log-level", "ERROR", "app.spec", cwd=folder)
    print(f"both built in {time.monotonic() - began:.0f} s", flush=True)
    for kind, path in (("one folder", folder / "dist" / "app" / "app"), ("one file", folder / "dist" / "one")):
        home = folder / "home"  # the second finds the kernels that the first has compiled
        began = time.monotonic()
        first = answer([str(path)], model, home)
        compiled = time.monotonic() - began
        began = time.monotonic()
        again = answer([str(path)], model, home)
        if first != said or again != said:
            raise SystemExit(f"{kind}: the frozen program says {first!r} and then {again!r}, edgellm {said!r}")
        size = sum(file.lstat().st_size for file in (path.parent.rglob("*") if path.name == "app" else [path]) if file.is_file())
        print(
            f"{kind}: {size / 1e6:.0f} MB; answers the first time in {compiled:.1f} s, then in {time.monotonic() - began:.1f} s",
            flush=True,
        )


def answer(command: list[str], model: Path, home: Path) -> str:
    """What a program prints of both models, in an empty home and with no Python on the path."""
    home.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "PATH": "/nowhere", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [*command, str(model), "guide"], env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    if done.returncode or not done.stdout.strip():
        raise SystemExit(f"{command[0]} ended with {done.returncode} and printed {done.stdout!r}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
