"""The op table: every op is declared once, known to each back end, and asked for by name nowhere else."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image
from places import ROOT

from edgellm.backends.cpu.ops import EMITTERS
from edgellm.ops import OPS
from edgellm.ops.vision import weights_of

SOURCES = ROOT / "edgellm"
FILTERS = {"antialias": Image.Resampling.BILINEAR, "smooth_bicubic": Image.Resampling.BICUBIC}
TABLES = ("ops/", "backends/cpu/ops", "backends/mlx/ops")


def test_only_an_ops_own_file_and_the_tables_of_back_ends_ask_for_its_name() -> None:
    asks = re.compile(r"\.op (?:[=!]= |(?:not )?in (?!OPS\b|EMITTERS\b|INTERLEAVED\b))")
    found = [str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if asks.search(path.read_text())]
    assert [name for name in found if not name.startswith(TABLES)] == []
    assert found


def test_the_cpu_has_every_op() -> None:
    assert EMITTERS.keys() == OPS.keys()


def test_mlx_has_every_op() -> None:
    pytest.importorskip("mlx.core")
    from edgellm.backends.mlx.ops import OPS as EVALUATORS

    encoders = {"pixels", "patch_conv", "grid_embed", "merge_rows", "project", "neighbours", "merged_neighbours"}
    encoders |= {"depth_conv", "depth_conv_halved", "image_mean"}
    assert OPS.keys() - EVALUATORS.keys() <= {"pool", "softmax"} | encoders, "only embedding models and image encoders need the CPU"


@pytest.mark.parametrize(("n", "side"), [(10, 16), (24, 16), (3, 16), (16, 16)])
@pytest.mark.parametrize("resize", ["antialias", "smooth_bicubic"])
def test_positions_are_resized_as_pillow_does_it(n: int, side: int, resize: str) -> None:
    values = np.random.default_rng(n).normal(size=(side, side)).astype(np.float32)
    weights = weights_of(n, side, resize)
    wanted = np.array(Image.fromarray(values).resize((n, n), FILTERS[resize]))
    assert np.abs(weights @ values @ weights.T - wanted).max() < 1e-5
