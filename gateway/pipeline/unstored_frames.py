"""Caches the frames (ADR 12) of conversations of which nothing is stored. They hold digests, positions, ranges,
strategies and ids, and no word of any message (guarantee §4 I7)."""

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from math import inf
from operator import is_
from typing import Any

from gateway.context import BuiltContext, compact
from gateway.context.assembly import ARTIFACT_ID
from gateway.context.window import PromptCounter
from gateway.core import errors, jsons, ports
from gateway.core.frozen_records import record
from gateway.core.instrumentation import logs
from gateway.core.tasks import offload_if
from gateway.core.types import bill, chain, items, memory, tool_steps
from gateway.core.types.chat import ChatRequest
from gateway.core.types.conversation import (
    ConversationHistory,
    ConversationMessage,
    Form,
    PromptFrame,
    TokenCounts,
    frame_of,
)
from gateway.core.types.prompt_digests import plain_parts
from gateway.core.types.short_inputs import with_short_inputs
from gateway.pipeline.frames import new_frame
from gateway.pipeline.ranges import MessageTexts, RangeFinder, UnencodableForm, decoded_form, encoded_parts
from gateway.pipeline.stages import KeptFrame, PreparedRequest
from gateway.storage import ConversationStore
from gateway.storage.cache import FrameCache

FRAME_VERSION = 1
MAX_ANCHORS = 64
"""Latest places for which a frame is looked up: an answer was given after each of them."""
MAX_BEHIND = 16
"""Answers after which an unchanged frame is written again after the latest message."""
NEAR_SHARE = 0.25
"""From this share of the budget on, a prompt's frame is cached even if nothing was changed, so later steps of the turn
cannot change what its first step fixed (guarantee §4 I6)."""
LARGE_FRAME_BYTES = 2**20
"""A larger request's frame is read in a thread."""
MAC, DIGEST, COUNTED = 16, 12, 16
"""Bytes of the keyed digests of a frame, of a form, and of the messages that were counted."""
COSTS, USED, DOUBTS = b"costs\0", b"last use\0", b"doubts\0"
"""Prefixes of paths: for the sums of a branch, cached beside its frame as they change with each answer; with the path
of a conversation's first message, for when it was last used, on whichever branch, and where that request ended; and for
branches whose provider has refused a signature."""
USED_SECONDS = 7 * 24 * 3600.0
"""How long the time of a conversation's last use is cached: after hours there is no prompt cache left, and a pass is
free. It is one small value for each conversation."""
MEMORY = {"role": "user", "content": ""}
SHORT_INPUTS = "short inputs"
"""Encodes a form that is an answer without its calls' long inputs: the answer determines which these are."""
log = logs.get_logger("gateway.pipeline.unstored_frames")


@record
class _FrameKey:
    """Computes the digests of one tenant's requests to one model; the secret is the same in all replicas."""

    secret: bytes

    @classmethod
    def of(cls, secret: bytes, request: ChatRequest) -> "_FrameKey":
        who = jsons.canonical([request.caller.tenant, request.users, request.model])
        return cls(hmac.digest(secret, b"frames\0" + who, "sha256"))

    def of_path(self, path: bytes) -> str:
        return self.digest(path, 20)

    def digest(self, value: bytes, size: int) -> str:
        return hashlib.blake2b(value, digest_size=size, key=self.secret).hexdigest()

    def of_form(self, form: dict[str, Any]) -> str:
        return self.digest(jsons.canonical(plain_parts(form.get("content"))), DIGEST)

    def of_calls(self, form: dict[str, Any]) -> str:
        return self.digest(jsons.canonical([form.get("content"), form.get("tool_calls")]), DIGEST)

    def of_bodies(self, bodies: Sequence[dict[str, Any]]) -> str:
        return hmac.digest(self.secret, b"counted\0" + jsons.dumps(bodies), "sha256")[:COUNTED].hex()

    def sealed(self, name: str, payload: bytes) -> bytes:
        return bytes.fromhex(self.digest(name.encode() + payload, MAC)) + payload

    def opened(self, name: str, value: bytes) -> bytes | None:
        payload = value[MAC:]
        return payload if hmac.compare_digest(self.sealed(name, payload), value) else None

    def hidden(self, name: str, text: bytes) -> bytes:
        """Hides digests of contents in a text from all who lack the secret; applied twice it restores the text."""
        stream = hashlib.shake_256(self.secret + name.encode()).digest(len(text))
        return bytes(one ^ other for one, other in zip(text, stream, strict=True))

    def masked(self, ids: Sequence[str], salt: str) -> list[str]:
        """Hides ids, digests of contents, from all who lack the secret; applied twice it restores them."""
        stream = hashlib.shake_256(self.secret + salt.encode()).digest(8 * len(ids))
        found = []
        for number, name in enumerate(ids):
            pad = int.from_bytes(stream[8 * number : 8 * number + 8])
            found.append(f"art_{int(name[4:20], 16) ^ pad:016x}{name[20:]}")
        return found


class UnstoredFrames:
    """Caches what the models of requests with `store: false` were sent, as ranges of what their clients send again. It
    is used for no other requests.

    A faulty frame costs a fresh fit, never an answer: a frame that was tampered with, or whose forms no longer match,
    is ignored.
    """

    def __init__(self, cache: FrameCache, store: ConversationStore, clock: ports.Clock) -> None:
        self._cache, self._store, self._clock = cache, store, clock

    async def with_frame(
        self, request: ChatRequest, history: ConversationHistory
    ) -> tuple[ConversationHistory, KeptFrame | None]:
        """Applies the frame of what a model was sent before to a request's conversation, if that is known."""
        anchors = _anchors(history) if _is_kept(request, history) else []
        if not anchors:
            return history, None
        try:
            key = _FrameKey.of(await self._store.secret(), request)
        except errors.StorageUnavailable:
            return history, None
        paths = [history.digests[count - 1].path for count in anchors]
        found = await self._cache.first(request.caller.tenant, map(key.of_path, paths))
        try:
            if any(message.body.get(items.SIGNED) for message in history.messages):
                doubts = await self._cache.first(request.caller.tenant, (key.of_path(DOUBTS + path) for path in paths))
                history = replace(history, doubts_thoughts=doubts is not None)
            if request.options.economy != bill.OFF and any(
                message.role in tool_steps.RESULT_ROLES for message in history.messages
            ):
                history = await self._with_costs(request, history, key, paths)
            if found is None:
                return history, None
            number, value = found
            over = partial(_with_frame, history, key, key.of_path(paths[number]), value, number)
            return await offload_if(request.size >= LARGE_FRAME_BYTES, over)
        except Exception as fault:  # noqa: BLE001 - whatever the cache holds, it costs a fresh fit
            log.warning("frame_not_used", reason=type(fault).__name__, request_id=request.request_id)
            return history, None

    async def _with_costs(
        self, request: ChatRequest, history: ConversationHistory, key: _FrameKey, paths: Sequence[bytes]
    ) -> ConversationHistory:
        """Adds to the conversation what its branch has cost, when it was last used, and whether it goes on from there,
        as far as that is known."""
        tenant, name = request.caller.tenant, _used(key, history)
        used = [at for value in await self._cache.copies(tenant, name) if (at := key.opened(name, value)) is not None]
        if not used:
            return history
        latest = max(used)
        found = await self._cache.first(tenant, (key.of_path(COSTS + path) for path in paths))
        name = key.of_path(COSTS + paths[found[0]]) if found is not None else ""
        costs = key.opened(name, found[1]) if found is not None else None
        return replace(
            history,
            used_at=datetime.fromtimestamp(int.from_bytes(latest[:8]), UTC),
            goes_on=any(latest[8:] == _end_of(key, path) for path in paths),
            costs=bill.BranchCosts.of_text(key.hidden(name, costs).decode("utf-8", "replace"))
            if costs is not None
            else None,
            has_earlier_costs=found is not None and found[0] > 0,
        )

    async def keep(self, prepared: PreparedRequest, costs: bill.BranchCosts | None = None) -> None:
        """Caches what an answered request forwarded beyond what its messages imply, and what its branch has cost."""
        request, history, built = prepared.request, prepared.history, prepared.context
        if history is None or built is None or built.material is None or not _is_kept(request, history):
            return
        if request.options.dry_run and not request.options.sent_elsewhere:
            return
        try:
            key = _FrameKey.of(await self._store.secret(), request)
        except errors.StorageUnavailable:
            return
        now = int(self._clock.now().timestamp())
        answered = history.digests[: len(history.digests) - _is_prefilled(history.messages)]
        end = (answered[-1] if answered else history.base).path
        try:
            if built.economy is not None or (costs is not None and request.forward.get("tools")):
                name, at = _used(key, history), (now + 1).to_bytes(8)  # rounded up
                last = at + _end_of(key, end)
                await self._cache.keep(request.caller.tenant, name, key.sealed(name, last), USED_SECONDS)
                if costs is not None:
                    name = key.of_path(COSTS + end)
                    value = key.hidden(name, costs.as_text().encode())
                    await self._cache.keep(request.caller.tenant, name, key.sealed(name, value))
            if history.doubts_thoughts or not prepared.wire.trusts_clients:
                await self._cache.keep(request.caller.tenant, key.of_path(DOUBTS + end), DOUBTS)
            payload = await offload_if(built.fitted.new_pass, _payload, prepared, key, now, self._cache.ttl)
        except UnencodableForm:  # this overrides older frames
            log.info("frame_not_kept", request_id=request.request_id)
            payload = jsons.dumps({"v": FRAME_VERSION, "lost": True})
        except Exception as fault:  # noqa: BLE001 - it costs a fresh fit, not the answer that has come
            log.fault("frame_not_kept", fault, request_id=request.request_id)
            return
        if payload is not None:
            name = key.of_path(end)
            await self._cache.keep(request.caller.tenant, name, key.sealed(name, payload))


def _is_kept(request: ChatRequest, history: ConversationHistory) -> bool:
    """Returns whether frames are cached for an unstored request: if all of its conversation came with it."""
    return history.created and not request.is_worded and request.options.mode != "off"


def _is_prefilled(messages: Sequence[ConversationMessage]) -> bool:
    """Returns whether the last message is the beginning of the answer."""
    return bool(messages) and messages[-1].role == "assistant" and not messages[-1].body.get("tool_calls")


def _anchors(history: ConversationHistory) -> list[int]:
    """Returns after how many messages an earlier request may have ended, the latest first."""
    messages = history.messages[: len(history.messages) - _is_prefilled(history.messages)]
    found = (i for i in range(len(messages) - 1, 0, -1) if messages[i].role == "assistant" != messages[i - 1].role)
    return list(islice(found, MAX_ANCHORS))


def _end_of(key: _FrameKey, path: bytes) -> bytes:
    """Returns the keyed digest by which the end of a conversation's last request is known again."""
    return bytes.fromhex(key.digest(USED + path, COUNTED))


def _used(key: _FrameKey, history: ConversationHistory) -> str:
    return key.of_path(USED + chain.chain_digests([history.messages[0].body])[0].path)


def _with_frame(
    history: ConversationHistory, key: _FrameKey, name: str, value: bytes, behind: int
) -> tuple[ConversationHistory, KeptFrame | None]:
    payload = key.opened(name, value)
    encoded = jsons.loads(payload) if payload is not None else None
    if encoded is None or encoded["v"] != FRAME_VERSION or encoded.get("lost"):
        return history, None
    ids = tuple(key.masked(encoded["ids"], encoded["salt"]))
    known = _anchors(history)[0] + 1  # all up to the last answer was forwarded before
    bodies = [message.body for message in history.messages[:known]]
    frame = _frame(encoded, ids, bodies, key) if encoded["changed"] else None
    tokenizer, (digest, counts) = encoded["tokenizer"], encoded.get("counted", ("", {}))
    counted = {int(name): TokenCounts(history.messages[int(name)].body, {tokenizer: counts[name]}) for name in counts}
    if counted and digest != key.of_bodies([each.of for each in counted.values()]):
        counted = {}
    for i, message in enumerate(history.messages[:known]):  # these messages belong to this request alone
        message.message_id, message.tokens = str(i), counted.get(i)
    over = replace(
        history,
        stored=known,
        base=history.digests[known - 1],
        digests=history.digests[known:],
        restored_ids=frozenset(),
        as_sent=False,
        frame=frame,
    )
    return over, KeptFrame(encoded, ids, behind)


def _frame(
    encoded: Mapping[str, Any], ids: Sequence[str], bodies: Sequence[dict[str, Any]], key: _FrameKey
) -> PromptFrame:
    """Decodes a frame. Raises ValueError: a form has changed. Anything that is not a frame raises any error."""
    texts = MessageTexts(bodies, compact)
    forms: dict[str, Form] = {}
    form: Form
    for name, (digest, parts) in encoded["forms"].items():
        form, body = None, bodies[int(name)]
        if parts is not None:
            form = with_short_inputs(body) if parts == SHORT_INPUTS else decoded_form(parts, body, texts, ids)
        forms[name] = form
        if form is not None and (key.of_calls if parts == SHORT_INPUTS else key.of_form)(form) != digest:
            raise ValueError("a form is another")
    memory_message = None
    if encoded["memory"] is not None:
        digest, parts, pinned = encoded["memory"]
        memory_message = memory.MemoryMessage(decoded_form(parts, MEMORY, texts, ids), tuple(pinned))
        if key.of_form(memory_message.body) != digest:
            raise ValueError("a memory message is another")
    named = {
        "forms": forms,
        "standing": {name: [ids[n] for n in shown] for name, shown in encoded["standing"].items()},
        "decisions": {name: [[ids[n], *rest] for n, *rest in each] for name, each in encoded["decisions"].items()},
        "decided": [ids[n] for n in encoded["decided"]],
        "refers": {key: [[to, ids[n]] for to, n in found] for key, found in encoded.get("refers", {}).items()},
        "memory": None,
    }
    return replace(frame_of({**encoded, **named}), memory=memory_message)


def _payload(prepared: PreparedRequest, key: _FrameKey, now: int, ttl: float) -> bytes | None:
    """Encodes the frame of a request as JSON; None where an earlier one still implies it.
    Raises UnencodableForm: it cannot be encoded without content."""
    request, history, built, kept = prepared.request, prepared.history, prepared.context, prepared.kept_frame
    assert history is not None
    assert built is not None
    assert built.material is not None
    made, before = None, history.frame
    if not _is_as_it_came(request, built, before):
        made = new_frame(request.model, history, built, built.material, _named(request, history))
    if made is None:
        is_near = built.fitted.tokens >= NEAR_SHARE * (prepared.budget.tokens or inf)
        if kept is None and not is_near:
            return None
        if kept is not None and kept.behind < MAX_BEHIND and now - kept.encoded["at"] < ttl / 4:
            return None
        frame = before or PromptFrame()
    else:
        frame = made.frame if made.full or before is None else before.followed_by(made.frame)
    return _FrameWriter(history, kept if before is not None and not (made and made.full) else None, key, now).encoded(
        frame,
        [*history.messages[: history.stored], *_named(request, history)],
        built.counting,
        set(made.frame.forms) if made else set(),
    )


def _is_as_it_came(request: ChatRequest, built: BuiltContext, before: PromptFrame | None) -> bool:
    """Returns whether all is forwarded as the client sent it, now as before: then there is no new frame."""
    fitted = built.fitted
    if fitted.new_pass or fitted.moved or fitted.selection.renderings or built.plan is not None:
        return False
    if before is not None and (before.forms or before.borrowed):
        return False
    sent, came = fitted.forwarded.messages, request.messages
    return len(sent) == len(came) and all(map(is_, sent, came))


def _named(request: ChatRequest, history: ConversationHistory) -> list[ConversationMessage]:
    """Returns the new messages under their numbers in the conversation."""
    numbered = enumerate(history.new_messages, history.stored)
    return [message.stored_as(str(i), request.arrived_at) for i, message in numbered]


class _FrameWriter:
    """Writes a frame without content. Forms that were written before are written unchanged."""

    def __init__(self, history: ConversationHistory, kept: KeptFrame | None, key: _FrameKey, now: int) -> None:
        self._kept, self._key, self._now = kept, key, now
        self._ids = list(kept.ids) if kept is not None else []
        self._bodies = [message.body for message in history.messages]
        self._texts = MessageTexts(self._bodies, compact)

    def encoded(
        self,
        frame: PromptFrame,
        messages: Sequence[ConversationMessage],
        counting: PromptCounter | None,
        changed: Set[str],
    ) -> bytes:
        finder: RangeFinder | None = None
        forms = {}
        for name, form in frame.forms.items():
            if self._kept is not None and name not in changed:
                forms[name] = self._kept.encoded["forms"][name]
            else:
                finder = finder or RangeFinder(self._texts, len(self._bodies), self._ids)
                forms[name] = self._form(form, int(name), finder)
        memory = None
        if frame.memory is not None:
            if frame.memory.segments:
                raise UnencodableForm("summaries")
            finder = finder or RangeFinder(self._texts, len(self._bodies), self._ids)
            parts = encoded_parts(frame.memory.body, MEMORY, finder, None)
            memory = [self._key.of_form(frame.memory.body), parts, list(frame.memory.pinned)]
        standing = {name: [*map(self._id, shown)] for name, shown in frame.shown_in_full.items() if shown}
        decisions = {
            name: [[self._id(each.artifact_id), each.strategy, each.shown_chars] for each in found]
            for name, found in frame.decisions.items()
        }
        refers = {key: [[to, self._id(what)] for to, what in found] for key, found in frame.refers.items()}
        decided = [self._id(name) for name in sorted(frame.decided)]
        salt = os.urandom(8).hex()
        tokenizer, counted = self._counted(frame, messages, counting)
        fields = {
            "v": FRAME_VERSION,
            "at": self._now,
            "changed": frame != PromptFrame(),
            "salt": salt,
            "ids": self._key.masked(self._ids, salt),
            "first": frame.first,
            "left": sorted(frame.left_out),
            "forms": forms,
            "standing": standing,
            "decisions": decisions,
            "decided": decided,
            "counts": {name: dict(counts) for name, counts in frame.counts.items() if counts},
            "asked": frame.asked,
            "left_out_tokens": frame.left_out_tokens,
            "recalls": frame.recalls,
            "refers": refers,
            "memory": memory,
            "tokenizer": tokenizer,
            "counted": counted,
            "tokens": {},  # read by earlier versions
        }
        return jsons.dumps(fields)

    def _form(self, form: Form, number: int, finder: RangeFinder) -> list[Any]:
        if form is None:
            return ["", None]
        if form == with_short_inputs(body := self._bodies[number]) != body:
            return [self._key.of_calls(form), SHORT_INPUTS]
        return [self._key.of_form(form), encoded_parts(form, self._bodies[number], finder, number)]

    def _id(self, name: str) -> int:
        if ARTIFACT_ID.fullmatch(name) is None:
            raise UnencodableForm("id")
        if name not in self._ids:
            self._ids.append(name)
        return self._ids.index(name)

    def _counted(
        self, frame: PromptFrame, messages: Sequence[ConversationMessage], counting: PromptCounter | None
    ) -> tuple[str | None, tuple[str, dict[str, int]]]:
        """Returns tokens of the messages that the window holds as they came, with one digest of all of them."""
        if counting is None:
            return None, ("", {})
        tokenizer: str | None = None
        found: dict[str, int] = {}
        bodies: list[dict[str, Any]] = []
        inside = frame.first is None
        for message in messages:
            name = message.message_id or ""
            inside = inside or name == frame.first
            if not inside or name in frame.left_out or name in frame.forms:
                continue
            for named, tokens in counting.counted(message.body).items():
                tokenizer = named
                found[name] = tokens
                bodies.append(message.body)
        return tokenizer, (self._key.of_bodies(bodies), found)
