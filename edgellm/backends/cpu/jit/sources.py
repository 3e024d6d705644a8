"""Digests of the sources that kernels are compiled from, under which the object cache keeps them.

Of modules of kernels/ and simd/ the entire text counts, with all that they import. Of any other module only the definitions that
are read count, such as the layout of a kernel's arguments, with the definitions that these read in turn: an edit elsewhere in it
compiles nothing again. Sources are searched rather than parsed or imported: a start must not take longer for it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

CPU = Path(__file__).resolve().parent.parent
ROOT = CPU.parents[2]
COMPLETE = ("edgellm.backends.cpu.kernels", "edgellm.backends.cpu.simd")  # packages whose modules count with all their text
MODULE = "*"  # instead of a name
Definition = tuple[str, str]  # a source and a name that it defines; "" for the entire source

# Expressions begin with plain text where they can: `re` finds such places many times as fast.
_IMPORT = re.compile(r"from (edgellm[\w.]*) import (\([^)]*\)|[^\n]*)")
_IMPORTED = re.compile(r"(\w+)(?: as (\w+))?")
_COMMENT = re.compile(r'("""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|\s*#[^\n]*')
_STRING = re.compile(r'(?<![fF])(?:"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')')  # without those that hold code
_STATEMENT = re.compile(r"\n(?=[^\s)\]}#])")  # before one that is not inside of another
_DECORATOR = r"(?:@[^\n]*\n(?:[\s)][^\n]*\n)*)*"
_DEFINED = re.compile(rf"{_DECORATOR}(?:(?:def|class) (\w+)|([A-Za-z_][\w, ]*?)(?:\[[^\n=]*\])?(?:: [^\n=]+)? ?[+|]?= )")
_DOCUMENT = re.compile(r'\A\s*r?"""[\s\S]*?"""')
_IGNORED = re.compile(r"(?:from|import)\b|if TYPE_CHECKING:")


@functools.cache
def sources_digest(module: str) -> str:
    """Names the sources that the kernels of kernels/*/<module>.py are made of, the compiler's among them. A program that was frozen
    without sources is itself what its kernels are made of.
    """
    paths = (f"{folder}{os.sep}{module}.py" for folder in _entries("kernels"))
    kernel = next((path for path in paths if os.path.isfile(path)), module), ""
    compiler, levels = os.path.join(CPU, "jit", "compiler.py"), os.path.join(CPU, "levels.py")
    seen = {(compiler, ""): _digest(_text(compiler))}
    todo = [kernel, (levels, "LEVELS"), *((path, "") for path in _entries("simd") if path.endswith(".py"))]
    while todo:
        definition = todo.pop()
        if definition not in seen:
            seen[definition], read = _read(*definition)
            todo += read
    if not seen[kernel]:
        seen[kernel] = _program()
    parts = [f"{os.path.basename(path)} {name}\0".encode() + digest for (path, name), digest in sorted(seen.items()) if digest]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


@functools.cache
def _entries(folder: str) -> list[str]:
    """The entries of a folder of this back end; none if the program was frozen without sources."""
    try:
        return [entry.path for entry in os.scandir(os.path.join(CPU, folder))]
    except OSError:
        return []


def _program() -> bytes:
    """Names this state of the running program: an update changes the version, or at least the executable's time or size."""
    version = sys.modules["edgellm"].__version__  # not imported: the package leads to everything
    try:
        executable = os.stat(sys.executable)
        state = f"{version} {sys.executable} {executable.st_mtime_ns} {executable.st_size}"
    except OSError:  # an interpreter inside another program may know of no executable
        state = str(version)
    return _digest(state)


def _digest(text: str) -> bytes:
    return hashlib.sha256(os.fsencode(text)).digest() if text else b""


@functools.cache
def _text(path: str) -> str:
    """A source; nothing where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8")
    except OSError:
        return ""


@functools.cache
def _read(path: str, name: str) -> tuple[bytes, tuple[Definition, ...]]:
    """The digest of a definition, and the definitions that it reads."""
    imports = _imports(path)
    if not name:
        text = _text(path)
        return _digest(text), tuple(definition for each in imports for definition in _from(imports[each], each, text))
    definitions = _definitions(path)
    if name in imports:
        return b"", tuple(_from(imports[name], name, ""))
    if name not in definitions:  # a name that is made in another way than by a statement
        return _read(path, "")
    text = _uncommented(definitions[name] + definitions.get("", ""))
    read = list[Definition]()
    for each in sorted({*re.findall(r"[A-Za-z_]\w*", _STRING.sub("", text))}):
        if each in imports:
            read += _from(imports[each], each, text)
        elif each in definitions:
            read.append((path, each))
    return _digest(text), tuple(read)


def _uncommented(text: str) -> str:
    return _COMMENT.sub(lambda each: each[1] or "", text) if "#" in text else text


def _from(imported: Definition, local: str, text: str) -> Iterator[Definition]:
    """The definitions that `text` reads of an import named `local`: of a module the names that follow a dot."""
    path, name = imported
    if name == MODULE:
        yield from ((path, each) for each in sorted({*re.findall(rf"\b{local}\.(\w+)", text)}))
    else:
        yield imported


@functools.cache
def _imports(path: str) -> dict[str, Definition]:
    """The imports of a source from this package, by their names there."""
    found = dict[str, Definition]()
    text = _text(path)
    for statement in _IMPORT.finditer(text):
        if text[text.rfind("\n", 0, statement.start()) + 1 : statement.start()].strip(" "):
            continue  # within a line: no statement
        package, names = statement.groups()
        home, is_package = _module(package)
        counts_all = package.startswith(COMPLETE)
        for name, local in _IMPORTED.findall(_uncommented(names)):
            module = f"{home}{os.sep}{name}.py"
            if is_package and os.path.isfile(module):
                found[local or name] = module, "" if counts_all else MODULE
            else:
                found[local or name] = f"{home}{os.sep}__init__.py" if is_package else f"{home}.py", "" if counts_all else name
    return found


@functools.cache
def _module(name: str) -> tuple[str, bool]:
    """The path of a module without its ending, and whether it is a package."""
    home = os.path.join(ROOT, *name.split("."))
    return home, os.path.isdir(home)


@functools.cache
def _definitions(path: str) -> dict[str, str]:
    """The statements of a source by the names that they define; those that define none by ""."""
    found, before = dict[str, str](), ""
    for statement in _STATEMENT.split(_DOCUMENT.sub("", _text(path))):
        text, before = before + statement.strip() + "\n", ""
        if text.startswith("@") and not _DEFINED.match(text):
            before = text
        elif text.strip() and not _IGNORED.match(text):
            defined = _DEFINED.match(text)
            for name in re.findall(r"\w+", (defined[1] or defined[2]) if defined else "") or [""]:
                found[name] = found.get(name, "") + text
    return found
