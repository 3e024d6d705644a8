"""Which chat template a model file asks for, and built-in ones for files that bring none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgellm.chat.encode import ChatTokenizer
from edgellm.chat.templates import ChatTemplate
from edgellm.errors import TemplateError

KEY = "tokenizer.chat_template"

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA3 = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

GEMMA = """\
{{- bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- set ns.system = ns.system + message.content | trim + '\\n\\n' %}
{%- else %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}
{{- ns.system + message.content | trim + '<end_of_turn>\\n' }}
{%- set ns.system = '' %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

MISTRAL = """\
{{- bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- set ns.system = ns.system + message.content | trim + '\\n\\n' %}
{%- elif message.role == 'assistant' %}
{{- ' ' + message.content | trim + eos_token }}
{%- else %}
{{- '[INST] ' + ns.system + message.content | trim + ' [/INST]' }}
{%- set ns.system = '' %}
{%- endif %}
{%- endfor %}"""

PHI3 = """\
{{- bos_token if bos_token == '<s>' else '' }}
{%- for message in messages %}
{{- '<|' + message.role + '|>\\n' + message.content | trim + '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"""

# Tokens by which a vocabulary shows its format: (tokens that must all be there, name, template, text that ends an answer).
KNOWN = (
    (("<|im_start|>", "<|im_end|>"), "chatml", CHATML, "<|im_end|>"),
    (("<|start_header_id|>", "<|eot_id|>"), "llama3", LLAMA3, "<|eot_id|>"),
    (("<start_of_turn>", "<end_of_turn>"), "gemma", GEMMA, "<end_of_turn>"),
    (("<|user|>", "<|assistant|>", "<|end|>"), "phi3", PHI3, "<|end|>"),
    (("[INST]", "[/INST]"), "mistral", MISTRAL, "[INST]"),
)
BUILT_IN = {name: source for _, name, source, _ in KNOWN}


def template_variants(metadata: Mapping[str, Any], *, file: str) -> dict[str, str]:
    """The templates that a file brings, by name; the usual one is "default". Raises TemplateError for one that is not a text."""
    if not isinstance(metadata.get(KEY, ""), str):
        raise TemplateError(f"{file}: {KEY} is not a text but {type(metadata[KEY]).__name__}; convert the model again")
    found = {}
    if isinstance(metadata.get(KEY), str) and metadata[KEY].strip():
        found["default"] = metadata[KEY]
    for key, value in metadata.items():
        if key.startswith(KEY + ".") and isinstance(value, str) and value.strip():
            found[key.removeprefix(KEY + ".")] = value
    return found


def find_template(metadata: Mapping[str, Any], tokenizer: ChatTokenizer, *, file: str, variant: str | None = None) -> ChatTemplate:
    """The file's template (its `variant` if named), else the built-in one that fits its vocabulary, else ChatML.

    Raises TemplateError where a named variant does not exist, or the file's template is not a text. Nothing is compiled before
    the template's first use.
    """
    bos, eos = (tokenizer.token_text(token) if token is not None else "" for token in (tokenizer.bos_id, tokenizer.eos_id))
    variants = template_variants(metadata, file=file)
    if variant is not None and variant not in variants and variant not in BUILT_IN:
        raise TemplateError(
            f"{file} has no chat template {variant!r}; it has {', '.join(variants) or 'none'}, "
            f"and edgellm brings {', '.join(BUILT_IN)}"
        )
    name = variant or ("default" if "default" in variants else next(iter(variants), None))
    if name in variants:
        return ChatTemplate(variants[name], bos=bos, eos=eos, name=f"the chat template {name!r} of {file}")
    return _built_in(metadata, tokenizer, variant, bos, eos)


def _built_in(metadata: Mapping[str, Any], tokenizer: ChatTokenizer, variant: str | None, bos: str, eos: str) -> ChatTemplate:
    family = str(metadata.get("general.architecture", "")) + str(metadata.get("general.name", "")).lower()
    for tokens, name, source, stop in KNOWN:
        shown = all(tokenizer.token_id(token) is not None for token in tokens)
        if name == variant or (variant is None and (shown or (name == "mistral" and "mistral" in family))):
            return ChatTemplate(source, bos=bos, eos=eos, name=f"the built-in chat template {name!r}", stops=(stop,))
    return ChatTemplate(CHATML, bos=bos, eos=eos, name="the built-in chat template 'chatml'", stops=("<|im_end|>", "<|im_start|>"))
