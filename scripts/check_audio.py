"""Compares features and rows of clips with those that scripts/make_hf_audio.py wrote: the largest difference as a share of the
largest value.

.venv/bin/python scripts/check_audio.py FOLDER ...
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from edgellm.chat.mel import windows
from edgellm.errors import EdgeError
from edgellm.loading.audio_encoder import AudioEncoder


def worst(folder: Path) -> tuple[float, float]:
    """Of features, and of rows."""
    encoder, expected, found = AudioEncoder(folder / "mmproj.gguf", threads=2), np.load(folder / "expected.npz"), [(0.0, 0.0)]
    for number in range(len(expected.files) // 3):
        samples, features, wanted = (expected[f"{name}_{number}"] for name in ("samples", "features", "rows"))
        frames = np.concatenate([window.frames for window in windows(samples, encoder.spec)])
        rows = encoder.encode(samples).rows
        found.append((_apart(frames, features), _apart(rows, wanted)))
    encoder.close()
    return max(each[0] for each in found), max(each[1] for each in found)


def _apart(found: np.ndarray, wanted: np.ndarray) -> float:  # type: ignore[type-arg]  # of any shape
    return float(np.abs(found - wanted).max() / np.abs(wanted).max()) if found.shape == wanted.shape else np.inf


def main() -> None:
    for name in sys.argv[1:]:
        try:
            features, rows = worst(Path(name))
            print(f"{name}: features {features:.2e}, rows {rows:.2e}", flush=True)
        except (EdgeError, FileNotFoundError) as error:
            print(f"{name}: {error}", flush=True)


if __name__ == "__main__":
    main()
