"""Documents and answers of identity providers, over the gateway's own HTTP client."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlsplit

import httpx

from gateway.core import errors

IDENTITY_SECONDS = 5.0
"""Time within which a provider must answer: a person or a request waits for it."""
MAX_DOCUMENT_BYTES = 2**20
SERVER_FAILED = 500


class HttpIdentityDocuments:
    """Asks over HTTP; redirects are not followed."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, url: str, bearer: str | None = None) -> dict[str, Any]:
        """Fetches a JSON object that is published at `url`, or that its server returns for the token `bearer`.
        Raises IdentityProviderUnavailable: there is no such object; Forbidden: nothing is told for that token."""
        headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        status, found = await self._ask("GET", url, headers)
        if bearer is not None and status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise errors.Forbidden(f"The identity provider does not say who logged in: it answers with {status}.")
        if bearer is not None and status == httpx.codes.OK and not found:
            raise errors.Forbidden("The identity provider does not say who logged in: its answer holds no claims.")
        if status != httpx.codes.OK or not found:
            raise _away(url, f"answers with {status}" if status != httpx.codes.OK else "publishes no JSON object there")
        return found

    async def post(
        self, url: str, form: Mapping[str, str], basic: tuple[str, str] | None
    ) -> tuple[int, dict[str, Any]]:
        """Sends a form, with a name and password where they are given. Returns the status and the JSON object of the
        answer, empty if it is none.
        Raises IdentityProviderUnavailable: there is no answer, or the provider failed."""
        # RFC 6749, 2.3.1: both are encoded as in a form before they are a name and a password.
        auth = httpx.BasicAuth(*map(quote_plus, basic)) if basic is not None else None
        return await self._ask("POST", url, {}, data=dict(form), auth=auth)

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], **more: Any) -> tuple[int, dict[str, Any]]:
        headers = {"accept": "application/json", "accept-encoding": "identity", **headers}
        body = bytearray()
        try:
            asked = self._client.stream(method, url, headers=headers, timeout=IDENTITY_SECONDS, **more)
            async with asyncio.timeout(IDENTITY_SECONDS), asked as answer:
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > MAX_DOCUMENT_BYTES:
                        raise _away(url, "answers with too much")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as fault:
            raise _away(url, "cannot be reached") from fault
        if answer.status_code >= SERVER_FAILED:
            raise _away(url, f"answers with {answer.status_code}")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        return answer.status_code, found if isinstance(found, dict) else {}


def _away(url: str, what: str) -> errors.IdentityProviderUnavailable:
    return errors.IdentityProviderUnavailable(
        f"The identity provider ({urlsplit(url).hostname}) {what}. Keys still work."
    )
