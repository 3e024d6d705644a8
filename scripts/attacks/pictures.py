"""Projector files and pictures, damaged at random: each must end in a typed error, or in rows that are numbers."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from tiny_hearing import KINDS as HEARING
from tiny_hearing import hearing_file
from tiny_projectors import KINDS, projector_file

from attacks import Figure, count
from edgellm.chat import images
from edgellm.errors import EdgeError
from edgellm.loading.audio_encoder import AudioEncoder
from edgellm.loading.image_encoder import ImageEncoder

HEADER = 6000  # bytes of a projector file: keys and tensor infos
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


def damaged(data: bytes, chance: random.Random, first: int) -> bytes:
    """Cut, or with some bytes changed; most of them among the `first`."""
    broken = bytearray(data)
    if chance.random() < 0.25:
        return bytes(broken[: chance.randrange(len(broken))])
    at = chance.randrange(min(first, len(broken)) if chance.random() < 0.8 else len(broken))
    broken[at : at + chance.choice((1, 1, 4, 16))] = chance.randbytes(chance.choice((1, 1, 4, 16)))
    return bytes(broken)


def projectors(folder: Path, seed: int, n: int) -> Figure:
    """Files of all projector types in turn, of images and of audio."""
    chance, pixels = random.Random(seed), np.random.default_rng(seed).integers(0, 255, (40, 90, 3), np.uint8)
    samples = np.random.default_rng(seed).normal(0, 0.1, 9000).astype(np.float32)
    makers = [(kind, projector_file, ImageEncoder, pixels) for kind in sorted(KINDS)]
    makers += [(kind, hearing_file, AudioEncoder, samples) for kind in sorted(HEARING)]
    whole = [make(folder / f"{kind}.gguf", kind).read_bytes() for kind, make, _, _ in makers]
    path, ended, faults = folder / "damaged.gguf", list[str](), list[str]()
    for number in range(n):
        kind, _, encoder_of, medium = makers[number % len(whole)]
        path.write_bytes(damaged(whole[number % len(whole)], chance, HEADER))
        try:
            encoder = encoder_of(path, threads=1)
            try:
                ended.append("encoded" if np.isfinite(encoder.encode(medium).rows).all() else "not numbers")
            finally:
                encoder.close()
        except EdgeError as error:
            ended.append(type(error).__name__)
        except Exception as error:
            ended.append("fault")
            faults.append(f"{kind} {number}: {type(error).__name__}: {error}")
    return Figure(f"{n:,} damaged projector files of {len(whole)} types", count(ended), faults)


def _pictures() -> Iterator[bytes]:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8))
    for kind in FORMATS:
        buffer = io.BytesIO()
        image.save(buffer, kind)
        yield buffer.getvalue()


def pictures(folder: Path, seed: int, n: int) -> Figure:
    """PNG, JPEG, WebP and GIF in turn."""
    chance, whole, ended, faults = random.Random(seed), list(_pictures()), list[str](), list[str]()
    for number in range(n):
        try:
            ended.append(f"read as {images.read(damaged(whole[number % len(whole)], chance, 200)).ndim} axes")
        except EdgeError as error:
            ended.append(type(error).__name__)
        except Exception as error:
            ended.append("fault")
            faults.append(f"{FORMATS[number % len(whole)]} {number}: {type(error).__name__}: {error}")
    return Figure(f"{n:,} damaged pictures", count(ended), faults)
