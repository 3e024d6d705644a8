"""Calls of other servers' APIs that this one has no use for: each is refused in a sentence, whatever its body is."""

from __future__ import annotations

from edgellm.server.problems import Problem

SENTENCES = (  # by the beginning of the path; the first that fits
    ("/v1/files", "files are not stored here; put their text or images into the messages."),
    ("/v1/uploads", "files are not stored here; put their text or images into the messages."),
    ("/v1/batches", "batches are not supported; send requests one by one, many at a time."),
    ("/v1/messages/batches", "batches are not supported; send requests one by one, many at a time."),
    ("/v1/audio/speech", "speech is not made here; this server writes text."),
    ("/v1/audio/translations", "translations are not supported; use /v1/audio/transcriptions with a prompt that asks for one."),
    ("/v1/fim/", "fill-in-the-middle of Mistral is not supported; use /v1/completions with prompt and suffix, or /infill."),
    ("/v2/chat", "chats of Cohere are not supported; use /v1/chat/completions, /v1/messages or /api/chat."),
    ("/v1/realtime", "realtime sessions are not supported; send clips in messages, or to /v1/audio/transcriptions."),
    ("/v1/images/", "images are not made here; models that see take them in messages."),
    ("/v1/videos", "videos are not supported; this server writes text."),
    ("/v1/moderations", "moderation is not supported; ask a model with a response_format."),
    ("/v1/vector_stores", "vector stores are not supported; /v1/embeddings and /v1/rerank are what a store of your own needs."),
    ("/v1/assistants", "assistants are not supported; use /v1/responses, or /v1/chat/completions with tools."),
    ("/v1/threads", "threads are not supported; use /v1/responses with previous_response_id."),
    ("/v1/conversations", "conversations are not supported; use previous_response_id, or send all items in input."),
    ("/v1/responses/compact", "compact is not supported; leave out the oldest items."),
    ("/v1/chat/completions/", "chat completions are not stored; keep them in your program."),
    ("/v1/fine_tuning", "fine-tuning is not supported; this server runs models that are trained."),
    ("/v1/evals", "evals are not supported; send requests to the endpoints for text."),
    ("/v1/containers", "containers are not supported; tools run in your program."),
    ("/v1/skills", "skills are not supported; describe the tools in the request."),
    ("/v1/organization", "this server has no organization."),
    ("/v1/complete", "text completions of Anthropic are not supported; use /v1/messages."),
    ("/api/create", "create is not supported; edgellm convert and edgellm quantize make models, edgellm import names them."),
    ("/api/push", "push is not supported; models stay on this machine."),
    ("/api/blobs/", "blobs are not supported; edgellm import gives a file a name."),
)


def check_supported(path: str) -> None:
    """Raises Problem for a path of the table."""
    sentence = next((text for beginning, text in SENTENCES if path.startswith(beginning)), None)
    if sentence is not None:
        raise Problem(501, sentence, code="unsupported", headers={"x-should-retry": "false"})
