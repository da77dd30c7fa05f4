"""Ways around a budget or a limit (guarantee §12.3, §12.4): by whom a request says it is of, by the name, API or form
in which it asks, by leaving, and by the clock. A budget that is used up is used up in all of them.
"""

import json

from tests.support.attacked_budgets import CHAT, LEAVING, ask, is_refused, metered
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import wait_until
from tests.support.sockets import RawClient, post

__all__ = ["metered"]


def test_s12_3_who_leaves_early_has_spent_all_the_same(metered: GatewayProcess, upstream: MockUpstream) -> None:
    """A stream that is left after its first chunk, each time: it is on the bill, so that the next is refused."""
    upstream.reply(text="one two three four five six", chunk_delay=0.05)
    body = json.dumps({**CHAT, "stream": True}).encode()
    with RawClient(metered) as client:
        client.send(post(body, f"authorization: Bearer {LEAVING}"))
        client.read_until(b"data: ")
    wait_until(lambda: is_refused(ask(metered, LEAVING)), "the bill of what was left counts")
