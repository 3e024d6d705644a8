"""Token texts that carry a meaning of their own, because files often fail to say so in their metadata."""

from __future__ import annotations

# A model that emits one of these has finished its turn. The list is what llama.cpp detects.
END_OF_GENERATION = frozenset(
    {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|calls|>",
        "<|flush|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "</s>",
        "<EOT>",
        "_<EOT>",
        "▁<EOT>",
        "[EOT]",
        "[EOS]",
        "<eos>",
        "<end_of_utterance>",
        "<turn|>",
        "<|tool_response>",
        "<｜end▁of▁sentence｜>",
        "[e~[",
    }
)

# Fill-in-the-middle tokens by role. They must never come out of a user's text, whatever type the file gives them.
FILL_IN_ROLES = {
    "prefix": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
        "<[fim-prefix]>",
        "[PREFIX]",
    ),
    "suffix": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
        "<[fim-suffix]>",
        "[SUFFIX]",
    ),
    "middle": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
        "<[fim-middle]>",
    ),
    "pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "repository": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|reponame|>", "<repo_name>"),
    "separator": ("<|file_sep|>", "<file_sep>", "<|file_separator|>", "<filename>", "<|filename|>"),
}

# Those after which a completion runs into the next file: they end a generation too.
FILL_IN_END = frozenset(text for role in ("pad", "repository", "separator") for text in FILL_IN_ROLES[role])
FILL_IN = frozenset(text for role in ("prefix", "suffix", "middle") for text in FILL_IN_ROLES[role])

# Where a vocabulary has all of a row's first set, the row's text does not end a generation: "<|end|>" closes a channel
# in gpt-oss and solar-open vocabularies, and "</s>" is plain HTML in gemma 4's.
NOT_END_BESIDE = (
    (frozenset({"<|return|>", "<|call|>"}), "<|end|>"),
    (frozenset({"<|return|>", "<|calls|>"}), "<|end|>"),
    (frozenset({"<|flush|>", "<|call|>"}), "<|end|>"),
    (frozenset({"<|flush|>", "<|calls|>"}), "<|end|>"),
    (frozenset({"<|tool_response>"}), "</s>"),
)

WITH_A_ROLE = END_OF_GENERATION | FILL_IN | FILL_IN_END | {text for _, text in NOT_END_BESIDE}
