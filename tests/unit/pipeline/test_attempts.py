"""Tries and waits of the sender, with candidates, clock and upstream of the test's own (guarantee §12.6)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.clock import SystemClock
from gateway.core.config.setting_sections import RoutingSettings
from gateway.core.errors import (
    GatewayError,
    InvalidRequest,
    UpstreamInterrupted,
    UpstreamOverflow,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.types.bill import CallCost
from gateway.core.types.chat import ChatRequest, JsonAnswer, ModelDeployment, ModelFacts, PromptBudget
from gateway.core.types.upstreams import UpstreamRequest
from gateway.pipeline.attempts import ModelRoutes, RequestAttempts, UpstreamSender, with_context
from gateway.pipeline.stages import PreparedRequest, RequestRun, Target, TargetWire
from tests.unit.making import chat, user

ANSWER = JsonAnswer({"choices": [{"message": {"content": "yes"}}], "usage": {"completion_tokens": 1}}, {})


def deployment(name: str) -> ModelDeployment:
    return ModelDeployment(name, name, f"openai/{name}", f"http://{name}", "sk", operator_key=True, id=name)


class Places:
    """Candidates in an order, and an attempt that notes how it ended."""

    exhausted = False

    def __init__(self, *names: str) -> None:
        self._left = [deployment(name) for name in names]
        self.several = len(names) > 1
        self.first = self._left.pop(0)
        self.log: list[tuple[str, Any]] = []

    def next(self, after: ModelDeployment, error: GatewayError) -> ModelDeployment | None:
        return self._left.pop(0) if self._left else None

    def rests(self, deployment: ModelDeployment) -> bool:
        return False

    def began(self, deployment: ModelDeployment, tokens: int = 0) -> "Places":
        self.log.append((deployment.id, None))
        return self

    def answered(self) -> None:
        self.log.append(("answered", None))

    def ended(self, error: BaseException | None = None, tokens: int = 0) -> None:
        self.log.append(("ended", error))

    def remember(self, completion_id: str, deployment: ModelDeployment) -> None:
        return None


class Script:
    """An upstream that answers what it is told, then well."""

    def __init__(self, *errors: GatewayError) -> None:
        self._errors = list(errors)
        self.asked: list[str] = []

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        self.asked.append(deployment.id)
        if self._errors:
            raise self._errors.pop(0)
        return ANSWER

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> Any:
        raise NotImplementedError


class Bills:
    """What the pipeline needs of a settlement while it asks."""

    def __init__(self) -> None:
        self.clock, self.metrics, self.usage, self.open_calls = SystemClock(), GatewayMetrics(()), self, self
        self.begun = 0

    async def begin(self, run: RequestRun, prepared: PreparedRequest) -> None:
        """There is no storage that is to know."""
        self.begun += 1

    async def of_failure(self, run: RequestRun, error: GatewayError) -> CallCost:
        return CallCost("failed_try", run.prepared.wire.deployment.route, {}, None, None, estimated=True)


class Contexts:
    """Contexts that cost nothing (as a `Preparer`)."""

    async def another(self, run: RequestRun, target: Target) -> PreparedRequest:
        made = prepared_for(replace(run.asked, model=target.model), target)
        return replace(made, asked=run.asked)

    async def reserve(self, run: RequestRun, prepared: PreparedRequest, failed: CallCost | None) -> None:
        """No budget applies."""

    async def mended(self, run: RequestRun, refusal: UpstreamRefused) -> PreparedRequest:
        raise refusal


class Models:
    """Every model is served at one place (as a `ConfiguredRouter`)."""

    def alone(self, model: str) -> Any:
        return Places(model)


def prepared_for(request: ChatRequest, target: Target) -> PreparedRequest:
    return PreparedRequest(
        request, request, target, TargetWire(target.chosen), ModelFacts(request.model), PromptBudget(None, None)
    )


def test_a_request_is_rebuilt_with_all_that_it_had() -> None:
    """Its fields are said one by one, since `replace` is dear: none is forgotten."""
    prepared = PreparedRequest(*(cast(Any, f"its {field.name}") for field in fields(PreparedRequest)))
    conversation = {name: cast(Any, f"new {name}") for name in ("request", "history", "kept_frame", "context")}
    assert with_context(prepared, **conversation) == replace(prepared, **conversation)


class Asking:
    """The loop over the targets of an upstream. `waits` are the seconds that it waited before each further try."""

    def __init__(self, upstream: Any, sleep: Callable[[float], Awaitable[None]] | None = None, **settings: Any) -> None:
        nothing: Any = None
        bills, contexts, models = cast(Any, Bills()), cast(Any, Contexts()), cast(Any, Models())
        self.bills: Bills = bills
        self.loads: list[asyncio.Event] = []
        made = RoutingSettings(**settings)
        self.waits: list[float] = []
        self.routes = ModelRoutes(
            router=models,
            settings=made,
            clock=bills.clock,
            metrics=bills.metrics,
            sleep=sleep or self._sleep,
            chance=Longest(),
        )
        sender = UpstreamSender(upstream=upstream, preparer=contexts, settings=made)
        self._attempts = RequestAttempts(
            preparer=contexts, routes=self.routes, sender=sender, settlement=bills, files=nothing, ready=self._ready
        )

    async def _ready(self, _: ModelDeployment) -> None:
        for load in self.loads:
            await load.wait()

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def whole(self, run: RequestRun) -> JsonAnswer:
        return await self._attempts.whole_answer(run)


class Longest(Random):
    """Chance that always waits as long as it may."""

    def random(self) -> float:
        return 1.0


def new_run(places: Places, **more: Any) -> RequestRun:
    request = replace(chat([user("hello")]), **more)
    return RequestRun(prepared_for(request, Target(request.model, cast(Any, places), places.first)))


DOWN, LATE, CUT = UpstreamUnreachable("down"), UpstreamTimeout("late"), UpstreamInterrupted("cut")
BUSY = UpstreamRefused(503, {"error": {"message": "busy"}}, {})


async def test_s12_6_each_other_deployment_once_and_what_may_be_charged_is_kept() -> None:
    places, upstream = Places("a", "b", "c"), Script(LATE, DOWN)
    sender = Asking(upstream)
    run = new_run(places)
    assert await sender.whole(run) is ANSWER
    assert (upstream.asked, sender.waits) == (["a", "b", "c"], [])
    assert [(call.purpose, call.model) for call in run.attempted().failed_costs] == [("failed_try", "openai/a")]
    assert run.attempted().route == ["gpt-4o", "openai/a", "openai/b", "openai/c"]
    assert places.log == [
        ("a", None),
        ("ended", LATE),
        ("b", None),
        ("ended", DOWN),
        ("c", None),
        ("answered", None),
        ("ended", None),
    ]


@pytest.mark.parametrize("places", [("a", "b", "c"), ("a", "b")])
async def test_s12_6_a_target_that_lacks_what_is_asked_for_is_passed_over(places: tuple[str, ...]) -> None:
    """The request is not at fault: others may answer it, else what the last one said counts. That target was not
    asked, and is on no bill."""
    sender = Asking(Script(BUSY, InvalidRequest("b has no seed", param="seed")))
    run = new_run(Places(*places))
    with nullcontext() if "c" in places else pytest.raises(UpstreamRefused, match="503"):
        await sender.whole(run)
    attempted = run.attempted()
    assert attempted.route == ["gpt-4o", *(f"openai/{name}" for name in places if name != "b")]
    assert [each.route for each in attempted.attempts] == attempted.route[1:]


async def test_s12_6_other_deployments_first_then_again_with_backoff() -> None:
    upstream = Script(BUSY, BUSY, BUSY)
    sender = Asking(upstream, retries=3, backoff=1.0)
    run = new_run(Places("a", "b"))
    await sender.whole(run)
    assert (upstream.asked, sender.waits) == (["a", "b", "b", "b"], [1.0, 2.0])
    assert run.attempted().route == ["gpt-4o", "openai/a", "openai/b"]


@pytest.mark.parametrize("error", [DOWN, LATE, CUT, BUSY])
async def test_a_single_deployment_is_asked_once_by_default(error: GatewayError) -> None:
    upstream = Script(error)
    sender = Asking(upstream)
    with pytest.raises(type(error)):
        await sender.whole(new_run(Places("a")))
    assert upstream.asked == ["a"]


async def test_s12_6_nothing_is_tried_for_a_client_that_has_left_or_has_got_something() -> None:
    for run in (new_run(Places("a", "b"), has_left=lambda: True), new_run(Places("a", "b"))):
        if not run.asked.has_left():
            run.delivered()
        upstream = Script(DOWN)
        sender = Asking(upstream, retries=5)
        with pytest.raises(UpstreamUnreachable):
            await sender.whole(run)
        assert upstream.asked == ["a"]


@pytest.mark.parametrize("error", [LATE, BUSY])
async def test_s12_6_a_client_that_leaves_during_a_wait_pays_for_what_was_asked(error: GatewayError) -> None:
    """Once, and nothing if that cost nothing: what is out is settled, and nothing is noted beside it."""
    upstream = Script(error, error)
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.sleep(60)

    sender = Asking(upstream, sleep, retries=1)
    run = new_run(Places("a"))
    task = asyncio.ensure_future(sender.whole(run))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert upstream.asked == ["a"]
    assert (run.attempted().is_chargeable, run.attempted().failed_costs) == (error.may_be_charged, ())


async def test_s6_10_no_call_is_open_while_what_calls_the_model_is_loaded() -> None:
    """Whoever leaves meanwhile, or the end of the process, is on no bill: nobody was asked."""
    upstream, run = Script(), new_run(Places("a"))
    sender = Asking(upstream)
    sender.loads.append(asyncio.Event())
    task = asyncio.ensure_future(sender.whole(run))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (upstream.asked, sender.bills.begun, run.attempted().is_chargeable) == ([], 0, False)
    sender.loads.clear()
    await sender.whole(new_run(Places("a")))
    assert (upstream.asked, sender.bills.begun) == (["a"], 1)


async def test_s12_6_who_has_left_by_the_end_of_a_wait_is_not_asked_for() -> None:
    left: list[bool] = []
    upstream = Script(LATE)

    async def sleep(seconds: float) -> None:
        left.append(True)

    sender = Asking(upstream, sleep, retries=1, default_fallbacks=["other"])
    run = new_run(Places("a"), has_left=lambda: bool(left))
    with pytest.raises(UpstreamTimeout):
        await sender.whole(run)
    assert (upstream.asked, run.attempted().failed_costs) == (["a"], ())


async def test_s12_6_an_outage_is_not_hammered() -> None:
    """A hundred requests, each with two further tries: no more than the budget's share asks again at once."""
    gate, most = asyncio.Event(), 0

    class Down(Script):
        async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
            self.asked.append(deployment.id)
            await asyncio.sleep(0)
            raise DOWN

    upstream = Down()

    async def sleep(seconds: float) -> None:
        nonlocal most
        most = max(most, sender.routes.budget.retrying)
        await gate.wait()

    sender = Asking(upstream, sleep, retries=2, retry_share=0.1, retry_minimum=3)
    tasks = [asyncio.ensure_future(sender.whole(new_run(Places("a")))) for _ in range(100)]
    for _ in range(10):
        await asyncio.sleep(0)
    gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, UpstreamUnreachable) for each in found)
    assert most == 10
    assert len(upstream.asked) <= 100 + 2 * 10
    assert (sender.routes.answering.count, sender.routes.budget.retrying) == (0, 0)


@given(
    errors=st.lists(st.sampled_from([DOWN, LATE, CUT, BUSY]), max_size=20),
    retries=st.one_of(st.none(), st.integers(0, 5)),
    places=st.integers(1, 4),
)
def test_s12_6_never_more_tries_than_allowed(errors: list[GatewayError], retries: int | None, places: int) -> None:
    async def asked_once() -> None:
        upstream = Script(*errors)
        sender = Asking(upstream, retries=retries)
        run = new_run(Places(*"abcd"[:places]))
        most = places if retries is None else retries + 1
        failed = (await asyncio.gather(sender.whole(run), return_exceptions=True))[0]
        asked = len(upstream.asked)
        if isinstance(failed, BaseException):
            assert (failed, asked) == (errors[asked - 1], most)
        else:
            assert asked == len(errors) + 1 <= most
        may_be_charged = [error for error in errors[: asked - 1] if error.may_be_charged]
        assert len(run.attempted().failed_costs) == len(may_be_charged)

    asyncio.run(asked_once())


async def test_s12_7_a_model_that_rests_is_not_asked_where_another_can_answer() -> None:
    for fallbacks, asked in ((True, ["other"]), (False, ["a"])):
        upstream = Script()
        sender = Asking(upstream, default_fallbacks=["other"])
        places = Places("a")
        places.exhausted = True
        run = new_run(places, fallbacks=fallbacks)
        await sender.whole(run)
        assert upstream.asked == asked
        assert run.attempted().route == ["gpt-4o", f"openai/{asked[0]}"], "who was not asked is not named"


@pytest.mark.parametrize("later", [(), (LATE,)])
@pytest.mark.parametrize("first", [DOWN, UpstreamOverflow({}, {})], ids=["down", "overflow"])
async def test_s12_7_a_model_that_rests_is_asked_once_where_no_other_answers(
    first: GatewayError, later: tuple[GatewayError, ...]
) -> None:
    """An overflow, too: the window of the other model may be the smaller."""
    upstream = Script(first, *later)
    sender = Asking(upstream, default_fallbacks=["other"])
    places = Places("a")
    places.exhausted = True
    run = new_run(places)
    with pytest.raises(UpstreamTimeout) if later else nullcontext():
        await sender.whole(run)
    assert upstream.asked == ["other", "a"]


async def test_s12_7_one_model_after_the_other_and_the_error_of_the_last() -> None:
    upstream = Script(BUSY, DOWN, LATE)
    sender = Asking(upstream, fallbacks={"gpt-4o": ["b", "c"]}, max_fallbacks=2, default_fallbacks=["d"])
    run = new_run(Places("a"))
    with pytest.raises(UpstreamTimeout):
        await sender.whole(run)
    assert upstream.asked == ["a", "b", "c"]
    assert run.attempted().route == ["gpt-4o", "openai/a", "openai/b", "openai/c"]
    assert run.asked.model == "gpt-4o"
