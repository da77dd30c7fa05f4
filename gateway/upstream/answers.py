"""Reading an answer within its limits, and what all later steps rely on in it."""

import asyncio
from typing import Any

import httpx

from gateway.errors import UpstreamInvalidResponse
from gateway.models.exchange import Deployment
from gateway.upstream.connection import END, Connection
from gateway.upstream.faults import translated
from gateway.upstream.inflate import PLAIN

MAX_ANSWER_BYTES = 64 * 2**20
MAX_CHOICES = 128
RELAYED_STARTS = (b"x-", b"op", b"re")


async def read_body(connection: Connection, deployment: Deployment, most: int = MAX_ANSWER_BYTES) -> bytes:
    """The whole body.

    Raises:
        UpstreamInvalidResponse: it exceeds `most` bytes.
    """
    pieces: list[bytes] = []
    size = 0
    with translated(begun=True):
        while (piece := await connection.read(deployment.first_byte_timeout)) is not END:
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise UpstreamInvalidResponse(f"The upstream's answer exceeds {most} bytes.")
    raw = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    encoding = header(connection, b"content-encoding")
    return await asyncio.to_thread(_decoded, raw, encoding) if encoding not in PLAIN else raw


def _decoded(raw: bytes, encoding: bytes) -> bytes:
    """An answer that was compressed although nobody asked for it; small pieces, so that a bomb is noticed early."""
    pieces = (raw[at : at + 2**14] for at in range(0, len(raw), 2**14))
    response = httpx.Response(200, headers=[(b"content-encoding", encoding)], content=pieces)
    decoded: list[bytes] = []
    size = 0
    with translated(begun=True):
        for piece in response.iter_bytes():
            decoded.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise UpstreamInvalidResponse(f"The upstream's answer exceeds {MAX_ANSWER_BYTES} bytes.")
    return b"".join(decoded)


def header(connection: Connection, name: bytes) -> bytes:
    """A header of the response in lower case, empty if it is not there."""
    return next((value for key, value in connection.headers if key == name), b"").lower()


def named(connection: Connection) -> dict[str, str]:
    """The headers among which those are that go back to the client; most answers have many others."""
    known = (pair for pair in connection.headers if pair[0][:2] in RELAYED_STARTS)
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in known}


def check_choices(choices: Any, part: str) -> None:
    """What all later steps rely on; a missing index is the choice's position.

    Raises:
        UpstreamInvalidResponse: choices, their messages or tool calls are not what OpenAI's protocol says.
    """
    if not isinstance(choices, list):
        raise UpstreamInvalidResponse("The upstream's choices are no list.")
    for position, choice in enumerate(choices):
        message = choice.get(part) if isinstance(choice, dict) else False
        if message is not None:
            if not isinstance(message, dict):
                raise UpstreamInvalidResponse("The upstream's answer holds a choice that is none.")
            calls = message.get("tool_calls")
            if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
                raise UpstreamInvalidResponse("The upstream's answer holds tool calls that are none.")
        index = choice.get("index")
        if type(index) is not int or not 0 <= index < MAX_CHOICES:
            choice["index"] = position
