"""`/v1/gateway/keys`: for administrators; `…/self` for holders of a key (guarantee §12.1)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from functools import partial
from typing import Any

from starlette.routing import Route

from gateway.api.auth import KeyAuthenticator, RuntimeKeys
from gateway.api.keys.serializer import KeyObject, KnownKey, NewKeyObject, as_keys, changed_fields, grace_of, new_fields
from gateway.api.pagination import Query, check_named, limit_of, listed, parameters
from gateway.api.server.asgi import Receive, Scope, Send, json_body, read_body, send_json
from gateway.api.server.middleware import note_caller
from gateway.api.shapes import ListObject
from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.types.chat import RequestCaller
from gateway.core.types.keys import KeyPolicy, StoredKey
from gateway.storage import stored_keys

PATH = "/v1/gateway/keys"
MAX_BYTES = 2**16
NO_STORE = {"cache-control": "no-store"}
LISTED_BY = ("limit", "after", "tenant", "owner", "include_revoked")
KEY_QUERY_FLAGS = {"true": True, "1": True, "false": False, "0": False}
RecordOf = Callable[[RequestCaller, Scope], stored_keys.Record | None]
"""Returns who is notified of this caller's changes, in the transaction of the change."""


@record
class KeyRequest:
    """An administrator's request, by the API or the web UI. `record`: is notified of a change, in its transaction."""

    caller: RequestCaller
    record: stored_keys.Record | None
    body: dict[str, Any] = field(default_factory=dict)
    query: Query = field(default_factory=dict)
    key_id: str = ""
    seen: datetime | None = None
    """`updated_at` of the key that the change is based on; None: the change applies to any version."""
    is_brief: bool = False
    """For a list: without figures that are expensive to sum, since the web UI does not show them."""


Answer = Callable[[KeyRequest], Awaitable[Mapping[str, Any]]]


class KeyEndpoint:
    """A path for administrators, with the function that answers each of its methods."""

    def __init__(self, auth: KeyAuthenticator, record_of: RecordOf | None, answers: Mapping[str, Answer]) -> None:
        self._auth = auth
        self._record_of = record_of
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._auth.admin(scope)
        note_caller(scope["gateway"], caller)
        body = json_body(await read_body(scope, receive, MAX_BYTES)) if scope["method"] == "POST" else {}
        query = parameters(scope["query_string"].decode("latin-1"))
        record = self._record_of(caller, scope) if self._record_of is not None else None
        asked = KeyRequest(caller, record, body, query, scope["path_params"].get("key_id", ""))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        await send_json(send, 200, await self._answers[method](asked), NO_STORE)


class KeyEndpoints:
    """What the endpoints answer. After a change this process reads the storage again at once, others within seconds."""

    def __init__(self, keys: RuntimeKeys, auth: KeyAuthenticator) -> None:
        self._keys = keys
        self._store = keys.store
        self._auth = auth

    async def create(self, asked: KeyRequest) -> NewKeyObject:
        """Creates a key (`POST /v1/gateway/keys`)."""
        fields = new_fields(asked.body, asked.caller.tenant)
        made, key = await self._store.create(fields, asked.caller.key_id, asked.record, asked.key_id)
        self._keys.changed()
        return {**await self._told(made.policy, made), "key": key}

    async def list(self, asked: KeyRequest) -> ListObject[KeyObject]:
        """Lists keys made at runtime, the latest first, then those of the configuration (`GET /v1/gateway/keys`)."""
        query = _query(asked.query)
        configured = [
            policy
            for policy in (await self._auth.configured()).values()
            if query.tenant in (None, policy.tenant) and query.owner in (None, policy.owner)
        ]
        ids = [policy.key_id for policy in configured]
        found: list[KnownKey] = []
        if query.after in ids:
            configured = configured[ids.index(query.after) + 1 :]
        else:
            page = await self._store.page(query)
            if page is None:
                raise errors.invalid("after", "must be the id of a key")
            found = [(key.policy, key) for key in page.found]
            if page.has_more:
                return await self._listed(asked, found, has_more=True)
        room = query.limit - len(found)
        found += [(policy, None) for policy in configured[:room]]
        return await self._listed(asked, found, has_more=len(configured) > room)

    async def read(self, asked: KeyRequest) -> KeyObject:
        """Returns a key (`GET /v1/gateway/keys/{key_id}`)."""
        configured = (await self._auth.configured()).get(asked.key_id)
        if configured is not None:
            return await self._told(configured, None)
        return await self._shown(await self._store.get(asked.key_id))

    async def update(self, asked: KeyRequest) -> KeyObject:
        """Changes fields of a key (`POST /v1/gateway/keys/{key_id}`)."""
        await self._check_made_here(asked.key_id)
        change = partial(changed_fields, body=asked.body)
        found = await self._store.update(asked.key_id, change, asked.record, asked.seen)
        self._keys.changed()
        if found is not None and found.revoked_at is not None:
            raise _revoked(asked.key_id)
        return await self._shown(found)

    async def rotate(self, asked: KeyRequest) -> NewKeyObject:
        """Replaces the secret of a key (`POST /v1/gateway/keys/{key_id}/rotate`)."""
        grace = grace_of(asked.body)
        await self._check_made_here(asked.key_id)
        done = await self._store.rotate(asked.key_id, grace, asked.record, asked.seen)
        self._keys.changed()
        shown = await self._shown(done[0] if done is not None else None)
        if done is None or done[1] is None:
            raise _revoked(asked.key_id)
        return {**shown, "key": done[1]}

    async def revoke(self, asked: KeyRequest) -> KeyObject:
        """Revokes a key (`DELETE /v1/gateway/keys/{key_id}`); idempotent."""
        await self._check_made_here(asked.key_id)
        found = await self._store.revoke(asked.key_id, asked.record)
        self._keys.changed()
        return await self._shown(found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers `GET /v1/gateway/keys/self`."""
        caller = await self._auth.caller(scope)
        note_caller(scope["gateway"], caller)
        if caller.key is None:
            raise errors.KeyNotFound("This request has no key of the gateway's own.")
        if caller.key.key_id is None:
            raise errors.StorageUnavailable("The storage cannot be reached.")
        policy: KeyPolicy = caller.key
        is_stored = not (policy.is_signed or policy.key_id in await self._auth.configured())
        stored = await self._store.get(caller.key.key_id) if is_stored else None
        own = await self._told(stored.policy if stored is not None else policy, stored)
        await send_json(send, 200, own, NO_STORE)

    async def _check_made_here(self, key_id: str) -> None:
        """Raises KeyNotChangeable: the configuration defines this key."""
        if key_id in await self._auth.configured():
            text = f"The key {key_id} stands in auth.keys of the configuration, and is changed there alone."
            raise errors.KeyNotChangeable(text, param="key_id")

    async def _listed(self, asked: KeyRequest, keys: Sequence[KnownKey], *, has_more: bool) -> ListObject[KeyObject]:
        told = await as_keys(self._store, keys, self._keys.now(), is_brief=asked.is_brief)
        return listed(told, has_more=has_more)

    async def _told(self, policy: KeyPolicy, stored: StoredKey | None) -> KeyObject:
        return (await as_keys(self._store, [(policy, stored)], self._keys.now()))[0]

    async def _shown(self, key: StoredKey | None) -> KeyObject:
        """Raises KeyNotFound: there is no such key."""
        if key is None:
            raise errors.KeyNotFound("No such key.", param="key_id")
        return await self._told(key.policy, key)


def _revoked(key_id: str) -> errors.KeyNotChangeable:
    return errors.KeyNotChangeable(f"The key {key_id} was revoked, and stays so.", param="key_id")


def _query(query: Query) -> stored_keys.KeyQuery:
    for name in query:
        if name not in LISTED_BY:
            raise errors.invalid(name, f"is not known; known are {', '.join(LISTED_BY)}")
    check_named(query, "after", "tenant", "owner")
    flag = query.get("include_revoked", "false")
    if flag not in KEY_QUERY_FLAGS:
        raise errors.invalid("include_revoked", "must be true or false")
    return stored_keys.KeyQuery(
        query.get("tenant"), query.get("owner"), KEY_QUERY_FLAGS[flag], query.get("after"), limit_of(query)
    )


def key_routes(answers: KeyEndpoints, auth: KeyAuthenticator, record_of: RecordOf | None = None) -> list[Route]:
    """Lists the routes of the API of keys. `record_of`: returns who is notified of a caller's changes."""

    def endpoint(**methods: Answer) -> KeyEndpoint:
        return KeyEndpoint(auth, record_of, methods)

    every, one = endpoint(GET=answers.list, POST=answers.create), f"{PATH}/{{key_id}}"
    each = endpoint(GET=answers.read, POST=answers.update, DELETE=answers.revoke)
    return [
        *(Route(PATH, every, methods=[method]) for method in ("GET", "POST")),
        Route(f"{PATH}/self", answers, methods=["GET"]),
        *(Route(one, each, methods=[method]) for method in ("GET", "POST", "DELETE")),
        Route(f"{one}/rotate", endpoint(POST=answers.rotate), methods=["POST"]),
    ]
