"""Model files: handcrafted ones with the error each must end in, random mutations, and every cut."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import fuzz
import numpy as np
from gguf_cases import CASES
from rewriting import Parts, parts
from test_hparams import BAD_VALUES
from test_tokenizer_malformed import BAD
from tiny_models import tiny_model

import edgellm
from attacks import Figure, count
from edgellm.errors import EdgeError
from edgellm.formats.gguf import open_gguf

SECONDS, MEBIBYTES = 0.5, 64  # of one file that is refused
DATA_CUTS = 1000


@dataclass(frozen=True)
class Wrong:
    """A file that must be refused with an error of this class."""

    name: str
    data: bytes
    error: str


def _changed(path: Path, change: Callable[[Parts], object]) -> bytes:
    whole = parts(path)
    change(whole)
    return whole.file()


def wrong_models(folder: Path) -> Iterator[Wrong]:
    """Files that are sound GGUF, of models that cannot be."""
    bases = {arch: tiny_model(folder / f"{arch}.gguf", arch, tokenizer="spm", n_layers=2) for arch in ("llama", "gemma3")}
    ids_only = tiny_model(folder / "ids.gguf", "llama", n_layers=1)
    bpe = tiny_model(folder / "bpe.gguf", "llama", tokenizer="bpe", n_layers=1)
    for name, value in BAD_VALUES:
        arch = "gemma3" if name in ("rope.freq_base_swa", "attention.sliding_window_pattern") else "llama"
        base = ids_only if name == "vocab_size" else bases[arch]
        yield Wrong(f"{name} = {value!r}", _changed(base, lambda p, k=f"{arch}.{name}", v=value: p.set(k, v)), "BadHParam")
    for name, field, metadata in BAD:
        value = metadata.get(f"tokenizer.ggml.{field}")
        base = bpe if field in ("merges", "pre") else bases["llama"]
        if name not in (
            "one token is a number",
            "separator beyond",
            "the same byte twice",
            "add_bos without bos",
            "a byte token of another form",
            "no token ends",
        ):  # cannot be written, or hang on other keys
            if field in ("scores", "token_type") and isinstance(value, np.ndarray) and len(value) > 9:
                value = value[:-1] if "too many" not in name else value  # the file has one token less
            yield Wrong(
                f"vocabulary: {name}", _changed(base, lambda p, k=f"tokenizer.ggml.{field}", v=value: p.set(k, v)), "BadVocab"
            )
    whole = parts(bases["llama"])
    for tensor in whole.tensors:
        name = str(tensor.name)
        yield Wrong(
            f"{name} missing",
            _changed(bases["llama"], lambda p, n=name: p.tensors.remove(next(t for t in p.tensors if t.name == n))),
            "FormatError" if name != "output.weight" else "used",
        )
        longer = (tensor.dims[0] + 32, *tensor.dims[1:])
        yield Wrong(f"{name} longer", _changed(bases["llama"], lambda p, n=name, d=longer: p.change(n, dims=d)), "FormatError")
        if len(tensor.dims) > 1:
            flat = (tensor.dims[0] * tensor.dims[1],)
            yield Wrong(f"{name} flat", _changed(bases["llama"], lambda p, n=name, d=flat: p.change(n, dims=d)), "FormatError")
        else:
            yield Wrong(f"{name} in Q4_0", _changed(bases["llama"], lambda p, n=name: p.change(n, type=2)), "FormatError")
    for name, value, error in (
        ("no architecture", None, "FormatError"),
        ("architecture 5", 5, "FormatError"),
        ("an unknown architecture", "nonesuch", "Unsupported"),
    ):
        yield Wrong(name, _changed(bases["llama"], lambda p, v=value: p.set("general.architecture", v)), error)
    for name, value in (("template 5", 5), ("template without end", "{% for %}"), ("template of depth", "{{ " + "(" * 5000)):
        yield Wrong(name, _changed(bases["llama"], lambda p, v=value: p.set("tokenizer.chat_template", v)), "TemplateError")


def sound_models(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Odd files that must be used."""
    path = tiny_model(folder / "base.gguf", "llama", tokenizer="spm", n_layers=1)

    def changed(change: Callable[[Parts], object]) -> bytes:
        whole = parts(path, with_data=True)
        change(whole)
        return whole.file()

    yield "the base", path.read_bytes()
    for name, value in (
        ("llama.rope.freq_base", None),
        ("llama.context_length", 2**32 - 1),
        ("general.name", "\u202e\x1b[2J"),
        ("general.name", None),
        ("some.key", ["x" * 1000] * 1000),
        ("some.key", "x" * (1 << 20)),
        ("tokenizer.ggml.eos_token_id", None),
        ("tokenizer.chat_template", "{{ messages[0].content }}"),
        ("llama.expert_count", 0),
        ("tokenizer.ggml.unknown_token_id", -1),
        ("llama.vocab_size", None),
        ("general.quantization_version", 99),
    ):
        yield f"{name} = {value!r:.20}", changed(lambda p, n=name, v=value: p.set(n, v))
    norm = next(tensor for tensor in parts(path).tensors if len(tensor.dims) == 1)

    def four(p: Parts) -> None:
        p.tensors = [t if t.name != norm.name else type(t)(t.name, (*t.dims, 1, 1, 1), t.type) for t in p.tensors]

    yield "a norm of four dimensions", changed(four)


def _end(path: Path, chat: bool) -> BaseException | None:
    """The outcome of loading a file and using its chat template."""
    try:
        with edgellm.load(path, threads=1, context=64) as model:
            if chat:
                model.chat([{"role": "user", "content": "Hi"}], max_tokens=1)
    except BaseException as error:
        return error
    return None


def _resident(*, reset: bool = False) -> float:
    """The most memory of this process, in MiB, since it was last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line) / 1024


def handcrafted(folder: Path, seed: int, n: int) -> Figure:
    """Figure 1: every file ends as its manifest says; those that are used write 8 tokens."""
    faults, ends, path = list[str](), list[str](), folder / "case.gguf"
    every = [Wrong(case.name, case.data, case.error.__name__ if case.error else "used") for case in CASES]
    every += wrong_models(folder)
    refuse = [wrong for wrong in every if wrong.error != "used"]
    costs = []
    for wrong in refuse:
        path.write_bytes(wrong.data)
        began = time.process_time()
        error = _end(path, "template" in wrong.name)
        seconds = time.process_time() - began
        idle = _resident(reset=True)
        _end(path, False)
        costs.append((seconds, _resident() - idle, wrong.name))
        ends.append(type(error).__name__)
        if not isinstance(error, EdgeError) or wrong.error not in {kind.__name__ for kind in type(error).__mro__}:
            faults.append(f"{wrong.name}: {error!r} instead of {wrong.error}")
    faults += [
        f"{name}: {seconds:.2f} s, {mebibytes:.1f} MiB"
        for seconds, mebibytes, name in costs
        if seconds > SECONDS or mebibytes > MEBIBYTES
    ]
    used = 0
    for sound in every:
        if sound.error == "used":
            path.write_bytes(sound.data)
            with open_gguf(path) as file:
                used += sum(file.raw(tensor).nbytes for tensor in file.tensors) >= 0
    for name, data in sound_models(folder):
        path.write_bytes(data)
        try:
            with edgellm.load(path, threads=1, context=64) as model:
                used += len(model.generate("the cat", max_tokens=8, ignore_eos=True).token_ids) == 8
        except BaseException as error:
            faults.append(f"{name}: {error!r}")
    return Figure(
        f"{len(refuse)} handcrafted files that must be refused, and odd sound ones",
        f"{len(refuse) - len(faults)} refused, each with its error ({count(ends)}), {used} used; at most "
        f"{max(costs)[0]:.2f} s and {max(cost[1] for cost in costs):.1f} MiB for one",
        faults,
    )


def mutations(folder: Path, seed: int, n: int) -> Figure:
    """Figure 2: damaged headers of small models, by bytes and by keys."""
    done, refused, faults = fuzz.run(["gguf"], seed, n)
    return Figure(
        f"{done:,} mutated GGUF files",
        f"{refused:,} refused with a typed error, {done - refused - len(faults):,} used, {len(faults)} other",
        faults,
    )


def others(folder: Path, seed: int, n: int) -> Figure:
    """The same for folders of safetensors, catalogues and our own settings."""
    done, refused, faults = fuzz.run(["folder", "catalogue", "settings"], seed, n // 3)
    return Figure(
        f"{done:,} damaged safetensors folders, catalogues and settings",
        f"{refused:,} refused with a typed error, {done - refused - len(faults):,} used, {len(faults)} other",
        faults,
    )


def cuts(folder: Path, seed: int, n: int) -> Figure:
    """Figure 4: every cut of a model's header, and some of its data."""
    base = tiny_model(folder / "m.gguf", "llama", "Q4_0", tokenizer="bpe", n_layers=1)
    whole, path = base.read_bytes(), folder / "cut.gguf"
    with open_gguf(base) as model:
        header = min(model.tensors[name].offset for name in model.tensors)
    source, faults, ends = random.Random(seed), list[str](), list[str]()
    for at in [*range(header), *(source.randrange(header, len(whole) - 64) for _ in range(DATA_CUTS))]:
        path.write_bytes(whole[:at])
        try:
            open_gguf(path).close()
            faults.append(f"cut at {at}: accepted")
        except EdgeError as error:
            ends.append(type(error).__name__)
        except BaseException as error:
            faults.append(f"cut at {at}: {error!r}")
    return Figure(f"all {header:,} cuts of a header and {DATA_CUTS:,} of its data", f"all refused: {count(ends)}", faults)
