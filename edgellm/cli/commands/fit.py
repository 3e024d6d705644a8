"""`edgellm fit`: which models this machine can run, how fast, and what one of them needs, before anything is fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgellm.cli import completion, options
from edgellm.cli.terminal.progress import ProgressLine
from edgellm.errors import DownloadError, FormatError, ModelNotFound
from edgellm.options import loading

if TYPE_CHECKING:
    from edgellm.bench.fit import Fit, Guess
    from edgellm.formats.gguf import GGUFFile

FASTEST = 1000  # tokens a second; beyond, sampling and text take longer than the model
Facts = dict[str, Any]  # Any: strings, numbers and tables, as JSON has them


@options.takes(loading.CONTEXT, loading.THREADS)
def fit(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE|hf:OWNER/REPO]",
            callback=options.understood,
            autocompletion=completion.all_names,
            help="As for run; the model need not be on this machine. Default: the whole catalogue.",
        ),
    ] = None,
    chosen: options.Chosen = options.NONE,
    timing: Annotated[bool, typer.Option("--timing/--no-timing", help="Measure or estimate the speed.")] = True,
    json_: options.Json = False,
) -> None:
    """Show what fits into memory. Also shows how fast it runs.

    Only the model's header is read, also from the hub (a few megabytes). Speed is measured on this machine in about two
    seconds, with the model's own kernels on synthetic weights. Without a model, the catalogue is listed, sorted by
    memory; those figures are estimated from file sizes and from this machine's memory bandwidth.

    \b
    edgellm fit
    edgellm fit qwen3-4b
    edgellm fit hf:ggml-org/SmolLM3-3B-GGUF:Q4_K_M --context 32768
    """
    import json

    if model is None:
        guesses = _catalogue(timing)
        print(json.dumps([_guess_facts(one) for one in guesses], indent=2) if json_ else _catalogue_page(guesses))
        return
    facts = _model_facts(model, chosen.values.get("context"), chosen.values.get("threads"), timing)
    print(json.dumps(facts, indent=2) if json_ else _model_page(facts))


def _catalogue(timing: bool) -> list[Guess]:
    """The default file of every entry, smallest first; last those that cannot be run yet."""
    from edgellm.bench.fit import guess, order
    from edgellm.bench.speed import speed
    from edgellm.catalogue.machine import memory
    from edgellm.catalogue.registry import entries

    free = memory()
    with ProgressLine("measuring memory bandwidth") as progress:
        rate = speed(progress) if timing else None
    shown = [entry for entry in entries().values() if entry.kind != "test"]
    return sorted((guess(entry, file, rate, free) for entry in shown if (file := entry.file())), key=order)


def _guess_facts(one: Guess) -> Facts:
    return {
        "name": one.entry.name,
        "kind": one.entry.kind,
        "parameters": one.entry.parameters,
        "type": one.file.type,
        "bytes": one.file.size,
        "memory": one.memory,
        "tokens_per_second": one.tokens_per_second or None,
        "fits": one.fits,
        "context": one.entry.context,
        "licence": one.entry.licence,
        "tags": list(one.entry.tags),
    }


def _catalogue_page(guesses: list[Guess]) -> str:
    from edgellm.bench.fit import NOT_YET, best_of
    from edgellm.catalogue.machine import memory
    from edgellm.cli.terminal.format_stats import size
    from edgellm.cli.terminal.table import table, wrapped

    rows = [
        (
            one.entry.name,
            one.entry.parameters,
            one.file.type,
            size(one.file.size),
            size(one.memory),
            f"{one.tokens_per_second:.0f}" if one.tokens_per_second else "",
            one.fits,
            one.entry.licence,
            " ".join((one.entry.kind,) * (one.entry.kind != "chat") + one.entry.tags),
        )
        for one in guesses
    ]
    head = ("name", "parameters", "type", "download", "memory", "tokens/s", "fits", "licence", "")
    best = best_of(guesses)
    fast = " and writes as fast as you read" if any(one.tokens_per_second for one in guesses) else ""
    advice = (
        f"The largest that fits{fast}: edgellm pull {best.entry.name}"
        if best
        else "None fits with room to spare: close other programs, or take a small one."
    )
    later = f" {NOT_YET}: edgellm cannot run it so far." if any(one.fits == NOT_YET for one in guesses) else ""
    note = (
        f"{size(memory().available)} of memory are free; memory and speed are estimates for a context of 4096, "
        f"edgellm fit NAME says more.{later}"
    )
    return f"{table(head, rows, right=(1, 3, 4, 5), optional=(8, 7, 1, 2, 3))}\n\n{wrapped(note)}\n{wrapped(advice)}"


def _model_facts(name: str, context: int | None, threads: int | None, timing: bool) -> Facts:
    from edgellm.backends import find
    from edgellm.bench import fit as fitting
    from edgellm.bench.speed_probe import tokens_per_second
    from edgellm.loading.backend_choice import reader

    gguf, here, projector = _open(name, threads)
    with gguf:
        result = fitting.fit(gguf, context=context, threads=threads, projector=projector)
        rate = None
        if timing and result.best is not None and reader(gguf) is find("cpu"):
            with ProgressLine(f"timing {name}") as progress:
                rate = tokens_per_second(gguf, threads=threads, progress=progress)
        return {
            "name": name,
            "file": str(gguf.path),
            "here": here,
            "bytes": gguf.nbytes,
            "projector": projector,
            "architecture": gguf.metadata.get("general.architecture"),
            "runs": result.refusal or True,
            "context_length": result.trained,
            "free": result.free.available,
            "usable": result.free.usable,
            "memory": [
                {
                    "context": row.context,
                    "kv_type": row.kv_type,
                    "bytes": row.need.total,
                    "weights": row.need.weights,
                    "kv": row.need.kv,
                    "work": row.need.work,
                    "base": row.need.base,
                    "fits": row.fits,
                }
                for row in result.rows
            ],
            "tokens_per_second": rate,
            "advice": _advice(name, result, here),
        }


def _open(name: str, threads: int | None) -> tuple[GGUFFile, bool, int]:
    """The model, or its header on the hub; whether it is on this machine; and the bytes of memory that its projector takes."""
    from edgellm.catalogue import resolve
    from edgellm.catalogue.names import entry_of
    from edgellm.checkpoints.opening import open_model

    try:
        gguf = open_model(resolve(name))
        return gguf, True, _projector_bytes(gguf, threads)
    except ModelNotFound:
        if entry_of(name) is None and not name.startswith("hf:"):
            raise
    from edgellm.catalogue.remote import open_remote

    try:
        with ProgressLine(f"reading the header of {name}"):
            gguf, projector = open_remote(name)
            return gguf, False, projector
    except DownloadError as error:
        if entry_of(name) is None:
            raise
        raise DownloadError(f"{error} (edgellm fit, without a name, estimates offline)") from error


def _projector_bytes(gguf: GGUFFile, threads: int | None) -> int:
    """Memory of the projector that lies beside a model, 0 without one that can be used."""
    from pathlib import Path

    from edgellm.hparams import Keys
    from edgellm.loading.projector import find_projector

    try:
        path = find_projector(Path(gguf.path), Keys(gguf).n_embd, None)
        if path is None:
            return 0
        from edgellm.loading.encoder_memory import memory_of

        return memory_of(path, threads)
    except FormatError:
        return 0


def _advice(name: str, result: Fit, here: bool) -> str:
    from edgellm.bench.fit import instead

    best = result.best
    other = instead(result.free)
    another = f"; {other.name} does: edgellm fit {other.name}" if other is not None and other.name != name else ""
    if result.refusal:
        return f"it cannot be run: {result.refusal.removesuffix('.')}"
    if best is None:
        return f"it does not fit into the {result.free.usable / 1e9:.1f} GB that can be used{another}"
    fetch = "" if here else f"edgellm pull {name}, then "
    longer = f" -c {best.context}" if best.context > min(4096, result.trained) else ""
    smaller = f" --kv-type {best.kv_type}" if best.kv_type != "f16" else ""
    if result.embeds:
        return f"it fits: {fetch}edgellm embed {name}{longer} lines.txt"
    return f"it fits: {fetch}edgellm chat {name}{longer}{smaller}"


def _model_page(facts: Facts) -> str:
    from edgellm.cli.terminal.filter import clean
    from edgellm.cli.terminal.format_stats import size
    from edgellm.cli.terminal.table import table, wrapped

    where = "on this machine" if facts["here"] else "not fetched yet"
    images = f", with {size(facts['projector'])} for its projector" if facts["projector"] else ""
    lines = [wrapped(clean(f"{facts['name']}: {facts['architecture']}, {size(facts['bytes'])}, {where}{images}"))]
    if facts["memory"]:
        types = list(dict.fromkeys(row["kv_type"] for row in facts["memory"]))
        cells = {(row["context"], row["kv_type"]): size(row["bytes"]) + ("" if row["fits"] else " (no)") for row in facts["memory"]}
        contexts = list(dict.fromkeys(row["context"] for row in facts["memory"]))
        lines += [
            "",
            table(
                ("context", *(f"memory ({kind})" for kind in types)),
                [(str(n), *(cells[n, kind] for kind in types)) for n in contexts],
                right=range(len(types) + 1),
                optional=range(len(types), 2, -1),
            ),
            "",
        ]
        lines.append(wrapped(f"{size(facts['free'])} of memory are free, {size(facts['usable'])} can be used."))
    if rate := facts["tokens_per_second"]:
        speed = f"About {rate:.3g}" if rate < FASTEST else f"More than {FASTEST}"
        lines.append(wrapped(f"{speed} tokens/s, timed on this machine with synthetic weights."))
    lines.append(wrapped(clean(facts["advice"][0].upper() + facts["advice"][1:] + ".")))
    return "\n".join(lines)
