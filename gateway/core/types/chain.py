"""Chains of messages: the digests by which a conversation is recognised in what a client sends (ADR 8).

A `ChainDigest` names a chain by two digests: of all its messages, and of what was said in them (guarantee §3.2). Each
is the hash of the digest before and the message, so that a turn costs the turn.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, pairwise
from operator import and_
from typing import Any, NamedTuple

from gateway.core import jsons
from gateway.core.frozen_records import record
from gateway.core.types.content_parts import content_text, dicts_of

SIZE = 20
SAID_FIELDS = ("tool_call_id", "name", "refusal", "function_call")
ANSWER_FIELDS = ("content", "tool_calls", "refusal", "audio", "function_call")
RESULTS_OF_HOSTED = ("_output", "_response")
"""Suffixes of the items by which a client answers a call of its provider's: a screenshot, an approval."""
REWRITABLE = re.compile(r"\s|\\[u/]")
"""What clients that parse JSON and write it again may write otherwise: blanks, and escapes that JSON does not need."""
SAYING_ROLES = {"user": b"user\0", "assistant": b"assistant\0"}


class ChainDigest(NamedTuple):
    """A chain of messages. `path` and `said` are digests of 20 bytes, empty before the first message.

    `plain`: the chain consists of roles and texts without outer white space, and of nothing else. Two plain chains of
    the same `path` consist of identical messages.
    """

    path: bytes = b""
    said: bytes = b""
    plain: bool = True


CHAIN_START = ChainDigest()


class AnswerRun(NamedTuple):
    """Answers next to each other: the digest of the chain before them, and their joined text."""

    before: ChainDigest
    text: str


@record
class ChainKey:
    """Keyed digests by which an answered request is recognised later (guarantee §3.2), each bound to tenant and user.

    `digest` covers what was said, `calls` the ids of the answer's tool calls (empty without any). `whole` covers all
    messages, tool steps included, followed by the digest of all attachments if there are any.
    """

    digest: bytes
    calls: bytes = b""
    whole: bytes = b""


def is_step(message: Mapping[str, Any]) -> bool:
    """Returns whether a message is a tool call or a tool result, as opposed to something said."""
    role = message.get("role")
    return role in ("tool", "function") or bool(message.get("tool_calls") or message.get("function_call"))


def is_said(message: Mapping[str, Any]) -> bool:
    """Returns whether a message is a user's or a final answer, by which guarantee §3.2 recognises a chain."""
    return message.get("role") in SAYING_ROLES and not is_step(message)


def says_nothing(message: Mapping[str, Any], status: str) -> bool:
    """Returns whether a message is an empty partial answer: no client sends it again, so no chain contains it."""
    return status == "partial" and not any(message.get(name) for name in ANSWER_FIELDS)


def identity(message: Mapping[str, Any]) -> list[Any]:
    """Returns the JSON value that is equal for messages that count as the same (guarantee §3.1). Outer white space is
    ignored, and so is what clients drop: reasoning, annotations, empty fields. Arguments count as the JSON that they
    are: clients parse them, and write them again with other blanks and escapes."""
    words = message.get("content")
    text = words if type(words) is str else content_text(words)
    content = text.strip() if text is not None else words
    found: list[Any] = [message.get("role"), content or ""]
    said: dict[str, Any] = {}
    if len(message) > 2 or "content" not in message:  # which SDKs leave out beside calls
        found += map(_call, message.get("tool_calls") or ())
        for name in SAID_FIELDS:
            if value := message.get(name):
                said[name] = value
        audio = message.get("audio")
        if isinstance(audio, dict) and audio.get("id"):
            said["audio"] = audio["id"]
        if "output_items" in message and (answered := answered_hosted(message)):
            said["answered"] = answered
    found.append(said)
    return found


def answered_hosted(message: Mapping[str, Any]) -> list[Any]:
    """Returns the ids of the hosted calls of an earlier answer that a message begins by answering, and otherwise says
    nothing: a client's screenshot or approval, for which a chat has no message. Empty for any other message."""
    held = list(dicts_of(message.get("output_items")))
    results = [each for each in held if str(each.get("type")).endswith(RESULTS_OF_HOSTED)]
    if not results or results[0] is not held[0] or any(map(message.get, ANSWER_FIELDS)):
        return []
    return [each.get("call_id") or each.get("approval_request_id") for each in results]


def _call(call: Mapping[str, Any]) -> list[Any]:
    function = call.get("function") or {}
    given = function.get("arguments")
    if type(given) is str and (not given or REWRITABLE.search(given)):
        try:
            given = jsons.dumps_text(jsons.loads_exact(given.encode() or b"{}"))
        except ValueError:  # cut off, or no JSON: nobody can have parsed it
            pass
    return [call.get("id"), function.get("name"), given, call.get("custom")]


def issued_ids(message: Mapping[str, Any]) -> list[str]:
    """Returns the ids that a provider gave to what an answer holds: those of its calls and of its audio."""
    audio = message.get("audio")
    named = audio.get("id") if isinstance(audio, dict) else None
    return [*call_ids(message), *([str(named)] if named else ())]


def message_digest(message: Mapping[str, Any]) -> str:
    """Returns a message's digest, 40 hex digits, equal for messages that count as the same (guarantee §3.1)."""
    words = message.get("content")
    if type(words) is str and len(message) == 2 and "role" in message:  # as most are: a shortcut with the same result
        return hashlib.sha256(jsons.canonical([message["role"], words.strip(), {}])).hexdigest()[:40]
    who = _bare_step(message) if len(message) == 3 else None
    return hashlib.sha256(jsons.canonical(identity(message) if who is None else who)).hexdigest()[:40]


def extended(
    digest: ChainDigest,
    message: Mapping[str, Any],
    *,
    status: str = "complete",
    reworded: bool = False,
    who: list[Any] | None = None,
) -> ChainDigest:
    """Returns the digest of a chain after one more message.
    `reworded`: another form of the message was forwarded, so that the chain is no longer plain; `who`: the identity of
    the message, if known."""
    if says_nothing(message, status):
        return digest
    who = identity(message) if who is None else who
    words = _plain_words(who)
    path = _hash(digest.path, words if words is not None else jsons.canonical(who))
    plain = digest.plain and not reworded and words is not None and is_bare(message)
    if not is_said(message):
        return ChainDigest(path, digest.said, plain=False)
    return ChainDigest(path, path if digest.said == digest.path else _hash(digest.said, _said(who)), plain)


def call_digest(digest: ChainDigest, message: Mapping[str, Any]) -> bytes:
    """Returns the digest of what was said up to and including an assistant's message with tool calls, which counts as
    an answer while it is the last message."""
    return _hash(digest.said, b"calls\0" + _said(identity(message)))


def chain_digests(messages: Iterable[Mapping[str, Any]], digest: ChainDigest = CHAIN_START) -> list[ChainDigest]:
    """Returns the digests of a chain after each of these messages."""
    found: list[ChainDigest] = []
    run: AnswerRun | None = None
    for message in messages:
        digest, run = following(digest, run, message)
        found.append(digest)
    return found


def following(
    digest: ChainDigest,
    run: AnswerRun | None,
    message: Mapping[str, Any],
    *,
    status: str = "complete",
    reworded: bool = False,
) -> tuple[ChainDigest, AnswerRun | None]:
    """Returns the digest of a chain after one more message, and the run of answers to which the message belongs.

    Adjacent answers count as one: a prefill and its completion have the digest of the one message that is stored for
    both (guarantee §3.4).
    """
    if len(message) == 3 and status == "complete" and not reworded and (step := _bare_step(message)) is not None:
        return ChainDigest(_hash(digest.path, jsons.canonical(step)), digest.said, plain=False), None
    who = identity(message)
    text = _answer_text(message, who)
    if text is None:
        after = extended(digest, message, status=status, reworded=reworded, who=who)
        return after, run if after == digest else None
    if run is None:
        return extended(digest, message, status=status, reworded=reworded, who=who), AnswerRun(digest, text)
    run = AnswerRun(run.before, run.text + text)
    return extended(run.before, {"role": "assistant", "content": run.text})._replace(plain=False), run


def _bare_step(message: Mapping[str, Any]) -> list[Any] | None:
    """Returns the `identity` of a bare tool result, or of bare calls without text, by a shorter path; None for any
    other message."""
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        call = message.get("tool_call_id")
        return ["tool", content.strip(), {"tool_call_id": call}] if type(content) is str and call else None
    calls = message.get("tool_calls")
    if role != "assistant" or content or not calls or "content" not in message:
        return None
    return ["assistant", "", *map(_call, calls), {}]


def is_continued(messages: Sequence[Mapping[str, Any]], index: int) -> bool:
    """Returns whether the message at `index` is an answer that the next message continues."""
    pair = messages[index : index + 2]
    return len(pair) == 2 and all(_answer_text(each, identity(each)) is not None for each in pair)


def plain_chain_digests(
    roles: Sequence[str], texts: Sequence[str], digest: ChainDigest = CHAIN_START
) -> list[ChainDigest]:
    """Returns the `chain_digests` of plain messages, by a faster path."""
    sha = hashlib.sha256
    path, plain = digest.path, digest.plain
    found: list[ChainDigest] = []
    adjacent = any(one == other == "assistant" for one, other in pairwise(roles))
    if adjacent or digest.said != path or not set(roles) <= SAYING_ROLES.keys():
        return chain_digests(({"role": role, "content": text} for role, text in zip(roles, texts, strict=True)), digest)
    try:
        for role, text in zip(roles, texts, strict=True):
            words = text.strip()
            plain = plain and len(words) == len(text)
            path = sha(path + SAYING_ROLES[role] + words.encode()).digest()[:SIZE]
            found.append(ChainDigest(path, path, plain))
    except UnicodeEncodeError:  # half of a surrogate pair
        return chain_digests(({"role": role, "content": text} for role, text in zip(roles, texts, strict=True)), digest)
    return found


def is_bare(message: Mapping[str, Any]) -> bool:
    """Returns whether a message is a role and a text without outer white space, and nothing else."""
    words = message.get("content")
    return type(words) is str and len(message) == 2 and "role" in message and words == words.strip()


def call_ids(message: Mapping[str, Any]) -> list[str]:
    return [str(call.get("id")) for call in message.get("tool_calls") or ()]


@record
class ChainKeys:
    """Makes the keyed digests of chains: without the secret nobody can test a guess of their text. Chains are
    recognised only for the same tenant and the same `people`."""

    secret: bytes
    tenant: str
    people: Sequence[str] = ()

    def key(self, said: bytes, calls: Sequence[str] = (), whole: bytes = b"") -> ChainKey:
        """Makes the key of a chain from `said`, the digest of what was said in it.
        `calls`: the ids of the tool calls that its last message makes; `whole`: the result of `whole` for it."""
        keyed = self._keyed(b"calls", jsons.canonical(sorted(calls))) if calls else b""
        return ChainKey(self._keyed(b"chain", said), keyed, whole)

    def whole(self, path: bytes, attached: Sequence[str] = ()) -> bytes:
        """Makes the keyed digest of all messages of a chain, and of its attachments regardless of their order."""
        keyed = self._keyed(b"path", path)
        return keyed + self._keyed(b"attached", jsons.canonical(sorted(attached))) if attached else keyed

    def _keyed(self, kind: bytes, value: bytes) -> bytes:
        who = jsons.canonical([self.tenant, list(self.people)])
        return hmac.digest(self.secret, b"%b\0%b\0%b" % (kind, who, value), "sha256")[:SIZE]


def joined(messages: Sequence[Mapping[str, Any]], between: str = "") -> dict[str, Any]:
    """Joins answers that continue each other into the one that is stored, with `between` between their texts."""
    return {"role": "assistant", "content": between.join(content_text(each.get("content")) or "" for each in messages)}


def in_one_text(messages: Sequence[Mapping[str, Any]], between: str) -> Sequence[Mapping[str, Any]]:
    """Joins the texts of each answer of several texts or several messages by `between`, as clients that know only one
    text send it again; returns the same messages if there is no such answer."""
    is_answer = [each.get("role") == "assistant" for each in messages]
    in_parts = (isinstance(each.get("content"), list) for each in compress(messages, is_answer))
    if not any(map(and_, is_answer, is_answer[1:])) and not any(in_parts):
        return messages
    found: list[Mapping[str, Any]] = []
    run: list[Mapping[str, Any]] = []
    texts: list[str] = []
    has_several = False
    for message in (*messages, None):
        if message is not None and message.get("role") == "assistant":
            content = message.get("content")
            if _answer_text(message, identity(message)) is not None:
                run.append(message)
                parts = [content] if isinstance(content, str) else [part.get("text") for part in content or ()]
                texts += [text for text in parts if isinstance(text, str) and text]
                continue
        if len(texts) > 1:
            run, has_several = [{"role": "assistant", "content": between.join(texts)}], True
        found += run if message is None else [*run, message]
        run, texts = [], []
    return found if has_several else messages


def _answer_text(message: Mapping[str, Any], who: list[Any]) -> str | None:
    """Returns the text of a final answer that is text only, else None; `who` is the message's identity."""
    if who[0] != "assistant":
        return None
    return content_text(message.get("content")) if len(who) == 3 and not who[2] else None


def _plain_words(who: list[Any]) -> bytes | None:
    """Encodes role and text as one byte string; None if there is more to the message."""
    if len(who) != 3 or who[2] or type(who[1]) is not str or who[0] not in SAYING_ROLES:
        return None
    try:
        return SAYING_ROLES[who[0]] + who[1].encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which is not stored as it is
        return None


def _said(who: list[Any]) -> bytes:
    """Encodes a message without its tool calls."""
    words = _plain_words([who[0], who[1], who[-1]])
    return words if words is not None else jsons.canonical([who[0], who[1], who[-1]])


def _hash(before: bytes, more: bytes) -> bytes:
    return hashlib.sha256(before + more).digest()[:SIZE]
