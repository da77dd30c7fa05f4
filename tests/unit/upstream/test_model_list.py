"""With a `model_list`, its models are served and nothing else, on whatever way they are asked for (guarantee §1)."""

import gzip
import json
from typing import Any

import openai
import pytest

from tests.support.answers import Json, user
from tests.support.factory import ClientFactory, GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Reply

OWN, CLIENT = "sk-operator", "sk-client"
ASK: Any = [user("hello")]
SECRET = "what nobody else may read"
FOREIGN = {
    "x-api-key": "sk-ant-1",
    "api-key": "azure-1",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "b",
    "x-goog-api-key": "AIza-1",
    "x-auth-token": "t-1",
    "x-amz-security-token": "t-2",
    "ocp-apim-subscription-key": "t-3",
    "cookie": "session=1",
    "proxy-authorization": "Basic dTpw",
}


def entry(name: str, base: str, **params: Any) -> Json:
    return {"model_name": name, "litellm_params": {"model": "openai/real", "api_base": base, **params}}


@pytest.fixture(scope="module", params=["operator", "client"])
def module_listed(
    request: pytest.FixtureRequest, module_start_gateway: GatewayFactory, module_upstream: MockUpstream
) -> GatewayProcess:
    """Some models elsewhere and a default upstream, once with an operator's key and once with the client's own."""
    base = f"{module_upstream.url}/listed/v1"
    listed = [
        entry("gpt-4o", base, api_key="sk-entry"),
        entry("claude-sonnet", base, api_key="sk-entry"),
        entry("team/*", base, model="openai/*", api_key="sk-entry"),
    ]
    key = {"api_key": OWN} if request.param == "operator" else {}
    return module_start_gateway({"model_list": listed, "upstream": {"api_base": module_upstream.base_url, **key}})


@pytest.fixture
def listed(module_listed: GatewayProcess, upstream: MockUpstream) -> GatewayProcess:
    for path in ("embeddings", "responses", "images/generations", "images/edits", "audio/transcriptions"):
        upstream.routes[f"POST /v1/{path}"] = Reply(json={"leaked": True})
        upstream.routes[f"POST /listed/v1/{path}"] = Reply(json={"ok": True})
    return module_listed


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("gpt-4", "gpt-4o"),
        ("gpt4o", "gpt-4o"),
        ("GPT-4o", "gpt-4o"),
        ("gpt-4o ", "gpt-4o"),
        ("claud-sonet", "claude-sonnet"),
        ("team/", "team/*"),
        ("team/../gpt-5", "team/*"),
        ("team/a?b", "team/*"),
        ("zzz", "'"),
        ("x" * 500, "'"),
    ],
)
def test_s1_a_model_that_is_not_listed_is_refused_with_the_nearest(
    listed: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory, model: str, meant: str
) -> None:
    """404 `model_not_found`, alike in chats, in `/v1/models/{id}` and in what is relayed. Nothing goes up."""
    client = make_client(listed, CLIENT)
    told = []
    for ask in (
        lambda: client.chat.completions.create(model=model, messages=ASK),
        lambda: client.chat.completions.create(model=model, messages=ASK, stream=True),
        lambda: client.embeddings.create(model=model, input="a"),
        lambda: client.responses.create(model=model, input="a"),
        lambda: client.audio.transcriptions.create(model=model, file=("a.wav", b"RIFF")),
        lambda: client.images.edit(model=model, image=("a.png", b"PNG"), prompt="p"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        told.append(caught.value.body)
    if "?" not in model:
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve(model)
        if not model.endswith(" ") and "/.." not in model and not model.endswith("/"):
            told.append(caught.value.body)
    assert all(error == told[0] for error in told), told
    assert (told[0]["code"], told[0]["param"]) == ("model_not_found", "model")  # type: ignore[index]
    assert "Did you mean" in told[0]["message"]  # type: ignore[index]
    assert meant in told[0]["message"]  # type: ignore[index]
    assert not upstream.requests


@pytest.mark.parametrize("model", ["gpt-4o", "team/x", "team/org/x:free", "team/ft:gpt-4o:mine::a1"])
def test_s1_patterns_count_as_listed(
    listed: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory, model: str
) -> None:
    """In chats, `/v1/models/{id}` and relayed bodies, forms too; each is served where its entry says."""
    upstream.routes["POST /listed/v1/chat/completions"] = Reply(
        json={"id": "u", "object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant"}}]}
    )
    client = make_client(listed, CLIENT)
    client.chat.completions.create(model=model, messages=ASK)
    assert client.models.retrieve(model).id == model
    assert listed.post("/embeddings", json={"model": model, "input": "a"}, key=CLIENT).json() == {"ok": True}
    form = {"files": {"file": ('ä"b.wav', b"RIFF\r\n--x\r\n", "audio/wav")}, "data": {"model": model, "n": "1"}}
    assert listed.post("/audio/transcriptions", **form, key=CLIENT).json() == {"ok": True}
    served = "real" if model == "gpt-4o" else model.removeprefix("team/")
    sent = upstream.requests[-1]
    assert {record.headers["authorization"] for record in upstream.requests} == {"Bearer sk-entry"}
    assert [record.body["model"] for record in upstream.requests[:-1] if record.body] == [served, served]
    assert f'name="model"\r\n\r\n{served}\r\n'.encode() in sent.raw
    assert 'filename="ä%22b.wav"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--x\r\n\r\n'.encode() in sent.raw
    assert b'name="n"\r\n\r\n1\r\n' in sent.raw


def form(*fields: tuple[str, str], boundary: str = "b") -> bytes:
    parts = [f"--{boundary}\r\nContent-Disposition: form-data; {name}\r\n\r\n{value}\r\n" for name, value in fields]
    return ("".join(parts) + f"--{boundary}--\r\n").encode()


FORM = "multipart/form-data; boundary=b"
UNLISTED = json.dumps({"model": "gpt-5", "input": SECRET}).encode()
ROUND: dict[str, tuple[bytes, dict[str, str]]] = {
    "no content type": (UNLISTED, {"content-type": ""}),
    "text": (UNLISTED, {"content-type": "text/plain"}),
    "bytes": (UNLISTED, {"content-type": "application/octet-stream"}),
    "a JSON of its own": (UNLISTED, {"content-type": "application/vnd.x+json"}),
    "called a form": (UNLISTED, {"content-type": "application/x-www-form-urlencoded"}),
    "called multipart": (UNLISTED, {"content-type": FORM}),
    "another charset": (UNLISTED.decode().encode("utf-16"), {"content-type": "application/json; charset=utf-16"}),
    "a byte order mark": (b"\xef\xbb\xbf" + UNLISTED, {"content-type": "application/json"}),
    "latin": (b'{"model": "gpt-5", "input": "\xe4"}', {"content-type": "application/json; charset=latin-1"}),
    "compressed": (gzip.compress(UNLISTED), {"content-type": "application/json", "content-encoding": "gzip"}),
    "called compressed": (UNLISTED, {"content-type": "application/json", "content-encoding": "x-none"}),
    "no JSON at all": (b"model=gpt-5", {"content-type": "application/x-www-form-urlencoded"}),
    "a list": (b"[" + UNLISTED + b"]", {}),
    "twice, the last": (b'{"model": "gpt-4o", "model": "gpt-5"}', {}),
    "another case": (b'{"model": "gpt-4o", "Model": "gpt-5"}', {}),
    "another case alone": (b'{"MODEL": "gpt-5"}', {}),
    "a list of models": (b'{"model": ["gpt-5"]}', {}),
    "a number": (b'{"model": 5}', {}),
    "none": (b'{"input": "a"}', {}),
    "null": (b'{"model": null}', {}),
    "a form that names two": (form(('name="model"', "gpt-4o"), ('name="model"', "gpt-5")), {"content-type": FORM}),
    "a form in another case": (form(('name="model"', "gpt-4o"), ('name="Model"', "gpt-5")), {"content-type": FORM}),
    "a form with a file of it": (form(('name="model"; filename="m"', "gpt-5")), {"content-type": FORM}),
    "a form that names none": (form(('name="n"', "1")), {"content-type": FORM}),
    "a form that breaks off": (form(('name="model"', "gpt-5"))[:-8], {"content-type": FORM}),
    "a form without a boundary": (form(('name="model"', "gpt-5")), {"content-type": "multipart/form-data"}),
    "bare line feeds": (form(('name="model"', "gpt-5")).replace(b"\r\n", b"\n"), {"content-type": FORM}),
}


@pytest.mark.parametrize("way", ROUND)
@pytest.mark.parametrize("path", ["embeddings", "responses", "images/edits"])
def test_s1_no_body_gets_round_the_model_list(
    listed: GatewayProcess, upstream: MockUpstream, way: str, path: str
) -> None:
    """Whatever it is called: a body is read all the same, or refused."""
    raw, headers = ROUND[way]
    answer = listed.post(f"/{path}", content=raw, headers={"content-type": "application/json", **headers}, key=CLIENT)
    assert answer.status_code in (400, 404, 415), answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert SECRET not in answer.text
    assert not upstream.requests


def test_s1_what_was_understood_is_what_goes_up(listed: GatewayProcess, upstream: MockUpstream) -> None:
    """A doubled member is sent once, and a body by another content type is sent as the JSON that it is."""
    raw = b'{"model": "gpt-5", "x": 1, "model": "gpt-4o"}'
    for kind in ("application/json", "text/plain"):
        assert listed.post("/embeddings", content=raw, headers={"content-type": kind}, key=CLIENT).json() == {
            "ok": True
        }
        assert upstream.requests[-1].raw in (b'{"model":"real","x":1}', b'{"x":1,"model":"real"}')
        assert upstream.requests[-1].headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "call",
    [
        "POST engines/gpt-5/completions",
        "POST openai/deployments/gpt-5/chat/completions",
        "POST deployments/gpt-5/embeddings",
        "POST ENGINES/gpt-5/embeddings",
        "POST realtime/calls?model=gpt-5",
        "POST realtime/calls?Model=gpt-5",
        "POST embeddings?model=gpt-5",
        "POST Chat/completions",
        "POST chat/completions;x",
        "POST chat//completions",
        "POST /chat/completions",
        "POST ../openai/deployments/gpt-5/chat/completions",
        "POST chat%2F..%2Fembeddings",
        "PUT responses",
        "GET engines/gpt-5",
        "DELETE models/gpt-5",
        "GET models/gpt-5%2F",
        "POST fine_tuning/jobs",
        "POST assistants",
    ],
)
def test_s1_no_address_gets_round_the_model_list(listed: GatewayProcess, upstream: MockUpstream, call: str) -> None:
    """Other spellings of a path, and models that stand in path or query."""
    method, path = call.split(" ")
    with listed.http(CLIENT) as plain:
        content = None if method in ("GET", "DELETE") else UNLISTED
        request = plain.build_request(method, "/x", content=content)
        request.url = request.url.copy_with(raw_path=f"/v1/{path}".encode())
        answer = plain.send(request)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error"), answer.text
    assert not upstream.requests


def test_s1_another_spelling_of_the_member_in_a_chat(listed: GatewayProcess, upstream: MockUpstream) -> None:
    """Some servers take `Model` for `model`."""
    answer = listed.post("/chat/completions", json={"model": "gpt-4o", "Model": "gpt-5", "messages": ASK}, key=CLIENT)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Model")
    assert not upstream.requests


def test_s1_an_internal_model_that_is_not_listed(listed: GatewayProcess, upstream: MockUpstream) -> None:
    """`context.models` of a request: a 400 that names field and nearest."""
    context = {"models": {"context_planner": "gpt-4"}}
    answer = listed.post("/chat/completions", json={"model": "gpt-4o", "messages": ASK, "context": context}, key=CLIENT)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "context.models.context_planner")
    assert "Did you mean 'gpt-4o'?" in error["message"]
    assert not upstream.requests


def test_s1_unlisted_models_may_be_relayed(
    start_gateway: GatewayFactory, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """`upstream.unlisted: relay`: other names go to the default upstream as they are, bodies byte for byte."""
    gateway = start_gateway({"upstream": {"unlisted": "relay"}})
    upstream.models.append("gpt-5")
    client = make_client(gateway, CLIENT)
    client.chat.completions.create(model="gpt-5", messages=ASK)
    assert upstream.last.headers["authorization"] == f"Bearer {CLIENT}"
    assert client.models.retrieve("gpt-5").id == "gpt-5"
    assert client.models.retrieve("small").id == "small"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4oo")
    assert "Did you mean 'gpt-4o'" in str(caught.value)
    upstream.routes["POST /v1/embeddings"] = Reply(json={})
    for raw in (b'{"model":  "m"}', b"no JSON", b'{"model": 1}', b'{"MODEL": 1}'):
        gateway.post("/embeddings", content=raw, headers={"content-type": "text/plain"}, key=CLIENT)
        assert upstream.requests[-1].raw == raw
        assert upstream.requests[-1].headers["content-type"] == "text/plain"


def test_s1_without_a_model_list_every_name_goes_up(own_key_gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """With the client's own key; bodies are not read."""
    upstream.routes["POST /v1/embeddings"] = Reply(json={})
    for raw in (b'{"model": "any"}', b"model=any", gzip.compress(b"{}")):
        assert (
            own_key_gateway.post("/embeddings", content=raw, headers={"content-type": "x/y"}, key=CLIENT).status_code
            == 200
        )
        assert upstream.requests[-1].raw == raw
    answer = own_key_gateway.post("/chat/completions", json={"model": "any", "Model": "x", "messages": ASK}, key=CLIENT)
    assert answer.status_code == 200
    assert upstream.last.body["Model"] == "x"


def test_s1_a_model_that_its_upstream_has_without_listing_it(
    own_key_gateway: GatewayProcess, start_gateway: GatewayFactory, upstream: MockUpstream, make_client: ClientFactory
) -> None:
    """An alias, or a model of the client's own. Nothing else of the upstream's is reached, nor with another's key."""
    alias = {"id": "latest-2026", "object": "model", "created": 7, "owned_by": "me"}
    upstream.routes["GET /v1/models/org/latest:1"] = Reply(json=alias)
    upstream.routes["GET /v1/files"] = Reply(json=alias)
    upstream.routes["GET /v1/models/odd"] = Reply(json={"error": "Unexpected endpoint"})
    client = make_client(own_key_gateway, CLIENT)
    assert client.models.retrieve("org/latest:1").to_dict() == alias
    for name in ("../files", "odd", "large"):
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve(name)
    kept = start_gateway({"model_list": [], "upstream": {"api_key": "sk-operator"}})
    with pytest.raises(openai.NotFoundError):
        make_client(kept, CLIENT).models.retrieve("org/latest:1")


def test_s1_a_list_of_patterns_alone(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """`GET /v1/models` names what the default upstream has of them."""
    listed = [entry("gpt-*", upstream.base_url, model="openai/gpt-*")]
    gateway = start_gateway({"model_list": listed})
    found = [model["id"] for model in gateway.get("/models", key=CLIENT).json()["data"]]
    assert found == [name for name in upstream.models if name.startswith("gpt-")]
    assert gateway.get("/models/gpt-9", key=CLIENT).status_code == 200
    assert gateway.get("/models/small", key=CLIENT).json()["error"]["code"] == "model_not_found"


def test_s8_credentials_of_another_kind_stay_here(
    listed: GatewayProcess, own_key_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """In headers and in the query, relayed and in chats, with an operator's key and with the client's own."""
    upstream.routes["POST /listed/v1/chat/completions"] = upstream.routes["POST /listed/v1/embeddings"]
    upstream.routes["POST /v1/messages"] = Reply(json={})
    for gateway, paths in ((listed, ["embeddings", "chat/completions"]), (own_key_gateway, ["embeddings", "messages"])):
        for path in paths:
            body = {"model": "gpt-4o", "messages": ASK, "input": "a"}
            headers = {**FOREIGN, "openai-project": "p", "x-trace": "t", "idempotency-key": "k"}
            gateway.post(f"/{path}?key=AIza-2&api_key=k&api-version=1", json=body, headers=headers, key=CLIENT)
            sent = upstream.requests[-1]
            assert not set(FOREIGN) & set(sent.headers), path
            assert "AIza" not in str(sent.headers) + sent.path + str(getattr(sent, "query", ""))
            assert sent.headers["openai-project"] == "p"
            if gateway is own_key_gateway:
                assert (sent.headers["x-trace"], sent.headers["idempotency-key"]) == ("t", "k")
            else:
                assert "x-trace" not in sent.headers, "with an operator's key only listed headers go up"


def test_s8_an_operators_credential_in_an_extra_header(start_gateway: GatewayFactory, upstream: MockUpstream) -> None:
    """It counts as the entry's key: the client's own is not sent with it."""
    listed = [entry("m", upstream.base_url, extra_headers={"X-Api-Key": "sk-header"})]
    gateway = start_gateway({"model_list": listed})
    gateway.post("/chat/completions", json={"model": "m", "messages": ASK}, key=CLIENT)
    assert upstream.last.headers["x-api-key"] == "sk-header"
    assert "authorization" not in upstream.last.headers
