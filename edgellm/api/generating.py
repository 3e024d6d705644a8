"""The calls that models and sessions share: an answer to a prompt or a conversation, as a record or as a stream."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, Unpack, cast, overload

from edgellm.api.answer import AnswerSpec
from edgellm.api.async_ import AsyncTwins
from edgellm.api.chat_options import AnyFormChatKeywords, ChatKeywords, check_budget, check_message, check_think, form_of
from edgellm.api.context_policy import ContextPolicy, Visible, fit, larger_context
from edgellm.api.generation_options import AnyFormKeywords, GenerationKeywords, GenerationOptions, Tries, generation_part, parse
from edgellm.api.indenting import Indenter
from edgellm.api.prompting import Prompt, Prompting, check_messages, encoder, prompt_of, tools_of
from edgellm.api.records import Generation, Parsed, ParsedGeneration, Validates
from edgellm.api.several import check_several, several
from edgellm.api.stream import Stream
from edgellm.arguments import check_flag
from edgellm.backends.base import never
from edgellm.chat import Message, ThinkingSplitter, marks_of, splitter_of
from edgellm.chat.channels import Reader
from edgellm.chat.thinking import Free
from edgellm.engine.conversation import SessionCache
from edgellm.engine.engine import Engine
from edgellm.engine.prompts import PromptVectors, Stop, TokenIds, Watch, check_pictures, check_room
from edgellm.errors import ContextFull, OptionError, OptionValue
from edgellm.loading.drafts import Drafts
from edgellm.loading.loaded import LoadedModel
from edgellm.loading.tokenizing import answer_decoder
from edgellm.sampling import Sampler
from edgellm.sampling.bans import Bans

if TYPE_CHECKING:
    from edgellm.api.forms.grammar_vocabulary import GrammarVocabulary
    from edgellm.api.infill import InfillKeywords
    from edgellm.api.rounds import Rounds
    from edgellm.api.tools import Toolbox


class AnswerSource(NamedTuple):
    """The origin of an answer: the model, the session's conversation, and the priority."""

    maker: AnswerMaker
    session: SessionCache | None
    background: bool
    policy: ContextPolicy  # where a call names none


class AnswerMaker:
    """Begins the answers of a model, which share its vocabulary for grammars and its models for drafts."""

    def __init__(self, model: LoadedModel) -> None:
        self.model, self.drafts = model, Drafts(model)

    @cached_property
    def grammars(self) -> GrammarVocabulary:
        from edgellm.api.forms.grammar_vocabulary import GrammarVocabulary

        return GrammarVocabulary(self.model.tokenizer, self.model.n_vocab)

    def begin(
        self,
        ids: TokenIds,
        asked: GenerationOptions,
        source: AnswerSource,
        thinking: ThinkingSplitter | None = None,
        messages: Visible | None = None,
        free: Free | None = None,
        tools: Toolbox | None = None,
        vectors: PromptVectors | None = None,
    ) -> Stream:
        """The answer to token ids, for which nothing is computed yet; `messages`: what they were made of. Raises ContextFull."""
        model = self.model
        model.require_writing()
        if asked.echo and vectors is not None:
            raise OptionError("echo is not possible with images; leave one of them out.")
        check_room(len(ids), model.engine.positions)
        if vectors is not None:
            check_pictures(ids, model.context - model.info.sinks)
        limit = model.context if (asked.context_policy or source.policy) != "ring" else None
        if limit is not None and len(ids) > limit:
            raise ContextFull.of_prompt(
                f"the prompt has {len(ids)} tokens, and the context holds {limit}; shorten it, choose ",
                OptionValue("context_policy", "ring"),
                *larger_context(len(ids), model.info.context_train),
                tokens=len(ids),
                limit=limit,
            )
        options = model.sampling_options(**asked.sampling).options
        needed = asked.bans or asked.stops or asked.turn_ends or asked.form or free or tools  # they need a tokenizer, or raise
        tokenizer = model.tokenizer if model.info.has_tokenizer or needed else None
        end_tokens = tokenizer.eog_ids if tokenizer else frozenset()
        suppressed = tokenizer.suppressed_ids if tokenizer else frozenset()
        sampler = Sampler(
            options,
            n_vocab=model.n_vocab,
            context=model.context,
            end_tokens=end_tokens,
            suppressed=suppressed,
            vocabulary=model.token_texts if tokenizer else None,
            processors=asked.processors,
            constraint=self.grammars.constraint(asked.form, free, tools) if asked.form or free or tools else None,
        )
        shown = tools.shown(tokenizer) if tools and tokenizer else frozenset[int]()
        if thinking and tokenizer:
            shown |= {token for text in thinking.marks.shown if (token := tokenizer.token_id(text)) is not None}
        decoder = (
            answer_decoder(tokenizer, int(max(ids[-1], 0)), exact_spaces=asked.form is not None, shown=shown) if tokenizer else None
        )
        formed = asked.form is not None or (tools is not None and tools.must)
        bans = Bans(asked.bans, tokenizer.piece, stepwise=formed) if asked.bans and tokenizer else None
        spec = AnswerSpec(
            ids,
            asked.max_tokens,
            end_tokens,
            sampler,
            decoder,
            Indenter(asked.form.indent) if asked.form is not None and asked.form.indent is not None else asked.stops,
            asked.progress,
            Reader(thinking, tools.splitter() if tools else None) if thinking or tools else None,
            asked.turn_ends,
            calls_back=bool(asked.processors),
            messages=messages,
            limit=limit,
            kept=_kept(model, messages),
            logprobs=asked.logprobs,
            stop_loops=asked.stop_loops,
            parse=asked.form.parse if asked.form else None,
            not_enforced=(*(asked.form.not_enforced if asked.form else ()), *(tools.not_enforced if tools else ())),
            check=asked.form.check if asked.form else None,
            check_call=tools.problem_of if tools and tools.not_enforced else None,
            drafter=self.drafts.drafter(
                asked.draft, options if sampler.redrawable else None, {*suppressed, *(end_tokens if options.ignore_eos else ())}
            )
            if vectors is None and bans is None
            else None,
            bans=bans,
            echo=asked.echo,
            vectors=vectors,
        )
        background = source.background if asked.priority is None else asked.priority == "background"
        stream = Stream(model.engine, spec, session=source.session, background=background)
        if asked.adapters is not None:
            stream.request.adapters = model.adapter_set(asked.adapters)
        if not stream.request.adapters:
            stream.request.recalled = model.recall(ids, spec.kept)
        return stream


def _kept(model: LoadedModel, messages: Visible | None) -> int | None:
    """How many of the first tokens stay; None for the sinks alone."""
    return max(model.info.sinks, messages.kept_tokens) if messages is not None and messages.kept_tokens is not None else None


class Generating(AsyncTwins, Prompting):
    """The calls of a model that write answers. Those of a session continue the conversation that it holds."""

    def _source(self) -> AnswerSource:
        """Raises ModelClosed, SessionError."""
        raise NotImplementedError

    def _several(self, n: object, *, stream: bool = False, run_tools: bool = False) -> tuple[int, Engine]:
        """The number of answers, and the engine that computes them. Raises OptionError, ModelClosed, SessionError."""
        source, stream, runs = self._source(), check_flag("stream", stream), check_flag("run_tools", run_tools)
        return check_several(n, session=source.session is not None, stream=stream, run_tools=runs), source.maker.model.engine

    @overload
    def generate(
        self, prompt: Prompt, *, schema: type[Parsed] | Validates[Parsed], n: None = None, **options: Unpack[AnyFormKeywords]
    ) -> ParsedGeneration[Parsed]: ...
    @overload
    def generate(self, prompt: Prompt, *, n: None = None, **options: Unpack[GenerationKeywords]) -> Generation: ...
    @overload
    def generate(
        self, prompt: Prompt, *, n: int, schema: type[Parsed] | Validates[Parsed], **options: Unpack[AnyFormKeywords]
    ) -> list[ParsedGeneration[Parsed]]: ...
    @overload
    def generate(self, prompt: Prompt, *, n: int, **options: Unpack[GenerationKeywords]) -> list[Generation]: ...

    def generate(
        self, prompt: Prompt, *, n: int | None = None, **options: Unpack[GenerationKeywords]
    ) -> Generation | Sequence[Generation]:
        """Continue a prompt, and return the answer.

        `prompt`: text (names of control tokens in it are plain text), token ids, or a list of texts, ids and `edgellm.Image`.
        Options: `max_tokens` (as many as the context holds by default; "unlimited" for no limit), `stop` (a text or several
        that end the answer and are not part of it), `processors` (functions (ids (n,), logits (n_vocab,)) -> logits, called before
        all else), `progress` (a function (done, total), called with patches of images and before each step of a prompt), and the
        fields of SamplingOptions (`temperature=0` is greedy), whose defaults the model file may replace; `context_policy` as in
        `load`. Processors and `progress` may be called in the thread of another call that is computed in the same step. `logprobs`:
        of each token and so many alternatives, with `echo` of the prompt too (`result.prompt_logprobs`). `ban`: texts that the
        answer must not contain: it goes back to the token that such a text begins with, and takes another. `stop_loops`: end an
        answer that repeats itself over and over (off but in `chat`).
        `draft`: guess tokens and check several in one step, while that pays; the answer is the same. "ngram" takes them from what
        was said before, a path or name from a small model of the same vocabulary, which is loaded at its first use and closed with
        this one; without
        a `seed` it draws them, and the answer is another of the same distribution.

        `adapters`: LoRA adapters that `load` was given, as (path, scale), with other scales for this answer.

        One of these gives the answer a form: `schema` (JSON: a schema, a Pydantic model, a TypedDict or a dataclass; then
        `result.parsed` has the value), `choices` (one of these texts), `regex`, `grammar` (Lark, GBNF). Every answer that ends by
        itself is of this form; one that is cut says so in `stop_reason`.

        `n`: a list of so many answers, which share the prompt's computing and their steps; with a `seed`, that of answer k is
        `seed` + 4 k (`answer.seed`).

        Raises OptionError, SchemaError (a form that cannot be enforced), NoTokenizer (text for a model without one), ContextFull,
        NumericError, ModelClosed, and FormatError where the file was changed on disk meanwhile.
        """
        if n is not None:
            return several(*self._several(n), lambda asked: self.stream(prompt, **asked), options)
        tries = Tries(options)
        while tries.again(answer := self.stream(prompt, **tries.options).drain()):
            pass
        return answer

    def stream(self, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> Stream:
        """As `generate`, piece by piece: computing starts with the first piece that is asked for."""
        return self.stream_until(never, prompt, **options)

    def warm_up(self, **options: Unpack[ChatKeywords]) -> None:
        """Build what the first constrained answer would wait for: the vocabulary's tree, and the grammar of a form (`schema`,
        `response_format`, `choices`, `regex`, `grammar`) or of `tools`. Other threads go on meanwhile.

        Raises OptionError, SchemaError, TemplateError, NoTokenizer, ModelClosed.
        """
        maker = self._source().maker
        asked, (_, tools) = parse(_formed(options), context=maker.model.context), tools_of(maker.model, options)
        maker.grammars.warm_up(asked.form, tools)

    def stream_until(self, given_up: Stop, prompt: Prompt, **options: Unpack[GenerationKeywords]) -> Stream:
        """`stream`, whose images are given up where `given_up()` comes true."""
        source = self._source()
        model = source.maker.model
        asked = parse(options, context=model.context)
        ids, vectors = prompt_of(model, prompt, watch=Watch(given_up, asked.progress))
        return source.maker.begin(ids, asked, source, vectors=vectors)

    @overload
    def infill(
        self, prefix: str, suffix: str, *, stream: Literal[False] = False, **options: Unpack[InfillKeywords]
    ) -> Generation: ...
    @overload
    def infill(self, prefix: str, suffix: str, *, stream: Literal[True], **options: Unpack[InfillKeywords]) -> Stream: ...
    @overload
    def infill(self, prefix: str, suffix: str, *, stream: bool, **options: Unpack[InfillKeywords]) -> Generation | Stream: ...

    def infill(self, prefix: str, suffix: str, *, stream: bool = False, **options: Unpack[InfillKeywords]) -> Generation | Stream:
        """The text between two texts, by a model for code: a Generation, or with `stream=True` a Stream.

        `files`: other files of the repository, as a mapping of paths to texts or pairs of them, the most important last; `path`:
        that of the file with the gap; `repository`: its name. The order of the prompt is that of the model's family. A prompt that
        exceeds the context loses files, from the first one on, then the beginning of `prefix` and the end of `suffix`
        (`result.stats.left_out_tokens` counts them). Other options and errors as in `generate`, and OptionError for a model whose
        vocabulary has no tokens for this.
        """
        wanted = check_flag("stream", stream)
        from edgellm.api import infill

        ids, left_out = infill.prompt(self._opened(), prefix, suffix, options)
        answer = self.stream(ids, **generation_part(options, infill.InfillKeywords))
        answer.request.left_out_tokens = left_out
        return answer if wanted else answer.drain()

    @overload
    def chat(
        self,
        messages: Sequence[Message],
        *,
        schema: type[Parsed] | Validates[Parsed],
        stream: Literal[False] = False,
        n: None = None,
        **options: Unpack[AnyFormChatKeywords],
    ) -> ParsedGeneration[Parsed]: ...
    @overload
    def chat(
        self, messages: Sequence[Message], *, stream: Literal[False] = False, n: None = None, **options: Unpack[ChatKeywords]
    ) -> Generation: ...
    @overload
    def chat(
        self,
        messages: Sequence[Message],
        *,
        n: int,
        schema: type[Parsed] | Validates[Parsed],
        stream: Literal[False] = False,
        **options: Unpack[AnyFormChatKeywords],
    ) -> list[ParsedGeneration[Parsed]]: ...
    @overload
    def chat(
        self, messages: Sequence[Message], *, n: int, stream: Literal[False] = False, **options: Unpack[ChatKeywords]
    ) -> list[Generation]: ...
    @overload
    def chat(self, messages: Sequence[Message], *, stream: Literal[True], **options: Unpack[ChatKeywords]) -> Stream: ...
    @overload
    def chat(self, messages: Sequence[Message], *, stream: bool, **options: Unpack[ChatKeywords]) -> Generation | Stream: ...

    def chat(
        self, messages: Sequence[Message], *, stream: bool = False, n: int | None = None, **options: Unpack[ChatKeywords]
    ) -> Generation | Sequence[Generation] | Stream:
        """The answer to a conversation: a Generation, or with `stream=True` a Stream of pieces.

        `messages`: mappings with role and content, oldest first. They go through the model's chat template, or a built-in one that
        fits its vocabulary; names of control tokens in them stay plain text. One with `"pinned": True` stays when others are left
        out (see `context_policy` of `load`; `result.stats.forgotten_messages` says which were). `tools`: functions, whose signature
        and docstring the model sees, or descriptions of them (with a function under "run" where `run_tools` is to call it); what it
        calls is in `result.tool_calls`, and in `Stream.events()`. With `run_tools=True` functions are called and the model
        continues, for `max_rounds` (10) at most; `result.messages` has what came between. `template_options`: what else the
        template asks for. `think`: whether a model whose template has a switch for it thinks before it answers, None for the
        template's own default; see the property `thinking`. What is thought, between <think> and </think> or other marks, is not
        part of the answer: it is `result.thinking`, `piece.thinking`, and in `Stream.events()`. `think_budget` ends it after so
        many tokens, with the sentence `think_message` where one is given. `continue_final_message`: a last message of the assistant
        is the beginning of the answer, which continues it without thinking (gpt-oss and Apriel begin another one). Other options
        and errors as in `generate`, and TemplateError where the template does not take the conversation.
        """
        if n is not None:
            found = self._several(n, stream=stream, run_tools=options.get("run_tools", False))
            return several(*found, lambda asked: self.chat(messages, stream=True, **asked), options)
        return self.chat_until(never, messages, stream=stream, **options)

    def rounds(self, messages: Sequence[Message], options: ChatKeywords) -> Rounds:
        """The rounds of `chat` with `run_tools`. Errors as there."""
        check_messages(messages)
        from edgellm.api.rounds import rounds_of

        _, tools = tools_of(self._source().maker.model, options)
        return rounds_of(messages, tools, options)

    def chat_until(
        self, given_up: Stop, messages: Sequence[Message], *, stream: bool = False, **options: Unpack[ChatKeywords]
    ) -> Generation | Stream:
        """`chat`, whose images are given up where `given_up()` comes true."""
        source = self._source()
        model = source.maker.model
        check_messages(messages)
        stream, runs = check_flag("stream", stream), check_flag("run_tools", options.get("run_tools", False))
        template, tools = tools_of(model, options)
        if runs:
            from edgellm.api.rounds import RoundStream, rounds_of

            rounds = rounds_of(messages, tools, options)
            in_rounds = RoundStream(rounds, lambda: self.chat(rounds.messages, stream=True, **rounds.options(options)))
            return in_rounds if stream else in_rounds.drain()
        think, budget = check_think(options.get("think")), check_budget(options.get("think_budget"))
        message = check_message(options.get("think_message"), budget)
        asked = parse(_formed(options), context=model.context, more_stops=template.stops, stop_loops=True)
        seen = fit(
            messages,
            encoder(
                model,
                template,
                tools,
                think,
                options.get("template_options"),
                Watch(given_up, asked.progress),
                continued=check_flag("continue_final_message", options.get("continue_final_message", False)),
            ),
            lambda text: len(model.tokenizer.encode(text)),
            asked.context_policy or source.policy,
            context=model.context,
            trained=model.info.context_train,
            slides=model.info.slides,
            max_tokens=asked.max_tokens,
            pinned=model.info.pinned if model.info.pinned > model.info.sinks else 0,
        )
        if not len(seen.prompt.ids):
            raise OptionError(
                "messages became an empty prompt; give at least one message with some content, and with a role that "
                "the template knows, such as user."
            )
        splitter, free = None, None
        if (marks := marks_of(template.source)) is not None:
            if asked.form is not None and tools is None and marks.calls:
                marks = marks._replace(calls=())  # such a mark is no call, so the form comes behind the end of the thinking
            stray = budget is not None or model.tokenizer.token_id(marks.close) is not None
            splitter = splitter_of(seen.prompt.rendered.text, marks, formed=asked.form is not None, stray=stray)
            free = Free(splitter.inside, think is not False, budget, marks, message)
        answer = source.maker.begin(seen.prompt.ids, asked, source, splitter, seen, free, tools, seen.prompt.vectors)
        if stream:
            return answer
        tries, found = Tries(options), answer.drain()
        while tries.again(found):
            found = cast(Stream, self.chat_until(given_up, messages, stream=True, **tries.options)).drain()
        return found


def _formed(options: ChatKeywords) -> GenerationKeywords:
    """The options that every generation has, with the form that `response_format` asks for. Raises OptionError."""
    own, wanted = generation_part(options, ChatKeywords), form_of(options.get("response_format"))
    if wanted is None:
        return own
    if own.get("schema") is not None:
        raise OptionError("response_format and schema were given together; an answer has one form.")
    return {**own, "schema": wanted}
