"""The form in which a model's encoder takes images: sizes, filter, tiles, and the text that stands around their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Filter = Literal["bilinear", "bicubic", "lanczos"]
Layout = Literal[
    "dynamic", "area", "square", "padded_square", "longest_edge_tiles", "closest_grid_tiles", "nearest_ratio_tiles", "fitting_tiles"
]


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The preprocessing of pictures, done by chat/images.py.

    `layout`:
    "dynamic": one image whose sides are multiples of `side_multiple`, with about the picture's proportions.
    "area": the same, as large as `most_rows` allow.
    "square", "padded_square": one of `size` x `size`; the picture is stretched, or has `padding` beside it.
    "longest_edge_tiles": resized to `longest_edge`, cut into tiles of `size` x `size`, then an overview.
    "closest_grid_tiles": a dynamic image, or where that would be much too large tiles of the nearest grid, then an overview.
    "nearest_ratio_tiles": tiles of the grid whose proportions come closest, then an overview.
    "fitting_tiles": the grid of tiles that needs the least change of size, with black beside the picture, then an overview.
    """

    patch: int  # pixels of a patch's side
    merge: int  # patches of the side of a square that becomes one row
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resample: Filter
    layout: Layout
    size: int = 0  # pixels of the side of a square or tile
    longest_edge: int = 0
    least_rows: int = 1  # of a dynamic image
    most_rows: int = 1
    upper_rows: int = 0  # that may be asked for; 0: any number
    least_tiles: int = 1
    most_tiles: int = 1
    padding: tuple[int, int, int] = (0, 0, 0)
    window: int = 0  # pixels of the side of an attention window; 0: every patch sees all of its image
    class_row: bool = False  # a row for the class token follows the patches of each image
    both_ways: bool = False  # the rows of an image see each other both ways in the language model
    begin: str = ""  # text before the rows of an image
    end: str = ""
    tile: str = ""  # text before each tile, with its {row} and {column}, from 1 on
    line_end: str = ""  # after each line of an image's rows but the last
    tile_end: str = ""  # between two tiles of a row
    row_end: str = ""  # after the last tile of a row
    overview: str = ""  # before the rows of the overview
    alone: str = ""  # before the rows of a picture that is not cut

    @property
    def side_multiple(self) -> int:
        """Pixels of the side of the square that becomes one row."""
        return self.patch * self.merge
