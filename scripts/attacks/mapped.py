"""Files that are cut or replaced while a model answers from them."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tiny_models import tiny_model

import edgellm
from attacks import Figure, count

COMMAND = [sys.executable, "-c", "from edgellm.cli import main; main()", "run"]


def cut_while_answering(folder: Path, seed: int, n: int) -> Figure:
    """Figure 24: at a random moment, also in the middle of a step; the command line ends with code 3 and names the file."""
    source, faults, ends = random.Random(seed), list[str](), list[str]()
    for case in itertools.count():
        if len(ends) + len(faults) == n:
            break
        path = tiny_model(
            folder / f"m{case}.gguf", "llama", "Q8_0", tokenizer="spm", n_embd=512, n_ff=1536, n_layers=8, context=4096
        )
        command = [*COMMAND, str(path), "the", "--threads", "1", "-n", "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.read(1)  # it answers
            time.sleep(source.random() * 0.05)
            os.truncate(path, source.randrange(4096, path.stat().st_size))
            error = child.communicate(timeout=60)[1].decode()
        if child.returncode == 3 and path.name in error:
            ends.append("a FormatError" if "changed on disk" in error else "the last word of a process that the system ends")
        elif child.returncode != 0:  # 0: the answer had ended by then
            faults.append(f"{case}: code {child.returncode}: {error[-200:]!r}")
        path.unlink()
    return Figure(f"{n} files cut while `edgellm run` answered", f"all end with code 3 and the file's name: {count(ends)}", faults)


def replaced(folder: Path, seed: int, n: int) -> Figure:
    """Figure 24: a file renamed into a model's place changes no answer."""
    path = tiny_model(folder / "m.gguf")
    faults = list[str]()
    with edgellm.load(path, threads=1) as model:

        def answer() -> tuple[int, ...]:
            return tuple(model.generate([1, 2, 3], max_tokens=5, temperature=0, ignore_eos=True).token_ids)

        before = answer()
        for case in range(n):
            os.replace(tiny_model(folder / "other.gguf", seed=seed + case + 1), path)
            faults += [] if answer() == before else [f"{case}: another answer"]
    return Figure(f"{n} files replaced under a loaded model", f"{n - len(faults)} times the same answer as before", faults)
