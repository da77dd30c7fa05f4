"""A request to the APIs over what is stored: authenticated, read, answered by a function."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from gateway.api.auth import KeyAuthenticator, check_known, is_unnamed
from gateway.api.pagination import included, parameters
from gateway.api.request.validation import CONVERSATION_ID, check_conversation_id
from gateway.api.server.asgi import LARGE_BODY, Receive, Scope, Send, answer_headers, json_body, read_body, send_json
from gateway.api.server.middleware import note_caller
from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.tasks import offload_if
from gateway.core.types import audit_log
from gateway.core.types.chat import RequestCaller

T = TypeVar("T")


@record
class ReceivedBody:
    """A request's body as received, and its caller."""

    caller: RequestCaller
    raw: bytes

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Applies `work` to the body or a part of it and returns the result; for a large body it runs in a thread."""
        return await offload_if(len(self.raw) >= LARGE_BODY, work, *args)

    async def object(self) -> dict[str, Any]:
        """Parses the body as a JSON object. Raises InvalidRequest: it is none."""
        return await self.run(json_body, self.raw)


async def received(
    scope: Scope, receive: Receive, auth: KeyAuthenticator, most: int | None, *, stored: bool = True
) -> ReceivedBody:
    """Authenticates the caller and reads the body; adds the tenant to the log line of the request.
    `most`: bytes that the body may have; None: none is read; `stored`: the request is about stored data, so that it
    cannot be answered for an unknown tenant.
    Raises Unauthorized, Forbidden, RequestTooLarge: see their classes; StorageUnavailable: the storage could not
    identify the key."""
    caller = await auth.caller(scope)
    raw = b"" if most is None else await read_body(scope, receive, most)
    if stored:
        check_known(caller.tenant)
    note_caller(scope["gateway"], caller)
    return ReceivedBody(caller, raw)


@record
class ApiCall:
    """A request to this API, read and authenticated; `path` and `query` are its parameters."""

    received: ReceivedBody
    request_id: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    included: tuple[str, ...] = ()
    """What the query's `include` names."""

    @property
    def tenant(self) -> str:
        """The caller's tenant."""
        return self.received.caller.tenant

    @property
    def is_unnamed(self) -> bool:
        """Whether the caller has no key, so that only the ids of conversations keep it apart from others."""
        return is_unnamed(self.received.caller)

    @property
    def actor(self) -> audit_log.AuditActor:
        """The caller, as the trail records it."""
        return audit_log.actor_of(self.received.caller)

    @property
    def retention_days(self) -> float | None:
        """How long the texts sent with this key are stored; None: the key sets no time."""
        key = self.received.caller.key
        return key.retention_days if key is not None else None

    @property
    def conversation_id(self) -> str:
        """Raises ConversationNotFound: no conversation can have the id of the path."""
        return check_conversation_id(self.path["conversation_id"])

    async def body(self, *known: str) -> dict[str, Any]:
        """Parses the body, which may have the fields `known` and no others.
        Raises InvalidRequest: it is no JSON object, or has another field."""
        body = await self.received.object()
        for name in body:
            if name not in known:
                raise errors.invalid(name, f"is not known; known are {', '.join(known)}")
        return body


Answer = Callable[[ApiCall], Awaitable[Mapping[str, Any]]]


class MethodEndpoint:
    """A path, with the function that answers each of its methods."""

    def __init__(self, auth: KeyAuthenticator, max_body_bytes: int, answers: Mapping[str, Answer]) -> None:
        self._auth = auth
        self._max_body_bytes = max_body_bytes
        self.answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = self._max_body_bytes if scope["method"] == "POST" else None
        got = await received(scope, receive, self._auth, most)
        log_facts = scope["gateway"]
        text = scope["query_string"].decode("latin-1")
        query, named = parameters(text), included(text)
        call = ApiCall(got, log_facts["request_id"], scope["path_params"], query, named)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        answer = await self.answers[method](call)
        asked = call.query.get("conversation", "")
        conversation_id = conversation_of(answer) or call.path.get("conversation_id")
        if conversation_id is None and CONVERSATION_ID.match(asked):
            conversation_id = asked
        log_facts["conversation_id"] = conversation_id
        await send_json(send, 200, answer, answer_headers(conversation_id))


def conversation_of(answer: Mapping[str, Any]) -> str | None:
    """Returns the id of the conversation that an answer is or belongs to, by itself; None where it does not tell. The
    classic API's answers have no `object`, and the client's own name beside the id."""
    is_classic = "object" not in answer and {"conversation_id", "id"} <= answer.keys()
    if is_classic or answer.get("object") == "conversation":
        return str(answer["id"])
    named = answer.get("conversation")
    return str(named["id"]) if isinstance(named, dict) else None
