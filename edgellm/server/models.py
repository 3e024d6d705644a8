"""The models that requests name: loaded at first use, kept for a while, and unloaded to make room for others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import edgellm
from edgellm import EdgeError, InstalledModel, Model, ModelNotFound, NotEnoughMemory
from edgellm.server.problems import Problem
from edgellm.server.settings import LOOK_SECONDS, LOW_MEMORY, Settings

log = logging.getLogger("edgellm.server")
MOST_NAME, MOST_NAMES = 300, 1000
NAMELESS = ("", "default", "dummy")  # "dummy": what huggingface_hub's client sends where it was given no model
STOP_AGAIN = 0.05  # seconds between two looks for answers that are to end
LISTED_SECONDS = 5.0  # that a look at the disk counts


@dataclass(frozen=True, slots=True)
class Offered:
    """A model that requests may name; `source` is what `edgellm.load` takes."""

    name: str
    source: str
    sampling: Mapping[str, float] = field(default_factory=dict)
    installed: InstalledModel | None = None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.installed.size if self.installed else _stat(self.source)[0]

    @property
    def modified(self) -> float:
        """When the file was written, in seconds since 1970."""
        return self.installed.modified if self.installed else _stat(self.source)[1]


def _stat(path: str) -> tuple[int, float]:
    try:
        found = Path(path).stat()
    except OSError:
        return 0, 0.0
    return found.st_size, found.st_mtime


@dataclass(eq=False, slots=True)
class Loaded:
    """A model in memory, and how many answers it is writing. `expires`: in seconds of time.monotonic(); None: never."""

    offered: Offered
    model: Model
    users: int = 0
    used: float = 0.0
    expires: float | None = None
    timer: asyncio.TimerHandle | None = None  # that looks whether it has
    adapters: list[tuple[Path, float]] | None = None  # of requests that name none; None: as it was loaded

    @property
    def name(self) -> str:
        return self.offered.name


def _warm_up(model: Model) -> None:
    """Compile the template and whatever else the first request would wait for; nothing is computed."""
    with contextlib.suppress(EdgeError):
        model.chat([{"role": "user", "content": "Hello"}], stream=True, max_tokens=1).close()


class Models:
    """Used by the event loop's thread alone; loading and closing happen in others."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.loaded: dict[str, Loaded] = {}  # by source, the least recently used first
        self._loads: dict[str, asyncio.Task[Loaded]] = {}
        self._one_load = asyncio.Lock()
        self._closing = set[asyncio.Task[None]]()
        self._listed: tuple[float, dict[str, Offered]] = (-LISTED_SECONDS, {})
        self._served: dict[str, Offered] = {}
        self._aliases = set[str]()  # the keys of `_served` that requests have added
        self._stopped = False

    async def start(self) -> Loaded:
        """Load the first of the models that the server was started with, ready to answer. Raises what `edgellm.load` raises."""
        names = await asyncio.to_thread(self._names)
        for given in self._settings.models:
            path = Path(given)
            known = names.get(given) or next((each for each in names.values() if each.source == given), None)
            offered = known or Offered(path.stem if path.suffix else given, given)
            self._served[offered.name.lower()] = offered
        first = next(iter(self._served.values()))
        loaded = await self._load(first)
        await asyncio.to_thread(_warm_up, loaded.model)
        return loaded

    async def stop(self) -> None:
        """Begin no other answer, and end those under way, also those whose prompt is being encoded; until it is cancelled."""
        self._stopped = True
        for task in self._loads.values():
            task.cancel()
        while True:
            for loaded in self.loaded.values():
                loaded.model.cancel()
            await asyncio.sleep(STOP_AGAIN)

    async def watch(self) -> None:
        """Unload models that write nothing where the machine's memory becomes short, least recently used first; until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            idle = next((each for each in self.loaded.values() if not each.users), None)
            if idle is not None and await asyncio.to_thread(edgellm.free_memory) < LOW_MEMORY and not idle.users:
                log.info("unloaded %s, for memory is short", idle.name)
                await asyncio.wait((self._close(idle),))

    async def close(self) -> None:
        """Unload all."""
        for loaded in list(self.loaded.values()):
            self._close(loaded)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def names(self) -> dict[str, Offered]:
        """The models that requests may name: those that the server was started with, then those on this machine."""
        since, names = self._listed
        if time.monotonic() - since > LISTED_SECONDS:
            names = await asyncio.to_thread(self._names)
            self._listed = (time.monotonic(), names)
        return {**{each.name: each for each in self._served.values()}, **names}

    def _names(self) -> dict[str, Offered]:
        found: dict[str, Offered] = {}
        for model in edgellm.installed():
            name = Path(model.name).stem if Path(model.name).is_absolute() else model.name
            found.setdefault(name, Offered(name, str(model.path), model.sampling, model))
        return found

    def forget_names(self) -> None:
        """Models were fetched or removed: look at the disk again."""
        self._listed = (-LISTED_SECONDS, {})

    async def alias(self, name: str, target: str) -> None:
        """Give a model another name, until the server stops. Raises Problem."""
        offered = await self.find(target)
        if not name.strip() or len(name) > MOST_NAME or len(self._served) >= MOST_NAMES:
            raise Problem(400, f"{name[:100]!r} cannot be a model's name.")
        key = name.strip().lower().removesuffix(":latest")
        if key in self._served and key not in self._aliases:
            raise Problem(409, f"{name[:100]!r} is a model that the server was started with; choose another name.")
        self._aliases.add(key)
        self._served[key] = offered

    def forget_alias(self, name: str) -> bool:
        """Take back a name that `alias` gave; False for any other name."""
        key = name.strip().lower().removesuffix(":latest")
        if key not in self._aliases:
            return False
        self._aliases.discard(key)
        del self._served[key]
        return True

    async def unload(self, offered: Offered) -> None:
        """Take a model out of memory. Raises Problem while it answers."""
        loaded = self.loaded.get(offered.source)
        if loaded is not None and loaded.users:
            raise Problem(409, f"{offered.name} is answering a request; try again when it has ended.")
        if loaded is not None:
            await self._close(loaded)

    async def find(self, name: str | None) -> Offered:
        """The model that a request names, the first one for none. Raises Problem."""
        served = self._served
        wanted = (name or "").strip()
        if wanted.lower() in NAMELESS:
            return next(iter(served.values()))
        wanted = self._settings.aliases.get(wanted, wanted)
        key = wanted.lower().removesuffix(":latest")
        if key in served:
            return served[key]
        names = await self.names()
        for each in names.values():
            if each.name.lower() == key:
                return each
        try:
            installed = await asyncio.to_thread(edgellm.find_installed, wanted) if len(wanted) <= MOST_NAME else None
        except ModelNotFound as error:
            raise Problem(404, str(error), code="model_not_found") from error
        if installed is not None:
            return next(
                (each for each in names.values() if each.source == str(installed.path)), Offered(wanted, str(installed.path))
            )
        listed = ", ".join(list(names)[:8])
        raise Problem(
            404,
            f"the model {wanted[:100]!r} is not on this machine; there are {listed}. edgellm pull fetches others, and "
            "--model-alias gives one a second name.",
            code="model_not_found",
        )

    @contextlib.asynccontextmanager
    async def use(self, name: str | None, keep_alive: float | None = -1.0) -> AsyncIterator[Loaded]:
        """The model of that name, loaded if it is not, and kept while the block lasts; `keep_alive` seconds longer (-1: as usual).

        Raises Problem, and what `edgellm.load` raises.
        """
        self._check_running()
        offered = await self.find(name)
        loaded = self.loaded.get(offered.source)
        while loaded is None or loaded.model.closed:
            task = self._loads.get(offered.source)
            if task is None:
                task = self._loads[offered.source] = asyncio.create_task(self._load(offered))
                task.add_done_callback(lambda done, source=offered.source: self._loads.pop(source, None))  # type: ignore[misc]
            try:
                loaded = await asyncio.shield(task)  # a client that leaves does not stop the loading, for which others may wait
            except asyncio.CancelledError:
                self._check_running()
                raise
        self._check_running()
        loaded.users += 1
        self.loaded[offered.source] = self.loaded.pop(offered.source, loaded)
        try:
            yield loaded
        finally:
            loaded.users -= 1
            self.release(loaded, self._settings.keep_alive if keep_alive == -1.0 else keep_alive)

    def _check_running(self) -> None:
        """Raises Problem once the server has been asked to stop."""
        if self._stopped:
            raise Problem(503, "the server is stopping.", code="server_stopping", headers={"connection": "close"})

    def release(self, loaded: Loaded, keep_alive: float | None) -> None:
        """An answer is complete: unload the model after `keep_alive` seconds without another one."""
        loaded.used = time.monotonic()
        loaded.expires = None if keep_alive is None else loaded.used + keep_alive
        if loaded.timer is not None and loaded.expires is not None and loaded.timer.when() > loaded.expires:
            loaded.timer.cancel()
            loaded.timer = None
        self._look_later(loaded)

    def _look_later(self, loaded: Loaded) -> None:
        """One timer for a model: with one for each answer, those of minutes would be kept."""
        if loaded.timer is None and loaded.expires is not None:
            loaded.timer = asyncio.get_running_loop().call_at(loaded.expires, self._expire, loaded)

    def _expire(self, loaded: Loaded) -> None:
        loaded.timer = None
        if self.loaded.get(loaded.offered.source) is not loaded or loaded.users:
            return  # the end of an answer sets another one
        if loaded.expires is not None and loaded.expires > time.monotonic() + 0.001:
            self._look_later(loaded)
        elif loaded.expires is not None:
            log.info("unloaded %s", loaded.name)
            self._close(loaded)

    def _close(self, loaded: Loaded) -> asyncio.Task[None]:
        self.loaded.pop(loaded.offered.source, None)
        task = asyncio.create_task(asyncio.to_thread(loaded.model.close))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _load(self, offered: Offered) -> Loaded:
        """Load one, after unloading idle ones where memory is short, least recently used first."""
        async with self._one_load:
            since = time.monotonic()
            options = {"parallel": 4, "queue": 64, "context_policy": "error", **self._settings.load}
            while True:
                try:
                    model = await asyncio.to_thread(edgellm.load, offered.source, **options)
                    break
                except NotEnoughMemory:
                    idle = next((each for each in self.loaded.values() if not each.users), None)
                    if idle is None:
                        raise
                    log.info("unloaded %s to make room for %s", idle.name, offered.name)
                    await self._close(idle)
            loaded = self.loaded[offered.source] = Loaded(offered, model)
            self.release(loaded, self._settings.keep_alive)
            info = model.info
            log.info(
                "loaded %s in %.1f s: context of %d tokens, %d at a time, %d threads",
                offered.name,
                time.monotonic() - since,
                info.context,
                options["parallel"],
                info.threads,
            )
            return loaded
