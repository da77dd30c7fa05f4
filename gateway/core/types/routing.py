"""Which deployments of a model a request may be asked at, and what becomes of each try (guarantee §12.5, §12.8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.core.errors import GatewayError
from gateway.core.ids import completion_of, content_digest
from gateway.core.types.chain import content_text
from gateway.core.types.chat import ChatRequest, ModelDeployment

CACHE_KEY = "prompt_cache_key"
"""The field by which clients of OpenAI say which requests have a prompt in common. Some give each conversation its
own, others one to all that they send, which would put all of it at one deployment: it counts beside the words alone."""


@dataclass(frozen=True, slots=True)
class RouteHint:
    """What a request tells of the conversation that it belongs to, so that it is asked where the one before was.

    `name` is what the client calls the conversation, an id or a session; `behind` the completion that it goes on from;
    `messages` are those of the request.
    """

    tenant: str
    name: str | None = None
    behind: str | None = None
    messages: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    cache_key: str = ""

    def key(self) -> str | None:
        """What is the same in all requests of a conversation: its name, else its first user message and cache key. None
        where nothing tells."""
        if self.name is not None:
            return content_digest(f"{self.tenant}\n{self.name}")
        if self.behind is not None:
            return None
        first = next((message for message in self.messages if message.get("role") == "user"), None)
        if first is None:
            return None
        content = first.get("content")
        text = content_text(content)
        said = repr(content) if text is None else text.strip()
        return content_digest(f"{self.tenant}\n{self.cache_key}\n{said}")


NO_HINT = RouteHint("")


def hint_of(request: ChatRequest) -> RouteHint:
    """What a request tells of its conversation. It costs nothing: the digest is made where several deployments are."""
    ref, named = request.conversation, request.forward.get(CACHE_KEY)
    behind = None if ref.behind is None else completion_of(ref.behind)
    cache_key = named if isinstance(named, str) else ""
    return RouteHint(request.caller.tenant, ref.conversation_id or ref.session, behind, request.messages, cache_key)


class RoutingAttempt(Protocol):
    """One try at a deployment, from the moment in which it is asked. Each is ended once; what comes after is ignored.

    A deployment that is not watched (the default upstream, a client's own key) has attempts that do nothing.
    """

    def answered(self) -> None:
        """The first byte of an answer that is no error has come: the deployment is well."""
        ...

    def ended(self, error: BaseException | None = None, tokens: int = 0) -> None:
        """It is over: with an error, or at the end of the answer. A client that left (`CancelledError`) tells nothing
        of the deployment. Whether an error counts against it is decided there: faults of a request do not.

        Args:
            tokens: those that the answer took beside the prompt, for a deployment with a limit of tokens.
        """
        ...


class RoutingCandidates(Protocol):
    """The deployments that one request may be asked at, best first."""

    @property
    def first(self) -> ModelDeployment:
        """Where it is asked first: facts, budget and context are made for this one."""
        ...

    @property
    def several(self) -> bool:
        """Whether there are others."""
        ...

    @property
    def exhausted(self) -> bool:
        """Whether `first` is asked for want of a better one: all of them rest or are at their limits. A model that may
        answer instead may be asked without asking here."""
        ...

    def next(self, after: ModelDeployment, error: GatewayError) -> ModelDeployment | None:
        """Another that was not asked yet, as things stand now; None if there is none. A resting one is named if
        nothing else is left: whether to ask it is the caller's to say (`rests`).

        Args:
            after: the one that was asked last.
            error: how it failed.
        """
        ...

    def rests(self, deployment: ModelDeployment) -> bool:
        """Whether that one is not to be asked now: it failed too often, or is at its limits."""
        ...

    def began(self, deployment: ModelDeployment, tokens: int = 0) -> RoutingAttempt:
        """A try begins there.

        Args:
            tokens: what the prompt was counted at, for a deployment with a limit of tokens.
        """
        ...

    def remember(self, completion_id: str, deployment: ModelDeployment) -> None:
        """That completion was made there: a request that goes on behind it is asked there as well."""
        ...
