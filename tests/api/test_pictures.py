"""Pictures as they are given: read from everywhere, refused where they cannot be, and cut to the sizes of an encoder."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image as Pillow
from PIL import ImageOps
from tiny_projectors import KINDS, encoded, llava_next, picture, projector_file

from edgellm.arch.vision import load_encoder
from edgellm.chat import image_sizes, images
from edgellm.errors import BadHParam, EdgeError, ImageError, OptionError
from edgellm.formats.gguf import open_gguf
from edgellm.image_spec import ImageSpec
from edgellm.loading.image_encoder import ImageEncoder

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
        (b"", "it is empty; save it as PNG, JPEG, WEBP or GIF first"),
        (b"not an image", "can't be read as an image: its format is unknown; save it as PNG"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "its format is HEIC; save it as PNG"),
        (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1", "its format is AVIF; save it as PNG"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "its format is SVG; save it as PNG"),
        (b"II*\0\x08\0\0\0", "its format is TIFF; save it as PNG"),
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


def _png(width: int, height: int, bits: int, kind: int, lines: bytes) -> bytes:
    """A file of forms that Pillow reads and doesn't write."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def test_pixels_of_odd_files() -> None:
    """Sixteen bits, four inks, palettes with transparent colours, frames, and all eight ways of EXIF."""
    y, x = np.mgrid[:40, :60]
    pixels = np.stack([x * 4, y * 6, (x + y) * 2], -1).astype(np.uint8)
    image, deep = Pillow.fromarray(pixels), pixels.astype(">u2") * 257
    assert np.array_equal(images.read(encoded(image.convert("CMYK"), "JPEG", quality=100, subsampling=0)), pixels)
    assert np.array_equal(images.read(_png(60, 40, 16, 2, b"".join(b"\0" + line.tobytes() for line in deep))), pixels)
    grey = images.read(_png(60, 40, 16, 0, b"".join(b"\0" + line[:, 0].tobytes() for line in deep)))
    assert np.array_equal(grey, np.repeat(pixels[:, :, :1], 3, axis=2))
    colours = image.quantize(16)
    clear = images.read(encoded(colours, "PNG", transparency=colours.getpixel((0, 0))))
    assert (clear[0, 0] == 255).all() and np.array_equal(clear[-1, -1], np.array(colours.convert("RGB"))[-1, -1])
    assert (images.read(encoded(colours, "PNG", transparency=bytes(16))) == 255).all()
    assert (images.read(encoded(Pillow.new("RGBA", (9, 9), (255, 0, 0, 0)), "WEBP", lossless=True)) == 255).all()
    frames = [Pillow.new("RGBA", (9, 9), colour) for colour in ("red", "lime")]
    for kind in ("WEBP", "PNG"):
        first = images.read(encoded(frames[0], kind, save_all=True, append_images=frames[1:]))
        assert first[0, 0, 0] > 200 and first[0, 0, 1] < 50, kind
    turned = pixels.swapaxes(0, 1)
    ways = (pixels, pixels[:, ::-1], pixels[::-1, ::-1], pixels[::-1], turned, turned[:, ::-1], turned[::-1, ::-1], turned[::-1])
    for number, wanted in enumerate(ways, 1):
        exif = Pillow.Exif()
        exif[0x0112] = number
        assert np.array_equal(images.read(encoded(image, "PNG", exif=exif)), wanted), number
        assert images.read(encoded(image, "JPEG", exif=exif)).shape == wanted.shape
    assert images.read(encoded(image, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")).shape == pixels.shape


@pytest.mark.parametrize("size", [(0x7FFFFFFF, 0x7FFFFFFF), (100_000, 20_000), (20_000, 8_000), (0, 10), (60, 40)])
def test_sizes_that_headers_claim(size: tuple[int, int]) -> None:
    with pytest.raises(ImageError, match=r"pixels; |its format is unknown|is damaged"):
        images.read(_png(*size, 8, 2, b""))


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
        spec = load_encoder(gguf)[3]
    assert spec.side_multiple == 32
    assert image_sizes.dynamic_size(480, 640, spec) == (480, 640)
    assert image_sizes.dynamic_size(1, 200, spec) == (32, 1280)
    assert image_sizes.dynamic_size(4000, 6000, spec) == (1664, 2496)
    assert image_sizes.dynamic_size(16, 16, spec) == (96, 96)
    assert image_sizes.dynamic_size(80, 48, spec) == (128, 96)  # halves are rounded to even numbers, then too few pixels


def test_sizes_of_pages(tmp_path: Path) -> None:
    """As get_resize_output_image_size of transformers' image_processing_pixtral.py computes them, never enlarged."""
    with open_gguf(projector_file(tmp_path / "m.gguf", "lightonocr")) as gguf:
        spec = load_encoder(gguf)[3]
    assert (spec.side_multiple, spec.longest_edge) == (28, 140)
    sizes = {(30, 50): (56, 56), (300, 200): (140, 112), (7, 1000): (28, 140), (140, 141): (140, 140)}
    assert {size: image_sizes.longest_edge_size(*size, spec) for size in sizes} == sizes
    tall, wide = image_sizes.longest_edge_size(300, 200, spec, 6)
    assert tall * wide <= 6 * 28 * 28


def test_sizes_of_pictures_in_the_corner_of_a_canvas() -> None:
    """As transformers' image_processing_kimi_k25.py and image_processing_glm5_next.py compute them."""
    half = (0.5, 0.5, 0.5)
    kimi = ImageSpec(14, 2, half, half, "bicubic", "patch_budget", least_rows=2, most_rows=64, longest_edge=280)
    glm = ImageSpec(14, 2, half, half, "bicubic", "canvas", least_rows=16, most_rows=256)
    assert {size: image_sizes.patch_budget_sizes(*size, kimi) for size in ((1659, 1243), (23, 38), (389, 2533), (413, 1450))} == {
        (1659, 1243): ((260, 195), (280, 196)),
        (23, 38): ((23, 38), (28, 56)),
        (389, 2533): ((43, 280), (56, 280)),
        (413, 1450): ((79, 280), (84, 280)),
    }
    assert {size: image_sizes.canvas_sizes(*size, glm) for size in ((1723, 166), (23, 38), (2990, 303), (413, 1450))} == {
        (1723, 166): ((1428, 137), (1428, 140)),
        (23, 38): ((101, 168), (112, 168)),
        (2990, 303): ((1381, 140), (1400, 140)),
        (413, 1450): ((224, 786), (224, 812)),
    }
    canvas = images.tiles(np.full((23, 38, 3), 200, np.uint8), kimi).images[0]
    assert (canvas[:23, :38] == 200).all() and not canvas[23:].any() and not canvas[:, 38:].any()


@pytest.mark.parametrize(
    ("merge", "size", "wanted"),
    [(4, (300, 1000), [(224, 840), *[(448, 448)] * 3]), (4, (100, 90), [(448, 448)]), (2, (100, 90), [(476, 420)])],
)
def test_sizes_of_slices_whose_patches_are_merged(merge: int, size: tuple[int, int], wanted: list[tuple[int, int]]) -> None:
    """As transformers' image_processing_minicpmv4_6.py has them."""
    half = (0.5, 0.5, 0.5)
    spec = ImageSpec(14, merge, half, half, "bicubic", "slices", size=448, most_tiles=9, overview_first=True)
    found = images.tiles(np.zeros((*size, 3), np.uint8), spec).images
    assert [image.shape[:2] for image in found] == wanted


def test_sizes_that_become_smaller_by_steps() -> None:
    """As llama.cpp computes them for Youtu-VL, with 64 rows at most."""
    half = (0.5, 0.5, 0.5)
    spec = ImageSpec(16, 2, half, half, "bilinear", "smaller_by_steps", most_rows=64)
    sizes = {(33, 100): (64, 128), (256, 256): (256, 256), (257, 256): (256, 256), (1000, 500): (320, 160), (10, 2000): (32, 2016)}
    assert {size: image_sizes.stepped_size(*size, spec) for size in sizes} == sizes
    assert image_sizes.stepped_size(10, 2000, spec, 2) == (32, 64)


def test_windows_of_a_picture() -> None:
    """Columns and rows as transformers' image_processing_step3p7.py plans them, and the texts between."""
    half = (0.5, 0.5, 0.5)
    spec = ImageSpec(14, 1, half, half, "bilinear", "windows", strides=4, size=728, tile_size=504, longest_edge=3024, tile="<",
                     tile_end=">", row_end=">\n", last_tile_end=">", overview="o", alone="o", end=".")  # fmt: skip
    for size, grid in {(100, 700): (1, 7), (728, 728): (0, 0), (729, 700): (2, 2), (20, 300): (0, 0), (500, 4000): (1, 8)}.items():
        tiles = images.tiles(np.zeros((*size, 3), np.uint8), spec)
        assert (tiles.rows, tiles.columns, len(tiles.images)) == (*grid, grid[0] * grid[1] + 1), size
        assert [image.shape[0] for image in tiles.images] == [504] * (grid[0] * grid[1]) + [728]
    four = images.tiles(np.zeros((1010, 1010, 3), np.uint8), spec)
    assert list(images.texts(four, spec)) == ["<", "><", ">\n<", "><", ">o", "."]
    assert not images.tiles(np.zeros((1010, 1010, 3), np.uint8), spec, 300).rows


def test_a_framed_picture_is_resized_first(tmp_path: Path) -> None:
    """As transformers' image_processing_janus.py does it."""
    with open_gguf(projector_file(tmp_path / "m.gguf", "janus_pro")) as gguf:
        spec = load_encoder(gguf)[3]
    (image,) = images.tiles(np.full((100, 300, 3), 200, np.uint8), spec).images
    assert image.shape == (64, 64, 3) and (image[:21] == 127).all() and (image[21:42] == 200).all() and (image[42:] == 127).all()
    (thin,) = images.tiles(np.full((2, 300, 3), 200, np.uint8), spec).images
    assert (thin == 200).any(axis=(1, 2)).sum() == 14


def test_tiles_are_row_by_row_and_the_overview_last(tmp_path: Path) -> None:
    with open_gguf(projector_file(tmp_path / "m.gguf", "idefics3")) as gguf:
        spec = load_encoder(gguf)[3]
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


@pytest.mark.parametrize(
    ("size", "grid", "sides"),
    [
        ((448, 448), (0, 0), [(448, 448)]),
        ((60, 150), (0, 0), [(280, 700)]),
        ((900, 1400), (2, 3), [(364, 560), (434, 448)]),
        ((3000, 500), (7, 1), [(1092, 182), (420, 476)]),
        ((640, 480), (2, 1), [(518, 392), (364, 546)]),
    ],
)
def test_slices_of_minicpm(size: tuple[int, int], grid: tuple[int, int], sides: list[tuple[int, int]], tmp_path: Path) -> None:
    """An overview and slices, whose sizes transformers' MiniCPMV4_6ImageProcessorPil gave for patches of 14 pixels."""
    with open_gguf(projector_file(tmp_path / "mmproj.gguf", "resampler", image_size=448)) as gguf:
        spec = replace(load_encoder(gguf)[3], patch=14)
    found = images.tiles(picture(*size), spec)
    assert (found.rows, found.columns) == grid
    assert [image.shape[:2] for image in found.images] == [sides[0], *[sides[-1]] * (grid[0] * grid[1])]
    texts = list(images.texts(found, spec))
    assert len(texts) == len(found.images) + 1 and texts[0] == "<image>"
    assert "".join(texts).count("<slice>") == bool(grid[0]), "MiniCPM-V 2.5 has one for all slices"


def test_tiles_of_listed_sizes_become_one_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pack_image_features of transformers' modeling_llava_next.py has them: padding is left out, a row ends each line."""
    monkeypatch.setitem(KINDS, "mlp", llava_next)
    encoder = ImageEncoder(projector_file(tmp_path / "m.gguf", "mlp"), threads=1)
    pixels, n = picture(60, 150), 8
    tiles = images.tiles(pixels, encoder.spec)
    assert (tiles.rows, tiles.columns, len(tiles.images)) == (1, 3, 4)  # 192 x 64
    large = np.concatenate(tiles.images[1:], axis=1)
    assert large.shape == (64, 192, 3) and (large[:, :16] == 0).all() and (large[:, 16:176] != 0).any(axis=(0, 2)).all()
    apart = [rows.reshape(n, n, -1) for rows in encoder.encode_patches([images.patches(i, encoder.spec) for i in tiles.images])]
    overview, joined = (piece.rows for piece in encoder.encode(pixels).pieces if not isinstance(piece, str))
    lines = joined.reshape(n, 3 * n - 4 + 1, -1)  # two columns of padding are cut off at each side
    assert np.array_equal(overview, apart[0].reshape(n * n, -1))
    assert np.array_equal(lines[:, :-1], np.concatenate(apart[1:], axis=1)[:, 2:-2])
    assert (lines[:, -1] == encoder._weights["model.image_newline"].array()).all()
    assert len(encoder.encode(pixels, most_rows=64).rows) == 64 + 1
    encoder.close()
    with pytest.raises(BadHParam, match="image_grid_pinpoints"):
        ImageEncoder(projector_file(tmp_path / "m.gguf", "mlp", image_grid_pinpoints=[100, 64]))


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((640, 640), (0, 0)),
        ((300, 641), (1, 2)),
        ((2200, 1700), (3, 2)),
        ((500, 3000), (1, 6)),
        ((800, 800), (2, 2)),
        ((1400, 1400), (3, 3)),
        ((2000, 150), (9, 1)),
    ],
)
def test_tiles_and_overview_of_deepseek(size: tuple[int, int], grid: tuple[int, int], tmp_path: Path) -> None:
    """Grids that the makers' dynamic_preprocess gives, and the frame of Pillow's ImageOps.pad."""
    with open_gguf(projector_file(tmp_path / "m.gguf", "deepseekocr", preproc_max_tiles=9)) as gguf:
        spec = replace(load_encoder(gguf)[3], patch=16, size=1024, tile_size=640)
    pixels = np.full((*size, 3), 200, np.uint8)
    found = images.tiles(pixels, spec)
    assert (found.rows, found.columns) == grid
    assert [image.shape[0] for image in found.images] == [640] * (grid[0] * grid[1]) + [1024]
    framed = ImageOps.pad(Pillow.fromarray(pixels), (1024, 1024), color=(127, 127, 127))
    assert np.array_equal(found.images[-1], np.array(framed))


def test_lines_of_deepseek_end_with_a_row_of_the_file(tmp_path: Path) -> None:
    """Lines go through all tiles of a row; those of the overview follow, then the separator."""
    encoder = ImageEncoder(projector_file(tmp_path / "m.gguf", "deepseekocr"), threads=1)
    pixels = picture(75, 110)
    tiles = images.tiles(pixels, encoder.spec)
    assert (tiles.rows, tiles.columns) == (2, 2)
    *parts, overview = encoder.encode_patches([images.patches(image, encoder.spec) for image in tiles.images])
    newline, separator = (encoder._weights[name].array().reshape(1, -1) for name in ("v.image_newline", "v.view_seperator"))
    lines = list[Any]()
    for left, right in (parts[:2], parts[2:]):
        lines += [rows for y in range(3) for rows in (left[3 * y : 3 * y + 3], right[3 * y : 3 * y + 3], newline)]
    lines += [rows for y in range(4) for rows in (overview[4 * y : 4 * y + 4], newline)]
    pieces = encoder.encode(pixels).pieces
    assert [piece for piece in pieces if isinstance(piece, str)] == ["", "", "\n"]
    assert np.array_equal(encoder.encode(pixels).rows, np.concatenate([*lines, separator]))
    assert {most: len(encoder.encode(pixels, most_rows=most).rows) for most in (10, 44, 45)} == {10: 21, 44: 21, 45: 42}
    encoder.close()


def test_tiles_of_deepseek_2_follow_each_other(tmp_path: Path) -> None:
    encoder = ImageEncoder(projector_file(tmp_path / "m.gguf", "deepseekocr2"), threads=1)
    pixels = picture(75, 110)
    tiles = images.tiles(pixels, encoder.spec)
    assert [image.shape[0] for image in tiles.images] == [48, 48, 48, 48, 64]
    rows = encoder.encode_patches([images.patches(image, encoder.spec) for image in tiles.images])
    assert [len(each) for each in rows] == [9, 9, 9, 9, 16]
    separator = encoder._weights["v.view_seperator"].array().reshape(1, -1)
    assert np.array_equal(encoder.encode(pixels).rows, np.concatenate([*rows, separator]))
    encoder.close()


def _lanczos(pixels: images.Pixels, n: int, axis: int) -> images.Pixels:
    """One pass of Pillow's filter: weights of 22 bits, sums rounded to bytes."""
    values = np.moveaxis(pixels, axis, 0).astype(np.int64)
    scale, lines = len(values) / n, []
    support = 3 * max(scale, 1)
    for place in range(n):
        centre = (place + 0.5) * scale
        low, high = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), len(values))
        at = (np.arange(low, high) - centre + 0.5) / max(scale, 1)
        weights = np.sinc(at) * np.sinc(at / 3) * (abs(at) <= 3)
        weights = weights / weights.sum() * 2**22
        whole = np.trunc(weights + np.copysign(0.5, weights)).astype(np.int64)
        lines.append(np.clip((np.tensordot(whole, values[low:high], (0, 0)) + (1 << 21)) >> 22, 0, 255))
    return np.moveaxis(np.array(lines, np.uint8), 0, axis)


@pytest.mark.parametrize(("size", "wanted"), [((170, 50), (128, 38)), ((60, 150), (52, 128)), ((40, 30), (64, 64))])
def test_pictures_are_resized_across_first(size: tuple[int, int], wanted: tuple[int, int], tmp_path: Path) -> None:
    """Whatever Pillow finds cheaper: the two orders round differently."""
    with open_gguf(projector_file(tmp_path / "m.gguf", "idefics3")) as gguf:
        spec = load_encoder(gguf)[3]
    pixels = picture(*size)
    assert np.array_equal(images.resized(pixels, wanted, spec), _lanczos(_lanczos(pixels, wanted[1], 1), wanted[0], 0))
