"""The catalogue's schema, and which file a name leads to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgellm import arch
from edgellm.catalogue import resolve
from edgellm.catalogue.entries import parse
from edgellm.catalogue.hub_cache import cache_root
from edgellm.catalogue.names import entry_of, fetch_command, installed
from edgellm.catalogue.registry import entries
from edgellm.errors import BadCatalogue, ModelNotFound
from edgellm.sampling import SamplingOptions

COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and nobody's home folder."""
    root = tmp_path / "hub"
    for variable in ("HF_HUB_CACHE", "EDGELLM_CONFIG", "EDGELLM_DATA", "OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(root))
    return root


def download(cache: Path, repository: str, path: str, commit: str = COMMIT, *, main: bool = True, whole: bool = True) -> Path:
    """Put a file into the cache as the hub's libraries do: a blob, and a relative link to it."""
    folder = cache / ("models--" + repository.replace("/", "--"))
    file = folder / "snapshots" / commit / path
    file.parent.mkdir(parents=True, exist_ok=True)
    blob = folder / "blobs" / f"{len(path)}-{commit}"
    blob.parent.mkdir(exist_ok=True)
    if whole:
        blob.touch()
    file.symlink_to(os.path.relpath(blob, file.parent))
    if main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
    return file


def refusal(name: str) -> str:
    with pytest.raises(ModelNotFound) as caught:
        resolve(name)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 700
    return text


def test_a_prompt_in_the_place_of_a_model_is_told_apart() -> None:
    assert "the model comes before it, as in edgellm run guide PROMPT" in refusal("What is edgellm?")
    assert all("prompt" not in refusal(name) for name in ("no-such-model", "smollm2 135n", "my own model.gguf", "a b/c d"))


def test_entries_can_be_run_and_sampled() -> None:
    assert sum(entry.architecture in arch.names() for entry in entries().values()) >= 25
    assert {"chat", "embedding"} <= {entry.kind for entry in entries().values()}
    for name, entry in entries().items():
        assert entry.name == name and 0 < entry.share_read <= 1
        SamplingOptions(**entry.sampling)  # type: ignore[arg-type]  # by name
        assert entry.file() is not None and entry.memory_gb * 1e9 > entry.file().size  # type: ignore[union-attr]


GOOD = """
schema = 1
[[model]]
name = "m"
repository = "o/r"
architecture = "llama"
parameters = "1B"
context = 100
licence = "mit"
memory_gb = 1
default = "Q8_0"
[[model.file]]
type = "Q8_0"
path = "m.gguf"
size = 5
"""


def test_schema_accepts_a_minimal_entry() -> None:
    entry = parse(GOOD).entries["m"]
    assert entry.files[0].parts[0].path == "m.gguf" and entry.files[0].size == 5


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("schema = 1", "schema = 2", "schema"),
        ('name = "m"', 'name = "../m"', "name"),
        ('repository = "o/r"', 'repository = "o/../r"', "repository"),
        ('repository = "o/r"', "", "repository is missing"),
        ("context = 100", 'context = "100"', "context"),
        ("context = 100", "context = true", "context"),
        ("memory_gb = 1", "memory_gb = 1\nsampling = { heat = 1 }", "heat"),
        ("memory_gb = 1", "memory_gb = 1\nmore = 1", "more"),
        ('default = "Q8_0"', 'default = "Q4_0"', "Q4_0"),
        ("memory_gb = 1", 'memory_gb = 1\nkind = "magic"', "magic"),
        ("memory_gb = 1", 'memory_gb = 1\nactive = "some"', "some"),
        ("memory_gb = 1", "memory_gb = 1\ntags = [1]", "tags"),
        ('parameters = "1B"', 'parameters = "many"', "many"),
        ("schema = 1\n[[model]]\n", "schema = 1\nmodel = [1]\n[other]\n", "model|unknown"),
        ('path = "m.gguf"', 'path = "../m.gguf"', "path"),
        ('path = "m.gguf"', 'path = "/m.gguf"', "path"),
        ('path = "m.gguf"', 'path = "m.bin"', "path"),
        ("size = 5", "size = 0", "size"),
        ("size = 5", 'size = 5\nsha256 = "12"', "sha256"),
        ("size = 5", 'size = 5\nrevision = "main"', "revision"),
    ],
)
def test_schema_refuses(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ValueError, match=said):
        parse(GOOD.replace(old, new))


def test_schema_refuses_two_of_a_name() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse(GOOD + GOOD.replace("schema = 1", ""))


@pytest.mark.parametrize(
    "variables, root",
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/d"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/d"}, "/d/huggingface/hub"),
        ({}, "~/.cache/huggingface/hub"),
    ],
)
def test_cache_root(variables: dict[str, str], root: str) -> None:
    assert cache_root(variables) == Path(root).expanduser()


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(file) == resolve(str(file)) == file
    assert resolve("model.gguf").samefile(file) and resolve("~/model.gguf") == file
    assert f"did you mean {tmp_path}/model.gguf" in refusal(f"{tmp_path}/modl.gguf")
    assert "model.gguf" in refusal(str(tmp_path))


def test_a_file_of_the_name_of_an_entry_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3-0.6b").touch()
    assert resolve("qwen3-0.6b") == Path("qwen3-0.6b") and entry_of("qwen3-0.6b") is None


def test_a_folder_of_the_name_of_an_entry_does_not(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3-0.6b").mkdir()
    file = download(cache, "Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf")
    assert resolve("qwen3-0.6b") == file


def test_catalogue_names(cache: Path) -> None:
    assert installed() == []
    q8 = download(cache, "Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf")
    q4 = download(cache, "unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q4_K_M.gguf")
    assert resolve("qwen3-0.6b") == resolve("Qwen3-0.6B:q8_0") == q8
    assert resolve("qwen3-0.6b:Q4_K_M") == q4
    assert installed() == [("qwen3-0.6b", q8), ("qwen3-0.6b:Q4_K_M", q4)]
    assert "Q8_0, Q4_K_M" in refusal("qwen3-0.6b:Q2_K")
    assert "did you mean qwen3-0.6b" in refusal("qwen3-0.6")
    assert fetch_command(entries()["qwen3-1.7b"], "Q8_0") in refusal("qwen3-1.7b:Q8_0")


def test_unfinished_and_split_downloads(cache: Path) -> None:
    download(cache, "Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf", whole=False)
    assert refusal("qwen3-0.6b").endswith("edgellm pull qwen3-0.6b")
    first, second = (part.path for part in entries()["qwen2.5-7b"].files[0].parts)
    part = download(cache, "Qwen/Qwen2.5-7B-Instruct-GGUF", first)
    assert "edgellm pull qwen2.5-7b" in refusal("qwen2.5-7b")
    download(cache, "Qwen/Qwen2.5-7B-Instruct-GGUF", second)
    assert resolve("qwen2.5-7b") == part


def test_the_pinned_version_comes_first_then_main(cache: Path) -> None:
    pinned = entries()["qwen3-0.6b"].files[0].revision
    assert pinned is not None
    name = "Qwen3-0.6B-Q8_0.gguf"
    other = download(cache, "Qwen/Qwen3-0.6B-GGUF", name, OTHER, main=False)
    assert resolve("qwen3-0.6b") == other
    newest = download(cache, "Qwen/Qwen3-0.6B-GGUF", name, COMMIT)
    assert resolve("qwen3-0.6b") == newest
    wanted = download(cache, "Qwen/Qwen3-0.6B-GGUF", name, pinned, main=False)
    assert resolve("qwen3-0.6b") == wanted


def test_hub_names(cache: Path) -> None:
    q4 = download(cache, "o/r", "Model-Q4_K_M.gguf")
    assert resolve("hf:o/r") == q4
    q8 = download(cache, "o/r", "sub/model-q8_0.gguf")
    split = download(cache, "o/r", "BF16/model-BF16-00001-of-00002.gguf")
    download(cache, "o/r", "BF16/model-BF16-00002-of-00002.gguf")
    download(cache, "o/r", "mmproj-F16.gguf")
    assert resolve("hf:o/r") == q4  # Q4_K_M of several
    assert resolve("hf:o/r:Q8_0") == resolve("hf:o/r:sub/model-q8_0.gguf") == resolve("hf:o/r/sub/model-q8_0.gguf") == q8
    assert resolve("hf:o/r:model-q8_0.gguf") == q8
    assert resolve("hf:o/r:BF16") == split
    assert "Model-Q4_K_M.gguf" in refusal("hf:o/r:Q5_K_M")
    assert "Model-Q4_K_M.gguf" in refusal("hf:o/r:Q4")  # a type is matched whole
    download(cache, "o/two", "a-Q2_K.gguf")
    download(cache, "o/two", "b-Q3_K.gguf")
    assert "several" in refusal("hf:o/two")
    assert refusal("hf:o/none").endswith("edgellm pull hf:o/none")
    assert refusal("hf:o/none:x.gguf").endswith("edgellm pull hf:o/none:x.gguf")


HOSTILE = [
    "",
    " ",
    "\0",
    "a\0b",
    "..",
    "../",
    "../..",
    "../../etc/shadow-not",
    "/",
    "//",
    "~",
    "~nobody-here/x",
    "CON",
    "nul",
    "C:\\x.gguf",
    "-rf",
    "--help",
    "x" * 300,
    "x/" * 3000,
    "\u202egguf.exe",
    "a\nb",
    "\x1b[2J",
    "hf:",
    "hf:/",
    "hf:a",
    "hf:../..",
    "hf:a/..",
    "hf:a/b/../../../x.gguf",
    "hf:a/b:../../../etc/passwd",
    "hf:a--b/c",
    "hf:a/b\0",
    "hf:" + "a" * 300 + "/b",
    "hf:a/b:" + "*" * 50,
    "qwen3-0.6b:../../x",
    "qwen3-0.6b:",
    "qwen3-0.6b:\0",
    "ollama:x",
    "http://x/y.gguf",
    "\udcff",
    "$HOME",
    "`id`",
    "%s%n",
    "/dev/zero",
    "https://",
    "https://[",
    "https://huggingface.co/../..",
    "https://huggingface.co/a/b/blob/main/../../x.gguf",
    "https://huggingface.co/a%2f..%2fb/c",
    "https://me:secret@other.net/a/b",
    "hf.co/a/b:../../etc/passwd",
    "hf://",
    "a/b/c",
    "https://huggingface.co/a/b?show_file_info=../../etc/passwd",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_end_in_one_clean_line(name: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "etc" / "passwd"
    outside.parent.mkdir()
    outside.touch()
    download(cache, "a/b", "model.gguf", main=False)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    refusal(name)


def test_unreadable_and_special_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.gguf")
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    assert "pipe" in refusal(str(tmp_path / "fifo.gguf"))
    refusal(str(tmp_path / "loop.gguf"))


def test_a_user_adds_entries_and_replaces_ours(tmp_path: Path) -> None:
    own = tmp_path / "edgellm_config" / "models.toml"
    own.parent.mkdir()
    ours = GOOD.replace("schema = 1", "").replace('name = "m"', 'name = "qwen3-0.6b"')
    own.write_text(GOOD.replace('name = "m"', 'name = "mine"') + ours)
    assert {file.repository for name in ("mine", "qwen3-0.6b") for file in entries()[name].files} == {"o/r"}
    assert "gemma3-1b" in entries()
    own.write_text(GOOD.replace("size = 5", "size = -5"))
    os.utime(own, ns=(1, 1))
    with pytest.raises(BadCatalogue, match=r"models\.toml.*size.*correct it"):
        entries()
    own.write_text("no toml")
    os.utime(own, ns=(2, 2))
    with pytest.raises(BadCatalogue, match="models"):
        entries()
