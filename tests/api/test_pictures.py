"""Pictures as they are given: read from everywhere, refused where they cannot be, and cut to the sizes of an encoder."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as Pillow
from tiny_projectors import encoded, picture, projector_file

from edgellm.arch.vision import load_encoder
from edgellm.chat import images
from edgellm.errors import EdgeError, ImageError, OptionError
from edgellm.formats.gguf import open_gguf

Rows = npt.NDArray[np.float32]


# --- reading pictures -------------------------------------------------------------------------------------------------
def test_one_picture_from_everywhere(tmp_path: Path) -> None:
    pixels = picture(20, 30)
    image = Pillow.fromarray(pixels)
    png = encoded(image, "PNG")
    (tmp_path / "p.png").write_bytes(png)
    uri = "data:image/png;base64," + base64.b64encode(png).decode()
    for source in (png, tmp_path / "p.png", str(tmp_path / "p.png"), uri, image, pixels, bytearray(png)):
        assert np.array_equal(images.read(source), pixels)  # type: ignore[arg-type]  # a bytearray is read as well
    for kind in ("JPEG", "WEBP", "GIF"):
        assert images.read(encoded(image, kind)).shape == (20, 30, 3)


def test_transparent_pictures_are_on_white_and_turned_ones_upright() -> None:
    clear = Pillow.new("RGBA", (4, 3), (255, 0, 0, 0))
    assert (images.read(encoded(clear, "PNG")) == 255).all()
    half = Pillow.new("LA", (4, 3), (0, 128))
    assert (images.read(half) == 127).all()
    exif = Pillow.Exif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    turned = encoded(Pillow.fromarray(picture(20, 40)), "JPEG", exif=exif)
    assert images.read(turned).shape == (40, 20, 3)
    deep = Pillow.fromarray(np.full((3, 4), 0x8000, np.uint16))
    assert (images.read(deep) == 128).all()
    frames = [Pillow.new("RGB", (5, 5), colour) for colour in ("red", "blue")]
    assert images.read(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]))[0, 0, 0] > 200


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "can't be read"),
        (b"not an image", "can't be read"),
        ("data:image/png;base64,!!", "base64"),
        ("data:image/png,abc", "data:image/png;base64"),
        ("https://example.org/cat.png", "remote address"),
        ("/nowhere/cat.png", "check the path"),
        ("nul\0.png", "check the path"),
        (np.zeros((2, 500, 3), np.uint8), "crop it"),
        (np.zeros((500, 1, 3), np.uint8), "crop it"),
    ],
)
def test_pictures_that_cannot_be_read(source: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        images.read(source)


@pytest.mark.parametrize(
    "source",
    [None, 3, ["a"], np.zeros((2, 2)), np.zeros((2, 2, 7), np.uint8), np.zeros(5, np.uint8), np.zeros((0, 4, 3), np.uint8)],
)
def test_what_is_no_picture(source: Any) -> None:
    with pytest.raises(OptionError):
        images.read(source)


def test_a_decompression_bomb_is_refused_before_it_is_decoded() -> None:
    bomb = encoded(Pillow.new("1", (20000, 20000)), "PNG")
    assert len(bomb) < 100_000
    with pytest.raises(ImageError, match="pixels"):
        images.read(bomb)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_damaged_pictures(kind: str) -> None:
    data, refused = encoded(Pillow.fromarray(picture(60, 80)), kind), 0
    for seed in range(60):
        chance, broken = random.Random(seed), bytearray(data)
        if seed % 3 == 0:
            broken = broken[: chance.randrange(len(broken))]
        else:
            first = chance.randrange(min(len(broken), 200 if seed % 3 == 1 else len(broken)))
            broken[first : first + 8] = chance.randbytes(8)
        try:
            images.read(bytes(broken))
        except EdgeError:
            refused += 1
    assert refused >= 20


# --- sizes ------------------------------------------------------------------------------------------------------------
def test_sizes_of_dynamic_images(tmp_path: Path) -> None:
    """As smart_resize of transformers' image_processing_qwen2_vl.py computes them."""
    with open_gguf(projector_file(tmp_path / "m.gguf", "qwen3vl_merger")) as gguf:
        spec = load_encoder(gguf)[2]
    assert spec.side_multiple == 32
    assert images.dynamic_size(480, 640, spec) == (480, 640)
    assert images.dynamic_size(1, 200, spec) == (32, 1280)
    assert images.dynamic_size(4000, 6000, spec) == (1664, 2496)
    assert images.dynamic_size(16, 16, spec) == (96, 96)
    assert images.dynamic_size(80, 48, spec) == (128, 96)  # halves are rounded to even numbers, then too few pixels


def test_tiles_are_row_by_row_and_the_overview_last(tmp_path: Path) -> None:
    with open_gguf(projector_file(tmp_path / "m.gguf", "idefics3")) as gguf:
        spec = load_encoder(gguf)[2]
    tiles = images.tiles(picture(60, 200), spec)
    assert (tiles.rows, tiles.columns, len(tiles.images)) == (1, 2, 3)
    assert list(images.texts(tiles, spec)) == [
        "<fake_token_around_image><row_1_col_1>",
        "<fake_token_around_image><row_1_col_2>",
        "\n\n<fake_token_around_image><global-img>",
        "<fake_token_around_image>",
    ]


def test_fingerprints_are_of_pixels() -> None:
    pixels = picture(20, 30)
    assert images.fingerprint(pixels) == images.fingerprint(images.read(encoded(Pillow.fromarray(pixels), "PNG")))
    assert len({images.fingerprint(each) for each in (pixels, picture(20, 30, 1), pixels.reshape(30, 20, 3))}) == 3
