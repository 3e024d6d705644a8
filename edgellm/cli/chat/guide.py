"""Rules that answer for the built-in guide where it cannot help or would be wrong."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgellm.api.model import Model

NOTES = {
    "system": "(system prompts have no effect on the guide: it was not made for them)",
    "files": "(the guide can't make use of files: it only knows edgellm; /model NAME switches to a model that can)",
}
BIGGER = "`edgellm pull qwen3-0.6b`, then `edgellm chat qwen3-0.6b`."
LANGUAGE = f"I only speak English. A bigger model speaks many languages: {BIGGER}"
CODE = f"I cannot read or write code: I am too small. A bigger model can: {BIGGER}"
FACTS = f"I do not know that: I am a tiny model and only know edgellm. A bigger model may know it: {BIGGER}"

# What edgellm has learned since the guide was made, by how people ask for it.
_CAN = r"\b(can|could|does|do|is|are|will|how|what about|which|supports?|supported|run)\b.*"
NEWER = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), answer)
    for pattern, answer in (
        (
            _CAN
            + r"\b(moe|mixtures?[ -]of[ -]experts?|mixtral|gpt-oss|mamba|rwkv|jamba"
            + r"|(recurrent|hybrid|sparse) models?|\d+b-a\d+b)\b",
            "Yes: models with a mixture of experts such as Mixtral and gpt-oss run, and so do recurrent ones such as Mamba. "
            "`edgellm fit NAME` says whether a model fits into memory.",
        ),
        (
            _CAN + r"\b(architectures?|model families|families of models)\b.*\b(supported|run|work|there)\b",
            "Nearly all families that people use run: Llama, Mistral, Qwen, Gemma, Phi, DeepSeek, GLM, Granite, Mamba "
            "and many more. "
            "`edgellm show FILE` says whether a file does.",
        ),
        (
            _CAN + r"\b(embeddings|embedding models|rerank\w*)\b",
            "Yes: `edgellm embed MODEL FILE` makes embeddings, with an embedding model.",
        ),
        (
            r"\b(edgellm|you|it|i|we|how)\b.*\b(quanti[sz]e|convert)\b.*\b(file|model|checkpoint|safetensors|gguf|folder)\b",
            "Yes: `edgellm convert FOLDER model.gguf` makes a GGUF of a folder with safetensors, and `edgellm quantize model.gguf "
            "small.gguf Q4_K_M` a smaller file of that.",
        ),
        (
            _CAN + r"\b(safetensors|gptq|awq)\b",
            "A folder with config.json and safetensors, GPTQ and AWQ included, becomes a GGUF file with "
            "`edgellm convert FOLDER model.gguf`.",
        ),
        (_CAN + r"\biq[123](_\w+)?\b", "Yes, IQ1, IQ2, IQ3 and IQ4 run, though the smallest ones lose much quality."),
        (
            r"\b(save|keep|resume|reopen|restore)\b.*\b(chats?|conversations?)\b",
            "`/save NAME` keeps this chat and `/load NAME` resumes it.",
        ),
    )
)


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


# Lines that are code rather than talk about it.
_CODE = re.compile(
    r"^\s*(def \w+\(|class \w+[(:]|import (?!error)\w+;?\s*$|from \w+ import |#include\b|public (static|class) "
    r"|(const|let|var|int|float) \w+ ?=|function \w*\(|SELECT\b.+\bFROM\b|return\b.*[;()]|<\?php|<!DOCTYPE|<html|fn \w+\("
    r"|package \w+;?\s*$|using namespace)|[;{}]\s*$|\bfor ?\(.*;.*;|=> ?\{|\w\(\) ?\{",
    re.MULTILINE,
)
_MAKE = r"(write|implement|create|generate|fix|debug|refactor|optimi[sz]e|explain|develop)"
_PROGRAM = (
    r"(functions?|scripts?|programs?|code|class(es)?|regex(es)?|algorithms?|quer(y|ies)|snippets?|website|web ?page|html"
    r"|css|sql|javascript|typescript|java|c\+\+|c#|rust|golang|kotlin|php|ruby|game|unit tests?)"
)
_ABOUT_CODE = re.compile(rf"\b{_MAKE}\b.*\b{_PROGRAM}(?!\w)", re.IGNORECASE)
_ABOUT_EDGELLM = re.compile(r"edgellm|model|gguf|token|stream|\bapi\b|\bllms?\b|json|chat|prompt|template", re.IGNORECASE)
_ASKS = re.compile(
    r"\s*(please |can you |could you )?(explain|describe|define|list|plan|compare|tell me about|give me an?) (.+)",
    re.IGNORECASE | re.DOTALL,
)
# Of the talk itself, or of a subject that the guide knows by other words.
_TALK = _words(
    "explanation punchline summary procedure policy snippet starting overview differently device fusion vnni", "microscaling"
)
LONG = 4  # letters of a word that says what a message is about
FEW = 5  # words of a message in which a single foreign one decides
# Short words of other languages, without those that English has as well.
_FOREIGN = _words(
    "der das und ist nicht ich wir ihr sie mir mich dich wie wer warum welche welches welcher welchen kannst kann können",
    "bitte ein",
    "eine einen einem einer mein dein auf mit für von zu zum zur gibt geht hallo guten danke größeres bist sind erzähl passt",
    "le les des une est et je tu nous vous elle mon avec pour dans sur pas que qui quel quelle quels quelles comment pourquoi",
    "où peux",
    "peut suis bonjour merci ça français dois cette ce aux",
    "los las una yo tú usted nosotros para por qué quién cómo dónde cuál cuándo puedes puede soy eres está hola gracias",
    "buenos del",
    "español modelo lo gli è io lui lei noi voi mio tuo che chi quale dove perché puoi può sono sei grazie buongiorno ti si",
    "uma é eu você ele ela nós meu com não quem qual onde porque pode sou olá obrigado devo usar como está",
    "het een ik jij hij wij zij mijn jouw met voor niet wie waar waarom kun ben bent gaat hoe",
    "jest nie ja się jak co gdzie dlaczego masz czy proszę dziękuję cześć",
    "jag och är inte hur vad tack hej det som på ett jeg og ikke hvordan hvad hvor",
    "ve bir nasıl neden için ile merhaba teşekkür nerede",
)
_ENGLISH = _words(
    "the a an and or but is are was were be been am i you he she it we they my your his her its our their me him them this",
    "that these those what which who how why where when do does did can could will would should shall may might must to of in",
    "on at for with from by about not no yes if then so than as up out there here have has had get got give show tell please",
    "hello hi thanks",
)


def is_guide(model: Model) -> bool:
    """True if this is the model that comes with edgellm."""
    from edgellm.catalogue.registry import bundled

    return model.info.path in [path for _, _, path in bundled()]


def rule(model: Model) -> Callable[[str], str | None]:
    """`refusal` for the guide; a word is one that it has met where its vocabulary has it as a whole."""
    return lambda text: refusal(text, lambda word: model.tokenizer.token_id(f"\N{LOWER ONE EIGHTH BLOCK}{word}") is not None)


def refusal(text: str, knows: Callable[[str], bool]) -> str | None:
    """The answer to a message in another language, about code, about the world at large, or about what is newer than the guide;
    None for all others.

    `knows`: whether a word is one that the guide has met, so that the message may be about edgellm.
    """
    if _other_language(text):
        return LANGUAGE
    if not _ABOUT_EDGELLM.search(text) and (_CODE.search(text) or _ABOUT_CODE.search(text)):
        return CODE
    if (asks := _ASKS.match(text)) is not None:
        words = [word for word in re.findall(r"\w+", asks[3].lower()) if len(word) >= LONG or not word.isalpha()]
        if words and not any(word in _TALK or not word.isalpha() or knows(word) for word in words):
            return FACTS
    return next((answer for pattern, answer in NEWER if pattern.search(text)), None)


def _other_language(text: str) -> bool:
    """True if most letters are not Latin, or the short words that every sentence has are another language's."""
    letters = [char for char in text if char.isalpha()]
    if sum("LATIN" not in unicodedata.name(char, "") for char in letters) * 2 > len(letters):
        return True
    words = re.findall(r"[^\W\d_]+", text.lower())
    foreign, english = (sum(word in known for word in words) for known in (_FOREIGN, _ENGLISH))
    return foreign > english and (foreign > 1 or len(words) <= FEW)
