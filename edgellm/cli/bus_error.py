"""A last word where a model's file is cut short under its memory map: the system then ends the process with SIGBUS."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any

EXIT_CODE = 3  # as of every fault of a file
_kept: list[Any] = []  # Any: LLVM's engine, which owns the handler's code

# Python's own handlers run between bytecodes, and none follows: the handler has to be machine code.
SOURCE = """
declare i64 @write(i32, ptr, i64)
declare void @_exit(i32)
@text = constant [{length} x i8] c"{text}"
define void @handler(i32 %number) {{
  %written = call i64 @write(i32 2, ptr @text, i64 {length})
  call void @_exit(i32 {code})
  ret void
}}
"""


def say_why(path: Path) -> None:
    """From now on a process that dies of SIGBUS names the file first and ends with code 3. Only for programs of our own.

    Nothing happens on systems without such a signal (Windows refuses to cut a file that is mapped), or where LLVM is missing.
    """
    if not hasattr(signal, "SIGBUS") or _kept:
        return
    with contextlib.suppress(ImportError, OSError, RuntimeError, AttributeError):
        import ctypes

        import llvmlite.binding as llvm

        name = "".join(c if c.isprintable() else "?" for c in str(path))[-300:]
        text = (
            f"\nedgellm: error: {name} was cut short, or its disk taken away, while it was in use; copy or fetch it again\n"
        ).encode("utf-8", "replace")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        written = "".join(f"\\{byte:02x}" for byte in text)
        module = llvm.parse_assembly(SOURCE.format(length=len(text), text=written, code=EXIT_CODE))
        engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine(jit=True))
        engine.finalize_object()
        set_handler = ctypes.CDLL(None).signal
        set_handler.argtypes, set_handler.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        set_handler(signal.SIGBUS, engine.get_function_address("handler"))
        _kept.append(engine)
