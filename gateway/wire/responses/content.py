"""Content parts of conversation items, as a client sends them, made into those of chat messages."""

from collections.abc import Callable
from typing import Any

from gateway.errors import invalid

Part = dict[str, Any]
TEXT_TYPES = ("input_text", "text")
BY_REFERENCE = {"input_image": "file_id", "input_file": "file_url"}
"""Fields by which a part names what only an upstream that speaks Responses can get, unless it is kept here."""
OUTPUT_TYPES = ("output_text", *TEXT_TYPES)


def input_content(content: Any, where: str, needs: list[str] | None = None) -> str | list[Part]:
    """The content of a user's or system message; one text that is nothing else becomes a string, which every provider
    takes.

    Raises:
        InvalidRequest: as `chat_content`.
    """
    found = chat_content(content, where, needs)
    if len(found) == 1 and isinstance(found[0], dict) and found[0].keys() == {"type", "text"}:
        return str(found[0]["text"])
    return found


def chat_content(content: Any, where: str, needs: list[str] | None = None) -> str | list[Part]:
    """The content of an item that is no assistant's, as a chat message has it.

    Args:
        needs: takes the paths of parts that no chat can hold, which are then kept as they are.

    Raises:
        InvalidRequest: it is none, or holds what no chat message can; names the field.
    """
    if isinstance(content, str):
        return content
    return [_chat_part(part, f"{where}[{index}]", needs) for index, part in _listed(content, where)]


def answer_content(content: Any, where: str, *, may_be_empty: bool) -> dict[str, Any]:
    """The content of an assistant's item: `content`, `refusal` and `annotations` of a chat message.

    One text becomes a string, which every provider takes; so does a lone refusal its own field.

    Raises:
        InvalidRequest: it is none; names the field.
    """
    if isinstance(content, str):
        return {"content": content}
    if content == [] and may_be_empty:
        return {"content": None}
    parts: list[Part] = []
    annotations: list[Any] = []
    for index, part in _listed(content, where):
        name = f"{where}[{index}]"
        kind = _kind(part, name)
        if kind == "refusal":
            parts.append({"type": "refusal", "refusal": _text(part, "refusal", name)})
        elif kind in OUTPUT_TYPES:
            annotations += _annotations(part, name)
            parts.append(_chat_text(part, name, ("annotations", "logprobs")))
        else:
            raise invalid(f"{name}.type", f"must be one of {', '.join((*OUTPUT_TYPES, 'refusal'))}")
    body: dict[str, Any] = {"content": parts}
    if len(parts) == 1:
        only = parts[0]
        if only["type"] == "refusal":
            body = {"content": None, "refusal": only["refusal"]}
        elif len(only) == 2:
            body = {"content": only["text"]}
    return {**body, "annotations": annotations} if annotations else body


def _chat_part(part: Any, where: str, needs: list[str] | None) -> Part:
    kind = _kind(part, where)
    reference = BY_REFERENCE.get(kind)
    if needs is not None and reference is not None and part.get(reference) is not None:
        is_one = kind != "input_image" or part.get("image_url") is None
        needs.append(f"{where}.{reference}" if is_one else where)
        return dict(part)
    if kind not in _PARTS:
        raise invalid(f"{where}.type", f"must be one of {', '.join(_PARTS)}")
    return _PARTS[kind](part, where)


def _chat_text(part: Part, where: str, dropped: tuple[str, ...] = ()) -> Part:
    return {"type": "text", "text": _text(part, "text", where), **_rest(part, "type", "text", *dropped)}


def _chat_image(part: Part, where: str) -> Part:
    if part.get("image_url") is None and part.get("file_id") is not None:
        return {"type": "input_image", "file_id": _text(part, "file_id", where), **_rest(part, "type", "file_id")}
    image = {"url": _text(part, "image_url", where)}
    if part.get("detail") is not None:
        image["detail"] = _text(part, "detail", where)
    return {"type": "image_url", "image_url": image, **_rest(part, "type", "image_url", "file_id", "detail")}


def _chat_file(part: Part, where: str) -> Part:
    if part.get("file_url") is not None:
        raise invalid(f"{where}.file_url", "is not supported: no URL is fetched; send file_id or file_data")
    names = ("file_id", "file_data", "filename", "detail")
    file = {name: _text(part, name, where) for name in names if part.get(name) is not None}
    if "file_id" not in file and "file_data" not in file:
        raise invalid(where, "needs file_id or file_data")
    return {"type": "file", "file": file, **_rest(part, "type", "file_url", *names)}


def _chat_audio(part: Part, where: str) -> Part:
    if not isinstance(part.get("input_audio"), dict):
        raise invalid(f"{where}.input_audio", "must be an object")
    return part


_PARTS: dict[str, Callable[[Part, str], Part]] = {
    **dict.fromkeys(TEXT_TYPES, _chat_text),
    "input_image": _chat_image,
    "input_file": _chat_file,
    "input_audio": _chat_audio,
}


def _annotations(part: Part, where: str) -> list[Any]:
    found = part.get("annotations") or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise invalid(f"{where}.annotations", "must be a list of objects")
    return [_nested(each) for each in found]


def _nested(annotation: Part) -> Part:
    """A citation as chat messages have it: its fields in an object of their own."""
    if annotation.get("type") != "url_citation" or "url_citation" in annotation:
        return annotation
    return {"type": "url_citation", "url_citation": _rest(annotation, "type")}


def _listed(content: Any, where: str) -> list[tuple[int, Any]]:
    if not isinstance(content, list) or not content:
        raise invalid(where, "must be a string or a list of at least one part")
    return list(enumerate(content))


def _kind(part: Any, where: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise invalid(where, "must be an object with a type")
    return str(part["type"])


def _text(part: Part, name: str, where: str) -> str:
    if not isinstance(part.get(name), str):
        raise invalid(f"{where}.{name}", "must be a string")
    return str(part[name])


def _rest(part: Part, *names: str) -> Part:
    """What else a part says, such as where a provider's cache is to break."""
    return {name: value for name, value in part.items() if name not in names and value is not None}
