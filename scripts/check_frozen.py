"""Freezes a program that uses edgellm with PyInstaller, as one folder and as one file, and lets both answer where no Python is.

The wheel is built and installed into a fresh environment, as an app's makers do it; the hook comes with the wheel. Each program
opens a model by its path and the guide by its name, constrains answers, calls tools, embeds, reads a picture, serves its page, runs
on asyncio and resumes a session, and must say what edgellm says unfrozen.
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
import asyncio
import sys
from typing import Literal

import uvicorn

import edgellm
from edgellm.server.app import create_app
from edgellm.server.models import Models
from edgellm.server.settings import Settings

ASK = [{"role": "user", "content": "hello"}]


def weather(city: Literal["Oslo", "Rome"]) -> str:
    'The weather of a city.'
    return f"rain in {city}"


for name in sys.argv[1:]:
    with edgellm.load(name, context=128, threads=1) as model:
        print(edgellm.__version__, model.generate("Once", max_tokens=8, temperature=0).token_ids)
with edgellm.load(sys.argv[1], context=512, threads=1) as model:
    answer = model.generate("Once", schema={"type": "boolean"}, temperature=0)
    print(answer.text, answer.parsed, model.generate("Once", choices=["yes", "no"], temperature=0).text)
    called = model.chat(ASK, tools=[weather], tool_choice="required", max_tokens=200, temperature=0)
    print([(call.name, sorted(call.arguments)) for call in called.tool_calls])
    print(asyncio.run(model.agenerate("Once", max_tokens=8, temperature=0)).token_ids)
    with model.session() as session:
        session.generate("Once upon", max_tokens=4, temperature=0)
        session.save("saved.session")
    with model.resume("saved.session") as session:
        print(session.n_tokens, session.generate("Once upon", max_tokens=4, temperature=0).stats.cached_tokens)
with edgellm.load(sys.argv[1], pooling="mean", threads=1) as model:
    print(model.embed(["one", "two"]).shape)
with edgellm.load(sys.argv[1], context=512, threads=1) as model:
    print(model.embed_image(sys.argv[1].replace("model.gguf", "cat.jpg")).shape)


async def served():
    settings, said = Settings(models=(sys.argv[1],)), []
    models = Models(settings)
    await models.start()
    config = uvicorn.Config(create_app(models, settings))
    config.load()

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        said.append(message.get("status", len(message.get("body", b"")) > 0))

    for path in ("/", "/v1/models"):
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "http"}
        scope |= {"headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 11535)}
        await config.loaded_app(scope | {"asgi": {"version": "3.0"}, "http_version": "1.1", "root_path": ""}, receive, send)
    await models.close()
    return said


print(asyncio.run(served()))
"""
TEMPLATE = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
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
    from PIL import Image
    from tiny_models import tiny_model
    from tiny_projectors import encoded, projector_file

    controls = ("<tool_call>", "</tool_call>")
    model = tiny_model(folder / "model.gguf", "llama", "Q8_0", tokenizer="bpe", template=TEMPLATE, controls=controls)
    projector_file(folder / "mmproj-model.gguf", "idefics3")
    (folder / "cat.jpg").write_bytes(encoded(Image.new("RGB", (80, 60), (200, 120, 40)), "JPEG"))
    environment = folder / "venv"
    venv.create(environment, with_pip=True)
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{build(folder)}[serve]", PYINSTALLER)
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
    """A program's output for both models, in an empty home and with no Python on the path."""
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
