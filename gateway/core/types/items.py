"""Items of a conversation, as OpenAI's Conversations API shows stored chat messages.

A message of the assistant can be several items: its reasoning, its text, its tool calls. Their ids derive from the
message's own, so that they stay the same, whatever else of the message is deleted. Shells and patches, which clients
run, are functions in the inner form: the name is the tool's type, the arguments the content of the item (§1.11).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gateway.core import jsons
from gateway.core.ids import content_digest
from gateway.core.jsons import Json
from gateway.core.types.content_parts import as_parts, dicts_of, parts_of
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.tool_steps import text_of

TYPED = "typed_tool"
"""The field of an inner function that holds its tool as requested, and of an inner call that holds its item's type. All
but upstreams with such tools, and the edge of Responses, see only the function."""
ITEM_DONE = "item_done"
"""The field of a choice with the item that it completes: the index of a `message`, or the id of a `call`."""
LOCAL_SHELL, SHELL, PATCH = "local_shell_call", "shell_call", "apply_patch_call"
PATCH_OPERATIONS = ("create_file", "update_file", "delete_file")
HOSTED_SHELLS = ("container_auto", "container_reference")
"""Environments of a shell that the provider runs."""
FAILED_STATUS = '"status":"failed"'
MAX_STATED_SIZE = 10**12


class TypedCall(NamedTuple):
    """The form of a call's item: the type of its tool, the field that holds its task, the fields of the task in order,
    and the fields with constant values."""

    tool: str
    holds: str
    fields: tuple[str, ...]
    always: Json


TYPED_CALLS = {
    LOCAL_SHELL: TypedCall(
        "local_shell", "action", ("command", "working_directory", "env", "timeout_ms", "user"), {"type": "exec"}
    ),
    SHELL: TypedCall("shell", "action", ("commands", "timeout_ms", "max_output_length"), {}),
    PATCH: TypedCall("apply_patch", "operation", ("type", "path", "diff"), {}),
}
"""Forms by the types of items."""
TYPED_TOOLS = {kind.tool: name for name, kind in TYPED_CALLS.items()}
"""The type of a call's item by the type of its tool."""
OUTPUT = "_output"
"""Suffix of a result item's type, after that of its call."""


def typed_kind(tool: Any) -> str | None:
    """Returns the item type of the calls of an inner function that represents a shell or patch tool; None for any other
    tool."""
    typed = tool.get(TYPED) if isinstance(tool, dict) and isinstance(tool.get("function"), dict) else None
    return TYPED_TOOLS.get(str(typed.get("type"))) if isinstance(typed, dict) else None


def is_hosted_shell(item: Mapping[str, Any]) -> bool:
    """Returns whether a shell, or a call of one, is run by the provider."""
    environment = item.get("environment")
    return isinstance(environment, dict) and environment.get("type") in HOSTED_SHELLS


def arguments_of(kind: str, held: Any) -> str:
    """Serializes the arguments of a call in canonical form, so that a resent call equals the one that was handed out.
    `held`: the content of an item, or the arguments as a model wrote them; unknown fields are left out."""
    if not isinstance(held, dict):
        try:
            held = json.loads(held, strict=False) if isinstance(held, str) else {}
        except (json.JSONDecodeError, RecursionError):
            held = {}
    typed = TYPED_CALLS[kind]
    if isinstance(held, dict) and isinstance(held.get(typed.holds), dict):  # as a model may write it
        held = held[typed.holds]
    given = {name: value for name, value in held.items() if value is not None} if isinstance(held, dict) else {}
    found = _patch(given) if kind == PATCH else _shell(kind, given)
    whole = jsons.with_whole_characters({name: found[name] for name in typed.fields if name in found})
    return jsons.dumps_text(whole)


def _shell(kind: str, given: Json) -> Json:
    found: Json = {
        name: int(value)
        for name in ("timeout_ms", "max_output_length")
        if isinstance(value := given.get(name), int | float) and 0 < value < MAX_STATED_SIZE
    }
    found |= {name: value for name in ("working_directory", "user") if isinstance(value := given.get(name), str)}
    if isinstance(given.get("env"), dict) and given["env"]:
        found["env"] = {str(name): str(value) for name, value in given["env"].items()}
    if kind == SHELL:
        return {**found, "commands": _texts(given.get("commands"), ())}
    return {**found, "command": _texts(given.get("command"), ("bash", "-lc"))}


def _texts(value: Any, before: tuple[str, ...]) -> list[str]:
    if isinstance(value, str):  # one text instead of a list
        return [*before, value]
    return [str(each) for each in value] if isinstance(value, list) else []


def _patch(given: Json) -> Json:
    kind = given.get("type") if given.get("type") in PATCH_OPERATIONS else "update_file"
    found: Json = {"type": kind, "path": str(given.get("path") or "")}
    return found if kind == "delete_file" else {**found, "diff": str(given.get("diff") or "")}


def typed_item(kind: str, arguments: Any) -> Json:
    """Makes the item of a shell or patch call, without its ids and status."""
    typed = TYPED_CALLS[kind]
    held = {**typed.always, **json.loads(arguments_of(kind, arguments))}
    if kind == LOCAL_SHELL:
        held.setdefault("env", {})
    found: Json = {"type": kind, typed.holds: held}
    return {**found, "environment": {"type": "local"}} if kind == SHELL else found


def status_of(kind: Any, status: str) -> str:
    """Returns the status of an item: an unfinished patch is `in_progress`, as a patch cannot be `incomplete`."""
    return "in_progress" if kind == PATCH and status == "incomplete" else status


def result_text(kind: str, item: Mapping[str, Any]) -> str:
    """Renders a result for the model: the tool's output if that is all of it, else the result as JSON.
    `kind`: the type of the call's item."""
    output = item.get("output")
    if kind == LOCAL_SHELL:
        return str(output)
    said = {"output": output} if kind == SHELL else {"status": item.get("status") or "completed", "output": output}
    only = output[0] if kind == SHELL and isinstance(output, list) and len(output) == 1 else None
    plain = only.get("stdout") if isinstance(only, dict) else output if kind == PATCH else None
    if isinstance(plain, str) and result_item(kind, plain) == said:
        return plain
    return jsons.dumps_text(output if kind == SHELL else {k: v for k, v in said.items() if v is not None})


def result_item(kind: str, text: str) -> Json:
    """Parses the text of a result into its item, without its ids; a shortened text, as far as it can be parsed."""
    if kind == LOCAL_SHELL:
        return {"output": text}
    try:
        found = jsons.loads(text) if text.startswith(("[", "{")) else None
    except jsons.JSONDecodeError:
        found = None
    if kind == SHELL:
        if isinstance(found, list) and all(isinstance(each, dict) and "outcome" in each for each in found):
            return {"output": found}
        return {"output": [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}
    if isinstance(found, dict) and found.get("status") in ("completed", "failed") and len(found) <= 2:
        return {"status": found["status"], "output": found.get("output")}
    return {"status": "failed" if FAILED_STATUS in text else "completed", "output": text}


Part = dict[str, Any]


def input_parts(content: Any) -> list[Part]:
    """Converts the content of a user's, system or tool message to parts of an item."""
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    return [_input_part(part) for part in content or ()]


def output_parts(body: dict[str, Any]) -> list[Part]:
    """Converts an assistant's message to parts of an item: its text with annotations, its refusal; reasoning among the
    texts is left out."""
    content = body.get("content") or _transcript(body)
    said = as_parts(content) if isinstance(content, str) else parts_of(content)
    parts = [_output_part(part) for part in said if not (isinstance(part, dict) and part.get("type") == "thinking")]
    if isinstance(body.get("refusal"), str):
        parts.append({"type": "refusal", "refusal": body["refusal"]})
    text = next((part for part in parts if part.get("type") == "output_text"), None)
    if text is not None and isinstance(body.get("annotations"), list):
        text["annotations"] = [flat_annotation(annotation) for annotation in body["annotations"]]
    return parts


def with_plain_text(said: dict[str, Any]) -> dict[str, Any]:
    """Converts the content of an answer, or of a delta, to one text: that of its parts, or the transcript of its audio.
    Refusals and pictures among the parts go to the fields that chats have for them."""
    content = said.get("content") or _transcript(said)
    if isinstance(content, str | None):
        return said if content is None else {**said, "content": content}
    parts = output_parts({"content": content})
    text, refusal = ("".join(str(part.get(name) or "") for part in parts) for name in ("text", "refusal"))
    pictures = [part for part in parts if part.get("type") == "image_url"]
    more: dict[str, Any] = {"refusal": refusal} if refusal else {}
    if pictures:
        more["images"] = [*(said.get("images") or ()), *pictures]
    return {**said, **more, "content": text}


def as_history(said: dict[str, Any], *, now: float | None) -> dict[str, Any]:
    """Converts an answer with audio to what a request may contain: the audio's id, or its transcript as text.
    `now`: Unix seconds, after which the id must still be valid; None: no id."""
    audio = said["audio"]
    if not isinstance(audio, dict):
        return said
    named, expires = audio.get("id"), audio.get("expires_at")
    is_known = now is not None and named and not (isinstance(expires, int | float) and expires <= now)
    if is_known or not isinstance(audio.get("transcript"), str):
        return {**said, "audio": {"id": named}} if named else said
    return {**rest_of(said, "audio"), "content": said.get("content") or audio["transcript"]}


def _transcript(said: Mapping[str, Any]) -> Any:
    """Returns the transcript of an answer's audio; without one its content, which is empty."""
    audio = said.get("audio")
    spoken = audio.get("transcript") if isinstance(audio, dict) else None
    return spoken if isinstance(spoken, str) else said.get("content")


def _input_part(part: Any) -> Part:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {"type": "input_text", **rest_of(part, "type", ANTHROPIC_BLOCK)}
    if kind == "image_url":
        image = part["image_url"] if isinstance(part.get("image_url"), dict) else {"url": part.get("image_url")}
        shown = {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
        return {**shown, **rest_of(part, "type", "image_url")}
    if kind == "input_image" and named_picture(part) is not None:
        return {"detail": "auto", **rest_of(part)}
    if kind == "file" and isinstance(part.get("file"), dict):
        return {"type": "input_file", **part["file"], **rest_of(part, "type", "file", ANTHROPIC_BLOCK)}
    if kind == ANTHROPIC_BLOCK and isinstance(part.get(ANTHROPIC_BLOCK), dict):
        return {"type": "input_text", "text": f"({part[ANTHROPIC_BLOCK].get('type')})"}
    return part if isinstance(part, dict) else {"type": "input_text", "text": str(part)}


def _output_part(part: Any) -> Part:
    if isinstance(part, dict) and part.get("type") in ("text", "output_text"):
        return {"annotations": [], "logprobs": [], **part, "type": "output_text"}
    return part if isinstance(part, dict) else {"type": "output_text", "text": str(part), "annotations": []}


def flat_annotation(annotation: Any) -> Any:
    """Converts a citation to the form of items: its fields are beside its type."""
    cited = annotation.get("url_citation") if isinstance(annotation, dict) else None
    return {"type": "url_citation", **cited} if isinstance(cited, dict) else annotation


def nested_annotation(annotation: Any) -> Any:
    """Converts a citation to the form of chats: its fields are in an object of their own."""
    if not isinstance(annotation, dict) or annotation.get("type") != "url_citation" or "url_citation" in annotation:
        return annotation
    return {"type": "url_citation", "url_citation": {k: v for k, v in annotation.items() if k != "type"}}


def rest_of(part: Mapping[str, Any], *names: str) -> Part:
    """Returns the other fields of a part that are not None, such as a cache breakpoint."""
    return {name: value for name, value in part.items() if name not in names and value is not None}


def search_result_text(part: Mapping[str, Any]) -> str | None:
    """Renders Anthropic's search result as text; None for any other part."""
    block = part.get(ANTHROPIC_BLOCK) if part.get("type") == ANTHROPIC_BLOCK else None
    if not isinstance(block, dict) or block.get("type") != "search_result":
        return None
    texts = [str(each.get("text") or "") for each in dicts_of(block.get("content"))]
    return "\n\n".join([f"{block.get('title') or ''} ({block.get('source') or ''})".strip(), *texts])


def search_results(content: object) -> dict[int, str]:
    """Renders the search results in a content as texts, by part number."""
    parts = ((number, part) for number, part in enumerate(parts_of(content)) if isinstance(part, dict))
    return {number: text for number, part in parts if (text := search_result_text(part)) is not None}


Item = dict[str, Any]
ANTHROPIC_BLOCK, ANTHROPIC_BLOCKS = "native_block", "native_blocks"
"""The type of a part that holds an unchanged Anthropic block in the field of the same name; and the field of a message
that holds all blocks of an answer."""
BREAKPOINT = "cache_control"
"""The field that marks the message, part or tool up to which a prompt is cached. It moves from request to request, and
is not part of the content (guarantee §4 I7)."""
ANTHROPIC_EVENTS = "native_events"
"""The field of a delta with Anthropic events that a chat cannot express. It is only for a stream's client: their
content is also in `native_blocks`, which is stored."""
FUNCTION, CUSTOM = "function_call", "custom_tool_call"
PREFIXES = {FUNCTION: "fc", CUSTOM: "ctc", LOCAL_SHELL: "lsh", SHELL: "sh", PATCH: "apc"}
"""Prefixes of the ids of calls; those of their results have one letter more."""
ITEM_ID = re.compile(
    rf"(msg|rs|ig|hc|(?:{'|'.join(PREFIXES.values())})o?)_(sys)?([0-9A-Za-z-]{{1,60}})(_[0-9a-f]{{12}})?"
)
NEVER_HOSTED = ("msg_", "rs_", *(f"{PREFIXES[kind]}{end}" for kind in (FUNCTION, CUSTOM) for end in ("_", "o_")))
"""Prefixes of ids that are always the gateway's own: no provider's hosted call has one."""
INSTRUCTION_PREFIX = "msg_sys"
SIGNED = "thinking_blocks"
"""The field with reasoning that its provider signed."""
IN_BLOCKS = frozenset({SIGNED, "reasoning_items", "output_items", ANTHROPIC_BLOCKS})
"""Fields of an answer for content of other APIs that a chat cannot express. They may repeat its calls, or are sealed
together with them."""
SEALED = ("thought_signature", "encrypted_content", "reasoning_details", "extra_content", "provider_specific_fields")
"""Fields of an answer or of a call for a provider's signed content; the signature may cover the call itself."""
BOUND = "thinking_bound"
"""The field of a stored answer with the digest of the content to which its signed reasoning is bound (guarantee
§10.10). It is the gateway's own: no model and no client gets it."""
THOUGHTS = frozenset(
    {
        *("reasoning_content", "reasoning", "reasoning_details", "reasoning_items", "thinking_blocks"),
        *("thought_signature", "provider_specific_fields", "encrypted_content", "output_items", ANTHROPIC_BLOCKS),
        BOUND,
    }
)
ITEM_ORDER = "item_order"
"""The field of an answer with the original order of its items, if its other fields do not determine it: messages are
complete, other items have only their type, calls their ids, too. The rest of these is in the other fields."""
PICTURE_NUMBERS = "picture_numbers"
"""The field of an answer with the original positions of its pictures, once one of them was deleted."""
RESPONSES_ALONE = frozenset({"reasoning_items", "output_items", "phase", ITEM_ORDER, PICTURE_NUMBERS})
"""Fields of an assistant's message that only an upstream that speaks Responses accepts again."""
NOT_OF_CHATS = RESPONSES_ALONE | {SEALED[-1], SIGNED}
"""Fields of an answer or of a call that no provider's own chats have: those of Responses, and what litellm adds."""
PROVIDER_FIELDS = THOUGHTS | RESPONSES_ALONE | {"extra_content"}
"""Fields of assistant messages and tool calls that only the provider that made them understands (guarantee §1)."""
ITEM_CONTENT_FIELDS = frozenset({"content", "refusal", "annotations", "audio"})
VERBATIM = ("reasoning_items", "output_items")
"""Fields of an answer that hold items as their maker wrote them: its reasoning, and hosted calls."""
OWN_CALLS = tuple(PREFIXES)
"""Calls that the client answers, except shells in a container."""
BETWEEN = "\n\n"
"""Separates texts that are items of their own, or parts of a summary."""
OF_MESSAGE = frozenset(("type", "role", "status", "content", "phase"))
OF_CALL = frozenset(("type", "status", "call_id"))
IN_CALL = ("name", "namespace", "arguments", "input", "action", "operation", "environment")
"""Fields of call items that a chat's message holds in its own form."""


NO_CALLS: Mapping[str, str] = {}


def items_of(message: ConversationMessage, calls: Mapping[str, str] = NO_CALLS) -> list[Item]:
    """Converts a stored message to its items, at least one, each `pinned` if the message is.
    `calls`: those that a tool message may answer, as returned by `call_kinds`."""
    items = _items_of(message, calls)
    return [{**item, "pinned": True} for item in items] if message.pinned else items


def _items_of(message: ConversationMessage, calls: Mapping[str, str]) -> list[Item]:
    status = "incomplete" if message.status == "partial" else "completed"
    stem = (message.message_id or "").removeprefix("msg_")
    if message.role in ("tool", "function"):
        return [_output(message.body, stem, status, calls)]
    if message.role == "assistant":
        items = _answer(message, stem, status)
        return items if message.agent is None else [{**item, "agent": message.agent} for item in items]
    return [_said(message, status, input_parts(message.content))]


def instruction_items(conversation_id: str, instructions: Sequence[dict[str, Any]]) -> list[Item]:
    """Converts the system messages in force, which precede the first message, to items. Their ids derive from their
    content."""
    found: list[Item] = []
    for body in instructions:
        identity = jsons.canonical([conversation_id, body]).decode()
        times = sum(body == other for other in instructions[: len(found)])
        item_id = INSTRUCTION_PREFIX + content_digest(f"{identity}{times}")[:32]
        found += items_of(ConversationMessage(role=str(body.get("role")), body=body, message_id=item_id))
    return found


def message_id_of(item_id: str) -> str | None:
    """Returns the id of the stored message to which an item belongs; None if no item can have that id."""
    parts = ITEM_ID.fullmatch(item_id)
    return f"msg_{parts.group(3)}" if parts and not parts.group(2) else None


def call_kinds(message: ConversationMessage) -> dict[str, str]:
    """Returns the item types of a message's calls, by call id, without those of functions."""
    found = {str(call.get("id")): call_kind(call) for call in message.body.get("tool_calls") or ()}
    return {call_id: kind for call_id, kind in found.items() if kind != FUNCTION}


def call_kind(call: Mapping[str, Any]) -> str:
    """Returns the item type of a call."""
    if isinstance(call.get("custom"), dict):
        return CUSTOM
    typed = call.get(TYPED)
    return typed if isinstance(typed, str) and typed in TYPED_CALLS else FUNCTION


def is_own_call(item: Mapping[str, Any]) -> bool:
    """Returns whether an item is a call that the client answers."""
    return item.get("type") in OWN_CALLS and not is_hosted_shell(item)


def answered_kind(item_id: str) -> str:
    """Returns the item type of the call that is answered by the result item of that id."""
    prefix = item_id.partition("_")[0].removesuffix("o")
    return next((kind for kind, known in PREFIXES.items() if known == prefix), FUNCTION)


def without(message: ConversationMessage, item_id: str) -> ConversationMessage | None:
    """Returns a message without one of its items; None if nothing is left of it."""
    others = [item for item in items_of(message) if item["id"] != item_id]
    if message.role != "assistant" or not others:
        return None
    body = message.body
    stem = str(message.message_id).removeprefix("msg_")
    hosted = next((each for each, own in _hosted(body, stem) if own == item_id), None)
    if hosted is not None:
        body = _without_verbatim(body, hosted)
    elif item_id.startswith(("msg_", "rs_")):
        is_said = item_id.startswith("msg_")
        alike = [each for each in items_of(message) if each["type"] == ("message" if is_said else "reasoning")]
        number = [each["id"] for each in alike].index(item_id)
        body = _without_words(body, number) if is_said else _without_thought(body, number)
    elif item_id.startswith("ig_"):
        made = [each["id"] for each in pictures_of(body, stem)]
        body = _without_picture(body, made.index(item_id))
    else:
        kept = [call for call, made in _calls(body, item_id) if made != item_id]
        body = {name: value for name, value in body.items() if name not in ("tool_calls", "function_call")}
        if kept:
            body["tool_calls"] = kept
        names = {str(call.get("id")) for call in kept}
        body = _with_blocks(body, lambda block: block.get("type") != "tool_use" or str(block.get("id")) in names)
    return replace(message, body=body, rendered=None)


def called(message: ConversationMessage, item_id: str) -> str | None:
    """Returns the id by which the model knows a tool call, or its result; None for other items."""
    items = items_of(message)
    found = next((item for item in items if item["id"] == item_id or len(items) == 1), {})
    return found.get("call_id")


def _said(message: ConversationMessage, status: str, parts: list[Any]) -> Item:
    item = {"id": message.message_id, "type": "message", "status": status, "role": message.role, "content": parts}
    more = {name: said for name in ("name", "phase") if isinstance(said := message.body.get(name), str)}
    return {**item, **more}


def _answer(message: ConversationMessage, stem: str, status: str) -> list[Item]:
    body = message.body
    items = _thoughts(body, stem, status)
    parts = [part for part in output_parts(body) if part.get("type") != "image_url"]
    calls = [_call(call, item_id, status) for call, item_id in _calls(body, stem)]
    pictures = pictures_of(body, stem)
    said = [_said(message, status, parts)] if _says_something(parts) or not (calls or items or pictures) else []

    def apart(entry: Item, number: int) -> Item:
        own = {"id": numbered_id(stem, number, "msg_"), "type": "message", "status": status}
        return {**entry, **own, "content": output_parts({"content": entry["content"]})}

    return ordered(body, items, [*said, *pictures], calls, apart)


def pictures_of(body: Mapping[str, Any], stem: str, before: int = 0) -> list[Item]:
    """Converts the pictures of a chat's answer, or of a delta, to Responses' `image_generation_call` items. A picture
    given by URL has it in `image_url`, and no `result`.
    `before`: number of pictures of the answer that came before."""
    found: list[Item] = []
    for (_, _, url), number in zip(_picture_places(body), _picture_numbers(body), strict=True):
        head, _, data = url.partition(";base64,")
        held = {"result": data} if is_data_url(head) and data else {"result": None, "image_url": url}
        item_id = numbered_id(stem, before + number, "ig_")
        found.append({"id": item_id, "type": "image_generation_call", "status": "completed", **held})
    return found


def _picture_places(body: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Yields each picture of an answer: the field that holds it, its position there, and its URL."""
    for name in ("images", "content"):
        held = body.get(name)
        for position, each in enumerate(held if isinstance(held, list) else ()):
            if isinstance(each, dict) and (name == "images" or each.get("type") == "image_url"):
                place = each.get("image_url")
                url = place.get("url") if isinstance(place, dict) else place
                if isinstance(url, str):
                    yield name, position, url


def _picture_numbers(body: Mapping[str, Any]) -> list[int]:
    """Returns the number of each picture of an answer: its position, unless another one was deleted."""
    numbers, pictures = body.get(PICTURE_NUMBERS), len(list(_picture_places(body)))
    return numbers if isinstance(numbers, list) and len(numbers) == pictures else list(range(pictures))


def _without_picture(body: Item, number: int) -> Item:
    """Returns an answer without one of its pictures; the others keep their numbers."""
    name, position, _ = list(_picture_places(body))[number]
    numbers = _picture_numbers(body)
    left = [each for place, each in enumerate(body[name]) if place != position]
    return {**body, name: left or None, PICTURE_NUMBERS: numbers[:number] + numbers[number + 1 :]}


def _kind(item: Item) -> str:
    return str(item.get("type") or "message")


def _says_something(parts: Sequence[Part]) -> bool:
    return any(part.get("text") or part.get("type") != "output_text" for part in parts)


def item_order(items: Sequence[Item]) -> list[Item]:
    """Returns the `item_order` of an answer of these items; empty if they are in default order: reasoning and hosted
    calls, one message of one text or refusal, calls."""
    found: list[Item] = []
    exact, last = True, 0
    for item in items:
        kind = _kind(item)
        if kind == "message":
            if not _says_something(output_parts({"content": item.get("content")})):
                continue
            entry, place = {"role": "assistant", **rest_of(item, "pinned", "agent")}, 2
            is_simple = entry.keys() <= OF_MESSAGE and (isinstance(item["content"], str) or len(item["content"]) == 1)
            is_simple = is_simple and last < 2
        elif is_own_call(item):
            entry, place = rest_of(item, *IN_CALL, "pinned", "agent"), 3
            is_simple = entry.keys() <= OF_CALL
        else:
            where = {"environment": item["environment"]} if kind == SHELL else {}
            entry, place, is_simple = {"type": kind, **where}, int(kind != "reasoning"), True
        exact, last = exact and is_simple and place >= last, place
        found.append(entry)
    return [] if exact else found


def ordered(
    body: Item, kept: Sequence[Any], said: list[Item], calls: list[Item], apart: Callable[[Item, int], Item]
) -> list[Any]:
    """Arranges the items of an answer in their original order, as far as its message still contains them.
    `kept`: its reasoning and hosted calls; {} stands for one that is not shown; `said`: the one message with all of its
    text, used if the text was changed, in the place of the original messages; `calls`: its calls; `apart`:
    makes the item of a message from its `item_order` entry and its number among the messages."""
    order = _order_of(body)
    messages = [entry for entry in order if _kind(entry) == "message"]
    if messages and _still_match(messages, body):
        said = [apart(entry, number) if entry["content"] else {} for number, entry in enumerate(messages)]
    others, calls = list(kept), list(calls)
    are_all = len(calls) == sum(map(is_own_call, order))
    found: list[Any] = []
    for entry in order:
        kind = _kind(entry)
        if kind == "message":
            found += said[:1]
            said = said[1:]
        elif is_own_call(entry):
            fits = (n for n, call in enumerate(calls) if are_all or call["call_id"] == entry.get("call_id"))
            found += [{**entry, **calls.pop(n)} for n in [*fits][:1]]
        else:
            fits = (n for n, each in enumerate(others) if each.get("type", "reasoning") == kind)
            found += [others.pop(n) for n in [*fits][:1]]
    return [*filter(None, [*others, *found]), *said, *calls]


def split_texts(body: Item) -> list[Item]:
    """Splits an answer of several messages as clients that know only their texts send it again: one message each, the
    calls with the last. Empty if the answer is one message, or has more than texts."""
    messages = [entry for entry in _order_of(body) if _kind(entry) == "message" and entry["content"]]
    if len(messages) < 2 or not _still_match(messages, body):
        return []
    texts, refused = _spoken(messages)
    if refused or not all(texts):
        return []
    rest = {name: value for name, value in body.items() if name != ITEM_ORDER}
    return [*({"role": "assistant", "content": text} for text in texts[:-1]), {**rest, "content": texts[-1]}]


def _order_of(body: Item) -> list[Item]:
    """Reads the `item_order` of an answer; as it may come from a client, malformed entries are skipped."""
    found = [rest_of(each, "index") for each in dicts_of(body.get(ITEM_ORDER))]
    return [each for each in found if _kind(each) != "message" or isinstance(each.get("content"), str | list)]


def _still_match(messages: Sequence[Item], body: Item) -> bool:
    """Returns whether these messages still match an answer's content, which may have been changed."""
    texts, refusals = _spoken(messages)
    said, refused = _spoken([{"content": output_parts(body)}])
    return refusals == refused and _is_joined("".join(said), texts)


def _is_joined(said: str, texts: Sequence[str]) -> bool:
    """Returns whether a text is the concatenation of these texts, with or without `BETWEEN` at each joint."""
    ends = {0}
    for text in filter(None, texts):
        starts = ends | {end + len(BETWEEN) for end in ends if end and said.startswith(BETWEEN, end)}
        ends = {start + len(text) for start in starts if said.startswith(text, start)}
    return len(said) in ends


def _spoken(messages: Sequence[Item]) -> tuple[list[str], str]:
    """Returns the text of each message, and the joined refusals of all."""
    parts = [output_parts({"content": each.get("content")}) for each in messages]
    texts = ["".join(str(p.get("text") or "") for p in each if p.get("type") == "output_text") for each in parts]
    return texts, "".join(str(p.get("refusal") or "") for each in parts for p in each if p.get("type") == "refusal")


def _without_words(body: Item, number: int) -> Item:
    """Returns an answer without one of its messages. An empty one replaces it in the order, so that later ids stay."""
    found = {name: value for name, value in body.items() if name not in ITEM_CONTENT_FIELDS} | {"content": None}
    found = _with_blocks(found, lambda block: block.get("type") != "text")
    order = _order_of(body)
    messages = [entry for entry in order if _kind(entry) == "message" and entry["content"]]
    found.pop(ITEM_ORDER, None)
    if not messages or not _still_match(messages, body):
        return found
    gone, left = messages[number], [*messages[:number], *messages[number + 1 :]]
    texts, refused = _spoken(left)
    cited = [each for part in output_parts({"content": gone["content"]}) for each in part.get("annotations") or ()]
    kept = [each for each in body.get("annotations") or () if flat_annotation(each) not in cited]
    order = [{"role": "assistant", "content": []} if entry is gone else entry for entry in order]
    more = {"refusal": refused, "annotations": kept, ITEM_ORDER: order}
    return {**found, "content": BETWEEN.join(filter(None, texts)) or None, **{k: v for k, v in more.items() if v}}


def _without_thought(body: Item, number: int) -> Item:
    """Returns an answer without one of its reasoning items, and without what its provider signed. {} replaces the item,
    so that later ids stay."""
    thoughts = [each for each in _verbatim(body) if each.get("type") == "reasoning"]
    left = _without_verbatim(body, thoughts.pop(number)) if thoughts else body
    found = {k: v for k, v in left.items() if k not in THOUGHTS or k in (*VERBATIM, ANTHROPIC_BLOCKS)}
    texts = [part.get("text") for each in thoughts for part in dicts_of(each.get("content") or each.get("summary"))]
    if body.get("reasoning_content") and any(texts):
        found["reasoning_content"] = BETWEEN.join(filter(None, texts))
    return _with_blocks(found, lambda block: block.get("type") not in ("thinking", "redacted_thinking"))


def _without_verbatim(body: Item, gone: Item) -> Item:
    """Returns an answer without one of its reasoning items or hosted calls; neither is it in its order."""
    alike = [each for each in _verbatim(body) if each.get("type") == gone["type"]]
    number = next(n for n, each in enumerate(alike) if each is gone)
    stand_in: list[Item] = [{}] if gone["type"] == "reasoning" else []
    left: Item = {}
    for name in VERBATIM:
        held = body.get(name) or []
        left[name] = [new for each in held for new in (stand_in if each is gone else [each])]
    order = _order_of(body)
    entries = [entry for entry in order if _kind(entry) == gone["type"]]
    if number < len(entries):
        left[ITEM_ORDER] = [entry for entry in order if entry is not entries[number]]
    return {name: left.get(name, value) for name, value in body.items() if name not in left or any(left[name])}


def without_stand_ins(body: Item) -> Item:
    """Returns a chat message without the placeholders of deleted reasoning items."""
    held = body.get("reasoning_items") or ()
    return body if all(held) else {**body, "reasoning_items": [*filter(None, held)]}


def _with_blocks(body: Item, stays: Callable[[Item], bool]) -> Item:
    """Returns an answer with those of its native blocks that stay."""
    blocks = body.get(ANTHROPIC_BLOCKS)
    if not isinstance(blocks, list):
        return body
    left = [block for block in blocks if isinstance(block, dict) and stays(block)]
    rest = {name: value for name, value in body.items() if name != ANTHROPIC_BLOCKS}
    return {**rest, ANTHROPIC_BLOCKS: left} if left else rest


def _thoughts(body: dict[str, Any], stem: str, status: str) -> list[Item]:
    """Lists the reasoning items of a message and the hosted calls among them, in order. Sealed content, which is only
    for the model, is left out."""
    kept, hosted = _verbatim(body), iter(_hosted(body, stem))
    if not kept:
        text = body.get("reasoning_content") or body.get("reasoning")
        content = [{"type": "reasoning_text", "text": text}]
        kept = [{"type": "reasoning", "content": content}] if isinstance(text, str) and text else []
    items: list[Item] = []
    number = 0
    for each in kept:
        if each and each["type"] != "reasoning":
            items.append({**each, "id": next(hosted)[1]})
            continue
        if each:
            item = {"id": numbered_id(stem, number), "type": "reasoning", "summary": each.get("summary") or []}
            said = {"content": each["content"]} if each.get("content") else {}
            items.append({**item, **said, "status": status})
        number += 1
    return items


def _verbatim(body: Mapping[str, Any]) -> list[Item]:
    """Lists the items that an answer holds as their maker wrote them; {} stands for deleted reasoning."""
    found = (item for name in VERBATIM for item in body.get(name) or ())
    return [item for item in found if item == {} or (isinstance(item, dict) and isinstance(item.get("type"), str))]


def _hosted(body: Mapping[str, Any], stem: str) -> list[tuple[Item, str]]:
    """Lists the hosted calls of an answer with the ids of their items: their maker's, or one of the message's where
    that is missing, or that of another call."""
    found: list[tuple[Item, str]] = []
    for each in _verbatim(body):
        if not each or each["type"] == "reasoning":
            continue
        item_id, others = each.get("id"), [own for _, own in found]
        if not isinstance(item_id, str) or not item_id or item_id in others:
            times = sum(each == other for other, _ in found)
            item_id = f"hc_{stem}_{content_digest(f'{jsons.canonical(each).decode()}{times}')[:12]}"
        found.append((each, item_id))
    return found


def numbered_id(stem: str, number: int, prefix: str = "rs_") -> str:
    """Makes the id of an answer's reasoning item of that number, from 0; with another prefix that of other items."""
    return f"{prefix}{stem}" if number == 0 else f"{prefix}{stem}_{content_digest(str(number))[:12]}"


def call_item_id(stem: str, call_id: str, before: int, kind: str) -> str:
    """Makes the item id of a tool call of that type; `before`: how many earlier calls of its message have its id."""
    mark = content_digest(f"{call_id}\n{before}")[:12]
    return f"{PREFIXES[kind]}_{stem}_{mark}"


def named_calls(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lists the calls of a message; a legacy `function_call` has its name as id."""
    calls = [call for call in body.get("tool_calls") or () if isinstance(call, dict)]
    function = body.get("function_call")
    return [*calls, {"id": function.get("name"), "function": function}] if isinstance(function, dict) else calls


def _calls(body: dict[str, Any], stem: str) -> list[tuple[dict[str, Any], str]]:
    """Lists the tool calls of a message with the ids of their items, which do not depend on their positions.
    `stem`: the common part of the ids of the message's items, or one of those ids."""
    parts = ITEM_ID.fullmatch(stem)
    stem = parts.group(3) if parts else stem
    found: list[tuple[dict[str, Any], str]] = []
    seen: list[str] = []
    for call in named_calls(body):
        call_id = str(call.get("id"))
        found.append((call, call_item_id(stem, call_id, seen.count(call_id), call_kind(call))))
        seen.append(call_id)
    return found


def _call(call: dict[str, Any], item_id: str, status: str) -> Item:
    kind, custom, function = call_kind(call), call.get("custom") or {}, call.get("function") or {}
    shared = {"id": item_id, "call_id": str(call.get("id")), "status": status_of(kind, status)}
    if kind in TYPED_CALLS:
        return {**shared, **typed_item(kind, function.get("arguments"))}
    if kind == CUSTOM:
        return {**shared, "type": kind, "name": custom.get("name"), "input": custom.get("input", "")}
    return {**shared, "type": kind, "name": function.get("name"), "arguments": function.get("arguments", "")}


def _output(body: dict[str, Any], stem: str, status: str, calls: Mapping[str, str]) -> Item:
    call_id = str(body.get("tool_call_id") or body.get("name"))
    content, kind = body.get("content"), calls.get(call_id, FUNCTION)
    output = {"output": content if isinstance(content, str) else input_parts(content)}
    if kind in TYPED_CALLS:
        output = result_item(kind, text_of(content))
    shared = {"id": f"{PREFIXES[kind]}o_{stem}", "type": kind + OUTPUT, "call_id": call_id}
    return {**shared, "status": status, **output}


PDF_START = "JVBERi"
"""`%PDF` in base64."""
PDF_NAMES = ("application/pdf", ".pdf")


def is_data_url(text: str) -> bool:
    """Returns whether a text begins as a `data:` URL, whose scheme has no case (RFC 3986 §3.1)."""
    return text[:5].lower() == "data:"


def pdf_data(part: dict[str, Any]) -> str | None:
    """Returns the data of a `file` part that contains a PDF; None for any other part."""
    file = part.get("file") if part.get("type") == "file" else None
    data = file.get("file_data") if isinstance(file, dict) else None
    if not isinstance(data, str) or not isinstance(file, dict):
        return None
    header, comma, _ = data[:200].partition(",")
    start = len(header) + 1 if is_data_url(header) and comma else 0
    named = f"{header[5:].partition(';')[0] if start else ''} {file.get('filename') or ''}".lower()
    return data if data.startswith(PDF_START, start) or any(name in named for name in PDF_NAMES) else None


def named_file(part: dict[str, Any]) -> str | None:
    """Returns the file id that a `file` part names; None for a part that contains its file, and for any other part."""
    file = part.get("file") if part.get("type") == "file" else None
    if not isinstance(file, dict) or isinstance(file.get("file_data"), str):
        return None
    return file["file_id"] if isinstance(file.get("file_id"), str) else None


def part_at(messages: Sequence[dict[str, Any]], message: int, number: int) -> dict[str, Any]:
    """Returns part `number` of the content of message `message`; empty if there is no such part."""
    parts = parts_of(messages[message].get("content")) if message < len(messages) else ()
    part = parts[number] if number < len(parts) else None
    return part if isinstance(part, dict) else {}


def named_picture(part: dict[str, Any]) -> str | None:
    """Returns the file id that a picture names; None for a picture with data or a URL, and for any other part.

    OpenAI's chats cannot express that, so the part is that of Responses: `input_image` with `file_id`.
    """
    if part.get("type") != "input_image" or part.get("image_url") is not None:
        return None
    return part["file_id"] if isinstance(part.get("file_id"), str) else None
