"""`GET /v1/models` (adapter of `ports.ModelDirectory`)."""

from typing import Any

import httpx

from gateway import jsons
from gateway.errors import UpstreamInvalidResponse
from gateway.models.exchange import Caller
from gateway.upstream.client import get
from gateway.upstream.faults import refusal
from gateway.upstream.routing import ConfiguredRouter

SECONDS = 30.0


class UpstreamModels:
    """Configured names; without any, the default upstream's own list."""

    def __init__(self, client: httpx.AsyncClient, router: ConfiguredRouter) -> None:
        self._client = client
        self._router = router

    async def models(self, caller: Caller) -> list[dict[str, Any]]:
        """See `ports.ModelDirectory`."""
        if self._router.names:
            return [{"id": n, "object": "model", "created": 0, "owned_by": "gateway"} for n in self._router.names]
        deployment = self._router.default("", caller)
        response = await get(self._client, deployment, "models", SECONDS)
        if response.status_code >= 400:
            raise refusal(response.status_code, response.content, response.headers, deployment)
        try:
            return [model for model in jsons.loads(response.content)["data"] if isinstance(model, dict)]
        except (jsons.JSONDecodeError, KeyError, TypeError) as error:
            raise UpstreamInvalidResponse("The upstream's list of models is not one.") from error
