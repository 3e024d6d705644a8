"""Parts of a message's content: text, pictures as data URIs, and clips. Nothing in a request names a file or an address to read."""

from __future__ import annotations

import base64
from typing import Any  # Any: JSON

from edgellm import Model
from edgellm.server.problems import Problem

Part = dict[str, Any]
Content = str | list[Part]
THOUGHTS = ("thinking", "reasoning", "redacted_thinking")  # parts of earlier answers that no model reads again


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def picture(url: object, where: str) -> Part:
    """A picture of a data URI. Raises Problem for paths and addresses."""
    if not isinstance(url, str) or not url[:11].lower() == "data:image/":
        raise Problem(400, f"{where}: give the image itself, as data:image/png;base64,...; the server reads no files or addresses.")
    return {"type": "image_url", "image_url": {"url": url}}


def picture_of_base64(data: object, where: str) -> Part:
    """A picture of its bytes in base64, of any format."""
    if not isinstance(data, str):
        raise Problem(400, f"{where}: give the bytes of the image in base64.")
    return picture(f"data:image/png;base64,{data.rpartition(',')[2] if data[:5].lower() == 'data:' else data}", where)


def clip(audio: object, where: str) -> Part:
    """A clip of its bytes in base64. Raises Problem."""
    data = audio.get("data") if isinstance(audio, dict) else None
    if not isinstance(data, str):
        raise Problem(400, f"{where}: give the bytes of the audio in base64, as input_audio.data.")
    return {"type": "input_audio", "input_audio": {"data": data}}


def checked(content: str | list[Part] | None, where: str) -> Content | None:
    """A content in which other kinds of parts, and other fields of parts, cannot hide. Raises Problem."""
    if content is None or isinstance(content, str):
        return content
    return [_checked(part, where) for part in content if part.get("type") not in THOUGHTS]


def _checked(part: Part, where: str) -> Part:
    kind, text = part.get("type"), part.get("text", part.get("refusal"))
    if kind in ("text", "input_text", "output_text", "refusal") and isinstance(text, str):
        return text_part(text)
    if kind in ("image_url", "input_image"):
        url = part.get("image_url")
        return picture(url.get("url") if isinstance(url, dict) else url, where)
    if kind == "input_audio":
        return clip(part.get("input_audio"), where)
    if kind in ("file", "input_file"):
        return _file(part.get("file", part), where)
    raise Problem(400, f"{where} has a part of the type {str(kind)[:40]!r}, which is not supported; give text, images or audio.")


def _file(file: object, where: str) -> Part:
    """The text of a file of its bytes in base64, under its name. Raises Problem for other files, and for names of stored ones."""
    name, data = (file.get("filename"), file.get("file_data")) if isinstance(file, dict) else (None, None)
    try:
        text = base64.b64decode(str(data or "").rpartition(",")[2], validate=True).decode()
    except ValueError:
        text = ""
    if not text or "\0" in text:
        raise Problem(400, f"{where}: this server reads files as plain text in UTF-8; give that text in base64, as file_data.")
    return text_part(f"{name}\n{text}" if isinstance(name, str) and name else text)


def joined(parts: list[str | Part]) -> Content:
    """Texts in one, or with pictures among them a list of parts."""
    if all(isinstance(part, str) for part in parts):
        return "\n".join(part for part in parts if isinstance(part, str))
    return [text_part(part) if isinstance(part, str) else part for part in parts]


def readable(messages: list[dict[str, Any]], model: Model) -> list[dict[str, Any]]:
    """A conversation whose tools have returned pictures, without them where the model doesn't see."""
    if model.info.vision:
        return messages
    return [
        {**message, "content": _without_pictures(content)}
        if message.get("role") == "tool" and isinstance(content := message.get("content"), list)
        else message
        for message in messages
    ]


def _without_pictures(parts: list[Part]) -> str:
    return "\n".join(part["text"] if part["type"] == "text" else "(an image, which this model can't see)" for part in parts)
