"""Kills quantize and convert with SIGKILL at random moments of their runs, and looks at what is left under the final name.

    .venv/bin/python scripts/check_kills.py [--kills 50]          Ends with 1 where a file is neither absent nor whole.

The moments are spread over the whole length of a run that nothing disturbs, from the first byte that is written on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.extend(str(Path(__file__).resolve().parent.parent / "tests" / folder) for folder in ("helpers", "models"))
from hf_checkpoints import config_of, names_of, rows_of, tensors_of, write_safetensors

SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 1024,
}
OLD = {32: 1024, 48: 2048, 16: 512, 64: 1024}  # sizes of the tiny llama, and what becomes of them
RUN = {
    "convert": "from edgellm.tools.convert import convert\nconvert(sys.argv[1], sys.argv[2], type_name='Q8_0')",
    "quantize": "from edgellm.tools.quantize import *\n"
    "quantize(sys.argv[1], sys.argv[2], QuantizeOptions(type='Q4_K_M', force=True))",
}


def write_folder(folder: Path) -> Path:
    """A checkpoint of 80 MiB, so that writing takes a while."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_of("llama") | SIZES))
    random, shapes = np.random.default_rng(0), names_of(rows_of({name: array.shape for name, array in tensors_of("llama").items()}))
    write_safetensors(
        folder / "model.safetensors",
        {name: random.standard_normal(tuple(OLD[n] for n in shape)).astype(np.float32) for name, shape in shapes.items()},
    )
    return folder


def start(tool: str, source: Path, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import sys\n" + RUN[tool], str(source), str(out)], stderr=subprocess.DEVNULL)


def wait_for_a_byte(child: subprocess.Popen[bytes], folder: Path) -> None:
    while child.poll() is None and not any(path.stat().st_size for path in folder.glob("*.part")):
        time.sleep(0.0005)


def kill(tool: str, source: Path, kills: int, place: Path) -> bool:
    """Print one line; whether no file was left half."""
    place.mkdir()
    out = place / "out.gguf"
    child = start(tool, source, out)
    wait_for_a_byte(child, place)
    begun = time.monotonic()
    if child.wait():
        raise SystemExit(f"{tool} failed")
    length, whole = time.monotonic() - begun, hashlib.sha256(out.read_bytes()).hexdigest()
    moments, absent, complete, half = random.Random(1), 0, 0, 0
    for _ in range(kills):
        for path in place.iterdir():
            path.unlink()
        child = start(tool, source, out)
        wait_for_a_byte(child, place)
        time.sleep(moments.uniform(0.0, length))
        child.send_signal(signal.SIGKILL)
        child.wait()
        if not out.exists():
            absent += 1
        elif hashlib.sha256(out.read_bytes()).hexdigest() == whole:
            complete += 1
        else:
            half += 1
    child = start(tool, source, out)  # what a killed run left does not disturb the next one
    again = child.wait() == 0 and hashlib.sha256(out.read_bytes()).hexdigest() == whole and len(list(place.iterdir())) == 1
    print(
        f"{tool}: {kills} kills in {length:.2f} s of writing: {absent} left no file, {complete} a whole one, {half} a half one; "
        f"the next run {'wrote' if again else 'DID NOT WRITE'} the same file",
        flush=True,
    )
    return not half and again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkpoint = write_folder(folder / "hf")
        model = folder / "model.gguf"
        plain = RUN["convert"].replace("Q8_0", "F32")
        subprocess.run([sys.executable, "-c", f"import sys\n{plain}", str(checkpoint), str(model)], check=True)
        good = [kill(tool, source, options.kills, folder / tool) for tool, source in (("convert", checkpoint), ("quantize", model))]
    if not all(good):
        raise SystemExit("half a file was left")


if __name__ == "__main__":
    main()
