"""Scales for a group of values: simple searches that the quantisers of the K and IQ types share."""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ._codec import Floats, Ints

# First guesses: the widest value on this multiple of the last level; below 1 levels stay unused, above it clips.
_STRETCHES = tuple(np.linspace(0.7, 1.2, 11).tolist())


def affine(x: Floats, top: int) -> tuple[Floats, Floats]:
    """For groups (..., n): scale and minimum >= 0, both (..., 1), with x ~ scale * q - minimum, q in 0..top."""
    low = np.minimum(x.min(axis=-1, keepdims=True), 0)
    width = x.max(axis=-1, keepdims=True) - low
    best_scale, best_min = width / np.float32(top), -low
    best_error = _affine_error(x, best_scale, best_min, top)
    for stretch in _STRETCHES:
        guess = width / np.float32(top * stretch)
        q = quantise(x - low, guess, 0, top)
        scale, minimum = _least_squares(x, q)
        error = _affine_error(x, scale, minimum, top)
        better = (error < best_error) & (scale > 0) & (minimum >= 0)
        best_scale, best_min = np.where(better, scale, best_scale), np.where(better, minimum, best_min)
        best_error = np.where(better, error, best_error)
    return best_scale, best_min


def symmetric(x: Floats, bottom: int, top: int) -> Floats:
    """For groups (..., n): the scale (..., 1), of either sign, with x ~ scale * q, q in bottom..top, -bottom >= top."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)
    best: Floats = extreme / np.float32(bottom)
    best_error = _error(x, best * quantise(x, best, bottom, top))
    for stretch in _STRETCHES:
        q = quantise(x, extreme / np.float32(bottom * stretch), bottom, top).astype(np.float32)
        scale = _ratio((x * q).sum(axis=-1, keepdims=True), (q * q).sum(axis=-1, keepdims=True))
        error = _error(x, scale * quantise(x, scale, bottom, top))
        best, best_error = np.where(error < best_error, scale, best), np.minimum(error, best_error)
    return best


def codebook(x: Floats, values: npt.NDArray[np.float32]) -> Floats:
    """For groups (..., n): the scale (..., 1), of either sign, with x ~ scale * values[i] (ascending, first widest)."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)
    best: Floats = extreme / values[0]
    best_error = _error(x, best * values[nearest(x, best, values)])
    for stretch in _STRETCHES:
        y = values[nearest(x, extreme / (values[0] * np.float32(stretch)), values)]
        scale = _ratio((x * y).sum(axis=-1, keepdims=True), (y * y).sum(axis=-1, keepdims=True))
        error = _error(x, scale * values[nearest(x, scale, values)])
        best, best_error = np.where(error < best_error, scale, best), np.minimum(error, best_error)
    return best


def quantise(x: Floats, scale: Floats, bottom: int, top: int) -> Ints:
    """Nearest integers to x / scale in bottom..top; 0 where the scale is 0. int32."""
    codes: Ints = np.clip(np.rint(_ratio(x, scale)), bottom, top).astype(np.int32)
    return codes


def nearest(x: Floats, scale: Floats, values: npt.NDArray[np.float32]) -> Ints:
    """Index of the codebook value nearest to x / scale."""
    return np.searchsorted((values[1:] + values[:-1]) / 2, _ratio(x, scale))


def _ratio(a: Floats, b: Floats) -> Floats:
    quotient: Floats = np.nan_to_num(np.where(b == 0, np.float32(0), a / b), posinf=0, neginf=0)
    return quotient


def _error(x: Floats, y: Floats) -> Floats:
    total: Floats = np.square(x - y).sum(axis=-1, keepdims=True)
    return total


def _affine_error(x: Floats, scale: Floats, minimum: Floats, top: int) -> Floats:
    return _error(x, scale * quantise(x + minimum, scale, 0, top).astype(np.float32) - minimum)


def _least_squares(x: Floats, q: Ints) -> tuple[Floats, Floats]:
    codes = q.astype(np.float32)
    mean_x, mean_q = x.mean(axis=-1, keepdims=True), codes.mean(axis=-1, keepdims=True)
    variance = np.square(codes - mean_q).sum(axis=-1, keepdims=True)
    scale = _ratio(((x - mean_x) * (codes - mean_q)).sum(axis=-1, keepdims=True), variance)
    return scale, scale * mean_q - mean_x
