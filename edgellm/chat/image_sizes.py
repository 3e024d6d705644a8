"""The sizes that pictures are resized to, as makers' processors compute them."""

from __future__ import annotations

import math

from edgellm.image_spec import ImageSpec

Size = tuple[int, int]  # height and width
STEPS = 50  # of 2 %


def dynamic_size(height: int, width: int, spec: ImageSpec, most_rows: int | None = None) -> Size:
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


def stepped_size(height: int, width: int, spec: ImageSpec, most_rows: int | None = None) -> Size:
    """Youtu-VL (llama.cpp, which has it from the makers' processor): rounded up, 2 % smaller until it is small enough."""
    side, most = spec.side_multiple, spec.most_rows if most_rows is None else most_rows
    tall = wide = side
    for step in range(STEPS, 0, -1):
        tall, wide = (max(math.ceil(each * step / STEPS / side), 1) * side for each in (height, width))
        if tall * wide <= most * side * side:
            break
    return tall, wide


def area_size(height: int, width: int, spec: ImageSpec, most_rows: int | None = None) -> Size:
    """Gemma 4 (transformers, image_processing_gemma4.py): multiples that fill the budget, rounded down."""
    side, most = spec.side_multiple, spec.most_rows if most_rows is None else most_rows
    factor = math.sqrt(most * side * side / (height * width))
    tall, wide = (math.floor(factor * each / side) for each in (height, width))
    if not tall:
        tall, wide = 1, min(max(width // height, 1), most)
    elif not wide:
        tall, wide = min(max(height // width, 1), most), 1
    return tall * side, wide * side


def longest_edge_size(height: int, width: int, spec: ImageSpec, most_rows: int | None = None) -> Size:
    """Pixtral (transformers, image_processing_pixtral.py): never enlarged, then rounded up to multiples."""
    side = spec.side_multiple
    ratio = max(height, width) / spec.longest_edge
    if most_rows is not None:
        ratio = max(ratio, math.sqrt(height * width / (most_rows * side * side)))
    if ratio > 1:
        height, width = (max(math.floor(each / ratio), 1) for each in (height, width))
    tall, wide = -(-height // side) * side, -(-width // side) * side
    if most_rows is not None and tall * wide > most_rows * side * side:
        tall, wide = (max(each // side, 1) * side for each in (height, width))
    return tall, wide


def patch_budget_sizes(height: int, width: int, spec: ImageSpec, most_rows: int | None = None) -> tuple[Size, Size]:
    """Sizes of the picture and of its canvas: Kimi K2.5 (transformers, image_processing_kimi_k25.py)."""
    most, side = (spec.most_rows if most_rows is None else most_rows) * spec.merge**2, spec.side_multiple
    filled = max(height // spec.patch, 1) * max(width // spec.patch, 1)
    scale = min(1.0, math.sqrt(most / filled), spec.longest_edge / height, spec.longest_edge / width)
    tall, wide = (min(max(int(each * scale), 1), spec.longest_edge) for each in (height, width))
    return (tall, wide), (-(-tall // side) * side, -(-wide // side) * side)


def canvas_sizes(height: int, width: int, spec: ImageSpec, most_rows: int | None = None) -> tuple[Size, Size]:
    """Sizes of the picture and of its canvas: GLM-5.3 (transformers, image_processing_glm5_next.py)."""
    side, most = spec.side_multiple, spec.most_rows if most_rows is None else most_rows
    least = min(spec.least_rows, most) * side * side

    def aligned(tall: int, wide: int) -> Size:
        return -(-tall // side), -(-wide // side)

    rows, columns = aligned(height, width)
    if rows * columns * side * side < least:
        scale = math.sqrt(least / (height * width))
        rows, columns = aligned(math.ceil(height * scale), math.ceil(width * scale))
    if rows * columns > most:
        fitting = [aligned(tall, max(width * tall // height, 1)) for tall in range(1, height + 1)]
        rows, columns = max((grid for grid in fitting if math.prod(grid) <= most), default=(1, 1))
    scale = min(rows * side / height, columns * side / width)
    scale = min(scale, 1.0) if height * width >= least else scale
    tall, wide = (min(max(math.floor(each * scale), 1), n * side) for each, n in ((height, rows), (width, columns)))
    return (tall, wide), (rows * side, columns * side)
