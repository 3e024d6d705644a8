"""The commands around models on disk: pull, list, path, rm, import, fit, doctor; what they print, do, and refuse."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import LocalHub, cut
from tiny_models import tiny_model
from tiny_projectors import OUT, projector_file

from edgellm.backends.base import BackendOptions
from edgellm.backends.cpu import system
from edgellm.bench import doctor
from edgellm.catalogue import importing, machine
from edgellm.catalogue.importing import import_model
from edgellm.catalogue.names import resolve
from edgellm.cli import app
from edgellm.errors import Unreadable

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing in it but the kernels that are compiled already."""
    for variable in ("HF_HUB_CACHE", "EDGELLM_CONFIG", "EDGELLM_DATA", "OLLAMA_MODELS", "LLAMA_CACHE", "HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HF_TOKEN", "HF_HOME", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "tiny-Q8_0.gguf", "llama", "Q8_0", tokenizer="bpe")


@pytest.fixture
def server(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with LocalHub() as hub:
        hub.put("o/tiny", model.name, model.read_bytes())
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def run(capsys: Captured, *arguments: str, code: int = 0) -> tuple[str, str]:
    """stdout and stderr of one command."""
    assert app.run(arguments) == code
    printed = capsys.readouterr()
    return printed.out, printed.err


def test_from_the_hub_to_a_path_and_away(server: LocalHub, home: Path, model: Path, capsys: Captured) -> None:
    out, err = run(capsys, "pull", "hf:o/tiny")
    path = Path(out.strip())
    assert path.read_bytes() == model.read_bytes() and err == f"fetching {model.name} (110 kB)\n"
    assert run(capsys, "pull", "hf:o/tiny") == (f"{path}\n", "hf:o/tiny is here already\n")
    assert json.loads(run(capsys, "pull", "hf:o/tiny", "--json")[0]) == {"name": "hf:o/tiny", "path": str(path), "fetched": 0}
    assert run(capsys, "path", "hf:o/tiny")[0] == f"{path}\n"
    assert json.loads(run(capsys, "path", "hf:o/tiny:Q8_0", "--json")[0])["path"] == str(path)
    head, row, bundled = run(capsys, "list")[0].splitlines()
    assert head.split() == ["name", "type", "size", "where", "fits"]
    assert bundled.startswith("guide ")
    assert row.split() == [f"hf:o/tiny:{model.name}", "Q8_0", "110", "kB", "Hugging", "Face", "cache", "yes"]
    assert "runs here" in run(capsys, "show", "hf:o/tiny")[0]
    assert "can't ask for confirmation" in run(capsys, "rm", "hf:o/tiny", code=2)[1] and path.exists()
    assert "110 kB are free again" in run(capsys, "rm", "hf:o/tiny", "--yes")[1]
    assert not path.exists() and not list((home / "hf_hub_cache").rglob("blobs/*"))
    out, err = run(capsys, "list")
    assert [line.split()[0] for line in out.splitlines()] == ["name", "guide"] and "edgellm pull NAME" in err
    assert "edgellm pull" in run(capsys, "path", "hf:o/tiny", code=3)[1]


def test_a_second_run_continues(server: LocalHub, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.catalogue.hub.time.sleep", lambda seconds: None)
    server.misbehave(*(cut(10_000),) * 2, *(cut(0),) * 10)
    monkeypatch.setattr("edgellm.catalogue.hub.HttpLimits", lambda: pulled_limits)
    from edgellm.catalogue.connection import HttpLimits

    pulled_limits = HttpLimits(tries=3, pause=0.0)
    assert "resumes from there" in run(capsys, "pull", "hf:o/tiny", code=3)[1]
    server.misbehave()
    assert "(110 kB, 20 kB of it are here)" in run(capsys, "pull", "hf:o/tiny")[1]


def test_on_a_terminal_there_is_a_bar(server: LocalHub, home: Path) -> None:
    main, terminal = pty.openpty()
    code = "import sys; from edgellm.cli.app import run; sys.exit(run(['pull', 'hf:o/tiny']))"
    done = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=terminal, stdin=subprocess.DEVNULL, text=True
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            block = os.read(main, 4096)
        except OSError:  # the child closed its side
            break
        if not block:
            break
        shown += block
    out = done.communicate()[0]
    os.close(main)
    assert done.returncode == 0 and Path(out.strip()).is_file()
    assert b"tiny-Q8_0.gguf" in shown and "━".encode() in shown and b"kB" in shown


def test_rm_takes_only_what_is_ours(server: LocalHub, home: Path, model: Path, capsys: Captured) -> None:
    path = Path(run(capsys, "pull", "hf:o/tiny")[0].strip())
    (home / "edgellm_data" / "fetched.json").unlink()  # as if another program had fetched it
    assert "was not put there by edgellm" in run(capsys, "rm", "hf:o/tiny", "--yes", code=2)[1] and path.exists()
    other = path.parents[1] / ("d" * 40) / path.name  # another version with the same bytes
    other.parent.mkdir()
    other.symlink_to(os.path.relpath(path.resolve(), other.parent))
    blob = path.resolve()
    assert json.loads(run(capsys, "rm", "hf:o/tiny", "--yes", "--force", "--json")[0])["freed"] == 0
    assert not path.exists() and other.is_file() and blob.is_file()
    run(capsys, "rm", "hf:o/tiny", "--yes", "--force")
    assert not blob.exists()
    assert "was not put there" in run(capsys, "rm", str(model), "--yes", code=2)[1] and model.exists()
    run(capsys, "rm", "qwen3-0.6b", "--yes", code=3)


def test_rm_leaves_ollama_alone(home: Path, model: Path, capsys: Captured) -> None:
    blob = home / "ollama_models/blobs" / ("sha256-" + "a" * 64)
    manifest = home / "ollama_models/manifests/registry.ollama.ai/library/tiny/latest"
    for folder in (blob.parent, manifest.parent):
        folder.mkdir(parents=True)
    blob.write_bytes(model.read_bytes())
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + "a" * 64}
    manifest.write_text(json.dumps({"layers": [layer]}))
    for name in ("ollama:tiny", str(blob)):
        assert "ollama rm tiny" in run(capsys, "rm", name, "--yes", "--force", code=2)[1]
    assert "runs here" in run(capsys, "show", "ollama:tiny")[0]
    assert run(capsys, "list")[0].splitlines()[1].startswith("ollama:tiny")


def test_rm_asks_on_a_terminal(server: LocalHub, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(run(capsys, "pull", "hf:o/tiny")[0].strip())
    for answer, code in (("n\n", 1), ("y\n", 0)):
        stdin = io.StringIO(answer)
        monkeypatch.setattr(stdin, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", stdin)
        assert path.exists()
        said = run(capsys, "rm", "hf:o/tiny", code=code)[1]
        assert ("nothing was removed" in said) == (code == 1)
    assert not path.exists()


@pytest.mark.parametrize("copy", [False, True])
def test_import(copy: bool, model: Path, capsys: Captured) -> None:
    out, err = run(capsys, "import", str(model), *(["--copy"] if copy else []))
    target = Path(out.strip())
    assert "edgellm chat tiny-q8-0" in err or "edgellm chat tiny-q8_0" in err
    name = target.stem
    assert resolve(name) == target and target.read_bytes() == model.read_bytes() and target.samefile(model) is not copy
    assert "exists already" in run(capsys, "import", str(model), code=2)[1]
    assert run(capsys, "list")[0].splitlines()[1].split()[0] == name
    said = run(capsys, "rm", name, "--yes")[1]
    assert model.exists() and not target.exists() and ("no space was freed: the file has other names" in said) is not copy
    accented = model.with_name("Mödel à 中.gguf")
    accented.symlink_to(model)
    assert "edgellm chat model-a" in run(capsys, "import", str(accented))[1]
    assert json.loads(run(capsys, "import", str(model), "mine", "--json")[0])["name"] == "mine"


@pytest.mark.parametrize("copy", [False, True])
def test_import_takes_the_projector_along(copy: bool, tmp_path: Path, capsys: Captured) -> None:
    model = tiny_model(tmp_path / "m.gguf", "llama", "F32", tokenizer="bpe", n_embd=OUT)
    own = projector_file(tmp_path / "mmproj-m.gguf", "idefics3")
    out = run(capsys, "import", str(model), "seeing", *(["--copy"] if copy else []))[0]
    tiny_model(tmp_path / "blind.gguf", "llama", "F32", tokenizer="bpe")
    run(capsys, "import", str(tmp_path / "blind.gguf"))
    listed = {each["name"]: each["sees"] for each in json.loads(run(capsys, "list", "--json")[0])}
    assert listed["seeing"] is True and listed["blind"] is False
    projector = Path(out.strip()).with_name("mmproj-seeing.gguf")
    assert projector.read_bytes() == own.read_bytes()
    run(capsys, "rm", "seeing", "--yes")
    assert own.exists() and not projector.exists()


def test_import_across_disks(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_disk(source: object, target: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)
    name, path = import_model(model, "far")
    assert name == "far" and path.is_symlink() and path.samefile(model)


@pytest.mark.parametrize("ended", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_import_that_fails_leaves_no_parts(
    ended: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    whole = tiny_model(tmp_path / "m.gguf", "llama", "F32", tokenizer="bpe", n_embd=256, n_ff=256)
    run(capsys, "quantize", str(whole), str(tmp_path / "parts.gguf"), "F16", "--split-max-size", "1M")
    first = next(tmp_path.glob("parts-00001-of-*.gguf"))
    copies: list[Path] = []

    def copy(source: Path, target: Path, progress: object) -> None:
        if copies:
            raise ended
        target.write_bytes(source.read_bytes())
        copies.append(target)

    with monkeypatch.context() as patch:
        patch.setattr(importing, "_copy", copy)
        with pytest.raises((Unreadable, KeyboardInterrupt)):
            import_model(first, "parted", copy=True)
    assert copies and not copies[0].exists()
    name, path = import_model(first, "parted", copy=True)
    assert resolve(name) == path


@pytest.mark.parametrize("name", ["../x", "X", "a/b", "", ".", "..", "a..b", "-x", "qwen3-0.6b", "a\0b", "x" * 100])
def test_names_that_import_refuses(name: str, model: Path, home: Path, capsys: Captured) -> None:
    if name:
        assert run(capsys, "import", str(model), "--", name, code=2)[1].startswith("error: ")
    assert not list((home / "edgellm_data").rglob("*.gguf"))


def test_import_checks_the_file(tmp_path: Path, model: Path, capsys: Captured) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(model.read_bytes()[:-100])
    assert "damaged" in run(capsys, "import", str(damaged), code=3)[1]
    run(capsys, "import", str(tmp_path / "none.gguf"), code=3)
    run(capsys, "import", str(tmp_path), code=3)


def test_fit_of_a_file_and_of_the_hub(server: LocalHub, model: Path, home: Path, capsys: Captured) -> None:
    out = run(capsys, "fit", str(model))[0]
    assert "tokens/s" in out and "It fits: edgellm chat" in out and "pull" not in out
    facts = json.loads(run(capsys, "fit", "hf:o/tiny", "--no-timing", "--json")[0])
    assert facts["here"] is False and facts["runs"] is True and facts["tokens_per_second"] is None
    assert facts["advice"].startswith("it fits: edgellm pull hf:o/tiny, then edgellm chat hf:o/tiny")
    assert facts["memory"][0]["bytes"] == sum(facts["memory"][0][part] for part in ("weights", "kv", "work", "base"))
    assert not list((home / "hf_hub_cache").rglob("*")) and "(no)" not in run(capsys, "fit", "hf:o/tiny", "--no-timing")[0]


def test_fit_of_what_does_not_fit(model: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.bench.fit.memory", lambda: machine.Memory(1 << 20))
    out = run(capsys, "fit", str(model))[0]
    assert "(no)" in out and "It does not fit" in out and "tokens/s" not in out
    strange = tiny_model(model.parent / "s.gguf", "llama", metadata={"general.architecture": "mamba"})
    assert "It cannot be run" in run(capsys, "fit", str(strange))[0]
    assert "neither a file nor in the catalogue" in run(capsys, "fit", "no-such-model", code=3)[1]


def test_fit_lists_the_catalogue(capsys: Captured) -> None:
    lines = run(capsys, "fit", "--no-timing")[0].splitlines()
    assert lines[0].split()[:3] == ["name", "parameters", "type"] and "edgellm pull" in lines[-1]
    listed = json.loads(run(capsys, "fit", "--no-timing", "--json")[0])
    assert len(listed) > 30 and {one["fits"] for one in listed} <= {"yes", "tight", "no"}  # edgellm runs all of them
    memory = [one["memory"] for one in listed]
    assert memory == sorted(memory)
    assert all(one["kind"] != "test" for one in listed)


def test_fit_lists_what_cannot_be_run_last(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgellm.bench.fit.names", lambda: ["llama", "qwen3"])
    listed = json.loads(run(capsys, "fit", "--no-timing", "--json")[0])
    later = [one["fits"] == "not yet" for one in listed]
    assert later == sorted(later) and any(later) and not all(later)
    assert "not yet: edgellm cannot run it" in run(capsys, "fit", "--no-timing")[0].splitlines()[-2]
    for group in (True, False):
        memory = [one["memory"] for one in listed if (one["fits"] == "not yet") == group]
        assert memory == sorted(memory)


def test_fit_says_the_same_memory_in_the_table_and_alone(capsys: Captured) -> None:
    listed = json.loads(run(capsys, "fit", "--no-timing", "--json")[0])
    alone = json.loads(run(capsys, "fit", "guide", "--no-timing", "--json")[0])
    assert next(one["memory"] for one in listed if one["name"] == "guide") == alone["memory"][0]["bytes"]


def test_fit_of_a_tiny_model_uses_one_thread_as_load_does(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgellm.backends import HOST
    from edgellm.bench import speed_probe
    from edgellm.formats.gguf import open_gguf

    used, prepare = [], HOST.prepare

    def noted(graph: Any, weights: Any, layout: Any, options: BackendOptions, progress: Any = None) -> Any:
        used.append(options.threads)
        return prepare(graph, weights, layout, options, progress)

    monkeypatch.setattr(HOST, "prepare", noted)
    with open_gguf(model) as gguf:
        assert speed_probe.tokens_per_second(gguf, seconds=0.01) > 0
    assert used == [1]


def test_types_that_no_name_tells_come_from_the_header(tmp_path: Path, capsys: Captured) -> None:
    plain = tiny_model(tmp_path / "plain.gguf", "llama", "Q8_0", tokenizer="bpe")
    stated = tiny_model(tmp_path / "stated.gguf", "llama", "F32", tokenizer="bpe", metadata={"general.file_type": 15})
    for path in (plain, stated):
        import_model(path)
    listed = {one["name"]: one["type"] for one in json.loads(run(capsys, "list", "--json")[0])}
    assert listed["plain"] == "Q8_0" and listed["stated"] == "Q4_K_M"


class Terminal(io.StringIO):
    """A stdout that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_list_marks_models_that_see(tmp_path: Path, capsys: Captured) -> None:
    """Where a projector with rows of the right width lies beside the file."""
    _, path = import_model(tiny_model(tmp_path / "seeing.gguf", "llama", "F32", n_embd=OUT, tokenizer="bpe"))
    import_model(tiny_model(tmp_path / "plain.gguf", "llama", "F32", n_embd=2 * OUT, tokenizer="bpe"))
    projector_file(path.parent / "mmproj-other.gguf", "idefics3", projection_dim=3 * OUT)
    assert "sees" not in run(capsys, "list")[0]
    projector_file(path.parent / "mmproj-seeing.gguf", "idefics3")
    listed = {one["name"]: one["sees"] for one in json.loads(run(capsys, "list", "--json")[0])}
    assert listed == {"guide": False, "plain": False, "seeing": True}
    head, *rows = run(capsys, "list")[0].splitlines()
    assert head.split()[3] == "sees" and [row.split()[0] for row in rows if " images " in row] == ["seeing"]


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "--no-timing"],
        ["fit", "guide", "--no-timing"],
        ["list"],
        ["bench", "{model}", "-p", "4", "-n", "2", "-r", "1", "--profile"],
    ],
)
def test_pages_fit_narrow_terminals(
    arguments: list[str], width: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_model(tiny_model(tmp_path / "a.gguf", "llama", "F32", tokenizer="bpe"), "a-model-of-a-long-name-" + "x" * 30)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", shown := Terminal())
    assert app.run([argument.format(model=model) for argument in arguments]) == 0
    assert shown.getvalue() and max(map(len, shown.getvalue().splitlines())) <= width


def test_doctor(home: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = json.loads(run(capsys, "doctor", "--no-timing", "--json")[0])
    assert {one["what"] for one in listed} == {
        "processor",
        "cores",
        "instructions",
        "memory",
        "kernel cache",
        "MLX",
        "models",
        "catalogue",
        "hub",
        "terminal",
    }
    advice = {one["what"]: one["advice"] for one in listed}
    assert "edgellm pull" in advice["models"] and advice["memory"] is None
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("EDGELLM_ISA", "generic")
    monkeypatch.setattr(doctor, "memory", lambda: machine.Memory(1 << 20, 5 << 20))
    (home / "edgellm_config").mkdir()
    (home / "edgellm_config" / "models.toml").write_text("wrong")
    page = run(capsys, "doctor", "--no-timing")[0]
    for said in ("HF_HUB_OFFLINE is set", "close other programs", "models.toml cannot be used", "things to look at"):
        assert said in page
    if system.usable_isas()[-1] != "generic":
        assert "unset EDGELLM_ISA" in page
