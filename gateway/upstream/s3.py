"""Contents of files in a bucket of S3 or a compatible store (adapter of `core.ports.ContentStore`).

botocore, of the extra `files`, only signs; the gateway's own HTTP client sends. It is loaded if a bucket is configured.
"""

import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode
from xml.sax.saxutils import escape

import httpx

from gateway.core import errors
from gateway.core.config import setting_sections
from gateway.upstream.http_client import NO_ADDRESS, origin_of

PART = 8 * 2**20
"""Bytes of one part of a large object; S3 takes up to 10,000 parts, of 5 MiB at least."""
S3_SECONDS = 60.0
GONE, PARTIAL = 404, 206
_MEANING = {403: ": the keys may not do that", GONE: ": no such bucket or object"}


class S3Contents:
    """Objects of one bucket, below one prefix."""

    def __init__(self, settings: setting_sections.S3Settings, client: httpx.AsyncClient) -> None:
        """Raises ValueError: the package `botocore` is not installed, or there are no keys."""
        self._signer = _signer(settings)
        base = (settings.endpoint or f"https://s3.{settings.region}.amazonaws.com").rstrip("/")
        self._bucket = f"{base}/{quote(settings.bucket)}"
        self._prefix = settings.prefix
        self._client = client

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Stores the pieces (`core.ports.ContentStore`): in one request if they fit, else as a multipart upload."""
        buffer, upload, tags = bytearray(), "", list[str]()
        try:
            async for piece in pieces:
                buffer += piece
                while len(buffer) >= PART:
                    upload = upload or await self._begin(name)
                    tags.append(await self._part(name, upload, len(tags) + 1, bytes(buffer[:PART])))
                    del buffer[:PART]
            if not upload:
                await self._ask("PUT", name, body=bytes(buffer))
                return
            if buffer:
                tags.append(await self._part(name, upload, len(tags) + 1, bytes(buffer)))
            await self._complete(name, upload, tags)
        except BaseException:
            if upload:
                with suppress(errors.StorageUnavailable):  # what ended the upload is what the caller must hear of
                    await self._ask("DELETE", name, {"uploadId": upload})
            raise

    async def open(self, name: str, start: int = 0) -> AsyncIterator[bytes]:
        request = self._request("GET", name, {}, b"")
        if start:
            request.headers["range"] = f"bytes={start}-"
        try:
            response = await self._client.send(request, stream=True)
            try:
                if response.status_code not in (200, PARTIAL):
                    raise _refused(response)
                left = start if response.status_code != PARTIAL else 0  # a server without ranges sends all
                async for piece in response.aiter_bytes():
                    yield piece[left:]
                    left = max(0, left - len(piece))
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise _unreachable() from error

    async def delete(self, *names: str) -> None:
        for name in names:
            await self._ask("DELETE", name)

    async def names(self) -> AsyncIterator[list[str]]:
        token = ""
        while True:
            query = {"list-type": "2", "prefix": self._prefix, **({"continuation-token": token} if token else {})}
            tree = _tree((await self._ask("GET", None, query)).content)
            keys = [each.text or "" for each in tree.iter("Key")]
            if keys:
                yield [key.removeprefix(self._prefix) for key in keys]
            token = tree.findtext("NextContinuationToken") or ""
            if not token:
                return

    async def reach(self) -> None:
        """Asks the bucket for one name, as `names` does.
        Raises StorageUnavailable: the bucket does not answer, or refuses these keys."""
        await self._ask("GET", None, {"list-type": "2", "prefix": self._prefix, "max-keys": "1"})

    async def _begin(self, name: str) -> str:
        found = _tree((await self._ask("POST", name, {"uploads": ""})).content).findtext("UploadId")
        if not found:
            raise errors.StorageUnavailable("The bucket gave no id for an upload.")
        return found

    async def _part(self, name: str, upload: str, number: int, data: bytes) -> str:
        query = {"partNumber": str(number), "uploadId": upload}
        return str((await self._ask("PUT", name, query, data)).headers.get("etag", ""))

    async def _complete(self, name: str, upload: str, tags: list[str]) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(tag)}</ETag></Part>"
            for number, tag in enumerate(tags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        answer = await self._ask("POST", name, {"uploadId": upload}, body)
        if _tree(answer.content).tag != "CompleteMultipartUploadResult":  # S3 reports some faults with a 200
            raise errors.StorageUnavailable("The bucket did not put the parts of a file together.")

    async def _ask(
        self, method: str, name: str | None, query: dict[str, str] | None = None, body: bytes = b""
    ) -> httpx.Response:
        try:
            response = await self._client.send(self._request(method, name, query or {}, body))
        except httpx.HTTPError as error:
            raise _unreachable() from error
        if response.status_code >= 300 and not (method == "DELETE" and response.status_code == GONE):
            raise _refused(response)
        return response

    def _request(self, method: str, name: str | None, query: dict[str, str], body: bytes) -> httpx.Request:
        path = "" if name is None else f"/{quote(self._prefix + name)}"
        url = f"{self._bucket}{path}{'?' + urlencode(query, quote_via=quote) if query else ''}"
        try:
            origin_of(httpx.URL(url))
        except NO_ADDRESS:
            raise errors.StorageUnavailable("files.s3.endpoint is no address such as https://HOST.") from None
        headers = self._signer(method, url, body)
        return self._client.build_request(method, url, headers=headers, content=body, timeout=S3_SECONDS)


async def reach_bucket(settings: setting_sections.S3Settings) -> str | None:
    """Returns why files cannot be stored in that bucket, for `gateway check`; None: it answers."""
    async with httpx.AsyncClient() as client:
        try:
            await S3Contents(settings, client).reach()
        except (ValueError, errors.StorageUnavailable) as error:
            return str(error)
    return None


def _signer(settings: setting_sections.S3Settings) -> Any:
    """Returns a function that computes the headers of a signed request (SigV4)."""
    try:
        from botocore import auth, awsrequest, credentials
    except ImportError:
        text = "files.store s3 needs the extra `files`: pip install 'context-gateway[files]'"
        raise ValueError(text) from None
    if settings.access_key is not None and settings.secret_key is not None:
        keys = credentials.Credentials(settings.access_key.get_secret_value(), settings.secret_key.get_secret_value())
    else:
        from botocore.session import Session

        keys = Session().get_credentials()
        if keys is None:
            raise ValueError("files.s3.access_key and files.s3.secret_key are needed: the environment has no keys")

    def headers(method: str, url: str, body: bytes) -> dict[str, str]:
        request = awsrequest.AWSRequest(method=method, url=url, data=body)
        auth.S3SigV4Auth(keys, "s3", settings.region).add_auth(request)
        return dict(request.headers.items())

    return headers


def _tree(raw: bytes) -> ET.Element:
    """Parses the answer's XML, without namespaces. A document type is none of S3's."""
    if b"<!DOCTYPE" in raw[:1000].upper():
        raise errors.StorageUnavailable("The bucket's answer is none of S3's.")
    try:
        tree = ET.fromstring(raw)  # noqa: S314 - of the operator's own bucket, without a document type
    except ET.ParseError as error:
        raise errors.StorageUnavailable("The bucket's answer is no XML.") from error
    for each in tree.iter():
        each.tag = each.tag.rpartition("}")[2]
    return tree


def _refused(response: httpx.Response) -> errors.StorageUnavailable:
    return errors.StorageUnavailable(
        f"The bucket of files answered with status {response.status_code}{_MEANING.get(response.status_code, '')}."
    )


def _unreachable() -> errors.StorageUnavailable:
    return errors.StorageUnavailable("The bucket of files cannot be reached.")
