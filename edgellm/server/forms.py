"""Forms with files (multipart/form-data): their fields as bytes; the names of files are never looked at."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesHeaderParser

from edgellm.server.problems import Problem

MULTIPART = "multipart/form-data"
TAKES_FORMS = ("/v1/audio/transcriptions",)  # paths
MOST_FIELDS = 64
MOST_FIELD_HEAD = 4096  # bytes


def fields_of(body: bytes, content_type: str) -> dict[str, list[bytes]]:
    """The values of each field, in order. Raises Problem for what is no such form."""
    boundary = _parameter(f"content-type: {content_type}".encode(), "content-type", "boundary").encode("latin-1", "replace")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MOST_FIELDS + 2) if 0 < len(boundary) <= 200 else []
    if len(parts) < 3 or parts[-1][:2] != b"--" or len(parts) > MOST_FIELDS + 2:
        raise Problem(400, f"the body is not a form of 1 to {MOST_FIELDS} fields, as its boundary cuts it.", code="invalid_form")
    fields = dict[str, list[bytes]]()
    for part in parts[1:-1]:
        head, blank, value = part.partition(b"\r\n\r\n")
        name = _parameter(head.strip(), "content-disposition", "name") if blank and len(head) <= MOST_FIELD_HEAD else ""
        if not name:
            raise Problem(400, "a field of the form has no name.", code="invalid_form")
        fields.setdefault(name.removesuffix("[]"), []).append(value)
    return fields


def _parameter(head: bytes, header: str, name: str) -> str:
    """A parameter of a header; "" where it is missing."""
    parsed: Message = BytesHeaderParser().parsebytes(head + b"\r\n\r\n")
    found = parsed.get_param(name, "", header)
    return found if isinstance(found, str) else ""
