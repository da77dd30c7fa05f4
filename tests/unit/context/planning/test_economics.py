"""A saving is what bills realise, and nobody is paid for a plan that cannot earn its price (guarantee §5)."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from openai import OpenAI

from tests.support.answers import Json, chat, used, user
from tests.support.command import gateway_command
from tests.support.documents import keeper, lamps, prompt_tokens, prose, text_of
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.internal_models import InternalModels, every
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply, count_usage

CHEAP, DEAR = 0.00000015, 0.00002
TURNS = 12
QUESTIONS = (
    "Thank you, that was clear.",
    "Which of the words harbour and port is older?",
    "Please write a haiku about tea.",
    "How do you spell accommodation?",
    "Name three colours of the rainbow.",
    "What is seven times eight?",
    "Say good morning in French.",
    "And how do you say goodbye?",
)
"""None of them calls for a document."""
DOCUMENTS = [{"title": f"Report {n}", "content": prose(n, 2500)} for n in range(4)]


class Counting:
    """Answers in a few words, and reports the tokens of each prompt as it came; planners are scripted."""

    def __init__(
        self, planner: Callable[..., Reply], answer: Callable[[Json], Reply | None] = lambda body: None
    ) -> None:
        self.models = InternalModels(planner, primary=self._primary)
        self._answer = answer
        self.prompts: list[int] = []

    def __call__(self, record: Any) -> Reply | None:
        return self.models(record)

    def _primary(self, body: Json) -> Reply:
        reply = self._answer(body) or Reply(text=f"Certainly, number {len(self.prompts)}.")
        self.prompts.append(prompt_tokens(body))
        reply.usage = count_usage(self.prompts[-1], 5)
        return reply


@pytest.fixture
def planning(start_gateway: GatewayFactory, upstream: MockUpstream) -> GatewayProcess:
    """Models that hold everything, at a low and a high price; a planner that is trusted."""
    params = {"api_base": upstream.base_url, "api_key": "sk-upstream"}

    def model(name: str, price: float) -> Json:
        info = {
            "max_input_tokens": 120_000, "max_output_tokens": 512, "tokenizer": "o200k_base",
            "input_cost_per_token": price, "output_cost_per_token": price,
        }  # fmt: skip
        return {"model_name": name, "litellm_params": {"model": f"openai/{name}", **params}, "model_info": info}

    planner = {"model_name": "gpt-4o-mini", "litellm_params": {"model": "openai/gpt-4o-mini", **params}}
    listed = [model("cheap", CHEAP), model("dear", DEAR), model("free", 0), planner]
    return start_gateway({"model_list": listed, "context": {"planning": "auto", "trust_planner": True}})


def tool_session(
    gateway: GatewayProcess, upstream: MockUpstream, steps: int = 1, **more: Any
) -> tuple[Counting, list[Json]]:
    """Turns of an agent that resends everything, each with that many tool steps; results are middling and always fit.
    Returns what its models were asked, and all answers."""

    def next_step(body: Json) -> Reply | None:
        tools = 0
        for message in reversed(body["messages"]):
            if message["role"] == "user":
                break
            tools += message["role"] == "tool"
        return Reply(tool_calls=[("look_up", {"n": len(counting.prompts)})]) if tools < steps else None

    upstream.handler = counting = Counting(every("rag_extract", extraction_query="harbour"), next_step)
    said: list[Json] = []
    answers: list[Json] = []
    for turn in range(TURNS if steps == 1 else 3):
        said.append(user(f"How is harbour {turn}?"))
        while True:
            answer = chat(gateway, messages=said, **more)
            answers.append(answer)
            message = answer["choices"][0]["message"]
            said.append({"role": "assistant", **{k: message[k] for k in ("content", "tool_calls") if message.get(k)}})
            if not message.get("tool_calls"):
                break
            call_id = message["tool_calls"][0]["id"]
            said.append({"role": "tool", "tool_call_id": call_id, "content": prose(len(answers), 900)})
    return counting, answers


@pytest.mark.in_turn("store")
@pytest.mark.parametrize("store", [True, False])
def test_s5_a_cheap_model_whose_results_always_fit_pays_no_planner(
    planning: GatewayProcess, upstream: MockUpstream, store: bool
) -> None:
    counting, answers = tool_session(planning, upstream, model="cheap", store=store)
    assert len(answers) == 2 * TURNS
    assert counting.models.planned == []


def test_s5_one_turn_asks_at_most_once_however_many_steps_it_has(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    counting, answers = tool_session(planning, upstream, steps=4, model="dear")
    assert len(answers) == 3 * 5
    assert len(counting.models.planned) == 3
    reasons = [used(answer)["planning_reason"] for answer in answers]
    assert reasons[1:5] == ["expensive_primary", *["asked_this_turn"] * 3]


def test_s5_where_nothing_can_stand_a_dear_model_pays_no_planner_either(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    counting, answers = tool_session(planning, upstream, steps=4, model="dear", store=False)
    assert counting.models.planned == []
    assert "nothing_stands" in {used(answer)["planning_reason"] for answer in answers}


def talk(gateway: GatewayProcess, **first: Any) -> list[Json]:
    """A question over four documents, then eight short ones."""
    more = {"context": first.pop("context", {})}
    answers = [chat(gateway, messages=[user("Who is who?")], attachments=DOCUMENTS, **more, **first)]
    more["conversation"] = answers[0]["conversation"]
    return answers + [chat(gateway, messages=[user(text)], **more, **first) for text in QUESTIONS]


@pytest.mark.parametrize(
    ("model", "context"),
    [("dear", {}), ("dear", {"planning": "never", "max_input_tokens": 4000})],
    ids=["planned", "heuristic pass"],
)
def test_s5_the_saving_that_bills_claim_is_the_one_that_was_had(
    planning: GatewayProcess, upstream: MockUpstream, model: str, context: Json
) -> None:
    """Against the same conversation with everything included, by the tokens that the upstream reported."""
    upstream.handler = counting = Counting(every("exclude"))
    told = [used(answer) for answer in talk(planning, model=model, context=context)]
    without, counting.prompts = counting.prompts, []
    talk(planning, model=model, context={"planning": "never"})
    real = sum(counting.prompts) - sum(without)
    assert real > 50_000
    claimed = sum(each["economics"]["realised_tokens"] for each in told)
    assert claimed == pytest.approx(real, rel=0.2)
    usd = sum(each["economics"]["realised_saving"] for each in told)
    assert float(usd) == pytest.approx(real * DEAR, rel=0.2)
    assert [each["economics"]["pending"] for each in told[1:]] == [False] * len(QUESTIONS)
    fed_back = max(without[1:]) - without[0]
    assert fed_back < 600, "nothing comes back merely because there is room"


def test_s5_a_question_brings_back_what_it_calls_for_and_says_so(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """Left out by a plan or by a pass: the passage that answers comes back, the rest stays out."""
    upstream.handler = counting = Counting(every("exclude"))
    documents = [{"title": "Lamps", "content": lamps(60)}, *DOCUMENTS]
    first = chat(planning, model="dear", messages=[user("Who is who?")], attachments=documents)
    assert keeper(41) not in text_of(counting.models.answered[-1])
    more = {"model": "dear", "conversation": first["conversation"]}
    for number in (41, 7):
        answer = chat(planning, messages=[user(f"Who is the keeper of lamp {number}?")], **more)
        assert keeper(number) in text_of(counting.models.answered[-1])
        told = {record["source"]: record for record in used(answer)["artifacts_processed"] if record.get("reason")}
        assert [record["reason"] for record in told.values()] == ["recalled"]
        assert told["attachment:0:Lamps"]["processed_size_chars"] < len(lamps(60)) / 3


def rests(answer: Json) -> bool:
    return bool(used(answer)["planning_reason"] == "planner_resting")


def test_s5_a_planner_whose_last_three_answers_were_unusable_rests(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """For this tenant, and only while nothing has to leave; a plan that is asked for is still asked for."""
    upstream.handler = counting = Counting(lambda artifacts: Reply(text="I cannot."))
    asked: Json = {"model": "dear", "messages": [user("Who is who?")], "attachments": DOCUMENTS}
    answers = [chat(planning, **asked) for _ in range(5)]
    assert [rests(answer) for answer in answers] == [False, False, False, True, True]
    assert len(counting.models.planned) == 3
    counting.models.planner = every("exclude")
    forced = chat(planning, **asked, context={"planning": "always"})
    assert used(forced)["llm_planning_used"] is True
    assert not rests(chat(planning, **asked)), "a usable answer ends the rest"


def test_s5_what_cannot_earn_its_price_is_not_asked_for(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """One large document in a window that it fills to three quarters: at this price all of it is worth less than the
    call of a planner. Once something has to leave, the planner is asked, whatever it costs."""
    upstream.handler = counting = Counting(every("exclude"))
    asked: Json = {"model": "free", "messages": [user("Who is who?")]}
    document = [{"title": "Report", "content": prose(1, 11_000)}]
    answer = chat(planning, **asked, attachments=document, context={"max_input_tokens": 16_000})
    assert used(answer)["planning_reason"] == "cannot_pay"
    assert counting.models.planned == []
    answer = chat(planning, **asked, attachments=document, context={"max_input_tokens": 8000})
    assert (used(answer)["planning_reason"], len(counting.models.planned)) == ("near_limit", 1)


def test_s5_the_audit_adds_up_what_bills_realised(planning: GatewayProcess, upstream: MockUpstream) -> None:
    upstream.handler = Counting(every("exclude"))
    answers = talk(planning, model="dear")
    total = sum(used(answer)["economics"]["realised_saving"] for answer in answers)
    done = gateway_command("audit", "--config", str(planning.config_path), directory=planning.directory)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    heads = [line for line in lines if line.endswith("saved USD")]
    assert len(heads) == 3, "by model, by tenant, and in all"
    assert lines[lines.index(heads[-1]) + 1].split()[-1] == f"{total:.12f}"


class Stamping:
    """A real tool loop of OpenAI's SDK that resends everything. Its user message says another time at each step."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream, *, stamps: bool = True, **more: Any) -> None:
        self._client = OpenAI(base_url=gateway.base_url, api_key="sk-stamping", max_retries=0)
        self._stamps, self._more = stamps, more
        upstream.handler = self.counting = Counting(every("rag_extract", extraction_query="harbour"), self._next)
        self.steps = 6
        self.answers: list[Json] = []
        self._said: list[Any] = []

    def _next(self, body: Json) -> Reply | None:
        behind = itertools.takewhile(lambda message: message["role"] != "user", reversed(body["messages"]))
        done = sum(message["role"] == "tool" for message in behind)
        return Reply(tool_calls=[("look_up", {"n": len(self.answers)})]) if done < self.steps else None

    def turn(self, question: str, chars: int = 900) -> list[str]:
        """Why a planner was asked, or not, at each step."""
        self._said.append({})
        at, first = len(self._said) - 1, len(self.answers)
        while True:
            self._said[at] = user(f"{question} {len(self.answers) if self._stamps else ''}")
            found = self._client.chat.completions.create(messages=self._said, **self._more)
            self.answers.append(found.model_dump())
            message = found.choices[0].message
            self._said.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return [used(answer)["planning_reason"] for answer in self.answers[first:]]
            said = prose(len(self.answers), chars)
            self._said.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": said})


@pytest.mark.parametrize(
    ("stamps", "named"),
    [(True, False), (True, True), (False, False)],
    ids=["its message changes", "its message changes, by name", "match off"],
)
def test_s5_who_is_not_recognised_pays_no_planner_while_all_fits(
    start_gateway: GatewayFactory, planning: GatewayProcess, upstream: MockUpstream, stamps: bool, named: bool
) -> None:
    """A client whose user message is another at each step, by a name of its own or without; or nobody is matched."""
    assert planning.config is not None
    gateway = planning if stamps else start_gateway({**planning.config, "conversation": {"match": "off"}})
    headers = {"X-Context-Session": "loop"} if named else {}
    loop = Stamping(gateway, upstream, stamps=stamps, model="dear", extra_headers=headers)
    for turn in range(2):
        reasons = loop.turn(f"How is harbour {turn}?")
        assert reasons[1:] == ["not_recognised"] * loop.steps
    assert loop.counting.models.planned == []


@pytest.mark.in_turn("store")
@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("stamps", [True, False], ids=["its message changes", "match off"])
def test_s5_who_is_not_recognised_pays_one_planner_a_turn_where_things_have_to_leave(
    start_gateway: GatewayFactory, planning: GatewayProcess, upstream: MockUpstream, stamps: bool, store: bool
) -> None:
    assert planning.config is not None
    gateway = planning if stamps else start_gateway({**planning.config, "conversation": {"match": "off"}})
    body = {"store": store, "context": {"max_input_tokens": 4000}}
    loop = Stamping(gateway, upstream, stamps=stamps, model="dear", extra_body=body)
    for turn in range(1, 3):
        reasons = loop.turn(f"How is harbour {turn}?", 1500)
        assert "asked_this_turn" in reasons
        assert len(loop.counting.models.planned) == turn


def test_s5_a_conversation_with_the_ids_of_another_asks_its_own_planner(
    planning: GatewayProcess, upstream: MockUpstream
) -> None:
    """Scripts and local servers repeat ids and questions; the results are others. A request that is asked again is a
    turn of its own; a later step of the same loop asks no more."""
    upstream.handler = Counting(every("rag_extract", extraction_query="harbour"))
    call = {"id": "call_0", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    asked = []
    for seed, steps in ((1, 1), (2, 1), (2, 1), (2, 2)):
        result = {"role": "tool", "tool_call_id": "call_0", "content": prose(seed, 40_000)}
        more = [{"role": "assistant", "tool_calls": [call | {"id": "call_1"}]}, result | {"tool_call_id": "call_1"}]
        said = [user("How is harbour 1?"), {"role": "assistant", "tool_calls": [call]}, result, *more[: 2 * steps - 2]]
        context = {"planning": "always", "max_input_tokens": 3000}
        asked.append(used(chat(planning, *said, model="dear", context=context, store=False))["planning_reason"])
    assert asked == ["forced", "forced", "forced", "asked_this_turn"]


def test_s5_a_request_that_is_asked_again_is_no_later_step(planning: GatewayProcess, upstream: MockUpstream) -> None:
    """The same messages with another budget, or to another model: the table decides as it did the first time."""
    upstream.handler = counting = Counting(every("include_full"))
    call = {"id": "call_0", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "call_0", "content": prose(3, 9000)}
    said = [user("How is harbour 2?"), {"role": "assistant", "tool_calls": [call]}, result]
    for _ in range(2):
        answer = chat(planning, *said, model="dear", context={"planning": "always"})
        assert used(answer)["planning_reason"] == "forced"
    assert used(chat(planning, *said, model="free"))["planning_reason"] == "fits"
    assert len(counting.models.planned) == 2
