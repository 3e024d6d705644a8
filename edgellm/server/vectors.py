"""Vectors of texts, cut to the dimensions that a request asks for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgellm.server.problems import Problem

Vectors = npt.NDArray[np.float32]


def shortened(vectors: Vectors, dimensions: int | None) -> Vectors:
    """The first `dimensions` of each vector, at length 1 again. Raises Problem for more than there are."""
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    if not 1 <= dimensions <= vectors.shape[1]:
        raise Problem(400, f"dimensions is {dimensions}, and the model's vectors have {vectors.shape[1]}; give that or less.")
    cut = vectors[:, :dimensions]
    found: Vectors = (cut / np.maximum(np.sqrt((cut * cut).sum(axis=1, keepdims=True)), 1e-12)).astype(np.float32)
    return found
