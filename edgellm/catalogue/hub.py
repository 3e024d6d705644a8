"""The hub's protocol: what a repository holds, what a file of it is, and its bytes from any position on.

Facts about a file stand on the hub's own answer, before the redirect to the host that has the bytes: X-Linked-Etag is its
sha256, X-Linked-Size its length, X-Repo-Commit the commit behind a branch. The other host's ETag is not the sha256.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar  # what JSON holds before it is checked
from urllib.parse import quote, urljoin

from edgellm.catalogue.connection import HttpLimits
from edgellm.catalogue.hub_cache import hub_home
from edgellm.catalogue.web import REDIRECTS, Interrupted, OutOfRange, Response, Unreachable, request
from edgellm.errors import DownloadError

COMMIT, SHA256 = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{64}")
PAGE_BYTES, LISTING_BYTES = 4 << 20, 16 << 20  # of one page of a listing, which has at most 1,000 files, and of all pages
PAGE_VALUES = 100_000  # names, numbers and texts of a page; each takes up to 200 bytes of memory
SIZE = re.compile("[0-9]{1,18}")
PAGES = 50
LINKED = "X-Linked-Etag"  # stands on the hub's own answer, not on the one with the bytes
DEFAULT_ENDPOINT = "https://huggingface.co"
WAITING = 30.0  # seconds that a server may ask for with Retry-After, all its requests together
T = TypeVar("T")
TRUE = frozenset({"1", "on", "yes", "true"})  # as huggingface_hub reads its switches


class NoSuchFile(DownloadError):
    """The repository is there, and has no file of that path."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a repository at one commit, as the hub describes it; `sha256` is None for small files that are not in LFS."""

    repository: str
    path: str
    commit: str
    size: int
    sha256: str | None


class Hub:
    """A hub and the user's settings for it: HF_ENDPOINT, HF_TOKEN (or the file of `hf auth login`), HF_HUB_OFFLINE."""

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        limits: HttpLimits | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = (environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
        self.host = re.sub(r"^\w+://(?:[^/@]*@)?([^/:]*).*", r"\1", self.endpoint)  # for messages
        self.limits, self.sleep = limits or HttpLimits(), sleep
        self.offline = any(environment.get(name, "").lower() in TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
        self._token = _token(environment)
        self._waited = 0.0  # seconds that servers asked for

    @property
    def has_token(self) -> bool:
        """True if the user has given a token."""
        return bool(self._token)

    def facts(self, repository: str, path: str, revision: str) -> RemoteFile:
        """The hub's record of one file. Raises DownloadError."""
        url = self._url(repository, path, revision)
        with self._tried(lambda: self._once("HEAD", url, {}, repository, path, revision, final=LINKED), repository) as answer:
            headers = answer.headers
            commit = headers.get("X-Repo-Commit", "")
            etag = headers.get(LINKED) or headers.get("ETag") or ""
            size = headers.get("X-Linked-Size") or (headers.get("Content-Length") if answer.status == 200 else None) or ""
        if not COMMIT.fullmatch(commit) or not SIZE.fullmatch(size):
            raise DownloadError(f"{self.host} does not say which version of {path} it has, or how long it is; check HF_ENDPOINT")
        digest = etag.removeprefix("W/").strip('"')
        return RemoteFile(repository, path, commit, int(size), digest if SHA256.fullmatch(digest) else None)

    def files(self, repository: str, revision: str = "main") -> list[RemoteFile]:
        """All files of a repository, with paths as they come: not checked yet. Raises DownloadError."""
        api = f"{self.endpoint}/api/models/{quote(repository)}"
        info, _, _ = self._json(f"{api}/revision/{quote(revision, safe='')}", repository, revision, PAGE_BYTES)
        commit = info.get("sha") if isinstance(info, dict) else None
        if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
            raise DownloadError(f"{self.host} does not say which version of {repository} it has; check HF_ENDPOINT")
        found: list[RemoteFile] = []
        left = LISTING_BYTES
        url: str | None = f"{api}/tree/{commit}?recursive=true"
        for _ in range(PAGES):
            if url is None:
                break
            listing, length, link = self._json(url, repository, revision, min(PAGE_BYTES, left))
            left -= length
            url = self._next(url, link)
            if not isinstance(listing, list):
                raise DownloadError(f"{self.host} gives no list of the files of {repository}; check HF_ENDPOINT")
            found += [file for item in listing if (file := _listed(item, repository, commit)) is not None]
        return found

    def open(self, file: RemoteFile, start: int = 0, *, end: int | None = None, validator: str | None = None) -> Response:
        """The file's bytes from `start` on (up to and without `end`), 200 or 206; `validator` is the ETag of what came before.

        A 200 begins at the file's first byte, whatever was asked for. Raises Interrupted and DownloadError; no second try here.
        """
        headers = {}
        if start or end is not None:
            headers["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
            if start and validator is not None:
                headers["If-Range"] = validator
        url = self._url(file.repository, file.path, file.commit)
        answer = self._once("GET", url, headers, file.repository, file.path, file.commit)
        if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
            with answer:
                raise DownloadError(f"{self.host} sends {file.path} compressed, which was not asked for; check HF_ENDPOINT")
        return answer

    def _url(self, repository: str, path: str, revision: str) -> str:
        return f"{self.endpoint}/{quote(repository)}/resolve/{quote(revision, safe='')}/{quote(path)}"

    def _next(self, url: str, link: str) -> str | None:
        """The following page of a listing, if it is on the same server."""
        match = re.search(r'<([^>]+)>;\s*rel="next"', link)
        following = urljoin(url, match[1]) if match else None
        return following if following and following.startswith(self.endpoint + "/") else None

    def _json(self, url: str, repository: str, revision: str, most: int) -> tuple[Any, int, str]:
        """The response of an address, its bytes, and its Link header."""

        def read() -> tuple[bytes, str]:
            with self._once("GET", url, {}, repository, "", revision) as answer:
                return answer.text(most), answer.headers.get("Link", "")

        body, link = self._tried(read, repository)
        return _parsed(body, self.host), len(body), link

    def _tried(self, ask: Callable[[], T], repository: str) -> T:
        """The result of `ask`, tried again after errors that may pass."""
        for attempt in range(1, self.limits.tries + 1):
            try:
                return ask()
            except Interrupted as fault:
                if attempt == self.limits.tries or isinstance(fault, Unreachable):
                    if isinstance(fault, Unreachable):
                        raise DownloadError(f"{repository}: {fault}; are you online?") from fault
                    raise DownloadError(f"{repository}: {fault} ({attempt} tries); try again later") from fault
                self.wait(fault, attempt)
        raise AssertionError("the last try returns or raises")

    def wait(self, fault: Interrupted, failures: int) -> None:
        """Pause before the next try. Raises DownloadError where servers asked for more than `WAITING` seconds."""
        self._waited += fault.wait
        if self._waited > WAITING:
            raise DownloadError(f"{fault} and asks to wait {fault.wait:,.0f} s; run the command again after that") from fault
        self.sleep(max(fault.wait, self.limits.pause * 2 ** (failures - 1)))

    def _once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        repository: str,
        path: str,
        revision: str,
        *,
        final: str | None = None,
    ) -> Response:
        if self.offline:
            raise DownloadError(f"{repository} is not fetched because HF_HUB_OFFLINE is set; unset it to use the network")
        if not re.match(r"https?://[^/]", self.endpoint):
            raise DownloadError(f"HF_ENDPOINT={self.endpoint} is not an address of a hub; give one that begins with https://")
        token = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        answer = request(method, url, {**headers, **token}, endpoint=self.endpoint, limits=self.limits, final=final)
        if answer.status in (200, 206) or (final and answer.status in REDIRECTS):
            return answer
        with answer:
            raise self._refusal(answer, repository, path, revision)

    def _refusal(self, answer: Response, repository: str, path: str, revision: str) -> Exception:
        """The meaning of an error response, in one sentence that says what to do."""
        status, code = answer.status, answer.headers.get("X-Error-Code", "")
        if status == 416:
            return OutOfRange(f"{self.host} answers 416")
        if status in (408, 429) or status >= 500:
            wait = answer.headers.get("Retry-After", "")
            return Interrupted(f"{self.host} answers {status}", float(wait[:9]) if wait.isdecimal() else 0.0)
        page = f"{self.endpoint}/{repository}"
        if code == "GatedRepo" or (status == 403 and not code):
            return DownloadError(
                f"{repository} is open only to those who accepted its terms: accept them on {page}, make a token, "
                "and set HF_TOKEN to it"
            )
        if code == "EntryNotFound":
            return NoSuchFile(f"{repository} has no file {path!r}; letter case counts, see {page}/tree/{revision}")
        if code == "RevisionNotFound":
            return DownloadError(f"{repository} has no version {revision!r}; see {page}/tree/main")
        if status in (401, 404) or code == "RepoNotFound":
            token = "HF_TOKEN has no access to it" if self._token else "it is private or gated, which needs HF_TOKEN"
            return DownloadError(f"{self.host} knows no repository {repository}, or {token}; check the name, letter case counts")
        return DownloadError(f"{self.host} answers {status} for {path or repository}; try again later")


def _token(environment: Mapping[str, str]) -> str:
    """The user's token, or "". As huggingface_hub: the variable beats the file."""
    if value := environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN"):
        return _header_safe(value)
    if environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").lower() in TRUE:
        return ""
    file = environment.get("HF_TOKEN_PATH")
    with contextlib.suppress(OSError, ValueError):
        return _header_safe((Path(file).expanduser() if file else hub_home(environment) / "token").read_text(encoding="utf-8"))
    return ""


def _header_safe(token: str) -> str:
    """A token without white space; one that cannot stand in a header is none."""
    token = token.strip()
    return token if token.isascii() and token.isprintable() else ""


def _parsed(body: bytes, host: str) -> Any:
    if sum(map(body.count, (b",", b"[", b"{"))) > PAGE_VALUES:  # a bound on its values, without making them
        raise DownloadError(f"{host} gives an answer of more than {PAGE_VALUES} values, as no hub does; check HF_ENDPOINT")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DownloadError(f"{host} gives an answer that is not JSON, so it is not a hub; check HF_ENDPOINT") from error


def _listed(item: Any, repository: str, commit: str) -> RemoteFile | None:
    """One line of a listing; None for folders and for what is not a file."""
    if not isinstance(item, dict) or item.get("type") != "file" or not isinstance(item.get("path"), str):
        return None
    lfs = item.get("lfs")
    large: dict[str, Any] = lfs if isinstance(lfs, dict) else {}
    size, digest = large.get("size", item.get("size")), large.get("oid", "")
    if type(size) is not int or not 0 <= size < 10**18:  # True is an int too
        return None
    return RemoteFile(repository, item["path"], commit, size, digest if SHA256.fullmatch(str(digest)) else None)
