"""Pictures as a model's encoder takes them: read from files, bytes or arrays, resized and cut as its makers do it."""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from edgellm.chat.image_sizes import area_size, canvas_sizes, dynamic_size, longest_edge_size, patch_budget_sizes, stepped_size
from edgellm.chat.media import bytes_of_medium
from edgellm.errors import BackendError, ImageError, OptionError
from edgellm.image_spec import ImageSpec
from edgellm.ops._spec import Patches

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Pixels: TypeAlias = npt.NDArray[np.uint8]  # (h, w, 3)
Source: TypeAlias = "str | os.PathLike[str] | bytes | npt.NDArray[np.uint8] | PillowImage"
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")  # what is opened: each further decoder is one more to trust
OTHERS = {  # formats that people send, by the beginnings of their files
    "HEIC": rb"(?s)....ftyp(heic|heix|hevc|heim|heis|mif1|msf1)",
    "AVIF": rb"(?s)....ftyp(avif|avis)",
    "SVG": rb"(?s)\s*(\xef\xbb\xbf)?(<\?xml.*|<!--.*|<!DOCTYPE svg.*)?<svg",
    "TIFF": rb"II\*\x00|MM\x00\*",
    "BMP": rb"BM",
    "PDF": rb"%PDF",
    "JPEG XL": rb"\xff\x0a|\x00{3}\x0cJXL ",
    "ICO": rb"\x00\x00\x01\x00",
}
MOST_PIXELS = 1 << 27  # of a picture; the largest photographs of phones have 200 million, of which few are sent
MOST_RATIO = 200  # between the sides; Qwen's own code refuses more


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a prompt. `tokens`: rows that it may take at most, of models whose images have no fixed size; None: the
    model's limit. `data`: see `read`.
    """

    data: Source
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Tiles:
    """The images that one picture is cut into: (h, w, 3) u8. `rows` x `columns` tiles come first, then the overview.

    Both are 0 where the picture is one image. Of some models the overview is the first one.
    """

    images: tuple[Pixels, ...]
    rows: int = 0
    columns: int = 0


def read(source: Source) -> Pixels:
    """A picture as (h, w, 3) u8: turned as its EXIF says, its first frame, on white where it is transparent.

    `source`: a path, the bytes of a file, a data URI, a Pillow image, or an array (h, w) or (h, w, 3 or 4) of uint8.
    Raises ImageError, OptionError.
    """
    pillow = _pillow()
    if isinstance(source, np.ndarray):
        image = pillow.fromarray(_checked(source))
        return _rgb(image, "the array")
    if isinstance(source, pillow.Image):
        _check_size(source.size, "the image")
        return _rgb(source, "the image")
    data, name = bytes_of_medium(source, "image", "image/png", "a path, bytes, a data URI, a Pillow image or an array", ImageError)
    try:
        with warnings.catch_warnings(action="ignore"):  # of many pixels, which have a limit of their own below
            image = pillow.open(io.BytesIO(data), formats=FORMATS)
    except pillow.DecompressionBombError as error:
        raise ImageError(f"{name} has more than {MOST_PIXELS >> 20} million pixels; make it smaller.") from error
    except Exception as error:  # decoders raise whatever they meet in a damaged file
        kind = next((kind for kind, pattern in OTHERS.items() if re.match(pattern, data[:400])), "")
        reason = f"its format is {kind}" if kind else "it is empty" if not data else _reason(error)
        raise ImageError(
            f"{name} can't be read as an image: {reason}; save it as {', '.join(FORMATS[:-1])} or {FORMATS[-1]} first."
        ) from error
    _check_size(image.size, name)
    return _rgb(image, name)


def fingerprint(pixels: Pixels) -> bytes:
    """A hash of what a picture shows, whatever file it came from."""
    digest = hashlib.sha256(repr(pixels.shape).encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


def _pillow() -> Any:  # Any: a module that is imported only when an image comes
    try:
        import PIL.Image
    except ImportError as error:
        raise BackendError("images need Pillow; install it: pip install pillow") from error
    return PIL.Image


def _checked(array: npt.NDArray[Any]) -> Pixels:
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))) or not array.size:
        raise OptionError(
            f"the image is an array of {array.dtype} {array.shape}; give uint8 of (height, width) or (height, width, 3 or 4)."
        )
    _check_size((array.shape[1], array.shape[0]), "the array")
    return cast(Pixels, np.ascontiguousarray(array))


def _check_size(size: tuple[int, int], name: str) -> None:
    """Raises ImageError before pixels are decoded."""
    width, height = size
    if width * height > MOST_PIXELS:
        raise ImageError(f"{name} has {width} x {height} pixels; at most {MOST_PIXELS >> 20} million are read, make it smaller.")
    if min(size) < 1 or max(size) > MOST_RATIO * min(size):
        raise ImageError(f"{name} has {width} x {height} pixels; one side may be {MOST_RATIO} times the other at most, crop it.")


def _rgb(image: PillowImage, name: str) -> Pixels:
    from PIL import Image, ImageOps

    source = image.format
    try:
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16") or (image.mode == "I" and source == "PNG"):  # as Pillow 10 has those of 16 bits
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.array(image.convert("RGB"), np.uint8)
    except Exception as error:  # as for `open`
        raise ImageError(f"{name} is damaged: {_reason(error)}; save the image again.") from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return "its format is unknown" if "cannot identify" in text or not text else text[:100]


# --- sizes ------------------------------------------------------------------------------------------------------------
def tiles(pixels: Pixels, spec: ImageSpec, most_rows: int | None = None) -> Tiles:
    """Cut a picture into the images that the encoder reads. `most_rows`: instead of the model's limit for dynamic images."""
    height, width = pixels.shape[:2]
    if spec.layout == "dynamic":
        return Tiles((resized(pixels, dynamic_size(height, width, spec, most_rows), spec),))
    if spec.layout == "smaller_by_steps":
        return Tiles((resized(pixels, stepped_size(height, width, spec, most_rows), spec),))
    if spec.layout == "area":
        return Tiles((resized(pixels, area_size(height, width, spec, most_rows), spec),))
    if spec.layout in ("patch_budget", "canvas"):
        sizes = patch_budget_sizes if spec.layout == "patch_budget" else canvas_sizes
        shown, outer = sizes(height, width, spec, most_rows)
        canvas = np.zeros((*outer, 3), np.uint8)
        canvas[: shown[0], : shown[1]] = resized(pixels, shown, spec)
        return Tiles((canvas,))
    if spec.layout == "longest_edge":
        return Tiles((resized(pixels, longest_edge_size(height, width, spec, most_rows), spec),))
    if spec.layout == "framed_square":
        scale = spec.size / max(height, width)
        inner = resized(pixels, (max(round(height * scale), spec.least_side), max(round(width * scale), spec.least_side)), spec)
        return Tiles((_squared(inner, spec),))
    if spec.layout in ("square", "padded_square"):
        square = _squared(pixels, spec) if spec.layout == "padded_square" else pixels
        return Tiles((resized(square, (spec.size, spec.size), spec),))
    cut = {
        "slices": _slices,
        "listed_sizes": _listed_sizes,
        "closest_grid_tiles": _closest_grid_tiles,
        "nearest_ratio_tiles": _nearest_ratio_tiles,
        "fitting_tiles": _fitting_tiles,
        "windows": _windows,
        "framed_overview": _framed_overview,
        "longest_edge_tiles": _longest_edge_tiles,
    }
    return cut[spec.layout](pixels, spec, most_rows)


def _squared(pixels: Pixels, spec: ImageSpec) -> Pixels:
    """LLaVA's expand2square: the picture in the middle of a square."""
    height, width = pixels.shape[:2]
    side = max(height, width)
    square = np.empty((side, side, 3), np.uint8)
    square[:] = spec.padding
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = pixels
    return square


def resized(pixels: Pixels, size: tuple[int, int], spec: ImageSpec) -> Pixels:
    """Stretched to (height, width), as Pillow's filters do it with bytes: across first. Pillow 13 begins with the cheaper
    direction, which rounds otherwise, and models were trained with earlier ones.
    """
    from PIL import Image

    if pixels.shape[:2] == size:
        return pixels
    resample = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS}
    across = Image.fromarray(pixels).resize((size[1], pixels.shape[0]), resample[spec.resample])
    return np.array(across.resize(size[::-1], resample[spec.resample]))


def _longest_edge_tiles(pixels: Pixels, spec: ImageSpec, most_rows: int | None) -> Tiles:
    """Idefics 3 (transformers, image_processing_idefics3.py): longer side, then multiples of a tile, then the overview."""
    height, width = pixels.shape[:2]
    ratio, longest = width / height, spec.longest_edge
    if width >= height:
        wide, tall = longest, int(longest / ratio)
        tall = max(tall + tall % 2, 1)
    else:
        tall, wide = longest, int(longest * ratio)
        wide = max(wide + wide % 2, 1)
    first = resized(pixels, (tall, wide), spec)
    ratio, size = wide / tall, spec.size
    if wide >= tall:
        wide = -(-wide // size) * size
        tall = -(-int(wide / ratio) // size) * size
    else:
        tall = -(-tall // size) * size
        wide = -(-int(tall * ratio) // size) * size
    tall, wide = max(tall, size), max(wide, size)
    large = resized(first, (tall, wide), spec)
    if (tall, wide) == (size, size):
        return Tiles((large,))
    return Tiles((*_cut(large, size), resized(large, (size, size), spec)), tall // size, wide // size)


def _cut(image: Pixels, size: int) -> list[Pixels]:
    """Squares of an image, row by row."""
    rows, columns = image.shape[0] // size, image.shape[1] // size
    return [image[y * size : (y + 1) * size, x * size : (x + 1) * size] for y in range(rows) for x in range(columns)]


LEAST_TILES, MOST_TILES = 2, 10
TOLERANCE = 2.0  # times the most pixels that a picture may have without being cut


def _closest_grid_tiles(pixels: Pixels, spec: ImageSpec, most_rows: int | None) -> Tiles:
    """LFM2-VL (transformers, image_processing_lfm2_vl.py): one image, or tiles of the grid whose proportions come closest."""
    height, width = pixels.shape[:2]
    side, most = spec.side_multiple, spec.most_rows if most_rows is None else most_rows
    small = resized(pixels, dynamic_size(height, width, spec, most_rows), spec)
    tall, wide = (max(spec.patch, round(each / side) * side) for each in (height, width))
    if tall * wide <= most * side * side * TOLERANCE:
        return Tiles((small,))
    columns, rows = _nearest_grid(height, width, spec.size, LEAST_TILES, MOST_TILES)
    large = resized(pixels, (rows * spec.size, columns * spec.size), spec)
    return Tiles((*_cut(large, spec.size), small), rows, columns)


def _nearest_grid(height: int, width: int, size: int, least: int, most: int) -> tuple[int, int]:
    """Columns and rows of the grid whose proportions come closest: of equal ones the larger, unless it is twice the picture."""
    grids = [(w, h) for w in range(1, most + 1) for h in range(1, most + 1) if least <= w * h <= most]
    columns, rows, nearest = 1, 1, math.inf
    for w, h in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        away = abs(width / height - w / h)
        if away < nearest or (away == nearest and width * height > 0.5 * size**2 * w * h):
            columns, rows, nearest = w, h, away
    return columns, rows


def _nearest_ratio_tiles(pixels: Pixels, spec: ImageSpec, most_rows: int | None) -> Tiles:
    """InternVL (transformers, image_processing_got_ocr2.py)."""
    size = spec.size
    columns, rows = _nearest_grid(pixels.shape[0], pixels.shape[1], size, spec.least_tiles, _budget(spec, most_rows))
    large = resized(pixels, (rows * size, columns * size), spec)
    if rows == columns == 1:
        return Tiles((large,))
    return Tiles((*_cut(large, size), resized(pixels, (size, size), spec)), rows, columns)


def _budget(spec: ImageSpec, most_rows: int | None) -> int:
    """Tiles that a picture may have, its overview not counted."""
    if most_rows is None:
        return spec.most_tiles
    return min(max(most_rows * spec.side_multiple**2 // spec.size**2 - 1, spec.least_tiles), spec.most_tiles)


def _framed_overview(pixels: Pixels, spec: ImageSpec, most_rows: int | None) -> Tiles:
    """DeepSeek-OCR (its makers' code, as vllm has it in processors/deepseek_ocr.py, and Pillow's ImageOps.pad)."""
    (height, width), size, most = pixels.shape[:2], spec.tile_size, spec.most_tiles
    if most_rows is not None:
        across, across_tile = (-(-each // spec.side_multiple) for each in (spec.size, size))
        rest = most_rows - across * (across + bool(spec.newline)) - 1
        most = min(most, max(rest, 0) // (across_tile * (across_tile + bool(spec.newline))))
    overview = np.empty((spec.size, spec.size, 3), np.uint8)
    overview[:] = spec.padding
    tall, wide = (max(round(each / max(height, width) * spec.size), 1) for each in (height, width))
    top, left = (round((spec.size - each) / 2) for each in (tall, wide))
    overview[top : top + tall, left : left + wide] = resized(pixels, (tall, wide), spec)
    if max(height, width) <= size or most < spec.least_tiles:
        return Tiles((overview,))
    columns, rows = _nearest_grid(height, width, size, spec.least_tiles, most)
    return Tiles((*_cut(resized(pixels, (rows * size, columns * size), spec), size), overview), rows, columns)


def _slices(pixels: Pixels, spec: ImageSpec, most_rows: int | None) -> Tiles:
    """MiniCPM-V (its makers' image_processing_minicpmv.py): an overview, then slices of the picture, each about as large as it."""
    (height, width), size = pixels.shape[:2], spec.size
    most = (
        spec.most_tiles
        if most_rows is None
        else min(max(most_rows // (spec.queries or (spec.size // spec.side_multiple) ** 2) - 1, 1), spec.most_tiles)
    )
    wanted = min(math.ceil(width * height / size**2), most)
    if wanted <= 1:
        return Tiles((resized(pixels, _near_square(height, width, spec, enlarge=True), spec),))
    grids = [(n // m, m) for n in (wanted - 1, wanted, wanted + 1) if n != 1 and n <= most for m in range(1, n + 1) if n % m == 0]
    ratio = math.log(width / height)
    rows, columns = min(grids, key=lambda grid: abs(ratio - math.log(grid[1] / grid[0])))
    tall, wide = (max(round(each / n) * n, n) // n for each, n in ((height, rows), (width, columns)))
    tall, wide = _near_square(tall, wide, spec, enlarge=True)
    large = resized(pixels, (tall * rows, wide * columns), spec)
    parts = [large[y * tall : (y + 1) * tall, x * wide : (x + 1) * wide] for y in range(rows) for x in range(columns)]
    return Tiles((resized(pixels, _near_square(height, width, spec), spec), *parts), rows, columns)


def _listed_sizes(pixels: Pixels, spec: ImageSpec, most_rows: int | None) -> Tiles:
    """LLaVA 1.6 (transformers, image_processing_llava_next.py)."""
    (height, width), best = pixels.shape[:2], (0, 0)
    rows_of_tile = (spec.size // spec.side_multiple) ** 2
    fitting = [
        (wide, tall)
        for wide, tall in spec.sizes
        if most_rows is None or (1 + wide // spec.size * (tall // spec.size)) * rows_of_tile <= most_rows
    ]
    overview = resized(pixels, (spec.size, spec.size), spec)
    if not fitting:
        return Tiles((overview,))
    for wide, tall in fitting:
        scale = min(wide / width, tall / height)
        shown = min(int(width * scale) * int(height * scale), width * height)
        if (shown, shown - wide * tall) > best:
            best, (columns, rows) = (shown, shown - wide * tall), (wide // spec.size, tall // spec.size)
    wide, tall = columns * spec.size, rows * spec.size
    large = np.empty((tall, wide, 3), np.uint8)
    large[:] = spec.padding
    if wide / width < tall / height:
        inner = (min(math.ceil(height * (wide / width)), tall), wide)
    else:
        inner = (tall, min(math.ceil(width * (tall / height)), wide))
    top, left = (tall - inner[0]) // 2, (wide - inner[1]) // 2
    large[top : top + inner[0], left : left + inner[1]] = resized(pixels, inner, spec)
    return Tiles((overview, *_cut(large, spec.size)), rows, columns)


def unpadded(height: int, width: int, rows: int, columns: int) -> tuple[slice, slice]:
    """Those of `rows` x `columns` rows of a picture (height, width) that do not show its padding (`unpad_image` of LLaVA 1.6)."""
    if width / height > columns / rows:
        beside = (rows - int(round(height * (columns / width), 7))) // 2
        return slice(beside, rows - beside), slice(0, columns)
    beside = (columns - int(round(width * (rows / height), 7))) // 2
    return slice(0, rows), slice(beside, columns - beside)


def _near_square(height: int, width: int, spec: ImageSpec, *, enlarge: bool = False) -> tuple[int, int]:
    """Multiples of `side_multiple`, of about as many pixels as a square of `size` has; smaller ones are kept or enlarged."""
    side = spec.side_multiple
    if width * height > spec.size**2 or enlarge:
        ratio = width / height
        height = int(spec.size / math.sqrt(ratio))
        width = int(height * ratio)
    tall, wide = (max(round(each / side) * side, side) for each in (height, width))
    return tall, wide


def _fitting_tiles(pixels: Pixels, spec: ImageSpec, most_rows: int | None) -> Tiles:
    """Llama 4 (transformers, image_processing_llama4.py)."""
    (height, width), size, most = pixels.shape[:2], spec.size, _budget(spec, most_rows)
    scales = {(h, w): min(np.float32(h * size / height), np.float32(w * size / width))
              for h in range(1, most + 1) for w in range(1, most // h + 1)}  # fmt: skip
    enlarging = [scale for scale in scales.values() if scale >= 1]
    wanted = min(enlarging) if enlarging else max(scales.values())
    rows, columns = min((grid for grid in scales if scales[grid] == wanted), key=lambda grid: grid[0] * grid[1])
    tall, wide = (min(max(each, size), n * size) for each, n in ((height, rows), (width, columns)))
    if wide / width < tall / height:
        tall = max(min(math.floor(height * (wide / width)), tall), 1)
    else:
        wide = max(min(math.floor(width * (tall / height)), wide), 1)
    large = np.zeros((rows * size, columns * size, 3), np.uint8)
    large[:tall, :wide] = resized(pixels, (tall, wide), spec)
    if rows == columns == 1:
        return Tiles((large,))
    return Tiles((*_cut(large, size), resized(pixels, (size, size), spec)), rows, columns)


THIN, SLENDER, LONG, MORE = 32, 4, 1.5, 0.2  # pixels of a strip; ratios of sides; the share of a window that makes one more


def _windows(pixels: Pixels, spec: ImageSpec, most_rows: int | None) -> Tiles:
    """Step 3.7 (transformers, image_processing_step3p7.py). No windows where `most_rows` don't allow all that it would have."""
    height, width = pixels.shape[:2]
    if min(height, width) < THIN and max(height, width) > SLENDER * min(height, width):
        side = max(height, width)
        pixels = np.pad(pixels, ((0, side - height), (0, side - width), (0, 0)))
        height = width = side
    if (longest := max(height, width)) > spec.longest_edge:
        height, width = (int(each * (spec.longest_edge / longest)) for each in (height, width))
    overview = resized(resized(pixels, (height, width), spec), (spec.size, spec.size), spec)
    short, long = sorted((height, width))
    window = min(short, spec.tile_size) if long > SLENDER * short else spec.tile_size
    if long <= spec.size:
        window = short if long > LONG * short else 0
    if not window:
        return Tiles((overview,))
    tall, wide = (
        window * (each // window + (each % window > MORE * window)) if each >= window else each for each in (height, width)
    )
    rows, columns = max(tall // window, 1), max(wide // window, 1)
    each = [n // spec.side_multiple for n in (spec.size, spec.tile_size)]
    if most_rows is not None and each[0] ** 2 + rows * columns * each[1] ** 2 > most_rows:
        return Tiles((overview,))
    large = resized(pixels, (tall, wide), spec)
    cut = [large[y : y + window, x : x + window] for y in range(0, tall, window) for x in range(0, wide, window)]
    tiles = [resized(tile, (spec.tile_size, spec.tile_size), spec) for tile in cut]
    return Tiles((*tiles, overview), rows, columns)


# --- patches ----------------------------------------------------------------------------------------------------------
def patches(image: Pixels, spec: ImageSpec) -> Patches:
    """The patches of one image, those that become one row beside each other, and windows one after the other. The place of a row
    that fills a window up is (-1 - row, -1 - column).
    """
    patch, merge = spec.patch, spec.first_merge or spec.merge
    n_rows, n_columns = image.shape[0] // patch // merge, image.shape[1] // patch // merge
    side, windowed = max(spec.window // patch // merge, 1), spec.window or spec.first_merge
    filled = tuple(-(-n // side) * side for n in (n_rows, n_columns)) if spec.filled_windows else (n_rows, n_columns)
    y, x = (each.ravel() for each in np.indices(filled))
    window = (y // side) * -(-n_columns // side) + x // side if windowed else np.zeros_like(y)
    order = np.argsort(window, kind="stable")
    inner_y, inner_x = (each.ravel() for each in np.indices((merge, merge)))
    rows = (y[order, None] * merge + inner_y).ravel()
    columns = (x[order, None] * merge + inner_x).ravel()
    image = image[: n_rows * merge * patch, : n_columns * merge * patch]  # of sides that patches do not fill, as a convolution
    pixels = (image.astype(np.float32) / np.float32(255) - np.array(spec.mean, np.float32)) / np.array(spec.std, np.float32)
    grid = (n_rows * merge, n_columns * merge)
    by_patch = pixels.reshape(grid[0], patch, grid[1], patch, 3).transpose(0, 2, *((1, 3, 4) if spec.channels_last else (4, 1, 3)))
    own = (rows < grid[0]) & (columns < grid[1])
    by_patch = by_patch[np.where(own, rows, 0), np.where(own, columns, 0)]
    by_patch[~own] = 0
    rows, columns = (np.where(own, each, -1 - each) for each in (rows, columns))
    outputs = np.empty(len(order), np.int64)
    outputs[order] = np.arange(len(order)) * merge * merge
    outputs = outputs.reshape(filled)[:n_rows, :n_columns].ravel()
    values, places = by_patch.reshape(len(rows), -1), np.stack([rows, columns], axis=1)
    windows = np.repeat(window[order], merge * merge)
    if spec.class_row:
        values, places = np.pad(values, ((0, 1), (0, 0))), np.pad(places, ((0, 1), (0, 0)), constant_values=-1)
        windows = np.pad(windows, (0, 1))
    if n := spec.queries:
        values, windows, outputs = (
            np.pad(values, ((0, n), (0, 0))),
            np.pad(windows, (0, n)),
            np.arange(len(values), len(values) + n),
        )
        places = np.concatenate([places, np.stack([np.full(n, -1), -1 - np.arange(n)], axis=1)])
    grids = np.broadcast_to(np.array(grid), (len(places), 2))
    return Patches(np.ascontiguousarray(values, np.float32), places, grids, windows, outputs, spec.queries)


def texts(tiles: Tiles, spec: ImageSpec) -> Iterator[str]:
    """The texts around the rows of a picture's images: one before each, and one after the last."""
    before = spec.begin
    if spec.overview_first:
        yield before
        before = spec.overview if tiles.rows else spec.alone
    for row in range(1, tiles.rows + 1):
        for column in range(1, tiles.columns + 1):
            yield before + spec.tile.format(row=row, column=column)
            before = spec.tile_end if column < tiles.columns else spec.row_end
    before = spec.last_tile_end if tiles.rows and spec.last_tile_end else before
    if spec.overview_first:
        yield spec.end if tiles.rows else before
        return
    yield before + (spec.overview if tiles.rows else spec.alone)
    yield spec.end
