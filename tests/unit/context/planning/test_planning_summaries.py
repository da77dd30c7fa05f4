"""Summaries that are not what they should be: what of them is used, and what is said of it (guarantee §5)."""

import pytest

from tests.support.answers import Json, chat, used, user
from tests.support.documents import lamps, text_of
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

ASKED: Json = {
    "model": "small",
    "messages": [user("Who is the keeper of lamp 41?")],
    "attachments": [{"title": "Lamps", "content": lamps(60)}],
}


@pytest.fixture
def planning(start_gateway: GatewayFactory) -> GatewayProcess:
    return start_gateway({"context": {"planning": "auto"}})


def test_s5_a_summary_that_broke_off_is_used_as_far_as_it_is_whole(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """In the context and in the cache: the next request with the same focus finds no half sentence either."""
    said = "Sixty lamps stand on the quay. Lamp 41 is kept by nobody but"
    upstream.handler = models = InternalModels(
        every("summarize", summarization_focus="whole"), lambda text: Reply(text=said, finish_reason="length")
    )
    answers = [chat(planning, **ASKED) for _ in range(2)]
    assert [used(answer)["cache_stats"] for answer in answers] == [
        {"hits": 0, "misses": 1},
        {"hits": 1, "misses": 0},
    ]
    for answer, body in zip(answers, models.answered, strict=True):
        assert used(answer)["fallback_reason"] is None
        assert "Sixty lamps stand on the quay." in text_of(body)
        assert "nobody but" not in text_of(body)


def test_s5_of_a_summary_of_which_nothing_is_whole_nothing_is_used_or_kept(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """The plan is followed with extracts in its place, the reason told, the call on the bill, and made anew."""
    upstream.handler = models = InternalModels(
        every("summarize", summarization_focus="none"), lambda text: Reply(text="Lamp 41 and", finish_reason="length")
    )
    for number in (1, 2):
        answer = chat(planning, **ASKED)
        told = used(answer)
        assert (told["fallback_reason"], told["llm_planning_used"]) == ("summarizer_cut", True)
        assert told["planning_usage"]["summarizer"]["calls"] == 1
        assert told["planning_cost"]["summarizer_cost"] > 0
        assert "Lamp 41 and" not in text_of(models.answered[-1])
        assert len(models.summarized) == number
