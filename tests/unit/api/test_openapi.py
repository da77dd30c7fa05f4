"""`/openapi.json` describes what is served: every path, and every field of real answers (guarantee §9)."""

import json
import re
import time
from collections.abc import Iterable
from typing import Any, get_type_hints

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from gateway import __version__, app
from gateway.api.server.middleware import ShutdownState
from gateway.core.config.settings import Settings
from tests.support.answers import Json, chat, ok, read_stream, user
from tests.support.described import check, closed
from tests.support.documents import lamps
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream

SERVED = re.compile(r"\{(\w+)(?::\w+)?\}")


@pytest.fixture
def described(one_gateway: GatewayProcess) -> Json:
    """The description, of which objects may have no field that is not named where they say nothing else."""
    answer = one_gateway.get(one_gateway.base_url.removesuffix("/v1") + "/openapi.json", key=None)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    found: Json = closed(answer.json())
    return found


def test_s9_every_path_that_is_served_is_described_and_no_other(described: Json) -> None:
    served = set(_served())
    told = {(path, method.upper()) for path, methods in described["paths"].items() for method in methods}
    relayed = {("/v1/models/{model}", "DELETE")}  # the upstream's own
    assert told == served - relayed


def _served() -> Iterable[tuple[str, str]]:
    for route in app.Gateway(Settings()).api.routes(ShutdownState()):
        for method in (route.methods or set()) - {"HEAD"}:
            yield SERVED.sub(r"{\1}", route.path), method


def test_s9_answers_are_described_by_the_types_of_their_endpoints() -> None:
    """What a function is declared to give is what its operation is described by."""
    from gateway.api.openapi.paths import OPERATIONS

    described = {where: answer for where, _, answer, *_ in OPERATIONS}
    compared = 0
    for route in app.Gateway(Settings()).api.routes(ShutdownState()):
        for method, answer in getattr(route.app, "answers", {}).items():
            given = get_type_hints(answer)["return"]
            if "dict[str, typing.Any]" not in str(given):  # of OpenAI's own objects the types say nothing
                path = SERVED.sub(r"{\1}", route.path)
                assert described[f"{method} {path}"] == given
                compared += 1
    assert compared > 20


def test_s9_the_description_itself_is_sound(described: Json) -> None:
    """OpenAPI 3.1; each schema is one, and each reference leads to one."""
    assert described["openapi"].startswith("3.1")
    assert described["info"]["version"] == __version__
    schemas = described["components"]["schemas"]
    for name, schema in schemas.items():
        Draft202012Validator.check_schema(schema)
        assert schema, name
    used = set(re.findall(r"'#/components/schemas/(\w+)'", str(described)))
    assert used == set(schemas), "each is used, and each that is used is there"


def test_s9_answers_are_as_described(one_gateway: GatewayProcess, described: Json) -> None:
    """Plain, streamed, dry, stored, refused: with documents, so that bills say all that they can."""
    body: Json = {
        "model": "small",
        "messages": [user("Who is the keeper of lamp 7?")],
        "attachments": [{"title": "Lamps", "content": lamps(300), "source": "a shelf", "attachment_type": "list"}],
        "metadata": {"team": "red"},
        "context": {"mode": "simple", "max_input_tokens": 3000},
        "user": "ann",
    }
    check(described, "ChatRequest", body)
    answer = chat(one_gateway, **body)
    answer.pop("_headers")
    same = {"conversation": answer["conversation"]["id"]}
    again = {"model": "small", "messages": [user("And of lamp 290?")], **same}
    plain = one_gateway.post("/chat/completions", json=body).json()
    check(described, "ChatCompletion", plain)
    streamed = read_stream(one_gateway, {**again, "stream": True, "stream_options": {"include_usage": True}})
    for chunk in streamed.chunks:
        check(described, "ChatCompletionChunk", as_plain(chunk))
    check(
        described, "DryRun", one_gateway.post("/chat/completions", json={**body, "context": {"dry_run": True}}).json()
    )
    check(described, "Error", one_gateway.post("/chat/completions", json={"model": "small"}).json())
    check(described, "StoredCompletion", one_gateway.get(f"/chat/completions/{plain['id']}").json())
    check(described, "StoredCompletions", one_gateway.get("/chat/completions", params=same).json())
    check(described, "StoreMessages", one_gateway.get(f"/chat/completions/{plain['id']}/messages").json())
    one = f"/chat/completions/{plain['id']}"
    check(described, "StoredCompletion", one_gateway.post(one, json={"metadata": {}}).json())
    check(described, "DeletedCompletion", one_gateway.delete(one).json())


def test_s9_messages_are_as_described(one_gateway: GatewayProcess, described: Json) -> None:
    body: Json = {"model": "small", "max_tokens": 9, "messages": [user("Who keeps lamp 7?")]}
    check(described, "MessagesRequest", body)
    check(described, "Message", one_gateway.post("/messages", json=body).json())
    check(described, "CountedTokens", one_gateway.post("/messages/count_tokens", json=body).json())
    check(described, "CompressRequest", body)
    check(described, "Compressed", one_gateway.post("/compress", json=body).json())
    check(described, "Compressed", one_gateway.post("/compress", json={**body, "system": "Be brief."}).json())
    check(described, "MessagesError", one_gateway.post("/messages", json={"model": "small"}).json())


def test_s9_windows_and_the_classic_api_are_as_described(one_gateway: GatewayProcess, described: Json) -> None:
    site = one_gateway.base_url.removesuffix("/v1")
    said: Json = {"message": "Who keeps lamp 7?", "model": "small", "workflow_id": "wf"}
    said["attachments"] = [{"content": lamps(300)}]
    check(described, "ClassicMessage", said)
    answer = one_gateway.post(f"{site}/api/v1/chat", json=said).json()
    check(described, "ClassicAnswer", answer)
    name = answer["conversation_id"]
    check(described, "ConversationContext", one_gateway.get(f"/conversations/{name}/context").json())
    begun = one_gateway.post("/conversations", json={}).json()["id"]
    check(described, "ConversationContext", one_gateway.get(f"/conversations/{begun}/context").json())
    check(described, "Health", one_gateway.get(f"{site}/health/ready?details=1").json())
    check(described, "ClassicHealth", one_gateway.get(f"{site}/api/v1/health").json())
    check(described, "Statistics", one_gateway.get(f"{site}/api/v1/memory/stats").json())
    check(described, "ClassicConversations", one_gateway.get(f"{site}/api/v1/conversations").json())
    check(described, "ClassicHistory", one_gateway.get(f"{site}/api/v1/conversations/{name}/history").json())
    info = {"message": "Create", "conversation_id": name}
    check(described, "PromptInfo", one_gateway.get(f"{site}/api/v1/debug/prompt-info", params=info).json())
    check(described, "ClassicWorkflows", one_gateway.get(f"{site}/api/v1/conversations/{name}/workflows").json())
    check(described, "ClassicMentions", one_gateway.get(f"{site}/api/v1/workflows/wf/conversations").json())
    check(described, "ClassicCleared", one_gateway.delete(f"{site}/api/v1/conversations/{name}").json())
    check(described, "ClassicCleared", one_gateway.delete(f"{site}/api/v1/conversations/{name}/permanent").json())


def as_plain(value: Any) -> Any:
    """Decimals as numbers."""
    if isinstance(value, list):
        return [as_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: as_plain(each) for name, each in value.items()}
    return float(value) if type(value).__name__ == "Decimal" else value


def test_s9_what_a_planner_said_is_described(
    start_gateway: GatewayFactory, upstream: MockUpstream, described: Json
) -> None:
    gateway = start_gateway({"context": {"planning": "auto"}})
    upstream.handler = InternalModels(every("summarize"))
    documents = [{"title": f"Lamps {n}", "content": lamps(200)} for n in range(2)]
    answer = chat(gateway, model="small", messages=[user("Who is the keeper of lamp 7?")], attachments=documents)
    stored = gateway.get(f"/chat/completions/{answer['id']}").json()
    assert stored["response_metadata"]["context_utilization"]["plan"]["artifacts"]
    check(described, "StoredCompletion", stored)
    check(described, "ChatCompletion", as_plain({k: v for k, v in answer.items() if k != "_headers"}))


def test_s9_conversations_are_as_described(one_gateway: GatewayProcess, described: Json) -> None:
    attachments = [{"title": "Lamps", "content": lamps(3)}]
    answer = chat(one_gateway, model="small", messages=[user("Who?")], attachments=attachments)
    path = f"/conversations/{answer['conversation']['id']}"
    check(described, "Turns", one_gateway.get(f"{path}/turns").json())
    check(described, "TurnDetails", one_gateway.get(f"{path}/turns/1").json())
    again: Json = {"model": "small", "from_turn": 1, "parameters": {"max_tokens": 5}, "dry_run": True}
    check(described, "ReplayRequest", again)
    check(described, "ReplayEstimate", one_gateway.post(f"{path}/replay", json=again).json())
    events = one_gateway.post(f"{path}/replay", json={**again, "dry_run": False}).text.split("\n\n")[:-2]
    assert len(events) > 3
    for each in events:
        check(described, "ReplayEvent", json.loads(each.removeprefix("data: ")))
    new = {"items": [{"type": "message", "role": "user", "content": "hello"}], "metadata": {"a": "b"}}
    check(described, "NewConversation", new)
    made = one_gateway.post("/conversations", json=new).json()
    check(described, "Conversation", made)
    check(described, "Conversation", one_gateway.get(path).json())
    check(described, "Conversations", one_gateway.get("/conversations", params={"limit": 2}).json())
    items = one_gateway.get(f"{path}/items").json()
    check(described, "Items", items)
    check(described, "Item", one_gateway.get(f"{path}/items/{items['data'][0]['id']}").json())
    attached = one_gateway.get(f"{path}/attachments").json()
    check(described, "Attachments", attached)
    one = f"{path}/attachments/{attached['data'][0]['id']}"
    check(described, "Attachment", one_gateway.get(one).json())
    check(described, "DeletedAttachment", one_gateway.delete(one).json())
    exported = one_gateway.get(f"{path}/export").json()
    check(described, "ConversationExport", exported)
    check(described, "Conversation", one_gateway.post("/conversations/import", json=exported).json())
    check(described, "Conversation", one_gateway.delete(f"{path}/items/{items['data'][0]['id']}").json())
    check(described, "DeletedConversation", one_gateway.delete(path).json())
    check(described, "Models", one_gateway.get("/models").json())
    check(described, "Model", one_gateway.get("/models/small").json())


def test_s9_the_root_says_where_to_look(one_gateway: GatewayProcess, described: Json) -> None:
    """Without a key; each place that it names is there."""
    root = one_gateway.base_url.removesuffix("/v1")
    about = ok(one_gateway.get(root + "/", key=None))
    check(described, "About", about)
    assert about["version"] == __version__
    for path in about["links"].values():
        assert one_gateway.get(root + path, key=None).status_code in (200, 303, 401), path
    check(described, "Health", one_gateway.get(root + "/health/ready", key=None).json())


def test_s9_the_memory_of_things_is_as_described(one_gateway: GatewayProcess, described: Json) -> None:
    workflow = {"type": "workflow", "id": "wf_12", "name": "Task Management", "aliases": ["the board"]}
    body: Json = {"model": "small", "messages": [user("Who?")], "user": "ann"}
    body["memory"] = {"remember": [workflow], "scope": "user"}
    check(described, "ChatRequest", body)
    first = chat(one_gateway, **body)
    same = {"conversation": first["conversation"]["id"], "memory": {}}
    answer = chat(one_gateway, model="small", messages=[user("Update my task workflow.")], **same)
    assert answer["response_metadata"]["context_utilization"]["things"]
    check(described, "ChatCompletion", as_plain({k: v for k, v in answer.items() if k != "_headers"}))
    path = f"/conversations/{same['conversation']}/memory"
    several = {"remember": [workflow], "scope": "user", "user": "ann"}
    for new in (workflow, several):
        check(described, "NewThings", new)
        check(described, "MemoryThings", one_gateway.post(path, json=new).json())
    for listed in (path, "/memory", "/memory?user=ann", "/memory?query=board"):
        found = one_gateway.get(listed).json()
        assert found["data"], listed
        check(described, "MemoryThings", found)
    check(described, "ThingConversations", one_gateway.get("/memory/workflow/wf_12/conversations").json())
    one = f"/memory/{found['data'][0]['id']}"
    check(described, "MemoryThing", one_gateway.get(one).json())
    check(described, "DeletedMemoryThing", one_gateway.delete(one).json())


def test_s9_usage_and_costs_are_as_described(one_gateway: GatewayProcess, described: Json) -> None:
    chat(one_gateway, model="small", messages=[user("What is a lamp?")], user="ann")
    for path, name in (
        ("costs", "Costs"),
        ("usage/completions", "Completions"),
        ("usage/embeddings", "Embeddings"),
    ):
        query: Json = {"start_time": int(time.time()) - 3600, "group_by[]": "project_id"}
        body = one_gateway.get(f"/organization/{path}", params=query).json()
        check(described, f"Organization{name}", body)
        assert any(bucket["results"] for bucket in body["data"]) == (name != "Embeddings")
