"""Loads a model: file, hyperparameters, graph, memory layout, back end, weights."""

from __future__ import annotations

import math
import os
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from edgellm.arch import embeds, find, load_graph, rope_axes
from edgellm.arch.blocks.pooling import pooling_of
from edgellm.arguments import bytes_of, check_flag, check_path, check_progress
from edgellm.backends.base import Backend, BackendOptions, Executable, Progress
from edgellm.catalogue import resolve
from edgellm.catalogue.machine import memory
from edgellm.chat import template_variants
from edgellm.checkpoints.opening import open_model
from edgellm.engine.engine import Engine
from edgellm.errors import NotEnoughMemory, OptionError, OptionValue
from edgellm.folders import is_off
from edgellm.formats.gguf import GGUFFile
from edgellm.formats.gguf_file_type import bytes_by_type
from edgellm.graph import Graph
from edgellm.hparams import Keys, architecture_of
from edgellm.loading import backend_choice, estimate, weight_memory
from edgellm.loading import context as contexts
from edgellm.loading.adapters import AdaptedWeights, AdapterSets, Asked, asked_for
from edgellm.loading.backend_choice import Place
from edgellm.loading.loaded import Encoders, LoadedModel, ModelInfo
from edgellm.loading.projector import open_encoders, projector_of
from edgellm.loading.tokenizing import BackgroundTokenizer
from edgellm.memory.layout import MemoryLayout
from edgellm.memory.sizes import kv_bytes
from edgellm.ops.dense import learned_positions
from edgellm.ops.pool import POOLINGS
from edgellm.options.loading import PARALLEL, POOLING, QUEUE
from edgellm.options.table import TABLE
from edgellm.passes import optimise
from edgellm.sampling import model_defaults
from edgellm.weights import WeightStore

SMALL_MODEL = 4 << 20  # bytes; below, a token takes less time than threads lose by waiting for each other


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of `edgellm.load`, which describes them."""

    backend: str = "auto"
    threads: int | None = None
    threads_batch: int | None = None
    context: int | None = None
    sinks: int = 4
    kv_type: str | None = None
    parallel: int = 1
    queue: int | None = None
    prefix_cache: str | None = None
    pinned: int = 0
    adapters: Asked = ()
    pooling: str | None = None
    mmproj: str | os.PathLike[str] | None = None
    mmap: bool = True
    mlock: bool = False
    progress: Progress | None = None
    force: bool = False

    def checked(self) -> Self:
        """Options of the right types and within their ranges. Raises OptionError."""
        backend_choice.check_name(self.backend)
        return replace(
            self,
            threads=_count("threads", self.threads),
            threads_batch=_count("threads_batch", self.threads_batch),
            parallel=PARALLEL.number(self.parallel) or 1,
            queue=QUEUE.number(self.queue),
            prefix_cache=_check_size(self.prefix_cache),
            pooling=_check_pooling(self.pooling),
            sinks=contexts.check_sinks(self.sinks),
            pinned=contexts.check_pinned(self.pinned),
            force=check_flag("force", self.force),
            progress=check_progress(self.progress, "(what, done, of)"),
            mmap=check_flag("mmap", self.mmap),
            mlock=check_flag("mlock", self.mlock),
            mmproj=check_path("mmproj", self.mmproj),
            adapters=asked_for(self.adapters),
        )


@dataclass(frozen=True, slots=True)
class Setup:
    """A graph for a context, a back end, and the memory of its conversations."""

    keys: Keys
    graph: Graph
    plain: Graph  # before it was optimised
    place: Place
    layout: MemoryLayout
    backend_options: BackendOptions
    context: int
    kv_type: str


def load_model(path_or_name: str | os.PathLike[str], options: LoadOptions) -> LoadedModel:
    """Open a model and prepare it. Raises ModelNotFound, NotEnoughMemory, OptionError, BackendError, and the FormatErrors."""
    options = options.checked()
    path = resolve(path_or_name)
    with ExitStack() as opened:
        gguf = open_model(path)
        opened.callback(gguf.close)
        if unread := gguf.unread():
            warnings.warn(f"{path}: {unread}", stacklevel=4)
        if options.pooling is not None:
            number = POOLINGS.index(options.pooling) + 1
            gguf.metadata = {**gguf.metadata, f"{architecture_of(gguf)}.pooling_type": number}
        if gguf.nbytes < SMALL_MODEL:
            options = replace(options, threads=1, threads_batch=1)
        find(architecture_of(gguf), gguf.path)
        keys = Keys(gguf)
        choices = _choices(gguf, options, keys.context_length)
        context, kv_type = choices[0]
        encoders, why_not = open_encoders(path, keys.n_embd, options.mmproj, options.threads)
        for encoder in encoders.all:
            opened.callback(encoder.close)
        try:
            for context, kv_type in choices:
                try:
                    setup = _setup(gguf, options, encoders, context, kv_type)
                    break
                except (NotEnoughMemory, OptionError):
                    if (context, kv_type) == choices[-1]:
                        raise
            notes = [note for note in (setup.place.note, why_not) if note]
            usual = next(choice for choice in choices if options.context is not None or choice[0] <= contexts.DEFAULT_CONTEXT)
            if choices.index((context, kv_type)) > choices.index(usual):
                notes.append(f"memory is short: the context has {context} tokens, keys and values in {kv_type}")
            loaded = _prepare(gguf, options, setup, encoders, "; ".join(notes), opened)
        except MemoryError as error:  # with force; else it is refused before
            raise NotEnoughMemory(
                f"{path.name} with a context of {context} tokens needs more memory than the system gives "
                f"({str(error) or 'out of memory'}); take a smaller model or a shorter context, such as ",
                OptionValue("context", max(contexts.SMALLEST_CONTEXT, context // 2)),
            ) from error
        opened.pop_all()
        return loaded


def _choices(gguf: GGUFFile, options: LoadOptions, trained: int) -> list[tuple[int, str]]:
    """Contexts and types of keys and values to try."""
    kinds = backend_choice.kv_types(options.backend, options.kv_type)
    if embeds(gguf):  # keys of the texts of one step only, which must be one step's size
        kinds, trained = kinds if options.kv_type else ("f32",), min(trained, contexts.DEFAULT_CONTEXT)
    return contexts.choices(options.context, options.sinks, trained, kinds)


def _setup(gguf: GGUFFile, options: LoadOptions, encoders: Encoders, context: int, kv_type: str) -> Setup:
    """Raises NotEnoughMemory or OptionError where memory is too small for this context."""
    keys, graph = load_graph(gguf, context)
    if encoders.all:
        from edgellm.passes.images import with_images

        levels = encoders.width // keys.n_embd - 1
        if levels > keys.n_layers:
            raise OptionError(
                f"the projector beside {Path(gguf.path).name} adds rows after {levels} layers, and the model has {keys.n_layers}; "
                "give the projector that was made for it."
            )
        graph = with_images(graph, levels, rope_axes(gguf))
    copied, parallel = not options.mmap, options.parallel
    beside = partial(_of_encoders, encoders, options.threads)
    place = backend_choice.place(options.backend, gguf, graph, context, options.sinks, kv_type, beside)
    weight_memory.check(place.backend, copied=copied, locked=options.mlock)
    layout = _memory(graph, place, context, kv_type, keys.context_length, options)
    if encoders.image is not None and encoders.image.spec.both_ways:  # so that logits can be those of a whole image
        layout = replace(layout, outputs=layout.chunk)
    kv = kv_bytes(layout, kv_type)
    if options.context is None and context > contexts.DEFAULT_CONTEXT:
        _check_long(place, parallel * kv, context)
    optimised = optimise(graph, layout.with_sinks, adapted=bool(options.adapters))
    backend_options = BackendOptions(kv_type, options.threads, options.threads_batch, parallel)
    ample = parallel == 1 and not graph.embeds and estimate.is_ample(gguf, kv + encoders.file_bytes, copied=copied)
    if not (options.force or ample):
        needed = estimate.need(place.backend, gguf, optimised, layout, backend_options, copied=copied)
        needed = replace(needed, projector=_of_encoders(encoders, options.threads, place.backend))
        estimate.check(needed, context, gguf.path)
    return Setup(keys, optimised, graph, place, layout, backend_options, context, kv_type)


def _of_encoders(encoders: Encoders, threads: int | None, backend: Backend) -> int:
    """Bytes of the projector files, and of the work for a picture or a clip, on a back end."""
    sizes = {encoder.path: encoder.file_bytes for encoder in encoders.all}
    if not sizes:
        return 0
    from edgellm.loading.encoder_memory import memory_of

    return sum(max(memory_of(path, threads, backend), n) for path, n in sizes.items())


def _prepare(gguf: GGUFFile, options: LoadOptions, setup: Setup, encoders: Encoders, notes: str, opened: ExitStack) -> LoadedModel:
    """Weights, tokenizer and executable; `opened` closes them where one fails."""
    keys, graph, backend = setup.keys, setup.graph, setup.place.backend
    defaults = model_defaults(gguf.metadata, gguf.path)
    for encoder in encoders.all:
        encoder.backend = backend
    backend.start()
    weight_memory.hold(gguf, copied=not options.mmap, locked=options.mlock, progress=options.progress)
    tokenizer = BackgroundTokenizer(gguf.metadata, gguf.path)
    opened.callback(tokenizer.wait)
    given = asked_for(options.adapters)
    adapters = AdapterSets(given, setup.plain, keys.architecture) if given else None
    weights = AdaptedWeights(gguf, adapters.weights(graph, gguf)) if adapters is not None else WeightStore(gguf)
    graph = adapters.graph(graph) if adapters is not None else graph
    executable = backend.prepare(graph, weights, setup.layout, setup.backend_options, options.progress)
    opened.callback(executable.close)
    tokenizer.check()
    info = _info(gguf, setup, graph, executable, tokenizer, sinks=options.sinks, place=notes, encoders=encoders)
    engine = Engine(
        executable,
        weights,
        gguf.path,
        positions=None if info.slides else setup.context,
        parallel=options.parallel,
        queue=options.queue,
        state_bytes=info.kv_bytes,
    )
    by_axes = bool(encoders.all) and bool(rope_axes(gguf))
    loaded = LoadedModel(engine, weights, info, gguf.metadata, tokenizer, adapters, encoders, keys.causal, by_axes, defaults)
    saved_bytes = 0 if is_off() else bytes_of(options.prefix_cache or "off") or 0
    if saved_bytes and not (graph.embeds or executable.runs_ahead):
        from edgellm.engine.state_store import StateStore

        files = [gguf.path, *sorted({encoder.path for encoder in encoders.all})]
        identity = {
            **loaded.facts(),
            "bytes": gguf.nbytes,
            "files": [[(found := os.stat(path)).st_size, found.st_mtime_ns] for path in files],
        }
        engine.core.cache.store = StateStore(executable, saved_bytes, identity, info.n_vocab)
        engine.core.cache.store.read_ahead()
    return loaded


def _count(option: str, asked: object) -> int | None:
    """A number of threads. Raises OptionError."""
    try:
        return TABLE[option].number(asked)
    except OptionError as error:
        raise OptionError(option=option, value=asked, advice=f"{error.advice}, or leave it out for all cores") from error


def _check_size(prefix_cache: object) -> str | None:
    """Raises OptionError for what is no size."""
    if prefix_cache is None or (isinstance(prefix_cache, str) and bytes_of(prefix_cache) is not None):
        return prefix_cache
    raise OptionError(option="prefix_cache", value=prefix_cache, advice="give a size such as 500M or 4G, or off")


def _check_pooling(pooling: str | None) -> str | None:
    """Raises OptionError."""
    POOLING.check(pooling)
    return pooling


def _memory(graph: Graph, place: Place, context: int, kv_type: str, trained: int, options: LoadOptions) -> MemoryLayout:
    """The layout, checked against learned positions and against the memory that is free."""
    if learned_positions(graph) and graph.embeds:
        context = min(context, trained)  # no text may be longer; a step may
    elif learned_positions(graph):
        contexts.check_learned(context, trained)
    layout = contexts.plan(graph, context, options.sinks, place.backend, options.pinned)
    if not options.force:  # before the plan is made, whose size grows with the context too
        contexts.check_memory(options.parallel * kv_bytes(layout, kv_type), context, memory().available)
    return layout


def _check_long(place: Place, needed: int, context: int) -> None:
    """Raises OptionError for a context longer than the usual one that is not worth what it takes."""
    contexts.check_share(needed, context, memory().available)
    if place.crowded:
        raise OptionError("is too long for the GPU", option="context", value=context, advice="give a shorter one")


def _info(
    gguf: GGUFFile,
    setup: Setup,
    graph: Graph,
    executable: Executable,
    tokenizer: BackgroundTokenizer,
    *,
    sinks: int,
    place: str,
    encoders: Encoders,
) -> ModelInfo:
    keys = setup.keys
    by_type, name = bytes_by_type(gguf), gguf.metadata.get("general.name")
    return ModelInfo(
        path=Path(gguf.path),
        name=name if isinstance(name, str) else Path(gguf.path).stem,
        architecture=keys.architecture,
        parameters=sum(math.prod(tensor.shape) for tensor in gguf.tensors.values()),
        file_bytes=sum(by_type.values()),
        token_bytes=estimate.token_bytes(gguf, graph),
        bytes_by_type=by_type,
        n_vocab=keys.n_vocab,
        n_layers=keys.n_layers,
        context=executable.layout.context,
        context_train=keys.context_length,
        sinks=sinks,
        pinned=max(setup.layout.classes[0].sinks, sinks),
        kv_type=setup.kv_type,
        kv_bytes=kv_bytes(executable.layout, setup.kv_type),
        backend=executable.backend,
        place=place,
        threads=executable.threads,
        slides=not learned_positions(graph),
        pooling=pooling_of(keys) or "",
        embedding=graph.nodes[graph.outputs["embedding"]].n if graph.embeds else 0,
        has_tokenizer=tokenizer.exists,
        vision=projector_of(encoders.image),
        audio=projector_of(encoders.audio),
        has_template=bool(template_variants(gguf.metadata, file=gguf.path)),
    )
