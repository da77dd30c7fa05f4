"""Which adapter calls a deployment (adapter of `ports.Upstream`)."""

from typing import Any

from gateway.models.exchange import Deployment, JsonAnswer, StreamOpener
from gateway.ports import Upstream


class ProtocolUpstream:
    """OpenAI's protocol goes one way, everything else through litellm."""

    def __init__(self, openai: Upstream, litellm: Upstream) -> None:
        self._adapters: dict[str, Upstream] = {"openai": openai, "litellm": litellm}

    async def complete(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> JsonAnswer:
        """See `ports.Upstream`."""
        return await self._adapters[deployment.protocol].complete(deployment, body, headers)

    def stream(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> StreamOpener:
        """See `ports.Upstream`."""
        return self._adapters[deployment.protocol].stream(deployment, body, headers)
