"""The jinja2 environment of chat templates: Hugging Face's helpers, provenance of text, bounds on everything."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from jinja2 import Template, nodes
from jinja2 import TemplateError as JinjaError
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from edgellm.chat.budget import BUDGET, MAX_ITEMS, MAX_SIZE, check_length, exceeded
from edgellm.chat.filters import FILTERS, FORBIDDEN_FILTERS, check_filter, check_format, check_method
from edgellm.chat.provenance import Text, joined

Value = Any                                 # what a template computes with: anything of the conversation or its own
FORBIDDEN_ATTRIBUTES = frozenset({"encode", "translate", "maketrans", "striptags", "unescape", "to_bytes", "from_bytes"})
MAX_NODES = 10_000                          # parts of a template's program; the longest published ones have 1,300
MAX_BITS = 4096                             # of an integer


class GenerationTag(Extension):
    """`{% generation %}` ... `{% endgeneration %}`: marks an assistant's words for training, means nothing here."""

    tags = {"generation"}                    # noqa: RUF012  # jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class SafeNamespace(Namespace):
    """A namespace that cannot hold attributes of Python's inner workings."""

    def __setitem__(self, name: str, value: Value) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a namespace cannot hold {name!r}")
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"                 # with its contents, nested ones would print exponentially much


def namespace(*args: Value, **kwargs: Value) -> SafeNamespace:
    made = SafeNamespace()
    for name, value in dict(*args, **kwargs).items():
        made[name] = value
    return made


def make_dict(*args: Value, **kwargs: Value) -> dict[Value, Value]:
    return dict(*args, **kwargs)


def limited_range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > MAX_SIZE:
        raise exceeded(f"it counts to {len(numbers)}, and {MAX_SIZE} is the limit")
    return numbers


def raise_exception(message: Value) -> None:
    raise JinjaError(str(message))


class Generator(CodeGenerator):
    """Compiles a template so that its own text is known as such and every loop turn is counted."""

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        if isinstance(node.value, str):
            self.write(f"environment.written({node.value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:
        self.write(f"environment.written({node.data!r})")

    def _output_const_repr(self, group: Iterable[Value]) -> str:
        return f"environment.written({''.join(group)!r})"

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Value) -> str:
        if isinstance(node, nodes.TemplateData):
            return node.data
        raise nodes.Impossible()             # nothing is computed while compiling: there is no budget yet

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Value) -> None:
        self.write("environment.shown(")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Value) -> None:
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat((")
        for part in node.nodes:
            self.write("environment.shown(")
            self.visit(part, frame)
            self.write("), ")
        self.write("))")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        node.iter = nodes.Call(nodes.EnvironmentAttribute("counted"), [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self.write("environment.built(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("environment.built(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "store":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.built(")
        super().visit_Tuple(node, frame)
        self.write(")")


class Counted:
    """What a `for` runs over: counts its turns, and knows its length where the original does."""

    def __init__(self, items: Iterable[Value]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Value]:
        budget = BUDGET.get()
        for item in self._items:
            budget.step()
            yield item

    def __len__(self) -> int:
        return len(self._items)              # type: ignore[arg-type]  # jinja2 catches the TypeError of a generator


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Renders like transformers' environment, within the current `Budget`."""

    code_generator_class = Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, cache_size=0,
                         extensions=[GenerationTag, LoopControlExtension])
        self.globals = {"range": limited_range, "dict": make_dict, "namespace": namespace, "raise_exception": raise_exception,
                        **{name: self.globals[name] for name in ("cycler", "joiner")}}
        table = {**self.filters, **FILTERS}
        self.filters = {name: guarded(name, function) for name, function in table.items() if name not in FORBIDDEN_FILTERS}
        self._written: dict[str, Text] = {}

    def written(self, value: str) -> Text:
        """A constant of the template."""
        if value not in self._written:
            self._written[value] = Text.written(value)
        return self._written[value]

    def shown(self, value: Value) -> str:
        """What is put into the text for a value."""
        return value if isinstance(value, str) else str(value)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Join what the template puts out, within the limit of one text."""
        budget, length, kept = BUDGET.get(), 0, []
        for part in parts:
            length += len(part)
            check_length(length)
            budget.step()
            kept.append(part)
        text = joined(kept)
        budget.made(text)
        return text

    def counted(self, items: Value) -> Counted:
        return Counted(items)

    def built(self, value: Value) -> Value:
        BUDGET.get().made(value)
        return value

    def is_safe_attribute(self, obj: Value, attr: str, value: Value) -> bool:
        return attr not in FORBIDDEN_ATTRIBUTES and super().is_safe_attribute(obj, attr, value)

    def getitem(self, obj: Value, argument: Value) -> Value:
        value = super().getitem(obj, argument)
        if isinstance(argument, slice):
            BUDGET.get().made(value)
        return value

    def call_binop(self, context: Context, operator: str, left: Value, right: Value) -> Value:
        budget = BUDGET.get()
        budget.step()
        OPERATIONS[operator](left, right)
        value = self.binop_table[operator](left, right)
        budget.made(value)
        return value

    def call(__self, __context: Context, __obj: Value, *args: Value, **kwargs: Value) -> Value:
        budget = BUDGET.get()
        budget.step()
        owner = getattr(__obj, "__self__", None)
        owner = getattr(getattr(__obj, "__wrapped__", None), "__self__", owner)      # the sandbox wraps str.format
        if isinstance(owner, str):
            name = __obj.__name__
            if name == "join" and args:
                args = (list(map(str, args[0])),)
                check_length(sum(map(len, args[0])) + len(args[0]) * len(owner))
                return __self.built(joined(args[0], owner))
            check_method(owner, name, (*args, *kwargs.values()))
        value = super().call(__context, __obj, *args, **kwargs)
        budget.made(value)
        return value


def compile_template(source: str) -> Template:
    """Compile a template in an environment of its own. Raises jinja2's errors, TemplateError for one that is too big."""
    environment = ChatEnvironment()
    tree = environment.parse(source)
    count = sum(1 for _ in tree.find_all(nodes.Node))
    if count > MAX_NODES:
        raise exceeded(f"it consists of {count} parts, and {MAX_NODES} is the limit")
    return environment.from_string(tree)


def guarded(name: str, function: Callable[..., Value]) -> Callable[..., Value]:
    """A filter that counts as a step and is looked at before and after."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def filtered(*args: Value, **kwargs: Value) -> Value:
        budget = BUDGET.get()
        budget.step()
        if len(args) > first:
            check_filter(name, args[first], [*args[first + 1:], *kwargs.values()])
        value = function(*args, **kwargs)
        budget.made(value)
        return value

    return filtered


def check_sum(left: Value, right: Value) -> None:
    if isinstance(left, str) and isinstance(right, str):
        check_length(len(left) + len(right))


def check_product(left: Value, right: Value) -> None:
    for value, times in ((left, right), (right, left)):
        if isinstance(value, str) and isinstance(times, int):
            check_length(len(value) * times)
        elif isinstance(value, list | tuple) and isinstance(times, int) and len(value) * times > MAX_ITEMS:
            raise exceeded(f"it makes a list of {len(value)} times {str(times)[:20]} entries")
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_BITS:
        raise exceeded("it computes with numbers of a thousand digits")


def check_power(left: Value, right: Value) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > MAX_BITS:
        raise exceeded("it computes with numbers of a thousand digits")


def check_remainder(left: Value, right: Value) -> None:
    if isinstance(left, str):
        check_format(left, right if isinstance(right, tuple) else (right,))


OPERATIONS: dict[str, Callable[[Value, Value], None]] = {
    "+": check_sum, "*": check_product, "**": check_power, "%": check_remainder}
