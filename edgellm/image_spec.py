"""The form in which a model's encoder takes images: sizes, filter, tiles, and the text that stands around their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Filter = Literal["bilinear", "bicubic", "lanczos"]
Layout = Literal[
    "slices",
    "dynamic",
    "area",
    "patch_budget",
    "canvas",
    "smaller_by_steps",
    "square",
    "padded_square",
    "framed_square",
    "longest_edge",
    "longest_edge_tiles",
    "closest_grid_tiles",
    "nearest_ratio_tiles",
    "fitting_tiles",
    "windows",
    "listed_sizes",
    "framed_overview",
]


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The preprocessing of pictures, done by chat/images.py.

    `layout`:
    "dynamic": one image whose sides are multiples of `side_multiple`, with about the picture's proportions.
    "area": the same, as large as `most_rows` allow.
    "patch_budget", "canvas": never enlarged, unless it is too small, with black right of it and below up to multiples. Either the
    patches are limited that it fills itself, and no side is longer than `longest_edge`, or the rows of it all.
    "smaller_by_steps": the largest of 50 steps of the picture's size, rounded up to multiples, that `most_rows` allow.
    "square", "padded_square": one of `size` x `size`; the picture is stretched, or has `padding` beside it.
    "framed_square": the picture is resized into one of `size` x `size`, and has `padding` beside it.
    "longest_edge": one image, no side of which is longer than `longest_edge`, and sides rounded up to multiples.
    "longest_edge_tiles": resized to `longest_edge`, cut into tiles of `size` x `size`, then an overview.
    "closest_grid_tiles": a dynamic image, or where that would be much too large tiles of the nearest grid, then an overview.
    "nearest_ratio_tiles": tiles of the grid whose proportions come closest, then an overview.
    "slices": of about as many pixels as `size` x `size`, or an overview, then equal parts of the picture made larger.
    "listed_sizes": an overview, then tiles of the one of `sizes` that shows most of the picture, which has `padding` beside it.
    "framed_overview": tiles of the nearest grid, then the framed square, which is alone where a tile would hold the picture.
    "windows": square windows of the picture, each made `tile_size` x `tile_size`, then an overview.
    "fitting_tiles": the grid of tiles that needs the least change of size, with black beside the picture, then an overview.
    """

    patch: int  # pixels of a patch's side
    merge: int  # patches of the side of a square that becomes one row
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resample: Filter
    layout: Layout
    strides: int = 1  # by which convolutions behind the patches make the grid of rows smaller, on each side
    size: int = 0  # pixels of the side of a square or tile
    tile_size: int = 0  # of a tile, where overviews have another one
    sizes: tuple[tuple[int, int], ...] = ()  # width and height
    longest_edge: int = 0
    least_side: int = 1  # pixels of the shorter side of a picture in its square
    least_rows: int = 1  # of a dynamic image
    most_rows: int = 1
    upper_rows: int = 0  # that may be asked for; 0: any number
    least_tiles: int = 1
    most_tiles: int = 1
    padding: tuple[int, int, int] = (0, 0, 0)
    channels_last: bool = False  # the colours of a pixel lie beside each other in a patch
    first_merge: int = 0  # patches of the side of what becomes one row halfway, and sees itself as a window; 0: there is no halfway
    window: int = 0  # pixels of the side of an attention window; 0: every patch sees all of its image
    filled_windows: bool = False  # with rows that are no patches, where the image ends within a window
    queries: int = 0  # rows that each image becomes, where that number is fixed
    class_row: bool = False  # a row for the class token follows the patches of each image
    both_ways: bool = False  # the rows of an image see each other both ways in the language model
    number: str = ""  # text before all else, with the {number} of the picture in its prompt, from 0 on
    begin: str = ""  # text before the rows of an image
    end: str = ""
    overview_first: bool = False  # it comes before the tiles, and `overview` after its rows, as `alone` where there is no tile
    tile: str = ""  # text before each tile, with its {row} and {column}, from 1 on
    begin_row: str = ""  # names of tensors of one row: before the rows of an image, and after them
    end_row: str = ""
    newline: str = ""  # after each line of the picture that tiles make up together, and of an overview behind them
    separator: str = ""  # after the rows of that overview
    line_rows: tuple[
        str, ...
    ] = ()  # names of tensors before an image, after each of its lines, and after it: see `row` of its encoder
    line_end: str = ""  # after each line of an image's rows but the last
    tile_end: str = ""  # between two tiles of a row
    last_tile_end: str = ""  # instead of `row_end` after the last row
    row_end: str = ""  # after the last tile of a row
    overview: str = ""  # before the rows of the overview
    alone: str = ""  # before the rows of a picture that is not cut

    @property
    def side_multiple(self) -> int:
        """Pixels of the side of the square that becomes one row."""
        return self.patch * self.merge * self.strides
