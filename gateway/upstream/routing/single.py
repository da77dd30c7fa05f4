"""A model that is served in one place: candidates without a choice."""

from gateway.errors import GatewayError
from gateway.models.exchange import ChatRequest, Deployment
from gateway.models.routing import Attempt, Candidates, hint_of
from gateway.upstream.routing.router import ConfiguredRouter


class Unwatched:
    """An attempt that nobody looks at."""

    __slots__ = ()

    def answered(self) -> None:
        """Nothing."""

    def ended(self, error: BaseException | None = None, tokens: int = 0) -> None:
        """Nothing."""


UNWATCHED = Unwatched()


class Single:
    """The one deployment of a model."""

    __slots__ = ("first",)
    several = False
    exhausted = False

    def __init__(self, first: Deployment) -> None:
        self.first = first

    def next(self, after: Deployment, error: GatewayError) -> Deployment | None:
        """None."""
        return None

    def rests(self, deployment: Deployment) -> bool:
        """It never does."""
        return False

    def began(self, deployment: Deployment, tokens: int = 0) -> Attempt:
        """Nobody looks at it."""
        return UNWATCHED

    def remember(self, completion_id: str, deployment: Deployment) -> None:
        """There is no choice."""


def candidates_of(router: ConfiguredRouter, request: ChatRequest) -> Candidates:
    """Where a request's model may be asked.

    Raises:
        ModelNotFound, Unauthorized: nowhere, or not for this caller.
    """
    find = getattr(router, "candidates", None)
    if find is None:
        return Single(router.deployment(request.model, request.caller))
    found: Candidates = find(request.model, request.caller, hint_of(request))
    return found
