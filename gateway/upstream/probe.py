"""What `gateway check` asks of an upstream."""

import httpx

from gateway.errors import GatewayError
from gateway.models.exchange import Deployment
from gateway.upstream.client import get

SECONDS = 10.0


async def reach(client: httpx.AsyncClient, deployment: Deployment) -> str | None:
    """None if `GET /models` answers and the key, where there is one, is not refused; else what is wrong."""
    try:
        response = await get(client, deployment, "models", SECONDS)
    except GatewayError as error:
        return error.message
    if response.status_code in (401, 403) and deployment.api_key:
        return f"the key was refused (status {response.status_code})"
    if response.status_code >= 500:
        return f"answered with status {response.status_code}"
    return None
