"""docs/architecture.md names files and folders that exist, and all folders; maps of the kernels name all files."""

from __future__ import annotations

import re
import subprocess
import sys

from places import ROOT

PACKAGE = ROOT / "edgellm"
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_names_of_files_and_folders_exist() -> None:
    names = re.findall(r"`([\w/]+(?:\.py|/))`", TEXT)
    inside = {"jit/": "backends/cpu", "kernels/": "backends/cpu", "simd/": "backends/cpu"}
    names = [name for name in names if name != "edgellm/" and not (name.startswith("scripts/") and (ROOT / name).exists())]
    missing = [name for name in names if not (PACKAGE / inside.get(name, "") / name).exists()]
    assert len(names) > 50 and not missing


def test_every_folder_has_a_line() -> None:
    listed = set(re.findall(r"^\| `([\w/]+)/` \|", TEXT, re.MULTILINE))
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert folders <= listed


def test_maps_of_the_kernels_name_every_file() -> None:
    for room in (PACKAGE / "backends/cpu/kernels").glob("*/__init__.py"):
        named = set(re.findall(r"\w+", room.read_text(encoding="utf-8")))
        missing = {path.stem for path in room.parent.glob("[a-z]*.py")} - named
        assert not missing, f"{room.parent.name}: {missing}"


def test_it_is_short_and_the_readme_links_it() -> None:
    assert len(TEXT.splitlines()) <= 110
    assert "docs/architecture.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_walk_prints_what_the_page_shows() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "walk.py"], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) > 20 and f"```\n{done.stdout}```" in TEXT
