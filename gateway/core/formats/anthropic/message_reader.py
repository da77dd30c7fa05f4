"""Anthropic's messages as chat messages: each block where a chat has it, others verbatim (ADR 27).

A user's block that a chat has no words for stays in the content as a part `native_block`. An answer's blocks stand on
the assistant's message: thoughts in `thinking_blocks`, text in `content`, calls in `tool_calls`; where that is not all,
or not in their order, all of them as they came in `native_blocks`.
"""

import base64
from typing import Any, NamedTuple

from gateway.core import jsons
from gateway.core.errors import invalid, missing
from gateway.core.ids import FILE
from gateway.core.types.chat import CacheMark
from gateway.core.types.items import ANTHROPIC_BLOCK, ANTHROPIC_BLOCKS, BREAKPOINT, named_picture

Block = dict[str, Any]
ROLES = ("user", "assistant", "system")
TEXT_FIELDS = frozenset(("type", "text"))
CALL_FIELDS = frozenset(("type", "id", "name", "input", BREAKPOINT))
ORDER = {"thinking": 0, "redacted_thinking": 0, "text": 1, "tool_use": 2}
"""In which an answer's blocks stand where `native_blocks` need not say so."""
AT_HOME = ("search_result", "tool_reference")
"""Blocks of a user that a chat shows as text (`plain.py`), so that other upstreams get them, too."""


class MessageSource(NamedTuple):
    """Where a chat message stands in what the client sent: its own path, and those of the parts of its content."""

    path: str
    parts: tuple[str, ...] = ()
    stands: bool = False
    """What is there stands for what was said elsewhere, so that nothing below it is told."""


class MessageReader:
    """Puts Anthropic's messages together as chat messages, one after the other. `places` says of each where it came
    from, `needs` which blocks only Anthropic's own models understand, `marks` where the client's `cache_control` is."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.places: list[MessageSource] = []
        self.needs: list[str] = []
        self.marks: list[CacheMark] = []

    def read(self, message: Any, where: str) -> None:
        """
        Raises:
            InvalidRequest: it breaks a rule; names the field, which is at or under `where`.
        """
        if not isinstance(message, dict):
            raise invalid(where, "must be an object")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise invalid(f"{where}.role", f"must be one of {', '.join(ROLES)}")
        if content is None:
            raise missing(f"{where}.content")
        if isinstance(content, str):
            self.add({"role": role, "content": content}, where)
            return
        blocks = checked_blocks(content, f"{where}.content")
        if role == "assistant":
            self._mark(blocks, only_last=True)
            self.add(assistant_message(blocks, f"{where}.content"), where)
        else:
            self._said(role, blocks, where)

    def system(self, value: Any) -> None:
        """The top-level field `system`: a string, or text blocks."""
        if isinstance(value, str):
            self.add({"role": "system", "content": value}, "system")
            return
        blocks = checked_blocks(value, "system")
        for index, block in enumerate(blocks):
            if block["type"] != "text":
                raise invalid(f"system[{index}].type", "must be text")
        if blocks:
            self._said("system", blocks, "system")

    def _said(self, role: str, blocks: list[Block], where: str) -> None:
        """Results first, as chats have them right behind their calls; then what else the user says."""
        parts: list[Block] = []
        paths: list[str] = []
        marks: list[tuple[int, Any]] = []
        under = where if where == "system" else f"{where}.content"
        for index, block in enumerate(blocks):
            path = f"{under}[{index}]"
            if block["type"] == "tool_result":
                self._mark([block])
                self.add(self._result(block, path), path)
                continue
            found = self._parts(block, path)
            parts += found
            paths += [path] * len(found)
            if block.get(BREAKPOINT):
                marks.append((len(parts) - 1, block[BREAKPOINT]))
        if marks:
            self.marks += [CacheMark(len(self.messages), part, value) for part, value in marks]
        if parts or not any(block["type"] == "tool_result" for block in blocks):
            self.add({"role": role, "content": shortest(parts)}, where, paths)

    def _result(self, block: Block, where: str) -> dict[str, Any]:
        call_id = block.get("tool_use_id")
        if not isinstance(call_id, str) or not call_id:
            raise missing(f"{where}.tool_use_id")
        content = block.get("content")
        if content is None:
            content = ""
        elif not isinstance(content, str):
            inner = checked_blocks(content, f"{where}.content")
            parts = [part for i, each in enumerate(inner) for part in self._parts(each, f"{where}.content[{i}]")]
            content = shortest(parts)
        failed = {"is_error": True} if block.get("is_error") else {}
        return {"role": "tool", "tool_call_id": call_id, "content": content, **failed}

    def _parts(self, block: Block, where: str) -> list[Block]:
        """A block as parts of a chat's content."""
        kind = block["type"]
        if kind == "text":
            return [_without_mark(block)]
        if kind in ("image", "document"):
            source = block.get("source")
            if not isinstance(source, dict):
                raise missing(f"{where}.source")
            found = _image(block, source) if kind == "image" else _document(block, source)
            if found is not None and named_picture(found) is not None:
                self.needs.append(f"{where}.source.file_id")
            if found is not None:
                return [found]
        if kind == "search_result":
            checked_blocks(block.get("content") or [], f"{where}.content")
        if kind not in AT_HOME:
            self.needs.append(where)
        return [{"type": ANTHROPIC_BLOCK, ANTHROPIC_BLOCK: _without_mark(block)}]

    def _mark(self, blocks: list[Block], *, only_last: bool = False) -> None:
        """Notes the marks of the message that comes next: those on its blocks count as one behind it."""
        for block in reversed(blocks[-1:] if only_last else blocks):
            if block.get(BREAKPOINT):
                self.marks.append(CacheMark(len(self.messages), None, block[BREAKPOINT]))
                return

    def add(self, message: dict[str, Any], path: str, parts: list[str] | None = None, *, stands: bool = False) -> None:
        """Adds a chat message that was read at `path`, its parts at `parts`."""
        self.messages.append(message)
        self.places.append(MessageSource(path, tuple(parts or ()), stands))


def checked_blocks(value: Any, where: str) -> list[Block]:
    """
    Raises:
        InvalidRequest: not a list of blocks with a type; names the field.
    """
    if not isinstance(value, list):
        raise invalid(where, "must be a string or a list of blocks")
    for index, block in enumerate(value):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise invalid(f"{where}[{index}]", "must be an object with a type")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise invalid(f"{where}[{index}].text", "must be a string")
    return value


def shortest(parts: list[Block]) -> Any:
    """A content of parts; one text that says nothing else is a string, as most chats have it."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0].keys() == TEXT_FIELDS else parts


def assistant_message(blocks: list[Block], where: str) -> dict[str, Any]:
    """An answer as a chat's message.

    Thoughts without a signature were made of `reasoning_content`, and are that again.

    Raises:
        InvalidRequest: a call breaks a rule; names the field.
    """
    texts: list[Block] = []
    thoughts: list[Block] = []
    unsigned: list[str] = []
    calls: list[dict[str, Any]] = []
    exact, last = True, 0
    for index, block in enumerate(blocks):
        place = ORDER.get(block["type"])
        exact = exact and place is not None and place >= last
        last = last if place is None else place
        if block["type"] == "text":
            texts.append(_without_mark(block))
        elif block["type"] == "thinking" and not block.get("signature"):
            unsigned.append(str(block.get("thinking") or ""))
        elif place == ORDER["thinking"]:
            thoughts.append(block)
        elif block["type"] == "tool_use":
            calls.append(_call(block, f"{where}[{index}]"))
            exact = exact and block.keys() <= CALL_FIELDS
    message: dict[str, Any] = {"role": "assistant", "content": shortest(texts)}
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    if thoughts:
        message["thinking_blocks"] = thoughts
    if any(unsigned):
        message["reasoning_content"] = "\n\n".join(filter(None, unsigned))
    if not exact:
        message[ANTHROPIC_BLOCKS] = list(map(_without_mark, blocks))
    return message


def _call(block: Block, where: str) -> dict[str, Any]:
    for name in ("id", "name"):
        if not isinstance(block.get(name), str) or not (block[name] or name == "name"):  # models forget names
            raise missing(f"{where}.{name}")
    given = block.get("input")
    if not isinstance(given, dict):
        raise invalid(f"{where}.input", "must be an object")
    function = {"name": block["name"], "arguments": jsons.dumps_text(given)}
    return {"id": block["id"], "type": "function", "function": function}


def _image(block: Block, source: Block) -> Block | None:
    if _is_of_files(source):
        return {"type": "input_image", "file_id": source["file_id"], **_kept(block)}
    url = source.get("url") if source.get("type") == "url" else None
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        url = f"data:{source.get('media_type')};base64,{source['data']}"
    return {"type": "image_url", "image_url": {"url": url}, **_kept(block)} if isinstance(url, str) else None


def _document(block: Block, source: Block) -> Block | None:
    """A document as a `file` part; None where only Anthropic can tell what it holds: no address is ever fetched."""
    kind, title = source.get("type"), block.get("title")
    own: Block = {}
    if _is_of_files(source):
        named = {"filename": title} if isinstance(title, str) and title else {}
        return {"type": "file", "file": {"file_id": source["file_id"], **named}, **_kept(block)}
    if kind == "base64" and isinstance(source.get("data"), str):
        media_type = str(source.get("media_type") or "application/pdf")
        name = "document.pdf" if media_type == "application/pdf" else "document"
        data = f"data:{media_type};base64,{source['data']}"
    else:
        text = source.get("data") if kind == "text" else _text_of(source.get("content")) if kind == "content" else None
        if not isinstance(text, str):
            return None
        encoded = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
        data, name = f"data:text/plain;base64,{encoded}", "document.txt"
        own = {ANTHROPIC_BLOCK: {"source": source} if kind == "content" else {}}
    file = {"file_data": data, "filename": title if isinstance(title, str) and title else name}
    return {"type": "file", "file": file, **own, **_kept(block)}


def _is_of_files(source: Block) -> bool:
    """Whether it names a file by an id that cannot be one of Anthropic's."""
    return source.get("type") == "file" and str(source.get("file_id")).startswith(FILE)


def _text_of(content: Any) -> str | None:
    """The text of a document that is given as content; None if it holds anything else."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [None]
    texts = [block.get("text") if isinstance(block, dict) else None for block in blocks]
    return "\n\n".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None


def _kept(block: Block) -> Block:
    """What else is said of a picture or a document."""
    return {k: v for k, v in block.items() if k in ("citations", "context") and v is not None}


def _without_mark(block: Block) -> Block:
    return {k: v for k, v in block.items() if v is not None and k != BREAKPOINT}
