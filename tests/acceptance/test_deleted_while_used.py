"""§14.5: a file that is deleted while a model is asked about it does not come back with the turn; nor does it stay
with a turn that failed."""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.answers import Json, user
from tests.support.documents import prose
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

ADA = "sk-key-of-ada"
KEYS = [{"key": ADA, "tenant": "acme"}]
CANARY = "zanarkand"
TEXT = f"The keeper of {CANARY} is called Yuna. {prose(1, 300)}"
ASK = "Who keeps it?"


def asking(road: str, file_id: str) -> Json:
    if road == "attachment":
        return {"model": "small", "messages": [user(ASK)], "attachments": [{"file_id": file_id}]}
    part = {"type": "file", "file": {"file_id": file_id}}
    return {"model": "small", "messages": [user([part, {"type": "text", "text": ASK}])]}


def exported(client: httpx.Client) -> str:
    """All that the tenant's conversations hold."""
    listed = client.get("/conversations").json()["data"]
    assert listed
    return "".join(client.get(f"/conversations/{each['id']}/export").text for each in listed)


@pytest.mark.parametrize("ends", ["answered", "failed"])
@pytest.mark.parametrize("road", ["attachment", "part"])
def test_s14_5_a_file_deleted_while_it_is_used_stays_deleted(
    guarded: GatewayProcess, upstream: MockUpstream, road: str, ends: str
) -> None:
    with guarded.http(ADA) as client, ThreadPoolExecutor(1) as other:
        made = client.post("/files", files={"file": ("a.md", TEXT.encode())}, data={"purpose": "user_data"}).json()
        reply = upstream.reply(text="Yes.", delay_first=1.0) if ends == "answered" else upstream.reply(status=500)
        answering = other.submit(client.post, "/chat/completions", json=asking(road, made["id"]))
        upstream.wait_for_chats(1)
        assert CANARY in json.dumps(upstream.last.body)
        if ends == "failed":
            answering.result()
        assert client.delete(f"/files/{made['id']}").status_code == 200
        answer = answering.result()
        assert answer.status_code == reply.status
        assert CANARY not in exported(client)
        if ends == "answered":
            conversation = answer.json()["conversation"]
            again = client.post(
                "/chat/completions",
                json={"model": "small", "messages": [user("And now?")], "conversation": conversation},
            )
            assert again.status_code == 200
            assert CANARY not in json.dumps(upstream.last.body)
        for each in client.get("/conversations").json()["data"]:
            client.delete(f"/conversations/{each['id']}")
