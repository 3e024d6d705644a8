"""The rows of `load`: context, threads, back end, KV cache, adapters, and how weights are kept in memory."""

from __future__ import annotations

from functools import partial

from edgellm.options.option import MAX_INTEGER, Option

MOST_CONTEXT = 2**30
MOST_THREADS = 1024

_row = partial(Option, part="loading")
CONTEXT = _row(
    name="context",
    kind=int,
    low=8,
    high=MOST_CONTEXT,
    usual="what it was trained for, or as much of it as a quarter of the free memory holds",
    flags=("--context", "-c", "--ctx-size"),
    metavar="N",
    help="Context length in tokens.",
)
THREADS = _row(
    name="threads",
    kind=int,
    low=1,
    high=MOST_THREADS,
    usual="one per physical core",
    flags=("--threads", "-t"),
    metavar="N",
    help="Compute threads.",
)
THREADS_BATCH = _row(
    name="threads_batch",
    kind=int,
    low=1,
    high=MOST_THREADS,
    usual="same as --threads",
    flags=("--threads-batch", "-tb"),
    metavar="N",
    help="Threads for prompt processing.",
)
BACKEND = _row(
    name="backend",
    default="auto",
    values=("auto", "cpu", "mlx"),
    metavar="NAME",
    help="cpu, mlx, or auto: the GPU on a Mac if the model fits, else the CPU.",
)
KV_TYPE = _row(
    name="kv_type",
    default="f16",
    values=("f16", "q8_0", "q4_0", "f32"),
    usual="f16, or q8_0 if memory is short",
    metavar="TYPE",
    help="KV cache type: f16, q8_0 (about half the size), q4_0 (a quarter) or f32.",
)
SINKS = _row(
    name="sinks",
    kind=int,
    low=0,
    high=MOST_CONTEXT,
    usual="4",
    metavar="N",
    help="First tokens (attention sinks) that are never evicted.",
)
PINNED = _row(
    name="pinned",
    kind=int,
    low=0,
    high=MOST_CONTEXT,
    usual="only the sinks are kept",
    metavar="N",
    help="Never evict the system prompt, of up to N tokens.",
)
ADAPTERS = _row(
    name="adapters",
    kind=list,
    flags=("--lora",),
    metavar="FILE[:SCALE]",
    help="Apply a LoRA adapter, a GGUF file, with this scale (default 1). May be repeated.",
)
POOLING = _row(
    name="pooling",
    values=("mean", "cls", "last"),
    usual="what the file says",
    metavar="NAME",
    help="How the rows of a text become its vector: mean, cls or last.",
)
MMPROJ = _row(
    name="mmproj",
    usual="the projector beside the model",
    metavar="FILE",
    help="Projector file that encodes images or audio, or none.",
)
MMAP = _row(
    name="mmap",
    kind=bool,
    default=True,
    flags=("--no-mmap",),
    help="Read the weights into memory instead of mapping the file, and repack them there (x86 with VNNI): takes longer to load, "
    "decodes faster.",
)
MLOCK = _row(name="mlock", kind=bool, default=False, help="Keep the weights in physical memory, never swapped out.")
FORCE = _row(name="force", kind=bool, default=False, help="Load the model even if it does not fit into free memory.")
PARALLEL = _row(
    name="parallel",
    kind=int,
    default=1,
    low=1,
    high=256,  # as many as a chunk has tokens
    usual="1; 4 in serve",
    flags=("--parallel", "-np"),
    metavar="N",
    help="Conversations that are batched together, and kept cached afterwards.",
)
QUEUE = _row(
    name="queue",
    kind=int,
    low=0,
    high=MAX_INTEGER,
    usual="no limit; 64 in serve, which answers others with status 429",
    metavar="N",
    help="Requests that may wait.",
)
PREFIX_CACHE = _row(
    name="prefix_cache",
    usual="off; 4G in serve",
    metavar="SIZE",
    help="Disk space for the beginnings of prompts, which are not computed again after a restart: a size such as 4G, or off.",
)

LOADING = (
    *(CONTEXT, THREADS, THREADS_BATCH, BACKEND, KV_TYPE, PARALLEL, QUEUE, PREFIX_CACHE),
    *(SINKS, PINNED, ADAPTERS, POOLING, MMPROJ, MMAP, MLOCK, FORCE),
)
