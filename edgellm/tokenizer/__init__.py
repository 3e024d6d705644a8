"""Text to token ids and back, from the vocabulary that a GGUF file carries."""

from __future__ import annotations

from edgellm.tokenizer.build import build_tokenizer
from edgellm.tokenizer.pre_tokenizers import UnknownPreTokenizer
from edgellm.tokenizer.tokenizer import StreamDecoder, Tokenizer
from edgellm.tokenizer.vocabulary import TokenType, Vocabulary

__all__ = ["StreamDecoder", "TokenType", "Tokenizer", "UnknownPreTokenizer", "Vocabulary", "build_tokenizer"]
