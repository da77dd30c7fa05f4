"""Divides conversations into those that are economised and a held-out share, so that savings are measured and not only
computed (guarantee §13.14)."""

import hashlib
from dataclasses import replace

from gateway.core.bounded_cache import BoundedCache
from gateway.core.types import bill, chain, conversation
from gateway.pipeline.stages import PreparedRequest, RequestFeature
from gateway.storage import ConversationStore

BITS = 64
MAX_SESSIONS = 4096
"""Conversations whose session's name, if any, this process remembers."""


class Holdout:
    """Assigns conversations to either side.
    `share`: of conversations that are held out, 0 to 1; with 0 nothing is divided."""

    def __init__(self, share: float, store: ConversationStore) -> None:
        self._share = share
        self._store = store
        self._sessions: BoundedCache[str, str] = BoundedCache(MAX_SESSIONS)

    def build(self) -> RequestFeature:
        return RequestFeature(on_history=self._divided) if self._share else RequestFeature()

    async def _divided(self, prepared: PreparedRequest) -> PreparedRequest:
        """Adds the side to a request. Held-out requests are observed: no pass is made for economy, and no tool is
        offered that the client has not asked for."""
        options = prepared.request.options
        if options.economy != bill.AUTO or options.mode == "off":
            return prepared
        options = replace(options, held_out=is_held_out(await self._named(prepared), self._share))
        if options.held_out:
            options = replace(options, economy=bill.OBSERVE, recall=options.recall is True)
        return replace(prepared, request=replace(prepared.request, options=options))

    async def _named(self, prepared: PreparedRequest) -> bytes:
        """Returns the name that decides the side of a conversation: its session's name, whatever requests name it by
        and whether they are stored; else its id; for an unstored one, the digest of its beginning."""
        history, asked = prepared.history, prepared.asked
        named, session = asked.conversation.conversation_id, asked.conversation.session
        if named is None and history is not None and not history.unrecognised:
            named = history.conversation_id
        if session is None and named is not None and not (history is not None and history.created):
            session = await self._session_of(named)
        tenant = asked.caller.tenant.encode() + b"\0"
        if session is not None:
            return tenant + b"session\0" + session.encode()
        if named is not None:
            return named.encode()
        said = [message for message in asked.messages if message["role"] not in conversation.INSTRUCTION_ROLES][:1]
        return tenant + b"".join(digest.path for digest in chain.chain_digests(said))

    async def _session_of(self, conversation_id: str) -> str | None:
        """Looks up a conversation's session name, which is set when it begins."""
        known = self._sessions.get(conversation_id)
        if known is None:
            known = self._sessions.put(conversation_id, await self._store.session_of(conversation_id) or "")
        return known or None


def is_held_out(name: bytes, share: float) -> bool:
    """Returns whether the conversation of this name is held out: the same on all replicas, at all times."""
    digest = hashlib.blake2b(name, digest_size=BITS // 8, person=b"holdout").digest()
    return int.from_bytes(digest) < share * float(2**BITS)
