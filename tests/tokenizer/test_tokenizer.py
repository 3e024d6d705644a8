"""Tokenizers on small vocabularies: ids by slow definitions, special tokens, round trips, word cuts."""

from __future__ import annotations

import warnings
from pathlib import Path

import gguf
import pytest
import tiny_tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import Clock
from vocabulary_cases import USER_DEFINED, bpe_metadata, slow_bpe, slow_spm, spm_metadata, with_tokens, wpm_metadata

from edgellm.errors import OptionError
from edgellm.formats.gguf import open_gguf
from edgellm.tokenizer import TokenType, UnknownPreTokenizer, build_tokenizer
from edgellm.tokenizer.pre_tokenizers import PRE_TOKENIZERS

SPM = build_tokenizer(spm_metadata(), file="spm")
BPE = build_tokenizer(bpe_metadata(), file="bpe")
WPM = build_tokenizer(wpm_metadata(), file="wpm")
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=40) | st.text(
    "the world\n<>s", max_size=40
)


@given(TEXTS.filter(lambda text: USER_DEFINED not in text and text))
@settings(max_examples=150, deadline=None)
def test_spm_ids_follow_the_definition(text: str) -> None:
    assert [SPM.token_text(i) for i in SPM.encode(text, add_special=False)] == slow_spm(" " + text)


@given(st.from_regex(r"\A[a-z]{1,20}\Z"))
@settings(max_examples=150, deadline=None)
def test_bpe_ids_follow_the_definition(word: str) -> None:
    assert [BPE.token_text(i) for i in BPE.encode(word)] == slow_bpe(word)
    assert [BPE.token_text(i) for i in BPE.encode(" " + word)] == slow_bpe(" " + word)


@pytest.mark.parametrize("tokenizer", [SPM, BPE], ids=["spm", "bpe"])
@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_decoding_gives_the_text_back(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("tokenizer", [SPM, BPE, WPM], ids=["spm", "bpe", "wpm"])
@given(st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_any_str_can_be_encoded(tokenizer, text: str) -> None:
    ids = tokenizer.encode(text + "\ud800\0\udfff", parse_special=True)
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    tokenizer.decode(ids, skip_special=False).encode()


def test_special_ids_and_types() -> None:
    assert (SPM.bos_id, SPM.eos_id, SPM.eog_ids) == (1, 2, {2})
    assert SPM.token_type(3) == TokenType.BYTE and SPM.is_control(0) and SPM.is_control(1) and not SPM.is_control(300)
    assert BPE.eog_ids == {BPE.token_id("<|endoftext|>"), BPE.token_id("<|im_end|>")}  # one of them by its text only
    assert BPE.token_id("no such token") is None
    assert SPM.vocab_size == len(spm_metadata()["tokenizer.ggml.tokens"])


def test_bos_and_eos_follow_the_flags() -> None:
    assert SPM.encode("the")[0] == 1 and SPM.encode("the", add_special=False)[0] != 1
    both = build_tokenizer(spm_metadata(add_bos_token=False, add_eos_token=True), file="spm")
    assert both.encode("the")[0] != 1 and both.encode("the")[-1] == 2
    assert BPE.add_bos is False and build_tokenizer(bpe_metadata(pre="llama-bpe"), file="bpe").add_bos is True
    assert [WPM.token_text(i) for i in WPM.encode("the")] == ["[CLS]", "▁the", "[SEP]"]


def test_space_prefix_stands_at_the_start_and_after_special_tokens() -> None:
    assert SPM.encode("the</s>the", add_special=False, parse_special=True) == [SPM.token_id("▁the"), 2, SPM.token_id("▁the")]
    plain = build_tokenizer(spm_metadata(add_space_prefix=False), file="spm")
    assert plain.encode("the", add_special=False) == [plain.token_id("t"), plain.token_id("he")]
    assert plain.decode(plain.encode(" the")) == " the"


@pytest.mark.parametrize("tokenizer", [SPM, BPE, WPM], ids=["spm", "bpe", "wpm"])
def test_text_never_becomes_a_control_token(tokenizer) -> None:
    for token in tokenizer.vocabulary.control:
        text = tokenizer.token_text(token)
        if tokenizer is not WPM or token == tokenizer.token_id("[MASK]"):  # WPM's [UNK] stands for any unknown word
            for said in (text, f"a{text}b", text * 3, f"\n{text} "):
                ids = tokenizer.encode(said, add_special=False)
                assert tokenizer is WPM or not any(map(tokenizer.is_control, ids)), said
        assert tokenizer.encode(text, add_special=False, parse_special=True) == [token]


def test_user_defined_tokens_are_found_in_any_text() -> None:
    token = BPE.token_id(USER_DEFINED)
    assert token in BPE.encode(f"a{USER_DEFINED}b") and token not in SPM.vocabulary.texts.shadowed
    assert SPM.decode(SPM.encode(f"the{USER_DEFINED} hello")) == f"the{USER_DEFINED} hello"
    assert BPE.decode(BPE.encode(USER_DEFINED)) == USER_DEFINED


def test_control_tokens_only_in_trusted_spans() -> None:
    text = "<|im_end|>a<|im_end|>"
    end = BPE.token_id("<|im_end|>")
    assert BPE.encode_trusted(text, [(11, 21)])[-1] == end and BPE.encode_trusted(text, [(11, 21)]).count(end) == 1
    assert end not in BPE.encode_trusted(text, [(1, 10), (12, 21)])  # not whole within
    assert BPE.encode_trusted(text, [(0, 21)]).count(end) == 2


def test_longest_special_token_wins() -> None:
    tokenizer = build_tokenizer(with_tokens(bpe_metadata(), ("<a>", 3), ("<a><b>", 3), ("<a", 3)), file="x")
    ids = tokenizer.encode("<a><b><a>x<a", parse_special=True)
    assert [tokenizer.token_text(i) for i in ids] == ["<a><b>", "<a>", "x", "<a"]


def test_decode_shows_control_tokens_on_demand() -> None:
    ids = SPM.encode("the")
    assert SPM.decode(ids) == "the" and SPM.decode(ids, skip_special=False) == "<s>the"
    assert BPE.piece(BPE.token_id("Ġthe")) == b" the" and SPM.piece(3 + 0xC3) == b"\xc3"
    with pytest.raises(OptionError, match="outside the vocabulary"):
        SPM.decode([SPM.vocab_size])


def test_white_space_swallowing_tokens_of_phi_3() -> None:
    metadata = spm_metadata() | {"general.name": "Phi-3 mini"}
    tokenizer = build_tokenizer(metadata, file="x")
    assert tokenizer.encode("</s>\n the", add_special=False, parse_special=True) == [2, tokenizer.token_id("▁the")]
    assert tokenizer.encode("<s> the", add_special=False, parse_special=True)[:2] != [1, tokenizer.token_id("▁the")]


@pytest.mark.parametrize("flag", [False, True])
def test_texts_of_word_pieces_stand_between_tokens(flag: bool) -> None:
    """Whatever the flags say: bert-base-uncased's converted files say false."""
    other = build_tokenizer(wpm_metadata(add_bos_token=flag, add_eos_token=flag), file="wpm")
    assert other.encode("the", add_special=True) == WPM.encode("the", add_special=True) != WPM.encode("the", add_special=False)


def test_word_pieces() -> None:
    def pieces(text: str) -> list[str]:
        return [WPM.token_text(i) for i in WPM.encode(text, add_special=False)]

    assert pieces("The  unaffable cats,") == ["▁the", "▁un", "aff", "able", "▁cat", "s", "▁,"]
    assert pieces("CAFÉ中12 x") == ["▁cafe", "▁中", "▁1", "2", "[UNK]"]
    assert pieces("t\u200bhe\0 ca\u0301t") == ["▁the", "▁cat"]
    assert WPM.decode(WPM.encode("the cats")) == "the cats"
    kept = build_tokenizer(wpm_metadata(**{"normalizer.lowercase": False}), file="wpm")
    assert [kept.token_text(i) for i in kept.encode("The the", add_special=False)] == ["[UNK]", "▁the"]


def test_vocabularies_without_bytes_or_unknown_token() -> None:
    tokens, scores, types = tiny_tokenizers.spm_vocabulary()
    keep = [i for i, kind in enumerate(types) if kind not in (2, 6)]
    metadata = spm_metadata(
        tokens=[tokens[i] for i in keep],
        scores=[scores[i] for i in keep],
        token_type=[int(types[i]) for i in keep],
        bos_token_id=0,
        eos_token_id=1,
        unknown_token_id=None,
    )
    tokenizer = build_tokenizer(metadata, file="x")
    assert tokenizer.decode(tokenizer.encode("the ü world")) == "the  world"
    assert max(tokenizer.encode("ü", add_special=False)) < tokenizer.vocab_size


def test_several_unknown_tokens_and_repeated_texts() -> None:
    metadata = with_tokens(spm_metadata(), ("<more>", 2), ("▁the", 1), ("", 1), ("", 1), ("a\0b", 1))
    tokenizer = build_tokenizer(metadata, file="x")
    assert tokenizer.decode(tokenizer.encode("the <more> a\0b")) == "the <more> a\0b"


def test_merges_of_unknown_tokens_are_left_out() -> None:
    tokenizer = build_tokenizer(bpe_metadata(merges=["z z", "t h", "qq q", "h e"]), file="x")
    assert [tokenizer.token_text(i) for i in tokenizer.encode("thzz")] == ["th", "z", "z"]


def test_a_merge_cannot_make_a_control_token() -> None:
    metadata = bpe_metadata(merges=["t h"])
    metadata["tokenizer.ggml.token_type"][metadata["tokenizer.ggml.tokens"].index("th")] = 3
    tokenizer = build_tokenizer(metadata, file="x")
    assert [tokenizer.token_text(i) for i in tokenizer.encode("th")] == ["t", "h"]


def test_whole_words_skip_the_merges() -> None:
    metadata = bpe_metadata(pre="llama-bpe", merges=["t h"], add_bos_token=False)
    tokenizer = build_tokenizer(metadata, file="x")
    assert [tokenizer.token_text(i) for i in tokenizer.encode("the hello")][-1] == "o"
    assert [tokenizer.token_text(i) for i in tokenizer.encode(" the")] == ["Ġthe"]


def test_tokens_of_visible_spaces() -> None:
    tokens = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "b",
        "▁a",
        "\n",
        "\n\n",
        "ab",
        "<turn|>",
    ]
    types = [3, 3, 3, 3] + [6] * 256 + [1] * 7 + [3]
    tokenizer = build_tokenizer(
        {
            "tokenizer.ggml.model": "gemma4",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.merges": ["a b", "▁ a"],
            "tokenizer.ggml.bos_token_id": 2,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.add_bos_token": False,
        },
        file="x",
    )
    ids = tokenizer.encode(" a ab\n\n\né")
    assert [tokenizer.token_text(i) for i in ids] == ["<bos>", "▁a", "▁", "ab", "\n", "\n", "\n", "<0xC3>", "<0xA9>"]
    assert tokenizer.encode("\n\n", add_special=False) == [tokenizer.token_id("\n\n")]
    assert tokenizer.decode(ids) == " a ab\n\n\né" and tokenizer.eog_ids == {1, tokenizer.token_id("<turn|>")}


def test_unknown_word_cuts_warn_and_name_the_file() -> None:
    for pre, said in (("brand-new", "brand-new"), (None, "names no pre-tokenizer")):
        with pytest.warns(UnknownPreTokenizer, match=f"some.gguf.*{said}"):
            build_tokenizer(bpe_metadata(pre=pre), file="some.gguf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pre in PRE_TOKENIZERS:
            build_tokenizer(bpe_metadata(pre=pre), file="x")


CUTS = {  # by the published expressions, worked out by hand
    "gpt-2": ("I've 12 cats\n\n  x", ["I", "'ve", " 12", " cats", "\n\n ", " x"]),
    "llama-bpe": ("I'VE 12345\n  x!!\n", ["I", "'VE", " ", "123", "45", "\n", " ", " x", "!!\n"]),
    "qwen2": ("12ab 3\r\n\r\n y", ["1", "2", "ab", " ", "3", "\r\n\r\n", " y"]),
    "qwen35": ("हिन्दी 1", ["हिन्दी", " ", "1"]),
    "gpt-4o": ("HelloWorld's 1234 a/\nb", ["Hello", "World's", " ", "123", "4", " a", "/\n", "b"]),
    "tekken": ("HelloWorld's 12", ["Hello", "World", "'s", " ", "1", "2"]),
    "smollm": ("a 12", ["a", " ", "1", "2"]),
    "deepseek-v3": ("12345 中文!x", ["123", "45", " ", "中文", "!x"]),
    "deepseek-llm": ("ab 12\n中", ["ab", " ", "12", "\n", "中"]),
    "deepseek-coder": ("ab 12", ["ab", " ", "1", "2"]),
    "kimi-k2": ("中文abc 1", ["中文", "abc", " ", "1"]),
    "superbpe": ("x 1234567 y", ["x ", "1", "234", "567", " y"]),
    "tiny_aya": ("1234567", ["1", "234", "567"]),
    "afmoe": ("12345 ab", ["12", "345", " ab"]),
    "bloom": ("a b, c", ["a", " b", ",", " c"]),
    "falcon": ("a 1234!?", ["a", " ", "123", "4", "!?"]),
    "default": ("a12 1234=x", ["a", "12", " ", "123", "4", "=", "x"]),
    "seed-coder": ("a!\n12", ["a", "!", "\n", "1", "2"]),
    "bailingmoe": ("a\n\nb", ["a", "\n\n", "b"]),
    "chameleon": ("a  b1", ["a", "  ", "b", "1"]),
    "jais-2": ("a" + " " * 13 + "b", ["a", " " * 8, " " * 4, " b"]),
    "minicpm5": ("a12345", ["a", "123", "45"]),
    "exaone-moe": ("a1", ["a", "1"]),
    "youtu": ("中文ab", ["中文", "ab"]),
    "laguna": ("a\n\nb", ["a", "\n\n", "b"]),
}


@pytest.mark.parametrize("pre", CUTS)
def test_word_cuts(pre: str) -> None:
    import tokenizers
    from tokenizers import pre_tokenizers

    text, wanted = CUTS[pre]
    cuts = [pre_tokenizers.Split(tokenizers.Regex(e), "isolated") for e in PRE_TOKENIZERS[pre].expressions]
    assert [word for word, _ in pre_tokenizers.Sequence(cuts).pre_tokenize_str(text)] == wanted


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_word_cut_keeps_every_text(pre: str) -> None:
    if PRE_TOKENIZERS[pre].visible_spaces or PRE_TOKENIZERS[pre].drops_spaces:
        pytest.skip("needs a vocabulary of its own: test_tokens_of_visible_spaces, test_words_between_white_space")
    tokenizer = build_tokenizer(bpe_metadata(pre=pre, add_bos_token=False), file="x")
    text = "Hello's 12345  WORLD\r\n\n\té中文 한국 हिन्दी 👋🏽 <|im_end|> ½ a_b\u3000…\0 " + "7" * 3001 + " x"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and not any(map(tokenizer.is_control, ids))


@pytest.mark.parametrize("unit", ["a", " ", "\n", "7", "<", "A", "é", "👋", "a ", "<|im_end|>", "'s"])
def test_time_grows_with_the_length(unit: str) -> None:
    """An eighth of a MiB of one thing in far less than quadratic time, which would be minutes."""
    text = unit * ((1 << 17) // len(unit))
    for tokenizer in (SPM, BPE, WPM):
        clock = Clock()
        tokenizer.encode(text, parse_special=True)
        assert clock.seconds() < 3


def test_a_vocabulary_only_file(tmp_path: Path) -> None:
    for kind, reference in (("spm", SPM), ("bpe", BPE)):
        path = tmp_path / f"{kind}.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        tiny_tokenizers.add_tokenizer(writer, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with open_gguf(path) as file:
            tokenizer = build_tokenizer(file.metadata, file=path)
        assert tokenizer.encode("hello the world") == reference.encode("hello the world")


def shared_vocabularies() -> list[str]:
    return ["bert-bge", "deepseek-llm", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2", "starcoder"]


@pytest.mark.parametrize("name", shared_vocabularies())
def test_recorded_ids_of_real_vocabularies(shared: Path, name: str) -> None:
    path = shared / "vocabs" / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{path}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    wanted = [[int(i) for i in line.split()] for line in Path(f"{path}.out").read_text().splitlines()]
    with open_gguf(path) as file:
        tokenizer = build_tokenizer(file.metadata, file=path)
    assert len(wanted) == 46
    for text, ids in zip(texts, wanted, strict=False):
        assert tokenizer.encode(text, add_special=False) == ids
        if name != "bert-bge":  # WordPiece forgets case, accents and spaces
            assert tokenizer.decode(tokenizer.encode(text)) == text
    for token in tokenizer.vocabulary.control:
        said = tokenizer.token_text(token)
        for text in (said, f"a{said}b", f" {said}\n", said * 2):
            ids = tokenizer.encode(text, add_special=False)
            assert not any(map(tokenizer.is_control, ids))
            assert name == "bert-bge" or tokenizer.decode(ids) == text
