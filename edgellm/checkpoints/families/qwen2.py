"""Qwen2, Qwen2.5, their distillations and rerankers; none that was released uses its configuration's sliding window."""

from __future__ import annotations

from edgellm.checkpoints.families._answering import rerankers, reranking
from edgellm.checkpoints.families._family import INNER, Family
from edgellm.checkpoints.families._pieces import Config


def windows(config: Config) -> str:
    """A window in the layers that `layer_types` names, or behind the first `max_window_layers`, asks for another graph."""
    if not (config.get("use_sliding_window") and config.get("sliding_window")):
        return ""
    if kinds := config.get("layer_types"):
        return "layer_types" if "sliding_attention" in kinds else ""
    return "use_sliding_window" if config.get("max_window_layers", 0) < config["num_hidden_layers"] else ""


FAMILIES = (
    Family("qwen2", ("qwen2", "mimo"), INNER, refuses=windows, instead=lambda config: reranking(config, "qwen2")),
    *rerankers("qwen2", "qwen2", refuses=windows),
)
