"""What was decided costs nothing again while it stands; once something leaves, all is decided anew (guarantee §5)."""

from tests.support.answers import Json, chat, used, user
from tests.support.documents import lamps, prose
from tests.support.factory import GatewayFactory
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream

TURNS = 14


def test_s5_a_planner_is_asked_again_exactly_where_something_left(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    """Turn after turn of one conversation: as long as each request begins with all that the one before forwarded,
    nobody is asked; where it does not, what stood is planned anew, also where it left for the sake of a question's
    own findings only."""
    gateway = start_gateway({"context": {"planning": "auto"}})
    upstream.handler = models = InternalModels(every("rag_extract", extraction_query="keeper of lamp 41"))
    talk: Json = {"model": "small", "context": {"session": "lamps"}}
    attached = [{"title": "Lamps", "content": lamps(60)}]
    chat(gateway, **talk, messages=[user("Who is the keeper of lamp 41?")], attachments=attached)
    reasons = []
    for turn in range(TURNS):
        question = f"Who is the keeper of lamp {turn + 7}? {prose(turn, 10)}"
        told = used(chat(gateway, **talk, messages=[user(question)]))
        before, now = (body["messages"] for body in models.answered[-2:])
        stands = now[: len(before)] == before
        assert (told["planning_reason"] == "standing") == stands, turn
        assert told["planning_usage"]["planner"].get("calls", 0) == (not stands), turn
        reasons.append(told["planning_reason"])
    assert "standing" in reasons
    assert set(reasons) - {"standing"}, "something left in the course of it"
