"""Where edgellm keeps what it can make again and what the user did, and whether a folder is only the user's."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path

SESSIONS = "EDGELLM_SESSIONS"  # "off", or how many bytes the states of saved chats may take: 500M, 4G

# errors of a write for which there is no room
DISK_FULL = frozenset(getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name))


def user_cache() -> Path:
    """The folder for what may be thrown away: EDGELLM_CACHE, else the platform's own place."""
    if chosen := os.environ.get("EDGELLM_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "edgellm" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "edgellm"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgellm"


def is_off() -> bool:
    """True where the user wants no chat to leave a trace."""
    return os.environ.get(SESSIONS, "").strip().lower() == "off"


def state_folder(platform: str = sys.platform, environment: Mapping[str, str] = os.environ) -> Path:
    """Where what the user did is kept between starts; the folder need not exist."""
    if platform == "win32":
        folder = environment.get("LOCALAPPDATA") or "~/AppData/Local"
    elif platform == "darwin":
        folder = "~/Library/Application Support"
    else:
        folder = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(os.path.expanduser(folder), "edgellm")


def is_private(folder: Path) -> bool:
    """True where only this user can write: a real folder of our own, no group or world write bit."""
    import stat

    try:
        status = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    if sys.platform == "win32":  # profile folders carry an ACL for their owner; mode bits say nothing
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022
