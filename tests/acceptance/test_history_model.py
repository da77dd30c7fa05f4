"""Random clients against a plain model of what their histories must be, on both storages (guarantee §3)."""

import pytest

from tests.support.gateway_process import GatewayProcess
from tests.support.history_machine import check_histories, histories_in
from tests.support.history_views import Way
from tests.support.history_world import Script, World
from tests.support.mock_upstream import MockUpstream


@pytest.mark.parametrize(
    ("examples", "steps", "always_the_same"),
    [(12, 12, True), pytest.param(1000, 40, False, marks=pytest.mark.chaos)],
    ids=["short", "a thousand long ones"],
)
def test_s3_histories_are_what_the_model_says(
    gateway: GatewayProcess,
    upstream: MockUpstream,
    module_storage_url: str,
    examples: int,
    steps: int,
    always_the_same: bool,
) -> None:
    """§3: by id, by session, by itself; deltas, resends, edits, tool loops, failures, several at once."""
    with World(gateway, upstream, module_storage_url) as world:
        check_histories(world, examples=examples, steps=steps, always_the_same=always_the_same)


@pytest.mark.parametrize("kind", ["text", "long"])
def test_s3_2_an_end_that_its_client_takes_for_the_whole_is_known_by_itself(
    gateway: GatewayProcess, upstream: MockUpstream, module_storage_url: str, kind: str
) -> None:
    """§3.2: each answered request leaves the digest of its chain as its client sent it, also where that was the end of
    what is stored; whoever shows enough of it gets back nothing from before that."""
    by_id, script = Way(by="id"), Script(kind)
    with World(gateway, upstream, module_storage_url) as world:
        client = histories_in(world)()
        chat = client.begins(text="", script=script, common=False, system=[], user=None, session=False)
        client.edits(chat=chat, at=0, cut=True, way=by_id, script=script)
        for way in (by_id, Way(), Way(), by_id, Way()):
            client.says(chat=chat, text="", way=way, script=script)
        assert len(client.model.talks) == 1
        client.teardown()
