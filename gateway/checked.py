"""What checks find, and upstreams that are asked no more than once for it."""

from dataclasses import dataclass

import httpx

from gateway.models.exchange import Deployment
from gateway.upstream.probe import Reached, reach


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report; a failed optional check is a warning."""

    name: str
    ok: bool
    text: str
    optional: bool = False


class Reaching:
    """Asks each address with each key once."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._known: dict[tuple[str, str | None], Reached] = {}

    def knows(self, deployment: Deployment) -> bool:
        """Whether it has been asked."""
        return (deployment.api_base, deployment.api_key) in self._known

    async def reached(self, deployment: Deployment) -> Reached:
        """What it says, or said."""
        key = deployment.api_base, deployment.api_key
        if key not in self._known:
            self._known[key] = await reach(self._client, deployment)
        return self._known[key]
