"""How fast a model will write here, before it is here: its own plan and kernels, run over weights that only look like its."""

from __future__ import annotations

import statistics
import time

import numpy as np

from edgellm.arch import load_graph
from edgellm.backends import find
from edgellm.backends.base import BackendOptions, Progress
from edgellm.engine.conversation import Conversation
from edgellm.formats.gguf import GGUFFile
from edgellm.loading import context as contexts
from edgellm.loading.load import SMALL_MODEL
from edgellm.memory.sequence import Sequence
from edgellm.passes import optimise
from edgellm.synthetic_weights import ProbeWeights

CONTEXT = 256  # tokens: short, as in `edgellm bench`, so that no memory is needed for it
LEAST_TOKENS, MOST_TOKENS = 4, 240


def tokens_per_second(
    gguf: GGUFFile, *, kv_type: str = "f16", threads: int | None = None, seconds: float = 1.5, progress: Progress | None = None
) -> float:
    """Tokens a second at the start of a conversation, as `edgellm bench -p 0` measures them, in about `seconds`.

    Kernels are compiled where this machine has not seen them yet, which loading the model would do as well. Raises as load does.
    """
    if gguf.nbytes < SMALL_MODEL:
        threads = 1  # as load does
    cpu, (_, graph) = find("cpu"), load_graph(gguf, CONTEXT)
    layout = contexts.plan(graph, CONTEXT, 4, cpu)
    graph, options = optimise(graph, layout.with_sinks), BackendOptions(kv_type, threads)
    executable = cpu.prepare(graph, ProbeWeights(gguf), layout, options, progress)
    try:
        state, sequence = executable.new_state(), Sequence(layout)
        token, row, times = np.ones(1, np.int32), np.zeros(1, np.int32), list[float]()
        stop = time.perf_counter() + seconds
        while len(times) < LEAST_TOKENS or (time.perf_counter() < stop and len(times) < MOST_TOKENS):
            start = time.perf_counter()
            logits = executable.submit(Conversation(sequence, state).step(token, row)).wait()["logits"]
            int(np.argmax(logits))
            sequence.extend(token)
            times.append(time.perf_counter() - start)
        return 1 / statistics.median(times[1:])  # the first step brings the buffers into memory
    finally:
        executable.close()
