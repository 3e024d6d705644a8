"""Nearest points of a grid and scales for them: a simple search that the quantisers of the IQ types share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ._codec import Floats, Ints

_AT_ONCE = 2048  # vectors held against all points at a time: bounds the temporaries to 16 MiB
# First guesses: the widest value on this multiple of the widest coordinate. Constants lie best on the narrowest one.
_STRETCHES = (0.7, 0.85, 1.0, 1.2, 1.45, 1.75)


def nearest(x: Floats, points: Ints) -> Ints:
    """Of each vector (..., n) the index of the nearest of the points (p, n)."""
    flat = np.ascontiguousarray(x, np.float32).reshape(-1, x.shape[-1])
    across = points.T.astype(np.float32)
    half_squares = np.square(across).sum(axis=0) / 2
    parts = [(flat[i : i + _AT_ONCE] @ across - half_squares).argmax(axis=-1) for i in range(0, len(flat), _AT_ONCE)]
    return np.concatenate([np.zeros(0, np.intp), *parts]).reshape(x.shape[:-1])


def choose(x: Floats, step: Floats, points: Ints, shifts: Sequence[float] = (0.0,), *, shared: bool = True) -> tuple[Ints, Ints]:
    """For vectors (..., groups, n, coordinates) and steps (..., groups): the index of the point and of the shift for each vector,
    both (..., groups, n), such that step * (point + shift) is near. `shared`: all vectors of a group have one shift.
    """
    scaled = np.where(step == 0, np.float32(0), np.float32(1) / step)[..., None, None] * x
    indices = np.stack([nearest(scaled - np.float32(shift), points) for shift in shifts])
    errors = np.stack(
        [np.square(scaled - points[index] - np.float32(shift)).sum(axis=-1) for index, shift in zip(indices, shifts, strict=True)]
    )
    if shared:
        errors = np.broadcast_to(errors.sum(axis=-1, keepdims=True), errors.shape)
    which = errors.argmin(axis=0)
    return np.take_along_axis(indices, which[None], axis=0)[0], which


def steps(x: Floats, points: Ints, shifts: Sequence[float] = (0.0,), *, shared: bool = True) -> Floats:
    """The step >= 0 of each group, (..., groups), that serves `choose` best."""
    widest = np.abs(x).max(axis=(-2, -1))
    best: Floats = np.zeros_like(widest)
    best_error = np.square(x).sum(axis=(-2, -1))
    top = float(points.max()) + max(shifts)
    for onto in (*(stretch * top for stretch in _STRETCHES), float(np.abs(points).min()) or top):
        guess = widest / np.float32(onto)
        index, which = choose(x, guess, points, shifts, shared=shared)
        y = points[index] + np.asarray(shifts, np.float32)[which][..., None]
        squares = np.square(y).sum(axis=(-2, -1))
        step = np.where(squares > 0, (x * y).sum(axis=(-2, -1)) / squares, np.float32(0)).astype(np.float32)
        error = np.square(x - step[..., None, None] * y).sum(axis=(-2, -1))
        better = (error < best_error) & (step > 0)
        best, best_error = np.where(better, step, best), np.where(better, error, best_error)
    return best


def odd_scales(step: Floats, top: int) -> tuple[Floats, Ints]:
    """Steps (blocks, groups) as d * (2 s + 1): d (blocks,) in what f16 can hold, and s in 0..top (blocks, groups)."""
    d = (step.max(axis=-1) / np.float32(2 * top + 1)).astype(np.float16).astype(np.float32)
    ratio = np.where(d[:, None] == 0, np.float32(1), step / d[:, None])
    return d, np.clip(np.rint((ratio - 1) / 2), 0, top).astype(np.uint32)


def odd_multiples(x: Floats, points: Ints, parts: int = 1) -> tuple[Floats, Ints, Ints]:
    """Groups as points times d * (2 s + 1) / `parts`: d and s, of four bits, as `odd_scales` has them, and the points' indices."""
    d, sc = odd_scales(steps(x, points), 15)
    d = np.float32(parts) * d
    stored = d.astype(np.float16).astype(np.float32)[:, None]
    return d, sc, choose(x, stored * (2 * sc + 1).astype(np.float32) / np.float32(parts), points)[0]
