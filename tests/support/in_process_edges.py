"""The gateway in this process, asked by any of its three APIs: what their endpoints do with a body, without HTTP."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gateway.api.auth import KeyAuthenticator
from gateway.api.chat.endpoint import ChatAdapter
from gateway.api.completion_handler import ApiAdapter
from gateway.api.messages.endpoint import MessagesAdapter
from gateway.api.request.validation import RequestArrival
from gateway.api.responses.compact import CompactionEndpoint
from gateway.api.responses.endpoint import ResponsesAdapter
from gateway.core.clock import SystemClock
from gateway.core.ids import new_id
from gateway.core.types.chat import ChatRequest, ModelDeployment, NativeRequest, RequestCaller
from tests.support.edges import Edge, Heard, Json, heard, said_by
from tests.support.in_process import InProcess, OneProvider

OF_NATIVES = frozenset({"reasoning_items", "output_items", "phase", "native_blocks"})
"""What a message may say beside a chat's words to an upstream that speaks the request's own API."""


class AtEdges(InProcess):
    """`ask` sends a chat's request by `edge`: such a request must be as `edges.common`
    makes it. The answer is read as that edge words it, and comes back as a chat's."""

    edge: Edge = "chat"

    @property
    def forwarded(self) -> list[Json]:
        """The messages that went up last, in a chat's words."""
        sent = self.upstream.sent[-1]["messages"]
        return [{name: each for name, each in message.items() if name not in OF_NATIVES} for message in sent]

    async def ask(self, body: Json, tenant: str = "tenant", native: NativeRequest | None = None) -> Json:
        """
        Raises:
            GatewayError: what an HTTP client would get as an error.
        """
        edge = self.edge
        if edge == "chat":
            return await super().ask(body, tenant, native)
        raw = json.dumps(said_by(edge, body)).encode()
        arrival = RequestArrival(new_id("req_"), datetime.now(UTC), time.monotonic(), len(raw))
        adapter = self.adapter(edge)
        request = adapter.read(raw, {}, RequestCaller(tenant), arrival)
        assert request is not None, "nothing that is stored is referred to here"
        with adapter.holding(raw, request):
            answered = await self.answer(request)
        if request.options.dry_run:
            return answered
        return self.told(edge, adapter, answered, request)

    def adapter(self, edge: Edge) -> ApiAdapter:
        """The endpoint's own, for one request."""
        if edge == "chat":
            return ChatAdapter(self.settings, self.resends)
        if edge == "messages":
            return MessagesAdapter(self.settings, self.resends, self.store)
        clock = SystemClock()
        auth = KeyAuthenticator.__new__(KeyAuthenticator)  # whose caller is known already
        compaction = CompactionEndpoint(self.store, auth, self.settings, clock, self.pipeline.check_model)
        return ResponsesAdapter(self.settings, self.resends, compaction)

    def told(self, edge: Edge, adapter: ApiAdapter, answered: Json, request: ChatRequest) -> Json:
        """An answer as its client reads it, in a chat's form, under the id that a chat has."""
        found: Heard = heard(edge, json.loads(adapter.whole(answered, request)))
        assert found.bill == answered["response_metadata"]
        choice: dict[str, Any] = {"index": 0, "message": found.message}
        named = {"conversation": {"id": found.conversation}} if found.conversation else {}
        return {"id": answered["id"], "choices": [choice], "response_metadata": found.bill, **named}


class SpeakingResponses(OneProvider):
    """An upstream that is asked in the words of Responses where the request is."""

    def deployment(self, model: str, caller: RequestCaller) -> ModelDeployment:
        return replace(super().deployment(model, caller), has_responses=True)


class SpeakingMessages(OneProvider):
    """One that is Anthropic's."""

    def deployment(self, model: str, caller: RequestCaller) -> ModelDeployment:
        route = f"anthropic/{model}"
        return replace(super().deployment(model, caller), protocol="anthropic", provider="anthropic", route=route)


class BeforeResponses(AtEdges):
    """A gateway before `SpeakingResponses`."""

    router = SpeakingResponses


class BeforeAnthropic(AtEdges):
    """A gateway before `SpeakingMessages`."""

    router = SpeakingMessages
