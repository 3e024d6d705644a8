"""Pictures as a model's encoder takes them: read from files, bytes or arrays, resized and cut as its makers do it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from edgellm.errors import BackendError, ImageError, OptionError, shown
from edgellm.image_spec import ImageSpec
from edgellm.ops._spec import Patches

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Pixels: TypeAlias = npt.NDArray[np.uint8]  # (h, w, 3)
Source: TypeAlias = "str | os.PathLike[str] | bytes | npt.NDArray[np.uint8] | PillowImage"
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")  # what is opened: each further decoder is one more to trust
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
    """What an encoder gets of one picture: images of (h, w, 3) u8. `rows` x `columns` tiles come first, then the overview.

    Both are 0 where the picture is one image.
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
    data, name = _bytes(source)
    try:
        with warnings.catch_warnings(action="ignore"):  # of many pixels, which have a limit of their own below
            image = pillow.open(io.BytesIO(data), formats=FORMATS)
    except Exception as error:  # decoders raise whatever they meet in a damaged file
        raise ImageError(f"{name} can't be read as an image ({', '.join(FORMATS)}): {_reason(error)}.") from error
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


def _bytes(source: object) -> tuple[bytes, str]:
    """The bytes of a picture's file, and its name for messages."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), "the image"
    if isinstance(source, str) and source[:5].lower() == "data:":
        head, _, body = source.partition(",")
        if not head.lower().endswith(";base64"):
            raise ImageError(f"the data URI begins with {shown(head[:40])}; give data:image/png;base64,...")
        try:
            return base64.b64decode("".join(body.split()), validate=True), "the data URI"
        except (binascii.Error, ValueError) as error:
            raise ImageError(f"the data URI isn't valid base64: {error}.") from error
    if isinstance(source, str) and source.partition("://")[0].lower() in ("http", "https", "ftp"):
        raise ImageError(f"{shown(source[:80])} is a remote address; download the image, then give its path or bytes.")
    if not isinstance(source, str | os.PathLike):
        raise OptionError(f"an image can't be {type(source).__name__}; give a path, bytes, a data URI, a Pillow image or an array.")
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            return file.read(), str(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ImageError(f"can't read the image {shown(str(path))}: {reason}; check the path.") from error


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

    try:
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.array(image.convert("RGB"), np.uint8)
    except Exception as error:  # as for `open`
        raise ImageError(f"{name} is damaged: {_reason(error)}; save the image again.") from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return "not such a file" if "cannot identify" in text or not text else text[:100]


# --- sizes ------------------------------------------------------------------------------------------------------------
def tiles(pixels: Pixels, spec: ImageSpec, most_rows: int | None = None) -> Tiles:
    """What the encoder gets of a picture. `most_rows`: instead of the model's limit for dynamic images."""
    height, width = pixels.shape[:2]
    if spec.layout == "dynamic":
        return Tiles((resized(pixels, dynamic_size(height, width, spec, most_rows), spec),))
    if spec.layout == "square":
        return Tiles((resized(pixels, (spec.size, spec.size), spec),))
    if spec.layout == "closest_grid_tiles":
        return _closest_grid_tiles(pixels, spec, most_rows)
    return _longest_edge_tiles(pixels, spec)


def dynamic_size(height: int, width: int, spec: ImageSpec, most_rows: int | None = None) -> tuple[int, int]:
    """Height and width as `smart_resize` of transformers has them: multiples, about the same proportions, limited pixels."""
    side = spec.side_multiple
    most = spec.most_rows if most_rows is None else most_rows
    least = min(spec.least_rows, most)
    tall, wide = max(side, round(height / side) * side), max(side, round(width / side) * side)
    if tall * wide > most * side * side:
        factor = math.sqrt(height * width / (most * side * side))
        tall, wide = (max(side, math.floor(each / factor / side) * side) for each in (height, width))
    elif tall * wide < least * side * side:
        factor = math.sqrt(least * side * side / (height * width))
        tall, wide = (math.ceil(each * factor / side) * side for each in (height, width))
    return tall, wide


def resized(pixels: Pixels, size: tuple[int, int], spec: ImageSpec) -> Pixels:
    """Stretched to (height, width), as Pillow's filters do it with bytes."""
    from PIL import Image

    if pixels.shape[:2] == size:
        return pixels
    resample = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS}
    return np.array(Image.fromarray(pixels).resize(size[::-1], resample[spec.resample]))


def _longest_edge_tiles(pixels: Pixels, spec: ImageSpec) -> Tiles:
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
    grids = [(w, h) for w in range(1, MOST_TILES + 1) for h in range(1, MOST_TILES + 1) if LEAST_TILES <= w * h <= MOST_TILES]
    columns, rows, nearest = 1, 1, math.inf
    for w, h in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        away = abs(width / height - w / h)
        if away < nearest or (away == nearest and width * height > 0.5 * spec.size**2 * w * h):
            columns, rows, nearest = w, h, away
    large = resized(pixels, (rows * spec.size, columns * spec.size), spec)
    return Tiles((*_cut(large, spec.size), small), rows, columns)


# --- patches ----------------------------------------------------------------------------------------------------------
def patches(image: Pixels, spec: ImageSpec) -> Patches:
    """The patches of one image, those that become one row beside each other, and windows one after the other."""
    patch, merge = spec.patch, spec.merge
    n_rows, n_columns = image.shape[0] // patch // merge, image.shape[1] // patch // merge
    y, x = (each.ravel() for each in np.indices((n_rows, n_columns)))
    side = max(spec.window // patch // merge, 1)
    window = (y // side) * -(-n_columns // side) + x // side if spec.window else np.zeros_like(y)
    order = np.argsort(window, kind="stable")
    inner_y, inner_x = (each.ravel() for each in np.indices((merge, merge)))
    rows = (y[order, None] * merge + inner_y).ravel()
    columns = (x[order, None] * merge + inner_x).ravel()
    image = image[: n_rows * merge * patch, : n_columns * merge * patch]  # of sides that patches do not fill, as a convolution
    pixels = (image.astype(np.float32) / np.float32(255) - np.array(spec.mean, np.float32)) / np.array(spec.std, np.float32)
    grid = (n_rows * merge, n_columns * merge)
    by_patch = pixels.reshape(grid[0], patch, grid[1], patch, 3).transpose(0, 2, 4, 1, 3)[rows, columns]
    outputs = np.empty(len(order), np.int64)
    outputs[order] = np.arange(len(order)) * merge * merge
    return Patches(
        np.ascontiguousarray(by_patch.reshape(len(rows), -1), np.float32),
        np.stack([rows, columns], axis=1),
        np.broadcast_to(np.array(grid), (len(rows), 2)),
        np.repeat(window[order], merge * merge),
        outputs,
    )


def texts(tiles: Tiles, spec: ImageSpec) -> Iterator[str]:
    """The texts around the rows of a picture's images: one before each, and one after the last."""
    before = spec.begin
    for row in range(1, tiles.rows + 1):
        for column in range(1, tiles.columns + 1):
            yield before + spec.tile.format(row=row, column=column)
            before = ""
        before = spec.row_end
    yield before + spec.overview if tiles.rows else before + spec.overview.lstrip("\n")
    yield spec.end
