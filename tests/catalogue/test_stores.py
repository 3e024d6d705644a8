"""Models that other programs have fetched: found in place, each once, and nothing else is believed to be one."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

import edgellm
from edgellm.catalogue import stores
from edgellm.catalogue.entries import FilePart
from edgellm.catalogue.names import resolve
from edgellm.catalogue.paths import Environment, config_folder, data_folder, models_folder
from edgellm.catalogue.removing import find_removable
from edgellm.catalogue.stores import bundled, ollama
from edgellm.errors import ModelNotFound, OptionError

GGUF = b"GGUF" + bytes(60)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing in it, and no variable that leads elsewhere."""
    for variable in (
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_HOME",
        "EDGELLM_CONFIG",
        "EDGELLM_DATA",
        "OLLAMA_MODELS",
        "LLAMA_CACHE",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "XDG_CONFIG_HOME",
        "LOCALAPPDATA",
        "APPDATA",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(path: Path, data: bytes = GGUF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def in_hub(home: Path, repository: str, path: str, data: bytes = GGUF, commit: str = "a" * 40) -> Path:
    folder = home / ".cache/huggingface/hub" / ("models--" + repository.replace("/", "--"))
    blob = write(folder / "blobs" / hashlib.sha256(data).hexdigest(), data)
    place = folder / "snapshots" / commit / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(blob, place.parent))
    return place


def in_ollama(root: Path, name: str, data: bytes = GGUF, **changes: Any) -> Path:
    digest = hashlib.sha256(data).hexdigest()
    blob = write(root / "blobs" / f"sha256-{digest}", data)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(data)} | changes
    manifest = {"schemaVersion": 2, "layers": [{"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:x"}, layer]}
    write(root / "manifests" / name, json.dumps(manifest).encode())
    return blob


def names_of(store: str, around: Environment | None = None) -> list[str]:
    return [found.name for found in stores.named(store, around)]


def test_every_store_is_there_and_empty() -> None:
    assert stores.names() == ["hub", "ollama", "lm_studio", "llama_cpp", "gpt4all", "jan", "folders", "bundled", "packages"]
    assert [model.store for model in stores.scan()] == ["edgellm"]


def test_the_hub_cache(home: Path) -> None:
    in_hub(home, "Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf")
    in_hub(home, "o/r--x", "sub/m-IQ4_XS.gguf", GGUF + b"1")
    for path in ("mmproj-F16.gguf", "s-00002-of-00002.gguf", "t-00001-of-00002.gguf", "README.md"):
        in_hub(home, "o/rest", path, GGUF + b"2")
    in_hub(home, "o/none", "m.gguf", b"not a model")
    whole = in_hub(home, "o/split", "s-Q4_0-00001-of-00002.gguf", GGUF + b"3")
    in_hub(home, "o/split", "s-Q4_0-00002-of-00002.gguf", GGUF + b"4")
    dangling = in_hub(home, "o/part", "m.gguf", GGUF + b"5")
    dangling.resolve().unlink()
    found = {one.name: one for one in stores.named("hub")}
    assert set(found) == {"qwen3-0.6b", "hf:o/r--x:sub/m-IQ4_XS.gguf", "hf:o/split:s-Q4_0-00001-of-00002.gguf"}
    assert found["qwen3-0.6b"].type == "Q8_0" and found["qwen3-0.6b"].sha256 == hashlib.sha256(GGUF).hexdigest()
    split = found["hf:o/split:s-Q4_0-00001-of-00002.gguf"]
    assert split.size == 130 and len(split.paths) == 2 and split.sha256 is None and split.path == whole


def test_projectors_of_ollama(home: Path) -> None:
    root = home / ".ollama/models"
    blind = in_ollama(root, "registry.ollama.ai/library/a/latest")
    seeing = in_ollama(root, "registry.ollama.ai/library/b/latest", GGUF + b"1")
    manifest = root / "manifests/registry.ollama.ai/library/b/latest"
    document = json.loads(manifest.read_text())
    document["layers"].append({"mediaType": "application/vnd.ollama.image.projector", "digest": "sha256:" + "0" * 64})
    manifest.write_text(json.dumps(document))
    assert ollama.projector_of(seeing) is None  # its bytes are not here
    projector = write(root / "blobs" / ("sha256-" + "0" * 64))
    assert ollama.projector_of(seeing) == projector
    assert ollama.projector_of(blind) is None and ollama.projector_of(manifest) is None


def test_ollama(home: Path) -> None:
    root = home / ".ollama/models"
    blob = in_ollama(root, "registry.ollama.ai/library/llama3.2/latest")
    in_ollama(root, "registry.ollama.ai/library/llama3.2/1b-instruct-q4_K_M", GGUF + b"1")
    in_ollama(root, "registry.ollama.ai/me/mine/latest", GGUF + b"2")
    in_ollama(root, "hf.co/o/r/Q8_0", GGUF + b"3")
    assert sorted(names_of("ollama")) == [
        "ollama:hf.co/o/r:Q8_0",
        "ollama:llama3.2",
        "ollama:llama3.2:1b-instruct-q4_K_M",
        "ollama:me/mine",
    ]
    assert {one.type for one in stores.named("ollama")} == {"", "Q4_K_M", "Q8_0"}
    assert resolve("ollama:llama3.2") == resolve("ollama:llama3.2:latest") == blob
    with pytest.raises(ModelNotFound, match=r"there are ollama:llama.*; or fetch it with: ollama pull lama3.2$"):
        resolve("ollama:lama3.2")


@pytest.mark.parametrize(
    "digest",
    [
        "sha256:../../../../etc/passwd",
        "sha256:" + "A" * 64,
        "sha256:" + "a" * 63,
        "sha512:" + "a" * 64,
        "",
        5,
        None,
        ["x"],
        "sha256:" + "a" * 64 + "/../../x",
        "sha256:" + "a" * 64 + "\n",
    ],
)
def test_ollama_manifests_cannot_lead_anywhere_else(digest: Any, home: Path) -> None:
    write(home / "secret", GGUF)
    in_ollama(home / ".ollama/models", "registry.ollama.ai/library/evil/latest", digest=digest)
    assert names_of("ollama") == []


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"5", b'{"layers": 3}', b'{"layers": [3]}', b"[" * 100_000, b"\xff\xfe", b'{"layers": []}']
)
def test_ollama_manifests_that_are_none(text: bytes, home: Path) -> None:
    write(home / ".ollama/models/manifests/registry.ollama.ai/library/bad/latest", text)
    assert names_of("ollama") == []


def test_lm_studio(home: Path, tmp_path: Path) -> None:
    here = write(home / ".lmstudio/models/pub/repo/m-Q4_0.gguf")
    write(home / ".lmstudio/models/pub/repo/mmproj-m.gguf")
    old = write(home / ".cache/lm-studio/models/pub/repo/old.gguf", GGUF + b"1")
    bundled = write(home / ".lmstudio/.internal/bundled-models/nomic-ai/e/e.gguf", GGUF + b"2")
    assert names_of("lm_studio") == [str(here), str(bundled), str(old)]
    moved = write(tmp_path / "elsewhere/models/pub/repo/new.gguf", GGUF + b"3")
    (home / ".lmstudio-home-pointer").write_text(f"{tmp_path / 'elsewhere'}\n")
    assert names_of("lm_studio")[0] == str(moved)
    (home / ".lmstudio-home-pointer").write_bytes(b"\0\xff")
    assert names_of("lm_studio")[0] == str(here)


def test_llama_cpp_gpt4all_and_jan(home: Path) -> None:
    flat = write(home / ".cache/llama.cpp/ggml-org_r_m-Q8_0.gguf")
    write(home / ".cache/llama.cpp/m.gguf.downloadInProgress")
    assert names_of("llama_cpp") == [str(flat)]
    chat = write(home / ".local/share/nomic.ai/GPT4All/m.Q4_0.gguf")
    write(home / ".local/share/nomic.ai/GPT4All/incomplete-n.gguf")
    assert names_of("gpt4all") == [str(chat)]
    jan = write(home / ".local/share/Jan/data/llamacpp/models/some/model.gguf")
    older = write(home / ".config/Jan/data/models/huggingface.co/o/r/m.gguf", GGUF + b"1")
    assert names_of("jan") == [str(jan), str(older)]


@pytest.mark.parametrize(
    "platform, folders",
    [
        (
            "darwin",
            {
                "llama_cpp": "Library/Caches/llama.cpp",
                "gpt4all": "Library/Application Support/nomic.ai/GPT4All",
                "jan": "Library/Application Support/Jan/data/models",
            },
        ),
        (
            "win32",
            {
                "llama_cpp": "AppData/Local/llama.cpp",
                "gpt4all": "AppData/Local/nomic.ai/GPT4All",
                "jan": "AppData/Roaming/Jan/data/models",
            },
        ),
    ],
)
def test_other_systems(platform: str, folders: dict[str, str], home: Path) -> None:
    around = Environment(platform, home, {})
    for store, folder in folders.items():
        write(home / folder / "m.gguf", GGUF + store.encode())
        assert names_of(store, around) == [str(home / folder / "m.gguf")]
    assert config_folder(around).is_relative_to(home) and data_folder(around).is_relative_to(home)


def test_own_folders(home: Path) -> None:
    write(home / "more/deep/x-Q5_K_M.gguf")
    write(home / ".config/edgellm/models.toml", b'schema = 1\nfolders = ["~/more", "~nobody-of-this-name/x"]\n')
    write(models_folder() / "mine.gguf", GGUF + b"1")
    assert names_of("folders") == ["mine", str(home / "more/deep/x-Q5_K_M.gguf")]
    assert resolve("mine") == models_folder() / "mine.gguf"


def test_each_model_once(home: Path) -> None:
    place = in_hub(home, "o/r", "m-Q8_0.gguf")
    in_ollama(home / ".ollama/models", "registry.ollama.ai/library/m/latest")  # the same sha256
    link = home / ".lmstudio/models/p/r/m.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(place)  # the same file
    hard = home / ".cache/llama.cpp/m.gguf"
    hard.parent.mkdir(parents=True)
    os.link(place.resolve(), hard)  # the same inode
    other = write(home / ".local/share/nomic.ai/GPT4All/m.gguf")  # a copy: nothing tells for free
    models = [model for model in stores.scan() if model.store != bundled.NAME]
    assert [(model.found.name, model.store, model.also) for model in models] == [
        ("hf:o/r:m-Q8_0.gguf", "Hugging Face cache", ("Ollama", "LM Studio", "llama.cpp")),
        (str(other), "GPT4All", ()),
    ]


def test_every_name_that_the_user_gave_is_listed(home: Path) -> None:
    place = in_hub(home, "o/r", "m-Q8_0.gguf")
    for name in ("a", "b"):
        (models_folder() / f"{name}.gguf").parent.mkdir(parents=True, exist_ok=True)
        os.link(place.resolve(), models_folder() / f"{name}.gguf")
    models = [(model.found.name, model.store, model.same_as) for model in stores.scan() if model.store != bundled.NAME]
    of_hub = "hf:o/r:m-Q8_0.gguf"
    assert models == [(of_hub, "Hugging Face cache", ""), ("a", "own folder", of_hub), ("b", "own folder", of_hub)]


@pytest.mark.parametrize(
    "name, type_name",
    [
        ("x-q8-0", "Q8_0"),
        ("x-q4-k-m", "Q4_K_M"),
        ("x-iq4-xs", "IQ4_XS"),
        ("x-q3-k-xl", "Q3_K_XL"),
        ("x-q6-k", "Q6_K"),
        ("x-bf16", "BF16"),
        ("x-q8-v2", "Q8"),
        ("travel", ""),
    ],
)
def test_types_in_names_without_underscores(name: str, type_name: str, home: Path) -> None:
    write(models_folder() / f"{name}.gguf")
    assert [one.type for one in stores.named("folders")] == [type_name]


def test_what_cannot_be_read_is_skipped(home: Path) -> None:
    folder = home / ".lmstudio/models/p/r"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "fifo.gguf")
    (folder / "loop.gguf").symlink_to("loop.gguf")
    (folder / "folder.gguf").mkdir()
    write(folder / "empty.gguf", b"")
    (folder / "up").symlink_to(home)
    good = write(folder / "good.gguf")
    assert names_of("lm_studio") == [str(good)]


def test_a_catalogue_name_finds_the_file_of_another_program(home: Path) -> None:
    name = "Llama-3.2-1B-Instruct-Q4_0.gguf"
    path = home / ".local/share/nomic.ai/GPT4All" / name
    write(path)
    os.truncate(path, 773025920)  # its size in the catalogue: sparse, no bytes are written
    assert resolve("llama3.2-1b:Q4_0") == path
    assert stores.same_file(FilePart(name, 773025921)) is None and stores.same_file(FilePart("other.gguf", 773025920)) is None
    digest = hashlib.sha256(GGUF).hexdigest()
    blob = in_ollama(home / ".ollama/models", "registry.ollama.ai/library/x/latest")
    assert stores.same_file(FilePart("any.gguf", len(GGUF), digest)) == blob
    assert stores.same_file(FilePart("any.gguf", len(GGUF), "b" * 64)) is None


def installed_path(name: str) -> Path | None:
    """The file that a request to the server gets by this name."""
    found = edgellm.find_installed(name)
    return found.path if found is not None else None


@pytest.mark.parametrize("typed", ["tinychat", "tinychat:latest", "TinyChat", "ollama:tinychat"])
def test_names_of_ollama_with_and_without_their_tag(typed: str, home: Path) -> None:
    blob = in_ollama(home / ".ollama/models", "registry.ollama.ai/library/tinychat/latest")
    assert resolve(typed) == blob == installed_path(typed)


def test_names_that_other_programs_show(home: Path) -> None:
    hub = in_ollama(home / ".ollama/models", "hf.co/foo/bar/Q8_0", GGUF + b"1")
    assert resolve("hf.co/foo/bar:Q8_0") == hub
    file = write(home / ".lmstudio/models/lmstudio-community/Fox-1B-GGUF/Fox-1B-Q4_K_M.gguf", GGUF + b"2")
    for name in ("Fox-1B-Q4_K_M", "fox-1b-q4_k_m.gguf", "lmstudio-community/Fox-1B-GGUF"):
        assert resolve(name) == file
        assert installed_path(name) == file
    assert installed_path("hf.co/foo/bar:Q8_0") == hub
    assert installed_path(str(file)) == file and installed_path(f"../{file.name}") is None, "names in the list, but no paths"
    older = write(home / ".cache/llama.cpp/ggml-org_owl-Q8_0.gguf", GGUF + b"3")
    assert resolve("ggml-org_owl-Q8_0") == older == installed_path("ggml-org_owl-Q8_0")
    write(home / ".lmstudio/models/other/Fox/Fox-1B-Q4_K_M.gguf", GGUF + b"4")
    with pytest.raises(ModelNotFound, match=r"several models here; give the path of one: .*Fox-1B-GGUF.*other/Fox"):
        resolve("Fox-1B-Q4_K_M")
    with pytest.raises(ModelNotFound, match="several models here"):
        installed_path("Fox-1B-Q4_K_M")


def test_all_tags_of_a_blob_are_listed_and_rm_names_the_one_that_was_typed(home: Path) -> None:
    for tag in ("latest", "work", "q8_0"):
        in_ollama(home / ".ollama/models", f"registry.ollama.ai/library/tiny/{tag}")
    listed = {model.found.name: model.same_as for model in stores.scan()}
    assert listed.keys() >= {"ollama:tiny", "ollama:tiny:work", "ollama:tiny:q8_0"}
    for tag in ("tiny:work", "ollama:tiny:work"):
        with pytest.raises(OptionError, match=r"use: ollama rm tiny:work$"):
            find_removable(tag)


def test_models_inside_python_packages(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = home / "venv/lib/python3/site-packages"
    path = write(site / "llm_tiny/tiny.gguf", GGUF + b"5")
    monkeypatch.setattr("sys.path", [str(site), str(home)])
    [found] = stores.named("packages")
    assert found.path == path and resolve("tiny") == path
