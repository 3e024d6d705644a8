"""Model families as the Hugging Face hub stores them, found by listing this folder; by the model_type of their config.json."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from edgellm.checkpoints.families._family import PREFIX, Family, part_of, yarn_magnitude
from edgellm.checkpoints.families._pieces import Shape, Slice, copied, minus_exp, plus_one, rows_of

__all__ = [
    "FAMILIES",
    "PREFIX",
    "Family",
    "Shape",
    "Slice",
    "copied",
    "minus_exp",
    "part_of",
    "plus_one",
    "rows_of",
    "yarn_magnitude",
]

FAMILIES: dict[str, Family] = {
    model_type: family
    for module in iter_modules(__path__)
    if not module.name.startswith("_")
    for family in import_module(f"{__name__}.{module.name}").FAMILIES
    for model_type in family.model_types
}
"""Every family by each of its model types."""
