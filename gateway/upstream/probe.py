"""What `gateway check` asks of an upstream."""

import httpx

from gateway.errors import GatewayError
from gateway.models.exchange import Deployment
from gateway.upstream.faults import translated


async def reach(client: httpx.AsyncClient, deployment: Deployment) -> str | None:
    """None if `GET /models` answers and the key, where there is one, is not refused; else what is wrong."""
    headers = {"authorization": f"Bearer {deployment.api_key}"} if deployment.api_key else {}
    try:
        with translated(begun=False):
            timeout = httpx.Timeout(10.0, connect=deployment.connect_timeout)
            response = await client.get(f"{deployment.api_base}/models", headers=headers, timeout=timeout)
    except GatewayError as error:
        return error.message
    if response.status_code in (401, 403) and deployment.api_key:
        return f"the key was refused (status {response.status_code})"
    if response.status_code >= 500:
        return f"answered with status {response.status_code}"
    return None
