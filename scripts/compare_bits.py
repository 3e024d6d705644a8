"""Holds the bits of this checkout against those of another commit: logits and greedy text of every reference file.

    python scripts/compare_bits.py COMMIT [--threads 1 2] [--files PATTERN] [--kv-types f16 q8_0] [--no-mmap] [FILE ...]

Each file runs a prompt in one step, token by token, and far past the end of a small context, so that the ring wraps; every row of
logits that comes out is hashed. A change that only moves code gives the same hashes. With --no-mmap this checkout reads the files
into memory, where rows of weights may be interleaved, and the other one maps them. Exit code 1 where they differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # PYTHONSAFEPATH leaves it out

from children import ROOT, checked_out, environment_of

SHARED = ROOT.parent / "shared"
RUNS = ((40, 4096, 24), (300, 96, 40))  # prompt tokens, context, tokens written after it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="to compare with, as git names it")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--kv-types", nargs="+", default=["f16", "q8_0", "q4_0"])
    parser.add_argument("--files", default="", help="only files whose path holds this text")
    parser.add_argument("--no-mmap", action="store_true", help="this checkout reads files into memory")
    parser.add_argument("paths", nargs="*", metavar="FILE", help="model files instead of the reference files")
    options = parser.parse_args()
    files = [str(path) for path in sorted(SHARED.glob("*/**/*.gguf")) if path.parts[-2] != "vocabs" and options.files in str(path)]
    request = {
        "files": [os.path.abspath(path) for path in options.paths] or files,
        "threads": options.threads,
        "kv_types": options.kv_types,
        "more": {},
    }
    with checked_out(options.commit) as tree:
        before = hashes(tree, json.dumps(request))
    if options.no_mmap:
        request["more"] = {"mmap": False}
    runs = [before, hashes(ROOT, json.dumps(request))]
    return report(*runs)


def hashes(checkout: Path, request: str) -> dict[str, Any]:
    """The hashes of `child`, run on the sources of a checkout with this interpreter's packages."""
    environment = dict(os.environ, **environment_of(checkout))
    command = [sys.executable, str(Path(__file__).resolve()), "--child"]
    done = subprocess.run(command, input=request, stdout=subprocess.PIPE, text=True, check=True, env=environment, cwd=checkout)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def report(before: dict[str, Any], now: dict[str, Any]) -> int:
    common = before.keys() & now.keys()
    different = sorted(key for key in common if before[key] != now[key])
    for key in different:
        print(f"differs: {key}: {before[key]} -> {now[key]}")
    for key in sorted(before.keys() - now.keys()):
        print(f"no longer runs: {key}")
    new = len(now.keys() - before.keys())
    print(f"{len(common)} runs compared, {len(different)} differ" + (f", {new} only here" if new else ""))
    return 1 if different or before.keys() - now.keys() else 0


def child() -> None:
    """Reads a request on stdin, prints a hash per file, thread count, KV type and run; files that cannot be run are left out."""
    import edgellm

    assert Path(edgellm.__file__).is_relative_to(Path.cwd()), f"{edgellm.__file__} is not of the checkout {Path.cwd()}"
    edgellm.load  # noqa: B018  # imports the modules that hold the constant
    for name, module in sys.modules.items():
        if name.startswith("edgellm.") and hasattr(module, "SMALL_MODEL"):
            vars(module)["SMALL_MODEL"] = 0  # several threads also where the model is too small to gain by them
    request, found = json.load(sys.stdin), dict[str, str]()
    for file in request["files"]:
        for threads in request["threads"]:
            for kv_type in request["kv_types"]:
                for prompt, context, n in RUNS:
                    key = f"{'/'.join(Path(file).parts[-2:])} threads={threads} {kv_type} context={context}"
                    try:
                        with edgellm.load(
                            file, backend="cpu", threads=threads, context=context, kv_type=kv_type, **request["more"]
                        ) as model:
                            found[key] = digest(model, prompt, n)
                    except edgellm.EdgeError:
                        continue
    print(json.dumps(found))


def digest(model: Any, prompt: int, n: int) -> str:
    """All logits of a prompt, and those of greedy decoding after it, as one hash."""
    seen = hashlib.sha256()

    def look(ids: Any, logits: Any) -> Any:
        seen.update(logits.tobytes())
        return logits

    ids: Sequence[int] = [(7 * i * i + 3 * i + 1) % (model.n_vocab - 3) + 3 for i in range(prompt)]
    if prompt < model.context:
        seen.update(model.logits(ids).tobytes())
    model.generate(ids, max_tokens=n, temperature=0, processors=[look])
    return seen.hexdigest()[:16]


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        child()
    else:
        sys.exit(main())
