"""Vocabularies that contradict themselves: each ends in one typed error that names the file and the field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import Clock
from vocabulary_cases import PREFIX, bpe_metadata, spm_metadata, with_tokens, wpm_metadata

from edgellm.errors import BadVocab, EdgeError, NoTokenizer, Unsupported
from edgellm.tokenizer import build_tokenizer

COUNT = len(spm_metadata()[PREFIX + "tokens"])


def types_with(index: int, kind: int) -> list[int]:
    types = [int(kind) for kind in spm_metadata()[PREFIX + "token_type"]]
    types[index] = kind
    return types


BAD: list[tuple[str, str, dict[str, Any]]] = [
    ("no tokens", "tokens", spm_metadata(tokens=None)),
    ("empty tokens", "tokens", spm_metadata(tokens=[])),
    ("tokens are numbers", "tokens", spm_metadata(tokens=np.arange(5))),
    ("tokens are one text", "tokens", spm_metadata(tokens="abc")),
    ("one token is a number", "tokens", spm_metadata(tokens=["a", 5], scores=None, token_type=None)),
    ("too few scores", "scores", spm_metadata(scores=np.zeros(3, np.float32))),
    ("too many scores", "scores", spm_metadata(scores=np.zeros(COUNT + 1, np.float32))),
    ("scores are texts", "scores", spm_metadata(scores=["a"] * COUNT)),
    ("scores of 8 bits", "scores", spm_metadata(scores=np.zeros(COUNT, np.int8))),
    ("scores are integers", "scores", spm_metadata(scores=np.zeros(COUNT, np.int32))),
    ("types of 8 bits", "token_type", spm_metadata(token_type=np.ones(COUNT, np.int8))),
    ("types are fractions", "token_type", spm_metadata(token_type=np.ones(COUNT, np.float32))),
    ("add_bos is a number", "add_bos_token", spm_metadata(add_bos_token=1)),
    (
        "no token ends",
        "eos_token_id",
        spm_metadata(
            tokens=["<unk>", "a", "b"], scores=[0.0] * 3, token_type=[2, 1, 1], bos_token_id=None, eos_token_id=0xFFFFFFFF
        ),
    ),
    ("too few types", "token_type", spm_metadata(token_type=np.ones(3, np.int32))),
    ("type 99", "token_type", spm_metadata(token_type=types_with(5, 99))),
    ("type -1", "token_type", spm_metadata(token_type=types_with(5, -1))),
    ("types are flags", "token_type", spm_metadata(token_type=[True] * COUNT)),
    ("types are a number", "token_type", spm_metadata(token_type=3)),
    ("a byte token of another form", "tokens", spm_metadata(token_type=types_with(COUNT - 1, 6))),
    (
        "the same byte twice",
        "tokens",
        spm_metadata(
            tokens=["<unk>", "<0x0a>", "<0x0A>"], scores=[0.0] * 3, token_type=[2, 6, 6], bos_token_id=None, eos_token_id=None
        ),
    ),
    ("bos beyond", "bos_token_id", spm_metadata(bos_token_id=COUNT)),
    ("eos below", "eos_token_id", spm_metadata(eos_token_id=-7)),
    ("eot beyond", "eot_token_id", spm_metadata(eot_token_id=1 << 31)),
    ("bos is a text", "bos_token_id", spm_metadata(bos_token_id="<s>")),
    ("bos is a flag", "bos_token_id", spm_metadata(bos_token_id=True)),
    ("add_bos is a text", "add_bos_token", spm_metadata(add_bos_token="yes")),
    ("add_bos without bos", "add_bos_token", bpe_metadata(bos_token_id=None, add_bos_token=True)),
    ("kind is a number", "model", spm_metadata(model=4)),
    ("no merges", "merges", bpe_metadata(merges=None)),
    ("a merge without a blank", "merges", bpe_metadata(merges=["t h", "th"])),
    ("a merge with two blanks", "merges", bpe_metadata(merges=["t h e"])),
    ("a merge of nothing", "merges", bpe_metadata(merges=[" h"])),
    ("merges are numbers", "merges", bpe_metadata(merges=np.arange(4))),
    ("pre is a number", "pre", bpe_metadata(pre=1)),
    ("separator beyond", "seperator_token_id", wpm_metadata(seperator_token_id=99)),
]


@pytest.mark.parametrize(("field", "metadata"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_vocabulary(field: str, metadata: dict[str, Any]) -> None:
    with pytest.raises(BadVocab) as caught:
        build_tokenizer(metadata, file="some.gguf").prepare()
    assert caught.value.file == "some.gguf" and caught.value.field == PREFIX + field
    assert str(caught.value).startswith(f"some.gguf: {PREFIX}{field}: ") and len(str(caught.value)) < 300


@pytest.mark.parametrize("kind", ["none", "no_vocab", None])
def test_no_tokenizer(kind: str | None) -> None:
    with pytest.raises(NoTokenizer, match=r"some\.gguf carries no tokenizer; give token ids"):
        build_tokenizer(spm_metadata(model=kind), file="some.gguf")


@pytest.mark.parametrize("kind", ["hybriddna", "brand-new"])
def test_unsupported_kind(kind: str) -> None:
    with pytest.raises(Unsupported, match=rf"some\.gguf.*{kind}.*edgellm knows llama"):
        build_tokenizer(spm_metadata(model=kind), file="some.gguf")


def test_none_written_as_a_number() -> None:
    tokenizer = build_tokenizer(spm_metadata(unknown_token_id=0xFFFFFFFF, bos_token_id=-1), file="x")
    assert tokenizer.vocabulary.special.unknown is None and tokenizer.bos_id is None
    assert tokenizer.encode("the", add_special=True)[0] != 1


def test_an_end_that_is_none_where_another_token_ends() -> None:
    metadata = spm_metadata(eos_token_id=0xFFFFFFFF)
    found = build_tokenizer(metadata, file="x").vocabulary.special
    assert found.eos is None and found.end == {metadata[PREFIX + "tokens"].index("</s>")}


def test_merges_of_tokens_that_are_not_there() -> None:
    """`tokenizers` panics, with a BaseException and text on stderr, where a merge is longer than every token it knows."""
    metadata = bpe_metadata()
    tokens, types = metadata[PREFIX + "tokens"], list(map(int, metadata[PREFIX + "token_type"]))
    longest = max((i for i, kind in enumerate(types) if kind == 1), key=lambda i: len(tokens[i].encode()))
    types[longest] = 2  # an unknown token is a control token, which no text becomes
    tokenizer = build_tokenizer(metadata | {PREFIX + "token_type": types}, file="x")
    text = tokens[longest].replace("Ġ", " ")
    ids = tokenizer.encode(text, add_special=False)
    assert longest not in ids and tokenizer.decode(ids) == text
    more = metadata | {PREFIX + "merges": [*metadata[PREFIX + "merges"], "hello Ġworld"]}
    assert build_tokenizer(more, file="x").encode("the") == build_tokenizer(metadata, file="x").encode("the")


def test_scores_that_are_nan_come_last() -> None:
    metadata = spm_metadata()
    scores = metadata[PREFIX + "scores"].copy()
    tokens = metadata[PREFIX + "tokens"]
    merged = next(i for i, text in enumerate(tokens) if len(text) == 2 and metadata[PREFIX + "token_type"][i] == 1)
    scores[merged] = np.nan
    tokenizer = build_tokenizer(metadata | {PREFIX + "scores": scores}, file="x")
    assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat" and tokenizer.vocabulary.scores is not None
    others = [score for i, score in enumerate(tokenizer.vocabulary.scores) if i != merged]
    assert tokenizer.vocabulary.scores[merged] < min(others)


LONG = "x" * (1 << 20)


@pytest.mark.parametrize("kind", [1, 3, 4])
@pytest.mark.parametrize("make", [spm_metadata, bpe_metadata, wpm_metadata])
def test_a_token_of_a_mebibyte(make: Any, kind: int) -> None:
    """It costs nothing where no text holds it, it can be decoded, and a long word of other letters ends soon."""
    plain, metadata = build_tokenizer(make(), file="x"), with_tokens(make(), (LONG, kind))
    tokenizer = build_tokenizer(metadata, file="x")
    assert tokenizer.encode("the cat") == plain.encode("the cat")
    assert tokenizer.token_text(tokenizer.vocab_size - 1) == LONG
    clock = Clock()
    tokenizer.encode("y" + LONG[:20_000])
    assert clock.seconds() < 2


NO_BYTES = ["<unk>", "<s>", "</s>", "▁", "t", "h", "e", "th", "the", "▁the"]


def without_bytes(model: str, **changes: Any) -> dict[str, Any]:
    texts = NO_BYTES if model == "llama" else [text.replace("▁", "Ġ") for text in NO_BYTES]
    keys: dict[str, Any] = {
        "model": model,
        "pre": "gpt-2",
        "tokens": texts,
        "token_type": np.array([2, 3, 3] + [1] * 7, np.int32),
        "scores": np.array([-float(i) for i in range(10)], np.float32),
        "merges": ["t h", "th e"],
        "unknown_token_id": 0,
    }
    return {PREFIX + key: value for key, value in {**keys, **changes}.items()}


@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_a_vocabulary_without_bytes(model: str) -> None:
    """A character that it cannot say is its unknown token, and is never left out in silence."""
    tokenizer = build_tokenizer(without_bytes(model), file="some.gguf")
    assert tokenizer.decode(tokenizer.encode("the the")) == "the the"
    assert tokenizer.encode("thez", add_special=False)[-1] == 0
    no_unknown = {"unknown_token_id": -1, "token_type": np.array([1, 3, 3] + [1] * 7, np.int32)}
    none = build_tokenizer(without_bytes(model, **no_unknown), file="some.gguf")
    assert none.decode(none.encode("the the")) == "the the"
    with pytest.raises(BadVocab, match=r"some\.gguf.*leave the character out"):
        none.encode("thez")


def test_an_unknown_token_that_ends_texts_stands_for_nothing() -> None:
    """As in starcoder, which lacks bytes that begin rare characters: no text of a user becomes an end."""
    metadata = without_bytes("gpt2", eos_token_id=0, token_type=np.array([3, 3, 3] + [1] * 7, np.int32))
    with pytest.raises(BadVocab, match="leave the character out"):
        build_tokenizer(metadata, file="some.gguf").encode("thez")


def test_a_word_without_an_unknown_token() -> None:
    with pytest.raises(BadVocab, match="unknown token"):
        build_tokenizer(wpm_metadata(unknown_token_id=-1), file="x").encode("zebra")


def test_plain_looking_ends_need_the_right_type() -> None:
    """qwen2 has a "</s>" that is text; a file that calls "<|im_end|>" text is wrong."""
    metadata = bpe_metadata()
    metadata[PREFIX + "tokens"] = [*metadata[PREFIX + "tokens"], "</s>", "<|eot_id|>"]
    metadata[PREFIX + "token_type"] = [*map(int, metadata[PREFIX + "token_type"]), 1, 1]
    tokenizer = build_tokenizer(metadata, file="x")
    assert tokenizer.token_id("</s>") not in tokenizer.eog_ids and tokenizer.token_id("<|eot_id|>") in tokenizer.eog_ids
    metadata |= {PREFIX + "eos_token_id": tokenizer.token_id("</s>")}
    assert tokenizer.token_id("</s>") in build_tokenizer(metadata, file="x").eog_ids


def test_channel_ends_are_no_end_of_generation() -> None:
    metadata = bpe_metadata(
        tokens=["<|end|>", "<|return|>", "<|call|>", "<|start|>"], token_type=[3] * 4, merges=[], bos_token_id=None, eos_token_id=1
    )
    tokenizer = build_tokenizer(metadata, file="x")
    assert tokenizer.eog_ids == {1, 2} and tokenizer.is_control(0)


VALUES = (
    st.none()
    | st.integers(-3, 400)
    | st.text(max_size=4)
    | st.booleans()
    | st.floats()
    | st.lists(st.text(max_size=6) | st.integers(-2, 9), max_size=6)
    | st.builds(np.array, st.lists(st.integers(-2, 9), max_size=5))
)


def with_an_odd_value(metadata: dict[str, Any], data: st.DataObject) -> None:
    """Any value of any key is used, or refused by a typed error."""
    metadata[data.draw(st.sampled_from(sorted(metadata)))] = data.draw(VALUES)
    try:
        tokenizer = build_tokenizer(metadata, file="x")
        tokenizer.decode(tokenizer.encode("the <s>", parse_special=True))
    except EdgeError:
        pass


@pytest.mark.parametrize("make", [spm_metadata, bpe_metadata, wpm_metadata])
@given(st.data())
@settings(max_examples=80, deadline=None)
@pytest.mark.filterwarnings("ignore::edgellm.tokenizer.UnknownPreTokenizer")
def test_any_value_of_any_key_is_used_or_refused(make: Any, data: st.DataObject) -> None:
    with_an_odd_value(make(), data)
