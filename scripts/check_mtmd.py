"""Compares the rows of pictures with those of llama.cpp's mtmd, on tiny projector files of random weights, one for each kind.

    .venv/bin/python scripts/check_mtmd.py --peer PYTHON --folder DIR [KIND ...]

PYTHON is an interpreter that has llama-cpp-python. For each picture the number of rows and the largest difference as a share of the
largest value. mtmd's patch convolution and its table of GELU are float16, which is up to 1e-3; where it pads a picture that its
makers' code stretches, pictures of other proportions than the encoder's differ by more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any  # arrays of rows

import numpy as np
from children import ROOT

from edgellm.chat import image_sizes, images
from edgellm.loading.image_encoder import ImageEncoder

sys.path.insert(0, str(ROOT / "tests" / "models"))
import tiny_projectors
from tiny_models import tiny_model
from tiny_projectors import KINDS, picture, projector_file

PEER = Path(__file__).resolve().parent / "peers" / "llama_cpp_rows.py"
# Of tables as large as mtmd takes them to be, or as the largest picture needs them.
SHAPES: dict[str, dict[str, tuple[int, ...] | None]] = {
    "mlp": {"v.class_embd": None, "v.position_embd.weight": (64, tiny_projectors.N)},  # mtmd misplaces rows beside a class token
    "resampler": {"v.position_embd.weight": (4900, tiny_projectors.N), "resampler.query": (96, 128)},
    "gemma4v": {"v.position_embd.weight": (2, 256, tiny_projectors.N)},
}
LIMITS = {"<|image>": (70, 1120)}  # of mtmd's images of Gemma 4, where its makers' are as large as 280 rows allow
SIZES = {"fitting": None, "square": (96, 96), "wide": (60, 150), "tall": (170, 50), "tiny": (9, 7), "huge": (900, 1400)}
DEEP = {"qwen3vl_merger": "qwen3vl"}  # models that take rows of inner layers beside the last ones
# What mtmd asks of files beyond what edgellm needs, or can run at all.
KEYS: dict[str, dict[str, Any]] = {
    "mlp": {"block_count": tiny_projectors.LAYERS},
    "paddleocr": {"image_min_pixels": 28 * 28, "image_max_pixels": 28 * 28 * 1024},
    "resampler": {"projection_dim": 128},
}


def fitting(spec: images.ImageSpec) -> tuple[int, int]:
    """Of a picture that is not resized by either."""
    side = spec.side_multiple
    n = max(4, int(np.ceil(np.sqrt(spec.least_rows))) + 1)
    return (spec.size, spec.size) if spec.size and spec.layout != "closest_grid_tiles" else (n * side, (n + 1) * side)


def ways(pixels: images.Pixels, spec: images.ImageSpec) -> dict[str, images.Tiles]:
    """The images of a picture as edgellm has them, and of one image also with black beside the picture, as mtmd has them."""
    tiles = images.tiles(pixels, spec)
    found = {"": tiles}
    if len(tiles.images) == 1 and spec.layout in ("dynamic", "area", "square", "closest_grid_tiles"):
        least, most = LIMITS.get(spec.begin, (spec.least_rows, spec.most_rows))
        sized = replace(spec, least_rows=least, most_rows=most)
        size = tiles.images[0].shape[:2] if spec.layout == "square" else image_sizes.dynamic_size(*pixels.shape[:2], sized)
        scale = min(size[0] / pixels.shape[0], size[1] / pixels.shape[1])
        tall, wide = (min(int(np.ceil(np.float32(n) * np.float32(scale))), end) for n, end in zip(pixels.shape, size, strict=False))
        padded = np.zeros((*size, 3), np.uint8)
        top, left = (size[0] - tall) // 2, (size[1] - wide) // 2
        padded[top : top + tall, left : left + wide] = images.resized(pixels, (tall, wide), spec)
        found[" padded"] = images.Tiles((padded,))
        found[" of its size"] = images.Tiles((images.resized(pixels, size, spec),))
    return found


def joined(rows: list[Any], tiles: images.Tiles, spec: images.ImageSpec) -> Any:
    """The rows of a picture; zeros for those that mtmd puts among them and around them (Pixtral, GLM-Edge)."""
    if spec.begin_row:
        return np.pad(np.concatenate(rows), ((1, 1), (0, 0)))
    if not spec.line_end:
        return np.concatenate(rows)
    width = tiles.images[0].shape[1] // spec.side_multiple
    lines = rows[0].reshape(-1, width, rows[0].shape[1])
    return np.pad(lines, ((0, 0), (0, 1), (0, 0))).reshape(-1, rows[0].shape[1])[:-1]


def compare(kind: str, options: argparse.Namespace) -> None:
    path, model = options.folder / f"mmproj-{kind}.gguf", options.folder / f"{kind}.gguf"
    make = KINDS[kind]
    if kind in SHAPES:
        own, shapes = make()
        KINDS[kind] = lambda: (own, {name: shape for name, shape in (shapes | SHAPES[kind]).items() if shape})
    projector_file(path, kind, **KEYS.get(kind, {}))
    deep = {"{arch}.n_deepstack_layers": 1} if kind in DEEP else {}
    tiny_model(model, DEEP.get(kind, "llama"), "F32", n_embd=tiny_projectors.OUT, tokenizer="bpe", metadata=deep)
    encoder = ImageEncoder(path, 1)
    pictures = {name: picture(*(size or fitting(encoder.spec)), seed=3) for name, size in SIZES.items()}
    np.savez(options.folder / "pictures.npz", **pictures)
    rows = options.folder / "rows.npz"
    rows.unlink(missing_ok=True)
    command = [options.peer, str(PEER), str(path), str(model), str(options.folder / "pictures.npz"), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{kind}: {' '.join((done.stderr or done.stdout).split())[-600:]}", flush=True)
        return
    wanted, said = np.load(rows), []
    for name, pixels in pictures.items():
        theirs, tries = wanted[name], {}
        for way, tiles in ways(pixels, encoder.spec).items():
            rows = joined(
                encoder.encode_patches([images.patches(image, encoder.spec) for image in tiles.images]), tiles, encoder.spec
            )
            tries[way] = (
                rows,
                float(np.abs(rows - theirs)[rows.any(axis=1)].max() / np.abs(theirs).max())
                if rows.shape == theirs.shape
                else np.inf,
            )
        way = min(tries, key=lambda way: tries[way][1])
        if np.isinf(tries[way][1]):
            said.append(f"{name} {len(tries[way][0])} rows, mtmd {len(theirs)}")
        else:
            said.append(f"{name}{way} {tries[way][1]:.1e}")
    encoder.close()
    print(f"{kind}: {'; '.join(said)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(KINDS), metavar="KIND")
    parser.add_argument("--peer", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    tiny_projectors.OUT = 128  # MiniCPM-V's heads
    for kind in options.kinds:
        compare(kind, options)


if __name__ == "__main__":
    main()
