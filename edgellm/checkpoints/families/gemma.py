"""Gemma 1 and 2; norms stored less 1."""

from __future__ import annotations

from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families.gemma3 import PARTS, other_scale

ONE_WAY = {"use_bidirectional_attention": (False,)}
LAYERS_27B = 46  # of Gemma 2: the one size whose query scale is not 1/sqrt(head_dim)

FAMILIES = (
    Family(
        "gemma",
        ("gemma",),
        INNER,
        activations=("gelu_pytorch_tanh", "gelu"),  # "gelu" meant the other
        norms_from_zero=True,
        only=ONE_WAY,
    ),
    Family(
        "gemma2",
        ("gemma2",),
        PARTS,
        activations=("gelu_pytorch_tanh",),
        norms_from_zero=True,
        slides=True,
        refuses=other_scale(LAYERS_27B),
        only=ONE_WAY,
    ),
)
