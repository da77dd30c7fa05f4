"""Turns a selection into the messages that are forwarded."""

from collections import defaultdict
from typing import Any

from gateway.assembly.block import block, block_without, file_part, in_place
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.conversation import ConversationMessage
from gateway.models.tool_steps import RESULT_ROLES
from gateway.models.window import Forwarded, Material, Rendering, Selection

MARK = "cache_control"


def assemble(material: Material, selection: Selection) -> Forwarded:
    """The forwarded messages: system messages, the window, and the block at the head of the current user message.

    Whatever has no rendering stands as it was sent, the same objects, so that nothing changes unnoticed.
    """
    by_message: dict[int, list[Rendering]] = defaultdict(list)
    in_block: list[Rendering] = []
    for artifact in material.searched:
        rendering = selection.renderings.get(artifact.artifact_id)
        if rendering is None:
            continue
        if artifact.artifact_id in selection.quoted:
            in_block.append(rendering)
        elif _in_window(artifact, selection, material):
            by_message[artifact.place.message or 0].append(rendering)
        elif artifact.place.message is None or artifact.artifact_id in selection.recalled:
            in_block.append(rendering)
    messages: list[dict[str, Any]] = list(material.instructions)
    indexes = [-1] * len(messages)
    text = block(in_block, selection.turns)
    rendered: dict[str, Any] | None = None
    for index, message in enumerate(material.messages):
        if index < selection.first and message.role not in ("system", "developer"):
            continue
        if index in selection.left_out:
            continue
        body = _body(message, selection.frozen or (selection.keeps_block and index == material.current))
        if index in by_message:
            if body is message.body:
                body = _apply(body, by_message[index])
            else:
                body = _with_files(body, message.body, by_message[index])
        if index == material.current and text:
            body = rendered = _with_block(body, text)
        messages.append(body)
        indexes.append(index)
    standing = tuple(r.artifact.block_name for r in in_block if r.strategy is ProcessingStrategy.INCLUDE_FULL)
    return Forwarded(messages, indexes, text, rendered, standing)


def without_items(rendered: dict[str, Any], numbers: frozenset[int]) -> dict[str, Any]:
    """A message as it was forwarded, without those of its block's items that stand in full (by their number, from 0).

    A block of which nothing is left is left out.
    """
    content = rendered["content"]
    if isinstance(content, str):
        return {**rendered, "content": block_without(content, numbers)}
    text = block_without(content[0]["text"], numbers)
    return {**rendered, "content": [{**content[0], "text": text}, *content[1:]] if text else content[1:]}


def _in_window(artifact: Artifact, selection: Selection, material: Material) -> bool:
    index = artifact.place.message
    return index is not None and index >= selection.first and index not in selection.left_out


def _body(message: ConversationMessage, frozen: bool) -> dict[str, Any]:
    return message.rendered if frozen and message.rendered is not None else message.body


def _apply(body: dict[str, Any], renderings: list[Rendering]) -> dict[str, Any]:
    """Puts renderings in the place of what they stand for; spans from the last to the first, so that they stay."""
    changed = dict(body)
    if body["role"] in RESULT_ROLES:
        text = in_place(renderings[0])
        if text == _text_of(body.get("content")):
            return body  # nothing was reduced, so that a list of parts stays one
        changed["content"] = _result(body.get("content"), text)
        return changed
    for rendering in sorted(renderings, key=lambda r: r.artifact.place.span or (0, 0), reverse=True):
        place = rendering.artifact.place
        if place.part is None:
            changed["content"] = _replace(changed["content"], place.span, in_place(rendering))
            continue
        parts = list(changed["content"])
        if place.span is None:
            parts[place.part] = _marked(file_part(rendering), parts[place.part])
        else:
            part = parts[place.part]
            parts[place.part] = {**part, "text": _replace(part["text"], place.span, in_place(rendering))}
        changed["content"] = parts
    return changed


def _result(content: Any, text: str) -> Any:
    """A tool's result with another text: pictures beside it stay, and so does the client's mark on its last text."""
    parts = content if isinstance(content, list) else []
    others = [part for part in parts if not _is_text(part)]
    marked = _marked({"type": "text", "text": text}, *(part for part in parts if _is_text(part)))
    return [marked, *others] if others or MARK in marked else text


def _marked(part: dict[str, Any], *before: dict[str, Any]) -> dict[str, Any]:
    """A part in the place of those before, with the client's breakpoint of a prompt cache (guarantee §4 I7)."""
    marks = [each[MARK] for each in before if each.get(MARK) is not None]
    return {**part, MARK: marks[-1]} if marks else part


def _text_of(content: Any) -> str | None:
    """What a tool's result says: the text that an artifact was made of."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if _is_text(part))
    return content if isinstance(content, str) else None


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def _with_files(rendered: dict[str, Any], body: dict[str, Any], renderings: list[Rendering]) -> dict[str, Any]:
    """What was forwarded stays as it is, but for files that stood in it as they came and can no longer."""
    if not isinstance(body["content"], list) or not isinstance(rendered["content"], list):
        return rendered
    parts = list(rendered["content"])
    block = len(parts) - len(body["content"])  # it was put before them
    for rendering in renderings:
        place = rendering.artifact.place
        if place.part is not None and place.span is None and parts[place.part + block].get("type") == "file":
            parts[place.part + block] = _marked(file_part(rendering), parts[place.part + block])
    return {**rendered, "content": parts}


def _replace(text: str, span: tuple[int, int] | None, by: str) -> str:
    start, end = span or (0, len(text))
    return text[:start] + by + text[end:]


def _with_block(body: dict[str, Any], text: str) -> dict[str, Any]:
    content = body.get("content")
    if isinstance(content, str):
        return {**body, "content": text + content}
    return {**body, "content": [{"type": "text", "text": text}, *(content or [])]}
