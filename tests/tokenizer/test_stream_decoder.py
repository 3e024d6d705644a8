"""The incremental decoder: pieces joined are the whole, and no piece shows half a character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary_cases import bpe_metadata, spm_metadata, wpm_metadata

from edgellm.tokenizer import StreamDecoder, Tokenizer, build_tokenizer

SPM = build_tokenizer(spm_metadata(), file="spm")
BPE = build_tokenizer(bpe_metadata(), file="bpe")
WPM = build_tokenizer(wpm_metadata(), file="wpm")
KINDS = pytest.mark.parametrize("tokenizer", [SPM, BPE, WPM], ids=["spm", "bpe", "wpm"])


def pieces(decoder: StreamDecoder, ids: list[int]) -> list[str]:
    return [*map(decoder.push, ids), decoder.flush()]


@KINDS
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_joined_pieces_are_the_decoded_ids(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    for skip in (True, False):
        streamed = pieces(StreamDecoder(tokenizer, skip_special=skip), ids)
        assert "".join(streamed) == tokenizer.decode(ids, skip_special=skip)


@pytest.mark.parametrize("tokenizer", [SPM, BPE], ids=["spm", "bpe"])
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁\ufffd"), max_size=30))
@settings(max_examples=200, deadline=None)
def test_characters_come_out_whole(tokenizer: Tokenizer, text: str) -> None:
    streamed = pieces(StreamDecoder(tokenizer), tokenizer.encode(text))
    assert "".join(streamed) == text and not any("\ufffd" in piece for piece in streamed)


def test_a_character_waits_for_its_last_byte() -> None:
    decoder = StreamDecoder(BPE)
    assert [decoder.push(i) for i in BPE.encode("é👋!")] == ["", "é", "", "", "", "👋", "!"]
    assert decoder.flush() == ""


def test_a_character_cut_off_is_replaced() -> None:
    decoder = StreamDecoder(SPM)
    broken = [SPM.token_id("<0xF0>"), SPM.token_id("<0x9F>")]
    assert pieces(decoder, [*broken, SPM.token_id("a")]) == ["", "", "\ufffda", ""]
    assert pieces(decoder, broken) == ["", "", "\ufffd"]
    assert pieces(decoder, [SPM.token_id("<0xFF>")]) == ["\ufffd", ""]


def test_the_first_space_belongs_to_the_tokenizer_or_to_the_text() -> None:
    ids = SPM.encode("the world", add_special=False)
    assert "".join(pieces(StreamDecoder(SPM), [1, *ids])) == "the world"
    after_prompt = StreamDecoder(SPM, continuation=True)
    assert "".join(pieces(after_prompt, ids)) == " the world" == "".join(pieces(after_prompt, ids))
