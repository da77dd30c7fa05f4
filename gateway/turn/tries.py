"""What a request has tried: deployments, models, and what each try that failed may have cost (guarantee §12.6)."""

from dataclasses import dataclass, field
from typing import Protocol

from gateway.context.report import BuiltContext
from gateway.errors import GatewayError, UpstreamOverflow
from gateway.models.bill import CallCost
from gateway.models.exchange import ChatRequest, Deployment
from gateway.models.routing import Candidates
from gateway.turn.exchange import Exchange
from gateway.turn.settlement import Settlement


class Contexts(Protocol):
    """Makes the context of a request anew."""

    def candidates(self, request: ChatRequest) -> Candidates:
        """Where the request's model is served.

        Raises:
            ModelNotFound, Unauthorized: nowhere, or not for this caller.
        """
        ...

    async def anew(self, exchange: Exchange, request: ChatRequest, candidates: Candidates, at: Deployment) -> Exchange:
        """The exchange for another deployment or model, which `request` names. The old one is not changed.

        Raises:
            GatewayError: that one cannot be asked.
        """
        ...

    def refused(self, exchange: Exchange, overflow: UpstreamOverflow) -> None:
        """Keeps what a refusal tells of the model's window."""
        ...

    async def refit(self, exchange: Exchange, built: BuiltContext, overflow: UpstreamOverflow) -> None:
        """Fits a prompt that was refused once more.

        Raises:
            ContextLengthExceeded: it cannot be.
        """
        ...


@dataclass(slots=True)
class Tries:
    """What one request has tried."""

    models: list[str]
    """Those that were asked, or could not be."""
    at: list[Deployment] = field(default_factory=list)
    """Where each try was made."""
    is_drawn: bool = False
    """The next one draws on the budget of retries."""

    def of(self, deployment: Deployment) -> int:
        """How many were made there."""
        return sum(each is deployment or each == deployment for each in self.at)


class Failure:
    """A try that failed, on its way to the bill."""

    def __init__(self, exchange: Exchange, error: GatewayError, settlement: Settlement) -> None:
        self.exchange = exchange
        self.error = error
        self._settlement = settlement
        self._model = exchange.request.model
        self._cost: CallCost | None = None
        self._is_counted = False

    async def count(self) -> None:
        """Counts what it may have cost; to be done before the exchange goes on."""
        if not self._is_counted and self.error.may_be_charged:
            self._cost = await self._settlement.usage.of_failure(self.exchange)
        self._is_counted = True

    def book(self) -> None:
        """Puts it on the bill, as another call follows; nothing is out until then."""
        self.exchange.is_out = False
        self._settlement.metrics.upstream_failed(self._model, self.error)
        if self._cost is not None:
            self.exchange.failed.append(self._cost)
