"""A stream that stands still until a test lets it go on."""

import contextlib
from collections.abc import Iterator
from typing import Any

import openai

from tests.support.answers import user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream


@contextlib.contextmanager
def stalled_stream(gateway: GatewayProcess, upstream: MockUpstream) -> Iterator[openai.Stream[Any]]:
    """A stream of which `one` and `two` have come, and the rest waits for `upstream.release()`."""
    upstream.reply(text="one two three", stall_after=3)
    with openai.OpenAI(base_url=gateway.base_url, api_key="sk-test", max_retries=0, timeout=30) as client:
        stream = client.chat.completions.create(model="small", messages=[user("count for me")], stream=True)
        for _ in range(3):
            next(stream)
        yield stream
