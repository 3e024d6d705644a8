"""The jinja2 environment of chat templates: Hugging Face's helpers, provenance of text, bounds on everything."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

from jinja2 import Template, nodes
from jinja2 import TemplateError as JinjaError
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from edgellm.chat import costs
from edgellm.chat.budget import BUDGET, MAX_BITS, exceeded, spans
from edgellm.chat.costs import Value
from edgellm.chat.filters import Counted, glue, guarded_filters, guarded_tests, shown
from edgellm.chat.provenance import Text, joined

MAX_NODES = 5000  # parts of a template's program; the longest published ones have 1,300
COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


class GenerationTag(Extension):
    """`{% generation %}` ... `{% endgeneration %}`: marks an assistant's words for training, means nothing here."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it so

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
        return "<Namespace>"  # with its contents, nested ones would print exponentially much


def namespace(*args: Value, **kwargs: Value) -> SafeNamespace:
    made = SafeNamespace()
    for name, value in dict(*args, **kwargs).items():
        made[name] = value
    return made


def make_dict(*args: Value, **kwargs: Value) -> dict[Value, Value]:
    budget = BUDGET.get()
    for value in args:  # numbers may be chosen so that a dict of them is quadratic
        pairs = [] if isinstance(value, dict) else list(Counted(value))
        args = (pairs or value,)
        others = sum(not isinstance(pair[0], str) for pair in pairs if isinstance(pair, list | tuple) and pair)
        budget.step(1000 * len(pairs) + 25 * others**2)
    return dict(*args, **kwargs)


def raise_exception(message: Value) -> None:
    raise JinjaError(str(message))


class Generator(CodeGenerator):
    """Compiles a template so that its own text is known as such and every loop turn is counted."""

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        if isinstance(node.value, str):
            self.write(f"environment.written({node.value!r})")
        elif isinstance(node.value, int) and node.value.bit_length() > MAX_BITS:
            raise exceeded("it holds a number of a hundred digits")
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:
        self.write(f"environment.written({node.data!r})")

    def _output_const_repr(self, group: Iterable[Value]) -> str:
        return f"environment.written({''.join(group)!r})"

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Value) -> str:
        if isinstance(node, nodes.TemplateData):
            return node.data
        raise nodes.Impossible()  # nothing is computed while compiling: there is no budget yet

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

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("environment.compared(")
        self.visit(node.expr, frame)
        for operand in node.ops:
            self.write(f", {operand.op!r}, ")
            self.visit(operand.expr, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.sliced(")
        self.visit(node.node, frame)
        for bound in (node.arg.start, node.arg.stop, node.arg.step):
            self.write(", ")
            if bound is None:
                self.write("None")
            else:
                self.visit(bound, frame)
        self.write(")")

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier, frame: Frame) -> None:
        raise exceeded("it escapes its text as HTML")

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


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Renders like transformers' environment, within the current `Budget`."""

    code_generator_class = Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, cache_size=0, extensions=[GenerationTag, LoopControlExtension]
        )
        self.globals = {
            "range": costs.limited_range,
            "dict": make_dict,
            "namespace": namespace,
            "raise_exception": raise_exception,
            **{name: self.globals[name] for name in ("cycler", "joiner")},
        }
        self.filters = guarded_filters()
        self.tests = {**guarded_tests()}
        self._written: dict[str, Text] = {}

    def written(self, value: str) -> Text:
        """A constant of the template."""
        if value not in self._written:
            self._written[value] = Text.written(value)
        return self._written[value]

    shown = staticmethod(shown)

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Join what the template puts out, within the limit of one text."""
        budget, length, kept = BUDGET.get(), 0, []
        for part in parts:
            length += len(part)
            budget.length(length)
            budget.step(100 * spans(part))
            kept.append(part)
        text = joined(kept)
        budget.made(text)
        return text

    def counted(self, items: Value) -> Counted:
        return Counted(items)

    def built(self, value: Value) -> Value:
        BUDGET.get().made(value)
        return value

    def compared(self, left: Value, *rest: Value) -> Value:
        """`a < b < c`, written as a, "lt", b, "lt", c."""
        budget, result = BUDGET.get(), True
        for name, right in zip(rest[::2], rest[1::2], strict=True):
            if name in ("in", "notin"):
                costs.contains(budget, right, (left,))
            else:
                costs.compare(budget, left, (right,))
            result = COMPARE[name](left, right)
            if not result:
                return result
            left = right
        return result

    def sliced(self, value: Value, start: Value, stop: Value, step: Value) -> Value:
        costs.scan(BUDGET.get(), value, ())
        return self.built(value[start:stop:step])

    def is_safe_attribute(self, obj: Value, attr: str, value: Value) -> bool:
        known = costs.methods(obj)
        return super().is_safe_attribute(obj, attr, value) and (known is None or attr in known)

    def getitem(self, obj: Value, argument: Value) -> Value:
        BUDGET.get().step(costs.size(argument))
        costs.check_name(argument)
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Value, right: Value) -> Value:
        budget = BUDGET.get()
        budget.step()
        costs.OPERATIONS[operator](budget, left, right)
        value = self.binop_table[operator](left, right)
        if operator == "+" and isinstance(value, list | tuple):
            budget.made(value, left, right)
        else:
            budget.made(value)
        return value

    def call(__self, __context: Context, __obj: Value, *args: Value, **kwargs: Value) -> Value:
        budget = BUDGET.get()
        budget.step()
        owner = getattr(__obj, "__self__", None)
        owner = getattr(getattr(__obj, "__wrapped__", None), "__self__", owner)  # the sandbox wraps str.format
        rules = costs.methods(owner) if owner is not None else None
        if rules is not None:
            name = getattr(__obj, "__name__", "")
            if name not in rules:
                raise exceeded(f"it calls {name!r} of a {type(owner).__name__}")
            if isinstance(owner, str) and name == "join" and args:
                return __self.built(glue(args[0], owner))
            rules[name](budget, owner, (*args, *kwargs.values()))
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
