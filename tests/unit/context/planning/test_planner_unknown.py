"""A planner that its upstream does not know is let alone for a while, and the operator is told (guarantee §5)."""

from tests.support.answers import Json, chat, user
from tests.support.documents import lamps
from tests.support.factory import GatewayFactory
from tests.support.internal_models import InternalModels
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply, error_body

EVENT = "internal_model_unknown"
ASKED: Json = {
    "model": "small",
    "messages": [user("Who is the keeper of lamp 41?")],
    "attachments": [{"title": "Lamps", "content": lamps(60)}],
}


def why(answer: Json) -> tuple[str, str | None]:
    told = answer["response_metadata"]["context_utilization"]
    return told["planning_reason"], told["fallback_reason"]


def test_s5_a_planner_that_is_not_there_is_asked_once_and_told_once(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """By the bill of the request that asked it, by those that did not, and by one line of the log."""
    gateway = start_gateway({"context": {"planning": "auto"}})
    unknown = Reply(status=404, json=error_body(404, "The model `gpt-4o-mini` does not exist.", "model_not_found"))
    upstream.handler = models = InternalModels(lambda artifacts: unknown)
    told = [why(chat(gateway, **ASKED)) for _ in range(3)]
    assert told == [("near_limit", "planner_unknown_model"), ("no_planner", None), ("no_planner", None)]
    assert len(models.planned) == 1
    lines = [line for line in gateway.log_lines() if line["event"] == EVENT]
    assert [(line["level"], line["model"]) for line in lines] == [("warning", "openai/gpt-4o-mini")]


def test_s5_a_404_that_does_not_speak_of_the_model_is_one_call_that_failed(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """The page of a proxy before the upstream: the next request asks again."""
    gateway = start_gateway({"context": {"planning": "auto"}})
    page = Reply(status=404, body=b"<html>Nothing here yet</html>", content_type="text/html")
    upstream.handler = models = InternalModels(lambda artifacts: page)
    assert [why(chat(gateway, **ASKED)) for _ in range(3)] == [("near_limit", "planner_refused")] * 3
    assert len(models.planned) == 3
