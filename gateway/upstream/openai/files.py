"""Files that a client stored with the default upstream (adapter of `ports.FileStore`)."""

import re
from urllib.parse import quote

import httpx

from gateway.base import jsons
from gateway.errors import NotFound, UpstreamInvalidResponse
from gateway.models.exchange import Caller, Deployment, StoredFile
from gateway.upstream.http.client import get
from gateway.upstream.openai.faults import refusal
from gateway.upstream.routing.router import ConfiguredRouter

FILE_ID = re.compile(r"[\w-]{1,128}\Z")
SECONDS = 60.0


class UpstreamFiles:
    """`/v1/files` with the client's own key; files of the operator's account are nobody's to read (guarantee §1)."""

    def __init__(self, client: httpx.AsyncClient, router: ConfiguredRouter) -> None:
        self._client = client
        self._router = router

    async def fetch(self, file_id: str, caller: Caller) -> StoredFile:
        """See `ports.FileStore`."""
        deployment = self._router.default("", caller)
        if deployment.operator_key or not FILE_ID.match(file_id):
            raise NotFound("There is no such file for this key.")
        try:
            described = jsons.loads((await self._get(f"files/{quote(file_id)}", deployment)).content)
        except jsons.JSONDecodeError as error:
            raise UpstreamInvalidResponse("The upstream's description of the file is not JSON.") from error
        content = await self._get(f"files/{quote(file_id)}/content", deployment)
        name = described.get("filename") if isinstance(described, dict) else None
        return StoredFile(str(name or file_id), content.headers.get("content-type", ""), content.content)

    async def _get(self, path: str, deployment: Deployment) -> httpx.Response:
        response = await get(self._client, deployment, path, SECONDS)
        if response.status_code == 404:
            raise NotFound("There is no such file for this key.")
        if 300 <= response.status_code < 400:
            raise UpstreamInvalidResponse(f"The upstream answered with status {response.status_code}.")
        if response.status_code >= 400:
            raise refusal(response.status_code, response.content, response.headers, deployment)
        return response
