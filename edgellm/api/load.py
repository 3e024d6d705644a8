"""From a path or a name to a model that runs: file, hparams, graph, weights, memory layout, back end."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

from edgellm.api.context_policy import ContextPolicy, check_policy
from edgellm.api.model import Model
from edgellm.api.records import ModelInfo, Vision
from edgellm.api.session_store import is_off
from edgellm.api.vision import open_encoder, vision_of
from edgellm.arch import embeds, find, load_graph, rope_axes
from edgellm.arch.blocks.pooling import pooling_of
from edgellm.arguments import bytes_of, check_flag, check_path, check_progress
from edgellm.backends.base import BackendOptions, Executable, Progress
from edgellm.catalogue import resolve
from edgellm.catalogue.machine import memory
from edgellm.chat import template_variants
from edgellm.checkpoints.opening import open_model
from edgellm.engine.monitor import Engine
from edgellm.engine.state_store import StateStore
from edgellm.errors import NotEnoughMemory, OptionError, OptionValue
from edgellm.formats.gguf import GGUFFile
from edgellm.graph import Graph
from edgellm.hparams import Keys, architecture_of
from edgellm.loading import backend_choice, estimate, weight_memory
from edgellm.loading import context as contexts
from edgellm.loading.adapters import AdaptedWeights, AdapterSets, Asked, asked_for
from edgellm.loading.backend_choice import Place
from edgellm.loading.image_encoder import ImageEncoder
from edgellm.loading.tokenizing import BackgroundTokenizer
from edgellm.memory.layout import MemoryLayout
from edgellm.memory.sizes import kv_bytes
from edgellm.ops.dense import learned_positions
from edgellm.options.loading import PARALLEL, QUEUE
from edgellm.options.table import TABLE
from edgellm.passes import optimise
from edgellm.passes.images import with_images
from edgellm.sampling import model_defaults
from edgellm.tokenizer import Tokenizer, build_tokenizer
from edgellm.weights import WeightStore

SMALL_MODEL = 4 << 20  # bytes; below, a token takes less time than threads lose by waiting for each other


def load(
    path_or_name: str | os.PathLike[str],
    *,
    backend: str = "auto",
    threads: int | None = None,
    threads_batch: int | None = None,
    context: int | None = None,
    sinks: int = 4,
    kv_type: str | None = None,
    parallel: int = 1,
    queue: int | None = None,
    prefix_cache: str | None = None,
    context_policy: ContextPolicy = "ring",
    pinned: int = 0,
    adapters: Asked = (),
    mmproj: str | os.PathLike[str] | None = None,
    mmap: bool = True,
    mlock: bool = False,
    progress: Progress | None = None,
    force: bool = False,
) -> Model:
    """Open a model file and make it ready to run.

    `path_or_name`: a .gguf file, a folder of the MLX community, a name of the catalogue, or hf:owner/repository. `backend`:
    "cpu", "mlx", or "auto": MLX on Apple Silicon where the model fits the GPU's working set, else the CPU (`info.place` says
    why). `threads`: None takes the cores this process may use; files under 4 MiB always run on one, and MLX has its own.
    `threads_batch`: those that read prompts, None for as many as `threads`. `context`: tokens that the model sees, the first
    `sinks` of the conversation included; None takes what it was trained for, or as much of that as a quarter of the free memory
    holds, but 4096 at least; half of that, a quarter or an eighth where memory is short. Older tokens than that are forgotten
    one by one, and counted (learned positions cannot slide: such a model stops there). An embedding model reads a text whole,
    of at most so many tokens. `kv_type`: how keys and values are kept, "f16", "q8_0" (half the memory), "q4_0" (a
    quarter) or "f32"; None takes f16, or q8_0 where memory is short. What was taken for lack of memory is said in `info.place`.
    `parallel`: how many conversations are computed at a time, in shared steps, and kept when they are over; each has keys and
    values of its own. `queue`: how many others may wait; more raise QueueFull. None for any number.
    `prefix_cache`: disk space for the beginnings of prompts, such as "4G": what was computed of them is saved in the user's cache
    folder, and found again by later processes with the same file and options. None or "off" for none; the CPU back end only.
    `context_policy`: what happens when the context is full. "ring" forgets the oldest tokens one by one, while an answer is
    written too; "error" raises ContextFull, and ends an answer; "drop-oldest-turns" leaves out whole turns of a chat, oldest
    first, but for system messages, those with `"pinned": True` and the last; an answer ends where the context is full.
    `pinned`: tokens at the beginning of a chat that "ring" never forgets, at most and up to half of the context: the system prompt
    with the tools, and messages with `"pinned": True` that follow it. They take memory beside the context's.
    `adapters`: LoRA adapters as GGUF files, several at once, each a path or (path, scale); the weights stay as they are, and
    `model.session(adapters=...)` gives a conversation other scales.
    `mmproj`: the projector file that encodes images; None takes the one beside the model, where there is one, and "none" none.
    `mmap`: weights are used where the system caches the file, shared with other processes; False reads them into memory of this
    process's own, in huge pages where Linux has them, and repacks those that gain by it on x86 processors with VNNI (rows are
    interleaved): loading takes longer, decoding is faster with the same results, and nothing that happens to the file matters
    afterwards. `mlock`: the system must not swap weights out, or drop them from its cache.
    `progress(what, done, of)` is called while kernels are compiled, which happens once per machine, or while weights are copied.
    A model that would not fit into the free memory is refused before anything is allocated; `force` loads it anyway.

    Raises ModelNotFound, NotEnoughMemory, OptionError, BackendError, and a FormatError for a file that is damaged or cannot be run.
    """
    threads, threads_batch = _count("threads", threads), _count("threads_batch", threads_batch)
    parallel, queue = PARALLEL.number(parallel) or 1, QUEUE.number(queue)
    backend_choice.check_name(backend)
    sinks, pinned = contexts.check_sinks(sinks), contexts.check_pinned(pinned)
    check_policy(context_policy)
    saved_bytes = _bytes(prefix_cache)
    force, progress = check_flag("force", force), check_progress(progress, "(what, done, of)")
    copied, locked = not check_flag("mmap", mmap), check_flag("mlock", mlock)
    given, mmproj = asked_for(adapters), check_path("mmproj", mmproj)
    path = resolve(path_or_name)
    gguf = open_model(path)
    tokenizer: BackgroundTokenizer | None = None
    executable: Executable | None = None
    encoder: ImageEncoder | None = None
    try:
        if gguf.nbytes < SMALL_MODEL:
            threads = threads_batch = 1
        trained = _trained_context(gguf)
        kinds, longest = backend_choice.kv_types(backend, kv_type), trained
        if embeds(gguf):  # keys of the texts of one step only, which must be one step's size
            kinds, longest = kinds if kv_type else ("f32",), min(trained, contexts.DEFAULT_CONTEXT)
        choices = contexts.choices(context, sinks, longest, kinds)
        usual = next(choice for choice in choices if context is not None or choice[0] <= contexts.DEFAULT_CONTEXT)
        for chosen, kind in choices:
            keys, graph = load_graph(gguf, chosen)
            if (chosen, kind) == choices[0]:
                encoder, unseen = open_encoder(path, keys.n_embd, mmproj, threads)
            axes = rope_axes(gguf) if encoder is not None else ()
            if encoder is not None:
                graph = with_images(graph, encoder.n_out // keys.n_embd - 1, axes)
            try:
                place = backend_choice.place(backend, gguf, graph, chosen, sinks, kind)
                weight_memory.check(place.backend, copied=copied, locked=locked)
                layout = _memory(graph, place, chosen, sinks, kind, trained, parallel=parallel, force=force, pinned=pinned)
                if encoder is not None and encoder.spec.both_ways:  # so that logits can be those of a whole image
                    layout = replace(layout, outputs=layout.chunk)
                if context is None and chosen > contexts.DEFAULT_CONTEXT:
                    _check_long(place, parallel * kv_bytes(layout, kind), chosen)
                plain, graph = graph, optimise(graph, layout.with_sinks, adapted=bool(given))
                options = BackendOptions(kind, threads, threads_batch, parallel)
                ample = parallel == 1 and not graph.embeds and estimate.is_ample(gguf, kv_bytes(layout, kind), copied=copied)
                if not (force or ample):
                    estimate.check(estimate.need(place.backend, gguf, graph, layout, options, copied=copied), chosen, gguf.path)
                break
            except (NotEnoughMemory, OptionError):
                if (chosen, kind) == choices[-1]:
                    raise
        notes = [note for note in (place.note, unseen) if note]
        if choices.index((chosen, kind)) > choices.index(usual):
            notes.append(f"memory is short: the context has {chosen} tokens, keys and values in {kind}")
        defaults = model_defaults(gguf.metadata, gguf.path)
        place.backend.start()
        weight_memory.hold(gguf, copied=copied, locked=locked, progress=progress)
        tokenizer = BackgroundTokenizer(gguf.metadata, gguf.path)
        sets = AdapterSets(given, plain, keys.architecture) if given else None
        weights = AdaptedWeights(gguf, sets.weights(graph, gguf)) if sets is not None else WeightStore(gguf)
        graph = sets.graph(graph) if sets is not None else graph
        executable = place.backend.prepare(graph, weights, layout, options, progress)
        tokenizer.check()
        positions = chosen if learned_positions(graph) else None
        info = _info(
            gguf,
            keys,
            graph,
            executable,
            tokenizer,
            sinks=sinks,
            kv_type=kind,
            place="; ".join(notes),
            token_bytes=estimate.token_bytes(gguf, graph),
            slides=positions is None,
            pinned=layout.classes[0].sinks,
            vision=vision_of(encoder) if encoder is not None else None,
        )
        engine = Engine(
            executable, weights, gguf.path, positions=positions, parallel=parallel, queue=queue, state_bytes=info.kv_bytes
        )
        model = Model(engine, tokenizer, info, defaults, gguf.metadata, context_policy, sets, encoder, turns_by_axes=bool(axes))
        if saved_bytes and not (graph.embeds or executable.runs_ahead):
            written = os.stat(path)
            identity = {**model.facts(), "file": [gguf.nbytes, written.st_size, written.st_mtime_ns]}
            engine.core.cache.store = StateStore(executable, saved_bytes, identity, info.n_vocab)
        return model
    except BaseException as error:
        if tokenizer is not None:
            tokenizer.wait()
        if executable is not None:
            executable.close()
        if encoder is not None:
            encoder.close()
        gguf.close()
        if isinstance(error, MemoryError):  # with force; else it is refused before
            raise NotEnoughMemory(
                f"{path.name} with a context of {chosen} tokens needs more memory than the system gives "
                f"({error or 'out of memory'}); take a smaller model or a shorter context, such as ",
                OptionValue("context", max(contexts.SMALLEST_CONTEXT, chosen // 2)),
            ) from error
        raise


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a model file alone; nothing else of it is read. Raises NoTokenizer and the FormatErrors."""
    with open_model(resolve(path)) as gguf:
        return build_tokenizer(gguf.metadata, file=gguf.path)


def _count(option: str, asked: object) -> int | None:
    """A number of threads. Raises OptionError."""
    try:
        return TABLE[option].number(asked)
    except OptionError as error:
        raise OptionError(option=option, value=asked, advice=f"{error.advice}, or leave it out for all cores") from error


def _bytes(prefix_cache: object) -> int:
    """Bytes of the state store. Raises OptionError."""
    found = bytes_of(prefix_cache) if isinstance(prefix_cache, str) else 0 if prefix_cache is None else None
    if found is None:
        raise OptionError(option="prefix_cache", value=prefix_cache, advice="give a size such as 500M or 4G, or off")
    return 0 if is_off() else found


def _trained_context(gguf: GGUFFile) -> int:
    """Tokens that the model was trained for. Raises Unsupported for architectures that cannot be run, BadHParam."""
    find(architecture_of(gguf), gguf.path)
    return Keys(gguf).context_length


def _memory(
    graph: Graph, place: Place, context: int, sinks: int, kv_type: str, trained: int, *, parallel: int, force: bool, pinned: int
) -> MemoryLayout:
    """The layout, checked against learned positions and against the memory that is free."""
    if learned_positions(graph) and graph.embeds:
        context = min(context, trained)  # no text may be longer; a step may
    elif learned_positions(graph):
        contexts.check_learned(context, trained)
    layout = contexts.plan(graph, context, sinks, place.backend, pinned)
    if not force:  # before the plan is made, whose size grows with the context too
        contexts.check_memory(parallel * kv_bytes(layout, kv_type), context, memory().available)
    return layout


def _check_long(place: Place, needed: int, context: int) -> None:
    """Raises OptionError for a context longer than the usual one that is not worth what it takes."""
    contexts.check_share(needed, context, memory().available)
    if place.crowded:
        raise OptionError("is too long for the GPU", option="context", value=context, advice="give a shorter one")


def _info(
    gguf: GGUFFile,
    keys: Keys,
    graph: Graph,
    executable: Executable,
    tokenizer: BackgroundTokenizer,
    *,
    sinks: int,
    kv_type: str,
    place: str,
    token_bytes: int,
    slides: bool,
    pinned: int,
    vision: Vision | None,
) -> ModelInfo:
    by_type: dict[str, int] = {}
    for tensor in gguf.tensors.values():
        by_type[tensor.type.name] = by_type.get(tensor.type.name, 0) + tensor.nbytes
    name = gguf.metadata.get("general.name")
    return ModelInfo(
        path=Path(gguf.path),
        name=name if isinstance(name, str) else Path(gguf.path).stem,
        architecture=keys.architecture,
        parameters=sum(math.prod(tensor.shape) for tensor in gguf.tensors.values()),
        file_bytes=sum(by_type.values()),
        token_bytes=token_bytes,
        bytes_by_type=by_type,
        n_vocab=keys.n_vocab,
        n_layers=keys.n_layers,
        context=executable.layout.context,
        context_train=keys.context_length,
        sinks=sinks,
        pinned=max(pinned, sinks),
        kv_type=kv_type,
        kv_bytes=kv_bytes(executable.layout, kv_type),
        backend=executable.backend,
        place=place,
        threads=executable.threads,
        slides=slides,
        pooling=pooling_of(keys) or "",
        embedding=graph.nodes[graph.outputs["embedding"]].n if graph.embeds else 0,
        has_tokenizer=tokenizer.exists,
        vision=vision,
        has_template=bool(template_variants(gguf.metadata, file=gguf.path)),
    )
