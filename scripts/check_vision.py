"""Compares encoders with the rows that scripts/make_hf_vision.py wrote: the largest difference as a share of the largest value.

.venv/bin/python scripts/check_vision.py FOLDER ...
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from edgellm.chat import images
from edgellm.errors import EdgeError
from edgellm.loading.image_encoder import ImageEncoder


def worst(folder: Path) -> float:
    encoder, expected, found = ImageEncoder(folder / "mmproj.gguf", threads=2), np.load(folder / "expected.npz"), [0.0]
    for number in range(len(expected.files) // 2):
        image, wanted = expected[f"image_{number}"], expected[f"rows_{number}"]
        rows = encoder.encode_patches([images.patches(image, encoder.spec)])[0]
        if encoder.spec.line_rows:
            rows = encoder._lines(rows, image.shape[0] // encoder.spec.side_multiple).rows
        found.append(float(np.abs(rows - wanted).max() / np.abs(wanted).max()) if rows.shape == wanted.shape else np.inf)
    encoder.close()
    return max(found)


def main() -> None:
    for name in sys.argv[1:]:
        try:
            print(f"{name}: {worst(Path(name)):.2e}", flush=True)
        except (EdgeError, FileNotFoundError) as error:
            print(f"{name}: {error}", flush=True)


if __name__ == "__main__":
    main()
