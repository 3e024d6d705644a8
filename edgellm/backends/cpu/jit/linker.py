"""Object code linked into this process."""

from __future__ import annotations

import ctypes

from edgellm.backends.cpu.jit.cache import KernelObject

# What Numba's C wrapper calls if a kernel raises. Kernels raise nothing, so these are never reached, but they must be linked.
ERROR_PATH = (
    "numba_gil_ensure",
    "numba_gil_release",
    "numba_do_raise",
    "numba_unpickle",
    "numba_runtime_build_excinfo_struct",
    "NRT_Free",
    "PyUnicode_FromString",
    "PyBytes_FromStringAndSize",
    "PyErr_WriteUnraisable",
    "PyErr_Clear",
    "PyErr_SetString",
    "PyErr_SetNone",
    "PyExc_StopIteration",
    "PyExc_SystemError",
    "PyExc_RuntimeError",
    "Py_DecRef",
)


class Linker:
    """Object code linked into this process through LLVM; numba is not needed for it. Code stays valid while this lives."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        nowhere = ctypes.cast(ctypes.pythonapi.PyErr_Clear, ctypes.c_void_p).value  # LLVM aborts on address 0
        for name in ERROR_PATH:
            llvm.add_symbol(name, nowhere)
        self._llvm = llvm
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._linked: dict[str, int] = {}

    def link(self, kernel: str, item: KernelObject) -> int:
        """The address of the kernel; raises RuntimeError where the object cannot be linked."""
        if kernel not in self._linked:
            self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(item.code))
            self._engine.finalize_object()
            address = self._engine.get_function_address(item.symbol)
            if not address:
                raise RuntimeError(f"no symbol {item.symbol}")
            self._linked[kernel] = address
        return self._linked[kernel]
