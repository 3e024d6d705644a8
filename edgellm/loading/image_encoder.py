"""Pictures to the rows that a language model takes in the place of tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from edgellm.arch.vision import find as find_encoder
from edgellm.arch.vision import load_encoder
from edgellm.backends import find
from edgellm.backends.base import Backend, BackendOptions
from edgellm.chat import images
from edgellm.checkpoints.opening import open_model
from edgellm.engine.prompts import UNWATCHED, PatchProgress, Stop, Watch
from edgellm.errors import ImageError
from edgellm.loading.encoder import Encoded, MediaEncoder, Piece, Rows, RowsOfGrid, RowsOfLines, largest_step, layout_of, opened
from edgellm.passes import optimise_encoder


class ImageEncoder(MediaEncoder):
    """The image encoder of a projector file."""

    medium, error = "image", ImageError

    def __init__(self, path: str | os.PathLike[str], threads: int | None = None) -> None:
        """Raises the FormatErrors, BackendError."""
        gguf, (self.keys, graph, self.spec) = opened(path, load_encoder)
        super().__init__(gguf, [graph], threads)

    def encode(self, pixels: images.Pixels, *, most_rows: int | None = None, watch: Watch = UNWATCHED) -> Encoded:
        """The rows of a picture. Raises NumericError, ImageError where it is given up or `cancel` is called, ModelClosed."""
        fingerprint = images.fingerprint(pixels) + repr(most_rows).encode()
        return self._encoded(fingerprint, watch, lambda stop: self._seen(pixels, most_rows, stop, watch.progress))

    def _seen(self, pixels: images.Pixels, most_rows: int | None, stop: Stop, progress: PatchProgress | None) -> tuple[Piece, ...]:
        tiles = images.tiles(pixels, self.spec, most_rows)
        found = self.encode_patches([images.patches(image, self.spec) for image in tiles.images], stop, progress)
        shown = self._arranged(tiles, found, pixels.shape)
        before, *after = images.texts(tiles, self.spec) if len(shown) == len(found) else [""] * (len(shown) + 1)
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

    def _arranged(self, tiles: images.Tiles, found: Sequence[Rows], size: Sequence[int]) -> list[RowsOfGrid | RowsOfLines]:
        """The rows of each image and their grid, with the rows that the file has for its begin, end and lines. Tiles of LLaVA 1.6
        become one image. `size`: of the picture.
        """
        spec, side = self.spec, self.spec.side_multiple
        if spec.newline and tiles.rows:
            n, first = spec.size // side, found[0]
            cut = np.stack(found[1:]).reshape(tiles.rows, tiles.columns, n, n, -1)
            grid = cut.swapaxes(1, 2).reshape(tiles.rows * n, tiles.columns * n, -1)
            grid = grid[images.unpadded(size[0], size[1], *grid.shape[:2])]
            ends = np.broadcast_to(self._row(spec.newline), (len(grid), 1, grid.shape[2]))
            lines = np.concatenate([grid, ends], axis=1)
            joined = RowsOfGrid(lines.reshape(-1, grid.shape[2]), (lines.shape[0], lines.shape[1]))
            return [RowsOfGrid(first, (n, n)), joined]
        shown = list[RowsOfGrid | RowsOfLines]()
        for image, rows in zip(tiles.images, found, strict=True):
            if spec.line_rows:
                shown.append(self._lines(rows, image.shape[0] // side))
                continue
            grid_of = (1, len(rows)) if spec.queries else (image.shape[0] // side, image.shape[1] // side)
            around = [self._row(name) if name else rows[:0] for name in (spec.begin_row, spec.end_row or spec.newline)]
            if sum(map(len, around)):
                rows = np.concatenate([around[0], rows, around[1]])
                grid_of = (1, len(rows))
            shown.append(RowsOfGrid(rows, grid_of))
        return shown

    def _lines(self, rows: Rows, lines: int) -> RowsOfLines:
        """The rows of an image with those that the file has for its begin, the ends of lines, and its end."""
        encoder = find_encoder(self.keys)
        begin, newline, end = (encoder.row(self.keys, name, self._read) for name in self.spec.line_rows)
        grid = rows.reshape(lines, -1, rows.shape[1])
        whole = np.concatenate([grid, np.broadcast_to(newline, (lines, 1, rows.shape[1]))], axis=1)
        return RowsOfLines(np.concatenate([begin, whole.reshape(-1, rows.shape[1]), end]), (lines, whole.shape[1]))

    def _row(self, name: str) -> Rows:
        """A tensor of the file as one row (1, n_out)."""
        return self._read(name).reshape(1, -1)

    def _read(self, name: str) -> Rows:
        return self._weights[name].array().astype(np.float32)


def memory_of(path: str | os.PathLike[str], threads: int | None = None, backend: Backend | None = None) -> int:
    """Bytes of a projector and of its work for a picture of 1024 x 768 on a back end, the CPU where none is given.

    Raises the FormatErrors, BackendError.
    """
    with open_model(path) as gguf:
        _, graph, spec = load_encoder(gguf)
        graph = optimise_encoder(graph)
        tiles = images.tiles(np.zeros((768, 1024, 3), np.uint8), spec)
        layout = layout_of(graph, *largest_step([images.patches(image, spec) for image in tiles.images]))
        return (backend or find("cpu")).need(graph, gguf, layout, BackendOptions("f32", threads)).total
