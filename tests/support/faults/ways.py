"""One gateway before one upstream, with each edge before each API of the upstream's; and a fault sent through."""

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx

from tests.support.answers import Json, exact
from tests.support.factory import SMALL_MODEL_INFO
from tests.support.faults.edges import EDGES, Edge, Told
from tests.support.faults.refusals import TOLD
from tests.support.faults.table import BYTES, LATE, Fault, Table
from tests.support.faults.words import ANTHROPIC, CHAT, RESPONSES, TEXT, Words
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.process import PATIENCE, wait_until
from tests.support.raw import End, Step, whole
from tests.support.reply import Reply

SHORT = 0.3
CLASSES: dict[str, Callable[[Words], Table]] = {**BYTES, **TOLD}
SECRETS = ("sk-upstream", "sk-test", "Traceback", "aiohttp", "httpx", "elsewhere", 'File "', "gateway/")
MAX_MB = 260
"""By how much memory may grow under a flood."""


@dataclass(frozen=True)
class Way:
    """A client's API and an upstream's."""

    edge: Edge
    words: Words

    def __str__(self) -> str:
        return f"{self.edge.name} over {self.words.name}"

    @property
    def speaks_alike(self) -> bool:
        """Whether an upstream's error is in the client's shape already."""
        return (self.edge.name == "messages") == (self.words is ANTHROPIC)


WAYS = tuple(
    Way(EDGES[edge], words)
    for edge, words in (
        ("chat", CHAT),
        ("chat", RESPONSES),
        ("responses", CHAT),
        ("responses", RESPONSES),
        ("messages", CHAT),
        ("messages", RESPONSES),
        ("messages", ANTHROPIC),
    )
)
"""All but those that go through LiteLLM."""


def config(upstream: MockUpstream) -> Json:
    """A model for each API, all given up after a short time."""
    keyed = {"api_key": "sk-upstream"}
    openai = {"model": "openai/small", "api_base": upstream.base_url, **keyed}
    chats = {**SMALL_MODEL_INFO, "supported_endpoints": ["/v1/chat/completions"]}
    models = [
        {"model_name": CHAT.name, "litellm_params": openai, "model_info": chats},
        {
            "model_name": RESPONSES.name,
            "litellm_params": openai,
            "model_info": {**SMALL_MODEL_INFO, "mode": "responses"},
        },
        {
            "model_name": ANTHROPIC.name,
            "litellm_params": {"model": "anthropic/claude-sonnet-4-5", "api_base": upstream.url, **keyed},
            "model_info": dict(SMALL_MODEL_INFO),
        },
    ]
    return {"model_list": models, "upstream": {"connect": SHORT, "first_byte": SHORT, "idle": SHORT}}


class Crossing:
    """Sends faults through a gateway, one after the other."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream) -> None:
        self.gateway = gateway
        self.upstream = upstream
        self._client = httpx.Client(
            base_url=gateway.base_url, headers={"authorization": "Bearer sk-test"}, trust_env=False, timeout=30
        )
        self._queue: list[tuple[Step, ...]] = []
        for words in (CHAT, RESPONSES, ANTHROPIC):
            upstream.routes[f"POST {words.path}"] = lambda _, words=words: Reply(  # type: ignore[misc]
                raw=self._queue.pop(0) if self._queue else (whole(words.body), End.KEEP)
            )

        for way in WAYS:  # the first of each kind takes longer than a fault may
            for streamed in (False, True):
                self._ask(way, streamed)

    def close(self) -> None:
        self._client.close()

    def failures(self, way: Way, table: Table) -> list[str]:
        """What is wrong with each of the faults whose outcome is not the one that it has to be."""
        found = []
        for name, fault in table.items():
            for streamed in fault.streamed:
                try:
                    self.check(way, fault, streamed)
                except Exception:
                    last = traceback.format_exc(limit=-3)
                    found.append(f"{way}, {name}, {'streamed' if streamed else 'plain'}:\n{last[-1500:]}")
        return found

    def check(self, way: Way, fault: Fault, streamed: bool) -> None:
        """Sends one, and looks at the answer, the ledger, the log, and the next answer."""
        with self._as_good_as_before(way):
            self.upstream.requests.clear()
            self._queue[:] = [fault.steps] * fault.calls
            answer = self._ask(way, streamed)
            self._check(way, fault, answer)
            calls = sum(record.path == way.words.path for record in self.upstream.requests)
            assert (calls, len(self._queue)) == (fault.calls, 0)

    def _ask(self, way: Way, streamed: bool) -> httpx.Response:
        body = {"model": way.words.name, "stream": streamed, **way.edge.asked("hello")}
        return self._client.post(way.edge.path, json=body, headers=way.edge.headers)

    @contextlib.contextmanager
    def _as_good_as_before(self, way: Way) -> Iterator[None]:
        logged = len(self.gateway.log_text())
        yield
        wait_until(lambda: self.upstream.in_flight == 0, "the end of all upstream calls")
        self._queue.clear()
        after = self._ask(way, False)
        assert (after.status_code, way.edge.text(after, strictly=True)) == (200, TEXT)
        said = self.gateway.log_text()[logged:]
        assert "Traceback" not in said, "it was no fault of our own"
        assert "sk-upstream" not in said

    def _check(self, way: Way, fault: Fault, answer: httpx.Response) -> None:
        self._check_silence(fault, answer)
        is_stream = answer.headers["content-type"].startswith("text/event-stream")
        if fault.anyhow:
            self._check_anyhow(way, answer)
        elif fault.status != 200:
            statuses = (fault.status, 504) if fault.or_late else (fault.status,)
            assert answer.status_code in statuses or (fault.status == 0 and answer.status_code >= 400), answer.text
            self._check_refused(way, fault, answer)
        elif fault.code is None:
            assert answer.status_code == 200, answer.text
            told = way.edge.stream(answer, strictly=True) if is_stream else None
            assert told is None or told.error is None
            assert (told.text if told else way.edge.text(answer, strictly=True)) == TEXT
            assert self._stored(answer.headers["x-request-id"])["status"] == "complete"
        else:
            self._check_broken(way, fault, answer)

    def _check_refused(self, way: Way, fault: Fault, answer: httpx.Response) -> None:
        """Its shape, and its row in the ledger."""
        told = way.edge.error(answer)
        self._check_told(way, fault, told)
        for name, value in fault.headers.items():
            assert answer.headers.get(name) == value, (name, answer.headers.get(name))
        bill = self._stored(answer.headers["x-request-id"])
        cost = bill["response_metadata"]["cost"]
        assert bill["status"] == "failed"
        assert (cost["estimated"], cost["total_cost"] > 0) == (fault.charged, fault.charged), cost

    def _check_broken(self, way: Way, fault: Fault, answer: httpx.Response) -> None:
        """What was delivered, the error behind it, and a `partial` turn of which the gateway counts the tokens."""
        assert answer.status_code == 200, answer.text
        told = way.edge.stream(answer, strictly=True)
        assert told.text == TEXT
        assert told.error is not None
        self._check_told(way, fault, told.error)
        bill = self._stored(told.ident)
        assert (bill["status"], bill["choices"][0]["message"]["content"]) == ("partial", TEXT)
        assert bill["response_metadata"]["cost"]["estimated"] is True
        assert bill["response_metadata"]["usage"]["completion_tokens"] == 2

    def _check_told(self, way: Way, fault: Fault, told: Told) -> None:
        """The code, the upstream's own words, and all of its error: as it came where the client's API is its own."""
        assert told.code != "internal_error", told
        as_it_came = isinstance(fault.original, dict) and {**told.body, **fault.original} == told.body
        if fault.code and not as_it_came:
            assert told.code in ((fault.code, LATE) if fault.or_late else (fault.code,)), told
        if fault.code == "context_length_exceeded":
            begins = "prompt is too long" if way.edge.name == "messages" else "This model's maximum context length is"
            assert told.message.startswith(begins) or (as_it_came and way.edge.name == "messages"), told
        if fault.said is not None:
            assert told.message == fault.said, told
        if fault.original is not None and fault.code is None:
            kept = told.body if way.speaks_alike else told.body["error"].get("upstream", told.body)
            assert kept == fault.original, told

    def _check_anyhow(self, way: Way, answer: httpx.Response) -> None:
        assert answer.status_code in (200, 502) or 400 <= answer.status_code < 500, answer.text
        assert "internal_error" not in answer.text
        if answer.status_code != 200:
            way.edge.error(answer)
        elif answer.headers["content-type"].startswith("text/event-stream"):
            way.edge.stream(answer, strictly=False)
        else:
            way.edge.text(answer, strictly=False)
        assert self._stored(answer.headers["x-request-id"])["status"] in ("complete", "partial", "failed")

    def _check_silence(self, fault: Fault, answer: httpx.Response) -> None:
        """Nothing of anybody's insides."""
        told = answer.text + str(answer.headers)
        assert fault.code == "upstream_unreachable" or "127.0.0.1" not in told
        for secret in SECRETS:
            assert secret not in told, secret

    def _stored(self, ident: str) -> Json:
        answer = self._client.get(f"/chat/completions/{ident}")
        assert answer.status_code == 200, (ident, answer.text)
        found: Json = exact(answer.text)
        return found


def flooded(crossing: Crossing, way: Way, fault: Fault) -> None:
    """Memory is bounded, and the upstream call is ended."""
    before = crossing.gateway.rss_mb()
    crossing.check(way, fault, fault.streamed[0])
    assert all(record.done.wait(PATIENCE) for record in crossing.upstream.requests)
    assert crossing.gateway.peak_mb() - before < MAX_MB
