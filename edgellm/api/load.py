"""Opens a model file or the model that a name stands for."""

from __future__ import annotations

import logging
import os
from typing import Never

from edgellm.api.context_policy import ContextPolicy, check_policy
from edgellm.api.model import Model
from edgellm.backends.base import Progress
from edgellm.catalogue import resolve
from edgellm.checkpoints.opening import open_model
from edgellm.errors import OptionError
from edgellm.loading.adapters import Asked
from edgellm.loading.load import LoadOptions, load_model
from edgellm.options.table import known_as
from edgellm.tokenizer import Tokenizer, build_tokenizer

log = logging.getLogger("edgellm")
log.addHandler(logging.NullHandler())  # silent unless the program sets logging up


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
    pooling: str | None = None,
    mmproj: str | os.PathLike[str] | None = None,
    mmap: bool = True,
    mlock: bool = False,
    progress: Progress | None = None,
    force: bool = False,
    **unknown: Never,
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
    quarter) or "f32"; None takes f16, or q8_0 where memory is short. A setting chosen for lack of memory is noted in `info.place`.
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
    `pooling`: how the rows of a text become its vector, "mean", "cls" or "last", instead of what the file says; a model that
    writes text then embeds it.
    `mmproj`: the projector file that encodes images or audio; None takes the one beside the model, if there is one, "none" none.
    `mmap`: weights are used where the system caches the file, shared with other processes; False reads them into memory of this
    process's own, in huge pages where Linux has them, and repacks those that gain by it on x86 processors with VNNI (rows are
    interleaved): loading takes longer, decoding is faster with the same results, and nothing that happens to the file matters
    afterwards. `mlock`: the system must not swap weights out, or drop them from its cache.
    `progress(what, done, of)` is called while kernels are compiled, which happens once per machine, or while weights are copied.
    A model that would not fit into the free memory is refused before anything is allocated; `force` loads it anyway.

    Raises ModelNotFound, NotEnoughMemory, OptionError, BackendError, and a FormatError for a file that is damaged or cannot be run.
    """
    if unknown:
        import difflib  # which nothing else needs

        name = next(iter(unknown))
        row, places = known_as(name), {"loading": "the name here", "chat": "an option of chat"}
        meant = f"; {row.name} is {places.get(row.part, 'an option of generate and chat')}." if row is not None else ""
        if row is None and (near := difflib.get_close_matches(name, load.__kwdefaults__ or (), n=1)):
            meant = f"; did you mean {near[0]}?"
        raise OptionError(f"{name} is not an option of load{meant or '; docs/options.md lists them all.'}")
    policy = check_policy(context_policy)
    options = LoadOptions(
        backend=backend,
        threads=threads,
        threads_batch=threads_batch,
        context=context,
        sinks=sinks,
        kv_type=kv_type,
        parallel=parallel,
        queue=queue,
        prefix_cache=prefix_cache,
        pinned=pinned,
        adapters=adapters,
        pooling=pooling,
        mmproj=mmproj,
        mmap=mmap,
        mlock=mlock,
        progress=progress,
        force=force,
    )
    model = Model(load_model(path_or_name, options), policy)
    log.info("%s: loaded, context %d, %s, %d threads", model.path, model.context, model.backend, model.threads)
    return model


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a model file alone; nothing else of it is read. Raises NoTokenizer and the FormatErrors."""
    with open_model(resolve(path)) as gguf:
        return build_tokenizer(gguf.metadata, file=gguf.path)
