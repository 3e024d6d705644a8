"""Back ends: the same graph on different hardware, one object each, found by name."""

from __future__ import annotations

from edgellm.backends.base import Accelerator, Backend, Host
from edgellm.backends.cpu.backend import CpuBackend
from edgellm.backends.mlx.backend import MlxBackend
from edgellm.errors import OptionError

HOST: Host = CpuBackend()
ACCELERATOR: Accelerator = MlxBackend()
BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (HOST, ACCELERATOR)}


def find(name: str) -> Backend:
    """Raises OptionError for a back end that does not exist, BackendError for one that is not installed."""
    if not isinstance(name, str) or name not in BACKENDS:
        raise OptionError(option="backend", value=name, advice=f"give {', '.join(['auto', *BACKENDS])}")
    BACKENDS[name].require()
    return BACKENDS[name]
