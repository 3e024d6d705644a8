"""Models that Ollama has pulled: a manifest names the blob that is the GGUF file, and its sha256.

Layout: manifests/HOST/NAMESPACE/MODEL/TAG (JSON) and blobs/sha256-HEX, as in Ollama's manifest/paths.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from edgellm.catalogue.file_selection import type_of
from edgellm.catalogue.paths import Environment
from edgellm.catalogue.stores.found import Found, found

NAME = "Ollama"
RANK = 1
MODEL_LAYER = "application/vnd.ollama.image.model"
PROJECTOR_LAYER = "application/vnd.ollama.image.projector"
DIGEST = re.compile("sha256:([0-9a-f]{64})")  # nothing else may become part of a path
MANIFEST_BYTES = 1 << 20
SERVICE = Path("/usr/share/ollama/.ollama/models")


def find(around: Environment) -> Iterator[Found]:
    """The models of the user's Ollama and, on Linux, of the system's."""
    roots = [around.folder("OLLAMA_MODELS", ".ollama/models")]
    if around.platform == "linux":
        roots.append(SERVICE)
    for root in roots:
        if root is not None:
            yield from _of_root(root)


def projector_of(blob: Path) -> Path | None:
    """The image projector that a manifest names beside a model's blob; None where there is none."""
    root = blob.parent.parent
    if blob.parent.name != "blobs" or not blob.name.startswith("sha256-"):
        return None
    for manifest in sorted((root / "manifests").glob("*/*/*/*")):
        if _digest(manifest, MODEL_LAYER) == blob.name.removeprefix("sha256-"):
            digest = _digest(manifest, PROJECTOR_LAYER)
            if digest is not None and (found := root / "blobs" / f"sha256-{digest}").is_file():
                return found
    return None


def _of_root(root: Path) -> Iterator[Found]:
    for manifest in sorted((root / "manifests").glob("*/*/*/*")):
        digest = _digest(manifest, MODEL_LAYER)
        if digest is None:
            continue
        one = found(_name(manifest.parts[-4:]), root / "blobs" / f"sha256-{digest}", sha256=digest)
        if one is not None:
            yield Found(one.name, one.paths, one.size, type_of(manifest.name), one.sha256)


def _name(parts: tuple[str, ...]) -> str:
    host, namespace, model, tag = parts
    owner = "" if (host, namespace) == ("registry.ollama.ai", "library") else f"{namespace}/"
    return f"ollama:{'' if host == 'registry.ollama.ai' else f'{host}/'}{owner}{model}" + ("" if tag == "latest" else f":{tag}")


def _digest(manifest: Path, kind: str) -> str | None:
    """The digest of a manifest's one layer of a media type; None where it has none, or several."""
    try:
        with manifest.open("rb") as file:
            document = json.loads(file.read(MANIFEST_BYTES))
        layers = [layer["digest"] for layer in document["layers"] if layer["mediaType"] == kind]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    match = DIGEST.fullmatch(layers[0]) if len(layers) == 1 and isinstance(layers[0], str) else None
    return match[1] if match else None
