"""A call that the gateway only passes on: what goes up, and what comes down (contract §1)."""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, values as they came."""


@dataclass(frozen=True, slots=True)
class RelayedCall:
    """A request as it goes up. `target` is path and query below the upstream's base, percent-encoded as they came.

    A body of bytes can be sent again if no connection came about; one in pieces is sent as it arrives.
    """

    method: str
    target: str
    headers: Headers = field(repr=False)
    body: bytes | AsyncIterable[bytes] | None = field(repr=False)


class RelayedAnswer(Protocol):
    """An answer as upstream sent it: its body is raw, with whatever content encoding it has."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers: ...

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives.

        Raises:
            UpstreamInterrupted, UpstreamTimeout: it broke off, or fell silent.
        """
        ...


AnswerOpener = AbstractAsyncContextManager[RelayedAnswer]
