"""Pictures to the rows that a language model takes in the place of tokens."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence

import numpy as np

from edgellm.arch.vision import Stage, load_encoder
from edgellm.arch.vision import find as find_encoder
from edgellm.backends.base import never
from edgellm.chat import images
from edgellm.engine.prompts import UNWATCHED, PatchProgress, Stop, Watch
from edgellm.errors import ImageError
from edgellm.loading.encoder import Encoded, MediaEncoder, Piece, Rows, RowsOfGrid, RowsOfLines, opened
from edgellm.ops._spec import Patches

LAYERS = 0.8  # the first graph's share of the work where an encoder has several, about


def grid_of(image: Patches, merged: int = 1) -> tuple[int, int]:
    """Rows and columns of an image's patches, or of the squares that so many of them make up."""
    side = math.isqrt(merged)
    return int(image.grids[0, 0]) // side, int(image.grids[0, 1]) // side


def of_rows(stage: Stage, rows: Rows, grid: tuple[int, int]) -> Patches:
    """The rows of an image as the patches that a stage reads."""
    views = stage.views(rows.reshape(*grid, -1))
    values, (down, across) = stage.rows(views), views.shape[:2]
    places, n = np.stack([each.ravel() for each in np.indices((down, across))], axis=1), down * across
    if stage.class_row:
        values, places = np.pad(values, ((0, 1), (0, 0))), np.pad(places, ((0, 1), (0, 0)), constant_values=-1)
    if stage.queries:
        numbers = np.stack([np.full(n, -1), -1 - np.arange(n)], axis=1)
        values, places = np.pad(values, ((0, n), (0, 0))), np.concatenate([places, numbers])
    grids, first = np.broadcast_to(np.array([down, across]), (len(places), 2)), n if stage.queries else 0
    outputs, side = np.arange(first, first + n, stage.merged), math.isqrt(stage.merged)
    if side > 1:  # squares lie beside each other
        order = np.arange(n).reshape(down // side, side, across // side, side).swapaxes(1, 2).ravel()
        values, places = values[order], places[order]
    return Patches(values, places, grids, np.zeros(len(places), np.int64), outputs, ordered=first)


class ImageEncoder(MediaEncoder):
    """The image encoder of a projector file."""

    medium, error = "image", ImageError

    def __init__(self, path: str | os.PathLike[str], threads: int | None = None) -> None:
        """Raises the FormatErrors, BackendError."""
        gguf, (self.keys, self._stages, graphs, self.spec) = opened(path, load_encoder)
        super().__init__(gguf, graphs, threads)

    def encode(self, pixels: images.Pixels, *, most_rows: int | None = None, watch: Watch = UNWATCHED) -> Encoded:
        """The rows of a picture. Raises NumericError, ImageError where it is given up or `cancel` is called, ModelClosed."""
        fingerprint = images.fingerprint(pixels) + repr(most_rows).encode()
        return self._encoded(fingerprint, watch, lambda stop: self._seen(pixels, most_rows, stop, watch.progress))

    def _seen(self, pixels: images.Pixels, most_rows: int | None, stop: Stop, progress: PatchProgress | None) -> tuple[Piece, ...]:
        tiles = images.tiles(pixels, self.spec, most_rows)
        found = self.encode_patches([images.patches(image, self.spec) for image in tiles.images], stop, progress)
        shown = self._arranged(tiles, found, pixels.shape)
        around = [self.spec.begin, *[""] * (len(shown) - 1), self.spec.end]  # of tiles that became one image
        before, *after = images.texts(tiles, self.spec) if len(shown) == len(found) else around
        pieces: list[Piece] = [before]
        for each, text in zip(shown, after, strict=True):
            if self.spec.line_end:
                for line in np.split(each.rows, each.grid[0]):
                    pieces += [RowsOfGrid(line, (1, each.grid[1])), self.spec.line_end]
                del pieces[-1]
            else:
                pieces.append(each)
            pieces.append(text)
        return tuple(pieces)

    def encode_patches(self, each: Sequence[Patches], stop: Stop = never, progress: PatchProgress | None = None) -> list[Rows]:
        """The rows of images that are cut into patches. One call at a time."""
        total, last = sum(len(one.places) for one in each), len(self._stages) - 1
        grids = [grid_of(one, self._stages[0].merged) for one in each]

        def advanced(first: float, share: float) -> Callable[[int], None]:
            """From the patches of a graph to those of all of them."""
            return lambda done: None if progress is None else progress(int(total * first + done * share), total)

        found = self.run(0, each, stop, advanced(0.0, LAYERS if last else 1.0))
        for number, stage in enumerate(self._stages[1:], 1):
            read = (of_rows(stage, rows, grid) for rows, grid in zip(found, grids, strict=True))
            if number == last:
                joined = list(read)
                share = (1 - LAYERS) * total / sum(len(one.places) for one in joined)
                return self.run(number, joined, stop, advanced(LAYERS, share))
            found, grids = map(
                list, zip(*((self.run(number, [one], stop)[0], grid_of(one, stage.merged)) for one in read), strict=True)
            )
        return found

    def _arranged(self, tiles: images.Tiles, found: Sequence[Rows], size: Sequence[int]) -> list[RowsOfGrid | RowsOfLines]:
        """The rows of each image and their grid, with the rows that the file has for its begin, end and lines. Tiles of LLaVA 1.6
        and of DeepSeek-OCR become one image. `size`: of the picture.
        """
        spec, side = self.spec, self.spec.side_multiple
        if spec.separator:
            *cut, overview = found
            if spec.newline:
                cut, overview = [self._lined(cut, tiles.rows).rows] if cut else [], self._lined([overview], 1).rows
            whole = np.concatenate([overview, self._row(spec.separator)])
            return [RowsOfGrid(rows, (1, len(rows))) for rows in (*cut, whole)]
        if spec.newline and tiles.rows:
            n = spec.size // side
            return [RowsOfGrid(found[0], (n, n)), self._lined(found[1:], tiles.rows, size)]
        shown = list[RowsOfGrid | RowsOfLines]()
        for image, rows in zip(tiles.images, found, strict=True):
            if spec.line_rows:
                shown.append(self._lines(rows, image.shape[0] // side))
                continue
            grid = (1, len(rows)) if spec.queries else (image.shape[0] // side, image.shape[1] // side)
            around = [self._row(name) if name else rows[:0] for name in (spec.begin_row, spec.end_row or spec.newline)]
            if sum(map(len, around)):
                rows = np.concatenate([around[0], rows, around[1]])
                grid = (1, len(rows))
            shown.append(RowsOfGrid(rows, grid))
        return shown

    def _lines(self, rows: Rows, lines: int) -> RowsOfLines:
        """The rows of an image with those that the file has for its begin, the ends of lines, and its end."""
        encoder = find_encoder(self.keys)
        begin, newline, end = (encoder.row(self.keys, name, self._read) for name in self.spec.line_rows)
        grid = rows.reshape(lines, -1, rows.shape[1])
        whole = np.concatenate([grid, np.broadcast_to(newline, (lines, 1, rows.shape[1]))], axis=1)
        return RowsOfLines(np.concatenate([begin, whole.reshape(-1, rows.shape[1]), end]), (lines, whole.shape[1]))

    def _lined(self, tiles: Sequence[Rows], down: int, size: Sequence[int] = ()) -> RowsOfGrid:
        """Square tiles, `down` of which are above each other, as one image with the file's row at the end of each line. `size`: of
        the picture, whose padding is left out.
        """
        n, width = math.isqrt(len(tiles[0])), tiles[0].shape[1]
        across = len(tiles) // down
        grid = np.stack(tiles).reshape(down, across, n, n, width).swapaxes(1, 2).reshape(down * n, across * n, width)
        if size:
            grid = grid[images.unpadded(size[0], size[1], *grid.shape[:2])]
        ends = np.broadcast_to(self._row(self.spec.newline), (len(grid), 1, width))
        lines = np.concatenate([grid, ends], axis=1)
        return RowsOfGrid(lines.reshape(-1, width), (lines.shape[0], lines.shape[1]))

    def _row(self, name: str) -> Rows:
        """A tensor of the file as one row (1, n_out)."""
        return self._read(name).reshape(1, -1)

    def _read(self, name: str) -> Rows:
        return self._weights[name].array().astype(np.float32)
