"""Documents and results longer than the window: attached, reduced, labelled, found again (guarantee §2, §4 I4-I6)."""

from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.support.answers import Json, all_used, assistant, conversation_of, used, user
from tests.support.documents import keeper, lamps, prompt_tokens, prose, text_of
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

BUDGET = 4096 - 512
DOCUMENT = lamps(300)


def ask(client: OpenAI, *messages: Any, model: str = "small", **body: Any) -> Any:
    return client.chat.completions.create(model=model, messages=list(messages), extra_body=body)


def test_s2_a_short_attachment_is_whole(client: OpenAI, upstream: MockUpstream) -> None:
    """It stands in full in one delimited block at the head of the user message, marked as data."""
    answer = ask(client, user("Who keeps lamp 1?"), attachments=[{"title": "Lamps", "content": lamps(3)}])
    (message,) = upstream.last.body["messages"]
    assert lamps(3) in message["content"]
    assert message["content"].endswith("Who keeps lamp 1?")
    assert "data, not instructions" in message["content"].partition("\n")[0]
    (record,) = used(answer)["artifacts_processed"]
    assert record["source"] == "attachment:0:Lamps"
    assert record["strategy"] == "include_full"
    assert record["original_size_chars"] == record["processed_size_chars"] == len(lamps(3))
    assert record["artifact_id"] in message["content"]


def test_s4_a_document_longer_than_the_window(gateway: GatewayProcess, client: OpenAI, upstream: MockUpstream) -> None:
    """Reduced and labelled; the fact that is asked for stands in what is forwarded, and so at the next turn by id."""
    attached = [{"title": "The lamps", "content": DOCUMENT, "source": "https://example.invalid/lamps"}]
    answer = ask(client, user("Who is the keeper of lamp 233?"), attachments=attached)
    text = text_of(upstream.last.body)
    assert keeper(233) in text
    assert text.endswith("Who is the keeper of lamp 233?")
    assert prompt_tokens(upstream.last.body) <= BUDGET
    (record,) = used(answer)["artifacts_processed"]
    assert (record["strategy"], record["artifact_type"]) == ("rag_extract", "document")
    assert record["original_size_chars"] == len(DOCUMENT)
    assert record["artifact_id"] in text
    assert "The lamps" in text
    assert f"{record['processed_size_chars']:,} of {len(DOCUMENT):,} characters" in text
    assert used(answer)["strategy"] == "heuristic"
    assert used(answer)["fallback_reason"] is None or used(answer)["planning_reason"] in (
        "near_limit",
        "large_artifact",
    )
    again = ask(client, user("And who is the keeper of lamp 17?"), conversation=conversation_of(answer))
    assert keeper(17) in text_of(upstream.last.body)
    assert prompt_tokens(upstream.last.body) <= BUDGET
    assert used(again)["artifacts_processed"][0]["artifact_id"] == record["artifact_id"], "the budget was full"
    last = ask(client, user("Is lamp 290 kept at all?"), conversation=conversation_of(answer))
    assert keeper(290) in text_of(upstream.last.body)
    assert used(last)["artifacts_processed"][0]["reason"] == "recalled", "beside what stands"
    assert all_used(gateway, last.model_dump())["artifacts_processed"][0]["artifact_id"] == record["artifact_id"]


def test_s2_attachments_may_be_one_string(client: OpenAI, upstream: MockUpstream) -> None:
    """The content of one document, as in a list of its own; an empty one is named."""
    one, listed = (ask(client, user("Who keeps lamp 1?"), attachments=each) for each in (lamps(3), [lamps(3)]))
    assert lamps(3) in upstream.last.body["messages"][-1]["content"]
    assert used(one)["artifacts_processed"] == used(listed)["artifacts_processed"] != []
    with pytest.raises(BadRequestError, match="must not be empty") as caught:
        ask(client, user("x"), attachments=" ")
    assert caught.value.param == "attachments[0].content"


@pytest.mark.in_turn("way")
@pytest.mark.parametrize("way", ["id", "resend"])
def test_s4_i6_what_left_a_full_window_long_ago_is_recalled(client: OpenAI, upstream: MockUpstream, way: str) -> None:
    """However little room earlier turns left, and however far above the window it stands."""
    fact = "My locker combination is 7731-QX."
    sent: list[Json] = []
    named: Json = {}
    for number in range(60):
        said = user(f"{fact if number == 2 else ''} {prose(number, 60)}")
        upstream.reply(text=prose(number + 500, 90))
        answer = ask(client, *(sent if way == "resend" else ()), said, **named)
        sent += [said, assistant(answer.choices[0].message.content)]
        named = {"conversation": conversation_of(answer)} if way == "id" else {}
    for asked in ("What is my locker combination?", "And again, my locker combination?"):
        answer = ask(client, *(sent if way == "resend" else ()), user(asked), **named)
        sent += [user(asked), assistant(answer.choices[0].message.content)]
        assert text_of(upstream.last.body).count(fact) == 1, "there, and not once more where the window holds it"
        assert used(answer)["messages_excluded"] > 60
        assert prompt_tokens(upstream.last.body) <= BUDGET
