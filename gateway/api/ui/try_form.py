"""What a person enters at `/ui/try`, as a chat request. The chat's own checks say what is wrong with it."""

import base64
from dataclasses import dataclass
from typing import Any

from gateway.api.fields import invalid, missing
from gateway.api.passthrough.bodies import FormPart
from gateway.api.ui.page import PageRequest
from gateway.core import jsons

Json = dict[str, Any]
CHOICES = {
    "mode": ("auto", "simple", "off"),
    "planning": ("auto", "always", "never"),
    "goal": ("synthesis", "reasoning"),
}
"""Fields of `context` with a few values; what is not chosen is not sent, and the configured default holds."""
INTERNAL = ("context_planner", "summarizer")
KEPT = ("model", "conversation", "max_input_tokens", *CHOICES, *INTERNAL)
"""What stays in the form for the next message; a key does not, and neither do files."""
MAX_FIELD_CHARS = 1000
"""Of every field but the message."""
DIGITS = 10
UNKNOWN_KIND = "application/octet-stream"
CONVERTED = ("application/pdf", "text/html", "message/rfc822", "application/x-ipynb+json")
"""Documents that the gateway makes text of, though they may look like text."""


@dataclass(frozen=True, slots=True)
class EnteredForm:
    """The fields of the form, and the files that were chosen. `key` is the person's own, for this one request."""

    fields: dict[str, str]
    files: tuple[FormPart, ...] = ()

    @property
    def message(self) -> str:
        """The question."""
        return self.fields.get("message", "")

    @property
    def key(self) -> str:
        """A key to be sent as a client would send it; empty if none was entered."""
        return self.fields.get("key", "").strip()

    @property
    def kept(self) -> dict[str, str]:
        """What the form shows again."""
        return {name: self.fields[name] for name in KEPT if self.fields.get(name)}


def entered(page: PageRequest) -> EnteredForm:
    """
    Raises:
        InvalidRequest: a field is too long.
    """
    fields = dict(page.form)
    for name, text in fields.items():
        if name != "message" and len(text) > MAX_FIELD_CHARS:
            raise invalid(name, f"must have at most {MAX_FIELD_CHARS} characters")
    # A browser sends an empty file where none was chosen.
    return EnteredForm(fields, tuple(file for file in page.files if file.filename or file.content))


def as_chat(form: EnteredForm, *, stream: bool) -> bytes:
    """The body for `/v1/chat/completions`.

    Raises:
        InvalidRequest: there is no message or model, or a number is none.
    """
    message = form.message.replace("\r\n", "\n")
    for name, value in (("message", message), ("model", form.fields.get("model", ""))):
        if not value.strip():
            raise missing(name)
    texts, others = _sorted(form.files)
    content = [{"type": "text", "text": message}, *others] if others else message
    body: Json = {
        "model": form.fields["model"].strip(),
        "messages": [{"role": "user", "content": content}],
        "stream": stream,
    }
    if context := _context(form.fields):
        body["context"] = context
    if texts:
        body["attachments"] = texts
    if conversation := form.fields.get("conversation", "").strip():
        body["conversation"] = conversation
    return jsons.dumps(body)


def _context(fields: dict[str, str]) -> Json:
    context: Json = {name: fields[name] for name in CHOICES if fields.get(name)}
    if models := {name: fields[name] for name in INTERNAL if fields.get(name)}:
        context["models"] = models
    if limit := fields.get("max_input_tokens", "").strip():
        if not (limit.isascii() and limit.isdigit() and len(limit) <= DIGITS):
            raise invalid("context.max_input_tokens", "must be a whole number")
        context["max_input_tokens"] = int(limit)
    return context


def _sorted(files: tuple[FormPart, ...]) -> tuple[list[Json], list[Json]]:
    """Plain texts as attachments, which belong to the conversation from then on; all else as parts of the message."""
    texts: list[Json] = []
    others: list[Json] = []
    for file in files:
        title = file.filename or "file"
        kind = (file.content_type or UNKNOWN_KIND).partition(";")[0].strip()
        text = None if kind in CONVERTED else _text(file.content)
        if text is not None:
            texts.append({"title": title, "content": text})
            continue
        data = f"data:{kind};base64,{base64.b64encode(file.content).decode()}"
        if kind.startswith("image/"):
            others.append({"type": "image_url", "image_url": {"url": data}})
        else:
            others.append({"type": "file", "file": {"filename": title, "file_data": data}})
    return texts, others


def _text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
