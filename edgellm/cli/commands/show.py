"""`edgellm show`: what a model file is, from its header alone."""

from __future__ import annotations

import math
from collections.abc import Sized
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgellm.cli import options
from edgellm.cli.terminal.filter import clean
from edgellm.cli.terminal.table import wrapped
from edgellm.errors import EdgeError, OptionError
from edgellm.options import loading

if TYPE_CHECKING:
    from edgellm.formats.gguf import GGUFFile

Facts = dict[str, Any]  # Any: strings, numbers and tables, as JSON has them
LONGEST_VALUE = 4096  # characters of one metadata value in --json; templates are longer


@options.takes(loading.CONTEXT)
def show(
    model: options.Model,
    graph: Annotated[bool, typer.Option("--graph", help="Print the graph of one step, after fusion.")] = False,
    tensors: Annotated[bool, typer.Option("--tensors", help="List the tensors.")] = False,
    json_: options.Json = False,
    chosen: options.Chosen = options.NONE,
) -> None:
    """Describe a model file.

    Shows architecture, size, types, vocabulary, and whether it runs here. Only the file's header is read;
    --graph also builds the graph, but loads nothing.
    """
    import json

    if graph and (tensors or json_):
        raise OptionError("--graph prints text of its own: leave out --tensors and --json")
    from edgellm.catalogue import resolve

    path = resolve(model)
    from edgellm.checkpoints.opening import open_model  # brings NumPy, which a mistyped name need not wait for

    with open_model(path) as gguf:
        if graph:
            print(_graph_text(gguf, chosen.values.get("context")))
        elif json_:
            facts = _facts(gguf) | {"metadata": _metadata(gguf)} | ({"tensors": _tensors(gguf)} if tensors else {})
            print(json.dumps(_finite(facts), indent=2, allow_nan=False))
        elif tensors:
            for row in _tensors(gguf):
                shape = " x ".join(map(str, row["shape"]))
                print(f"{row['type']:<8} {shape:<16} {row['bytes']:>12}  {clean(row['name'])}")
        else:
            print(_page(_facts(gguf)))


def _graph_text(gguf: GGUFFile, context: int | None) -> str:
    from edgellm.arch import load_graph
    from edgellm.arch._projector import graphs_of
    from edgellm.arch.vision import is_projector
    from edgellm.passes import optimise, optimise_encoder

    if is_projector(gguf):
        return "\n\n".join(str(optimise_encoder(graph)) for graph in graphs_of(gguf))
    return str(optimise(load_graph(gguf, context)[1]))


def _facts(gguf: GGUFFile) -> Facts:
    """The header in JSON's types; a key that the file lacks is null."""
    from edgellm.arch.vision import is_projector
    from edgellm.formats.gguf_file_type import bytes_by_type

    architecture, projector = gguf.metadata.get("general.architecture"), is_projector(gguf)
    seeing = "clip.vision.block_count" in gguf.metadata
    prefix = "clip.vision" if projector and seeing else "clip.audio" if projector else architecture
    tokens, template = gguf.metadata.get("tokenizer.ggml.tokens"), gguf.metadata.get("tokenizer.chat_template")

    def header(key: str) -> str | int | float | None:
        value = gguf.metadata.get(key)
        return value if isinstance(value, str | int | float) else None

    types = bytes_by_type(gguf)
    return {
        "name": header("general.name"),
        "file": str(gguf.path),
        "bytes": gguf.nbytes,
        "gguf_version": gguf.version,
        "architecture": architecture,
        "runs": _refusal(gguf) or True,
        "parameters": sum(math.prod(info.shape) for info in gguf.tensors.values()),
        "n_tensors": len(gguf.tensors),
        "bytes_by_type": dict(sorted(types.items(), key=lambda item: -item[1])),
        "context_length": header(f"{prefix}.context_length"),
        "layers": header(f"{prefix}.block_count"),
        "width": header(f"{prefix}.embedding_length"),
        "projector": projector and (header("clip.projector_type") or header("clip.vision.projector_type")),
        "image": projector and seeing and _image(gguf),
        "audio": projector and _audio(gguf),
        "tokens": len(tokens) if isinstance(tokens, Sized) and not isinstance(tokens, str) else None,
        "tokenizer": header("tokenizer.ggml.model"),
        "pre_tokenizer": header("tokenizer.ggml.pre"),
        "chat_template": isinstance(template, str),
        "licence": header("general.license"),
        "memory": None if projector else _memory(gguf),
    }


def _refusal(gguf: GGUFFile) -> str:
    """Why the model cannot be run, or ""."""
    from edgellm.arch import load_graph
    from edgellm.arch._projector import graphs_of
    from edgellm.arch.vision import is_projector

    try:
        graphs_of(gguf) if is_projector(gguf) else load_graph(gguf)
    except EdgeError as error:
        return str(error).removeprefix(f"{gguf.path}: ")
    return ""


def _image(gguf: GGUFFile) -> str | None:
    """The images that a projector takes, in words; None for one that can't be run."""
    from edgellm.arch.vision import load_encoder

    try:
        keys, _, _, spec = load_encoder(gguf)
    except EdgeError:
        return None
    size = f"{spec.size} x {spec.size}" if spec.size else f"multiples of {spec.side_multiple}"
    free = spec.most_rows > 1 and not spec.size
    rows = f"up to {spec.most_rows} tokens" if free else f"{(spec.size // spec.side_multiple) ** 2} tokens each"
    beside = f", beside up to {spec.most_tiles} tiles of {spec.tile_size} x {spec.tile_size}" if spec.tile_size else ""
    return f"{'tiles of ' if spec.tile else ''}{size} pixels, {rows}, {keys.n_out} wide{beside}"


def _audio(gguf: GGUFFile) -> str | None:
    """The audio that a projector takes, in words; None for one without an encoder that can be run."""
    from edgellm.arch._projector import media_of
    from edgellm.arch.audio import load_encoder

    try:
        if not media_of(gguf)[1]:
            return None
        keys, _, _, spec = load_encoder(gguf)
    except EdgeError:
        return None
    made = f"frames of {spec.bins} samples" if spec.features == "samples" else f"{spec.bins} mel bins"
    parts = f" in parts of {spec.window / 100:g} s" if spec.window and spec.features != "samples" else ""
    return f"{keys.projector_type}, {made}{parts}, {keys.n_out} wide"


def _memory(gguf: GGUFFile) -> Facts | None:
    """The memory that the model needs at a usual context, and whether it is there; None for one that cannot be run."""
    from edgellm.bench.fit import fit

    row = next((row for row in fit(gguf).rows if row.kv_type == "f16"), None)  # the first is the context that chats get
    return {"context": row.context, "bytes": row.need.total, "fits": row.fits} if row else None


def _tensors(gguf: GGUFFile) -> list[Facts]:
    return [
        {"name": info.name, "type": info.type.name, "shape": list(info.shape), "bytes": info.nbytes}
        for info in gguf.tensors.values()
    ]


def _metadata(gguf: GGUFFile) -> Facts:
    """Every key; of arrays only the length, of long texts only the beginning."""
    result: Facts = {}
    for key, value in gguf.metadata.items():
        if isinstance(value, str):
            result[key] = value if len(value) <= LONGEST_VALUE else value[:LONGEST_VALUE] + "..."
        elif isinstance(value, int | float | bool):
            result[key] = value
        else:
            result[key] = {"length": len(value)}
    return result


def _finite(value: Any) -> Any:  # Any: as in Facts
    """The same with texts for NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _page(facts: Facts) -> str:
    """The facts as a page of text; fields that the file lacks are left out."""
    from edgellm.cli.terminal.format_stats import count, size

    share = {name: n / (sum(facts["bytes_by_type"].values()) or 1) for name, n in facts["bytes_by_type"].items()}
    tokenizer = " ".join(str(facts[key]) for key in ("tokenizer", "pre_tokenizer") if facts[key])
    need = facts["memory"]
    lines = {
        "name": facts["name"],
        "file": f"{facts['file']} ({size(facts['bytes'])}, GGUF version {facts['gguf_version']})",
        "architecture": facts["architecture"],
        "projector": facts["projector"] or None,
        "images": facts["image"] or None,
        "audio": facts["audio"] or None,
        "parameters": f"{count(facts['parameters'])} in {facts['n_tensors']} tensors",
        "types": ", ".join(f"{name} {part:.1%}" for name, part in share.items()) or None,
        "layers": facts["layers"],
        "width": facts["width"],
        "context": facts["context_length"] and f"{facts['context_length']} tokens",
        "vocabulary": facts["tokens"] and f"{facts['tokens']} tokens ({tokenizer})",
        "chat template": None if facts["projector"] else "yes" if facts["chat_template"] else "no",
        "licence": facts["licence"],
        "memory": need and f"{size(need['bytes'])} at a context of {need['context']}{'' if need['fits'] else ', not free'}",
        "runs here": "yes" if facts["runs"] is True else f"no: {facts['runs']}",
    }
    return "\n".join(wrapped(f"{name:<14} {clean(str(value))}", 15) for name, value in lines.items() if value is not None)
