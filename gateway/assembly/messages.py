"""Turns a selection into the messages that are forwarded (guarantee §4 I3, I4, I6)."""

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any

from gateway.assembly.block import CITING_NOTE, block, block_without, citing, file_part, in_place, says_same
from gateway.assembly.memory import window_memory
from gateway.models.artifacts import ProcessingStrategy
from gateway.models.conversation import INSTRUCTION_ROLES, ConversationMessage
from gateway.models.items import ANTHROPIC_BLOCK, BREAKPOINT
from gateway.models.tool_steps import RESULT_ROLES, text_of
from gateway.models.window import MEMORY_INDEX, SYSTEM_INDEX, Forwarded, Material, Rendering, Selection


def assemble(material: Material, selection: Selection) -> Forwarded:
    """The forwarded messages: system messages, the memory message, the window, and the block at the head of the current
    user message.

    Messages that nothing changes are the client's own objects, so that they are forwarded as they were sent.
    """
    in_message: dict[int, list[Rendering]] = defaultdict(list)
    in_block: list[Rendering] = []
    for artifact in (*material.artifacts, *material.recallable):
        name, index = artifact.artifact_id, artifact.place.message
        rendering = selection.renderings.get(name)
        if rendering is None:
            continue
        if name in selection.quoted:
            in_block.append(rendering)
        elif index is not None and index >= selection.first and index not in selection.left_out:
            in_message[index].append(rendering)
        elif index is None or name in selection.recalled:
            in_block.append(rendering)
    messages: list[dict[str, Any]] = list(material.instructions)
    indexes = [SYSTEM_INDEX] * len(messages)
    pages = tuple(each.part for each in material.pages)
    text = block(in_block, selection.turns, material.things, pages=material.pages)
    rendered: dict[str, Any] | None = None
    memory = waiting = window_memory(material, selection) if material.may_have_memory else None
    for index, message in enumerate(material.messages):
        if index < selection.first and message.role not in INSTRUCTION_ROLES:
            continue
        if waiting is not None and index >= selection.first:
            messages.append(waiting.body)
            indexes.append(MEMORY_INDEX)
            waiting = None
        if index in selection.left_out:
            continue
        body = message.body
        if message.rendered is not None and (selection.frozen or (selection.keeps_block and index == material.current)):
            body = message.rendered
        if index in in_message:
            shown = in_message[index]
            is_new = body is message.body or _holds_unread(body, shown[0])
            body = _reduced(message.body, shown) if is_new else _with_files(message, shown)
        if index == material.current and material.cites:
            asked = citing(material, selection, [*messages, body], [*indexes, index])
            text = block(in_block, selection.turns, material.things, CITING_NOTE, asked, material.pages)
        if index == material.current and text:
            body = rendered = _with_block(body, text, pages)
        messages.append(body)
        indexes.append(index)
    in_full = tuple(r.artifact.block_name for r in in_block if r.strategy is ProcessingStrategy.INCLUDE_FULL)
    return Forwarded(messages, indexes, text, rendered, in_full, memory, pages, material.things)


def without_items(rendered: dict[str, Any], numbers: frozenset[int]) -> dict[str, Any]:
    """A forwarded message without the items with these numbers among those that its block shows in full, from 0. An
    empty block is left out."""
    content = rendered["content"]
    if isinstance(content, str):
        return {**rendered, "content": block_without(content, numbers)}
    text = block_without(content[0]["text"], numbers)
    return {**rendered, "content": [{**content[0], "text": text}, *content[1:]] if text else content[1:]}


def _reduced(body: dict[str, Any], renderings: list[Rendering]) -> dict[str, Any]:
    """The message with its artifacts as they are rendered; spans from last to first, so that the others stay valid."""
    if body["role"] in RESULT_ROLES:
        text, old, documents = in_place(renderings[0]), body.get("content"), renderings[0].artifact.documents
        if isinstance(old, (str, list)) and text == text_of(old, documents):
            return _with_texts(body, documents)  # nothing was reduced: a list of parts stays one
        return {**body, "content": _result(old, text, documents)}
    content = body["content"]
    for rendering in sorted(renderings, key=lambda r: r.artifact.place.span or (0, 0), reverse=True):
        place = rendering.artifact.place
        if place.part is None:
            content = _replaced(content, place.span, in_place(rendering))
            continue
        content, part = list(content), content[place.part]
        if place.span is None:
            content[place.part] = _with_breakpoint_of([part], _file_part(rendering, part))
        else:
            content[place.part] = {**part, "text": _replaced(part["text"], place.span, in_place(rendering))}
    return {**body, "content": content}


def _file_part(rendering: Rendering, part: dict[str, Any]) -> dict[str, Any]:
    """A file as text. One that is shown whole keeps what it was, for an upstream that takes it as such."""
    shown = file_part(rendering)
    is_kept = ANTHROPIC_BLOCK in part and rendering.strategy is ProcessingStrategy.INCLUDE_FULL
    return {**shown, ANTHROPIC_BLOCK: part} if is_kept else {**shown}


def _with_texts(body: dict[str, Any], documents: Mapping[int, str]) -> dict[str, Any]:
    """A tool's result with its documents as texts, which keep what they were. The same where it has none."""
    if not documents:
        return body
    content = list(body["content"])
    for number, text in documents.items():
        new = {"type": "text", "text": text, ANTHROPIC_BLOCK: content[number]}
        content[number] = _with_breakpoint_of([content[number]], new)
    return {**body, "content": content}


def _holds_unread(body: dict[str, Any], rendering: Rendering) -> bool:
    """Whether a tool's result was forwarded with a file which this model does not take as it is."""
    content, documents = body.get("content"), rendering.artifact.documents
    parts = content if documents and isinstance(content, list) else ()
    return any(isinstance(part, dict) and part.get("type") == "file" for part in parts)


def _result(content: Any, text: str, documents: Container[int]) -> Any:
    """A tool's result with another text, which has its documents, too. Pictures beside it stay, and so does the
    client's breakpoint on a text."""
    parts = content if isinstance(content, list) else []
    said = [part for number, part in enumerate(parts) if _is_text(part) or number in documents]
    others = [part for number, part in enumerate(parts) if not (_is_text(part) or number in documents)]
    new = _with_breakpoint_of(said, {"type": "text", "text": text})
    return [new, *others] if others or BREAKPOINT in new else text


def _with_breakpoint_of(old: list[dict[str, Any]], new: dict[str, Any]) -> dict[str, Any]:
    """A part that replaces others, with the last prompt-cache breakpoint that the client set on these (§4 I7)."""
    breakpoints = [part[BREAKPOINT] for part in old if part.get(BREAKPOINT) is not None]
    return {**new, BREAKPOINT: breakpoints[-1]} if breakpoints else new


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def _with_files(message: ConversationMessage, renderings: list[Rendering]) -> dict[str, Any]:
    """A message as it was forwarded before, except that files become text that can no longer stay files, or of which
    the text stands nowhere else any more."""
    form = message.rendered or message.body
    changed: dict[int, dict[str, Any]] = {}
    for rendering in renderings:
        place = rendering.artifact.place
        found = message.forwarded_part(place.part) if place.part is not None and place.span is None else None
        if found is None:
            continue
        at, part = found
        if part.get("type") == "file" or (says_same(part) and not rendering.same_as):
            changed[at] = _with_breakpoint_of([part], file_part(rendering))
    if not changed:
        return form
    return {**form, "content": [changed.get(at, part) for at, part in enumerate(form["content"])]}


def _replaced(text: str, span: tuple[int, int] | None, by: str) -> str:
    start, end = span or (0, len(text))
    return text[:start] + by + text[end:]


def _with_block(body: dict[str, Any], text: str, pages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    content = body.get("content")
    if isinstance(content, str) and not pages:
        return {**body, "content": text + content}
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return {**body, "content": [{"type": "text", "text": text}, *pages, *parts]}
