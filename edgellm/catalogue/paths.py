"""Where the user's own things belong on each system: settings, and the models that edgellm keeps itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ENTRIES_FILE = "models.toml"
OWN = Path(__file__).resolve().parent.parent / "data"  # what comes with edgellm itself


@dataclass(frozen=True, slots=True)
class Environment:
    """The system, the home folder and the environment that paths depend on; tests give others than this process has."""

    platform: str = sys.platform
    home: Path = field(default_factory=Path.home)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def folder(self, variable: str, otherwise: str = "") -> Path | None:
        """The folder that an environment variable names, else `otherwise` in the home folder; None without both."""
        value = self.environment.get(variable)
        if not value:
            return self.home / otherwise if otherwise else None
        return self.home / value[2:] if value.startswith("~/") else Path(value)

    def caches(self) -> Path | None:
        """Where programs of this system keep what can be fetched again."""
        if self.platform == "win32":
            return self.folder("LOCALAPPDATA", "AppData/Local")
        return self.home / "Library/Caches" if self.platform == "darwin" else self.folder("XDG_CACHE_HOME", ".cache")

    def data(self) -> Path | None:
        """Where programs of this system keep what they own."""
        if self.platform == "win32":
            return self.folder("LOCALAPPDATA", "AppData/Local")
        if self.platform == "darwin":
            return self.home / "Library/Application Support"
        return self.folder("XDG_DATA_HOME", ".local/share")


def config_folder(around: Environment | None = None) -> Path:
    """The folder of the user's models.toml: EDGELLM_CONFIG, else the system's own place. It need not exist."""
    around = around or Environment()
    if chosen := around.folder("EDGELLM_CONFIG"):
        return chosen
    if around.platform == "win32":
        return (around.folder("APPDATA", "AppData/Roaming") or around.home) / "edgellm"
    if around.platform == "darwin":
        return around.home / "Library/Application Support/edgellm"
    return (around.folder("XDG_CONFIG_HOME", ".config") or around.home) / "edgellm"


def data_folder(around: Environment | None = None) -> Path:
    """The folder of what edgellm owns: EDGELLM_DATA, else the system's own place. It need not exist."""
    around = around or Environment()
    return around.folder("EDGELLM_DATA") or (around.data() or around.home) / "edgellm"


def models_folder(around: Environment | None = None) -> Path:
    """The folder that `edgellm import` puts models into. It need not exist."""
    return data_folder(around) / "models"


def own_data(name: str) -> Path | None:
    """A file that comes with edgellm itself; None where this installation lacks it."""
    path = OWN / name
    return path if path.is_file() else None
