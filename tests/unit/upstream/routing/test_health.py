"""A deployment rests when it fails, and one request tries it afterwards (guarantee §12.8)."""

import asyncio
import random
from typing import Any

import pytest

from gateway.core import errors
from gateway.core.config.model_list import ModelEntry
from gateway.core.config.setting_sections import RoutingSettings
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.routing.deployments import GroupMember
from gateway.upstream.routing.health import DeploymentFault, DeploymentWatch, HealthWatch, SlidingMinute, fault_of
from tests.support.hand_clock import HandClock

ONE = ModelDeployment("m", "m", "openai/m", "http://one/v1", "sk", operator_key=True, id="one")
CLIENTS = ModelDeployment("m", "m", "openai/m", "http://one/v1", "sk", operator_key=False, id="one")
DOWN = errors.UpstreamUnreachable("down")


def refused(status: int, code: str | None = None, **headers: str) -> errors.UpstreamRefused:
    body = {"error": {"message": "no", "code": code}}
    return errors.UpstreamRefused(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


class Ward:
    """A deployment that a test makes fail and answer."""

    def __init__(self, deployment: ModelDeployment = ONE, **settings: Any) -> None:
        self.clock = HandClock(1000.0)
        self.deployment = deployment
        self.health = HealthWatch(RoutingSettings(**settings), self.clock)

    def fails(self, error: BaseException = DOWN, times: int = 1) -> None:
        for _ in range(times):
            self.health.began(self.deployment).ended(error)

    def answers(self, times: int = 1) -> None:
        for _ in range(times):
            self.health.began(self.deployment).ended()

    def after(self, seconds: float) -> None:
        self.clock.seconds += seconds

    def rests(self) -> bool:
        return self.health.rests(self.deployment.id)

    @property
    def watch(self) -> DeploymentWatch:
        return next(watch for watch, _ in self.health.watched())

    def rest_seconds(self) -> float:
        """How long it rests if nobody asks."""
        start = self.clock.seconds
        while self.rests():
            self.after(0.5)
            assert self.clock.seconds < start + 1000
        return self.clock.seconds - start


@pytest.fixture
def ward() -> Ward:
    return Ward()


@pytest.mark.parametrize(
    ("error", "fault", "with_any_key"),
    [
        (DOWN, DeploymentFault("upstream_unreachable"), True),
        (errors.UpstreamTimeout("slow"), DeploymentFault("upstream_timeout"), True),
        (errors.UpstreamInterrupted("cut"), DeploymentFault("upstream_interrupted"), True),
        (errors.UpstreamInvalidResponse("odd"), DeploymentFault("upstream_invalid_response"), True),
        (refused(500), DeploymentFault("upstream_500"), True),
        (refused(503, retry_after="7"), DeploymentFault("upstream_503", wait=7), True),
        (refused(529), DeploymentFault("upstream_529"), True),
        (refused(520), DeploymentFault("upstream_520"), True),
        (errors.UpstreamAuth("key"), DeploymentFault("upstream_auth", at_once=True), True),
        (refused(402), DeploymentFault("upstream_402", at_once=True), False),
        (refused(401), DeploymentFault("upstream_401", at_once=True), False),
        (refused(429), DeploymentFault("upstream_429"), False),
        (refused(429, "insufficient_quota"), DeploymentFault("upstream_429", at_once=True), False),
        (refused(429, retry_after_ms="1500"), DeploymentFault("upstream_429", wait=1.5), False),
        (refused(429, retry_after="Sat, 21 Nov 2026 00:00:30 GMT"), DeploymentFault("upstream_429", wait=30), False),
        (refused(429, retry_after="Sat, 21 Nov 2020 00:00:30 GMT"), DeploymentFault("upstream_429", wait=0), False),
        (refused(429, retry_after="soon"), DeploymentFault("upstream_429"), False),
        *((refused(status), None, True) for status in (400, 404, 413, 422, 501)),
        (errors.UpstreamOverflow({}, {}), None, True),
        (errors.ContextLengthExceeded("long"), None, True),
        (errors.InternalError("ours"), None, True),
        (asyncio.CancelledError(), None, True),
    ],
)
def test_s12_8_what_counts_against_a_deployment(
    error: BaseException, fault: DeploymentFault | None, with_any_key: bool
) -> None:
    """A request's own faults do not, and neither does what a client's own account may not do."""
    now = HandClock().now()
    assert fault_of(error, ONE, now) == fault
    assert fault_of(error, CLIENTS, now) == (fault if with_any_key else None)


def test_s12_8_three_failures_in_a_minute_and_it_rests(ward: Ward) -> None:
    ward.fails(times=2)
    assert not ward.rests()
    ward.fails()
    assert ward.rests()
    assert ward.rest_seconds() == 5.0


def test_s12_8_failures_of_more_than_a_minute_ago_do_not_count(ward: Ward) -> None:
    for _ in range(6):
        ward.fails()
        ward.after(30.5)
    assert not ward.rests()


def test_s12_8_a_few_failures_of_many_requests_are_no_reason(ward: Ward) -> None:
    ward.answers(100)
    ward.fails(times=9)
    assert not ward.rests()
    ward.fails(times=3)
    assert ward.rests()


@pytest.mark.parametrize("error", [errors.UpstreamAuth("key"), refused(402), refused(429, "insufficient_quota")])
def test_s12_8_a_refused_account_is_enough_once(ward: Ward, error: BaseException) -> None:
    ward.fails(error)
    assert ward.rests()


def test_s12_8_requests_own_faults_never_rest_it(ward: Ward) -> None:
    ward.fails(refused(400), times=50)
    ward.fails(asyncio.CancelledError(), times=50)
    assert not ward.rests()
    assert ward.watch.in_flight == 0


def test_s12_8_when_the_rest_is_over_one_request_tries(ward: Ward) -> None:
    ward.fails(times=3)
    ward.after(5.0)
    assert not ward.rests()
    trial = ward.health.began(ONE)
    assert ward.rests(), "the others go elsewhere"
    trial.answered()
    assert not ward.rests(), "before its answer is over"
    trial.ended(errors.UpstreamInterrupted("cut"))
    assert not ward.rests()


def test_s12_8_rests_double_until_it_answers() -> None:
    ward = Ward(cooldown=2, cooldown_max=15)
    ward.fails(times=3)
    found = []
    for _ in range(5):
        found.append(ward.rest_seconds())
        ward.fails()
    assert found == [2, 4, 8, 15, 15]
    ward.after(15)
    ward.answers()
    ward.fails(times=2)
    assert not ward.rests()
    ward.fails()
    assert ward.rest_seconds() == 2


@pytest.mark.parametrize("error", [asyncio.CancelledError(), errors.InternalError("ours")])
def test_s12_8_a_try_that_tells_nothing_leaves_it_to_the_next(ward: Ward, error: BaseException) -> None:
    ward.fails(times=3)
    ward.after(5)
    trial = ward.health.began(ONE)
    trial.ended(error)
    assert not ward.rests()
    ward.health.began(ONE)
    assert ward.rests()


def test_s12_8_a_refusal_of_what_is_asked_shows_that_it_is_there(ward: Ward) -> None:
    ward.fails(times=3)
    ward.after(5)
    ward.fails(refused(400))
    ward.health.began(ONE)
    assert not ward.rests()


def test_s12_8_a_retry_after_is_waited_for() -> None:
    ward = Ward(cooldown_max=60)
    ward.fails(refused(429, retry_after="20"))
    assert ward.rest_seconds() == 20
    ward.fails(refused(429, retry_after="3600"))
    assert ward.rest_seconds() == 60, "at most cooldown_max"
    ward.answers()
    ward.fails(refused(429, retry_after="0"))
    assert not ward.rests()


def test_s12_8_a_longer_wait_counts_while_it_rests(ward: Ward) -> None:
    ward.fails(times=3)
    ward.fails(refused(429, retry_after="20"))
    assert ward.rest_seconds() == 20


def test_s12_8_an_answer_to_an_older_request_does_not_wake_it(ward: Ward) -> None:
    older = ward.health.began(ONE)
    ward.after(1)
    ward.fails(times=3)
    older.ended()
    assert ward.rests()
    newer = ward.health.began(ONE)  # all others rest as well
    newer.ended()
    assert not ward.rests()


def test_s12_8_probes_end_a_rest_or_let_it_last(ward: Ward) -> None:
    ward.fails(times=3)
    ward.health.probed("one", reached=False, wait=30)
    ward.after(29)
    assert ward.rests()
    ward.health.probed("one", reached=True, wait=30)
    assert not ward.rests()
    ward.health.began(ONE)
    assert ward.rests(), "only one request tries"


def test_s12_8_a_clients_key_is_not_kept_for_probes() -> None:
    ward = Ward(CLIENTS)
    ward.fails(times=3)
    assert ward.rests()
    assert (ward.watch.deployment.id, ward.watch.deployment.api_key) == ("one", None)


def test_a_try_ends_once(ward: Ward) -> None:
    begun = ward.health.began(ONE)
    assert ward.watch.in_flight == 1
    begun.ended(DOWN)
    begun.ended(DOWN)
    begun.answered()
    assert ward.watch.in_flight == 0
    assert ward.watch.failures == {"upstream_unreachable": 1}


def test_nothing_is_kept_of_what_is_no_deployment_of_model_list() -> None:
    ward = Ward(ModelDeployment("m", "m", "openai/m", "http://one/v1", "sk", operator_key=False))
    ward.fails(times=10)
    ward.answers()
    assert not ward.rests()
    assert not list(ward.health.watched())


def member(**params: Any) -> GroupMember:
    return GroupMember(
        "one", ModelEntry.model_validate({"model_name": "m", "litellm_params": {"model": "m", **params}})
    )


@pytest.mark.parametrize(
    ("limit", "least"),
    [({"max_parallel_requests": 2}, 2), ({"rpm": 3}, 3), ({"tpm": 100}, 4), ({"rpm": 0}, 0), ({}, None)],
)
def test_s12_5_a_deployment_at_one_of_its_limits_says_so(ward: Ward, limit: dict[str, int], least: int | None) -> None:
    limited = member(**limit)
    for number in range(6):
        assert ward.health.state(limited).full is (least is not None and number >= least)
        ward.health.began(ONE, tokens=30)


def test_s12_5_limits_are_those_of_a_minute_or_of_the_moment(ward: Ward) -> None:
    begun = [ward.health.began(ONE) for _ in range(3)]
    for each in begun:
        each.ended(tokens=50)
    assert not ward.health.state(member(max_parallel_requests=1)).full
    assert ward.health.state(member(rpm=3)).full
    assert ward.health.state(member(tpm=150)).full
    ward.after(120)
    assert not ward.health.state(member(rpm=3)).full
    assert not ward.health.state(member(tpm=150)).full


def test_s12_5_latency_is_a_moving_average_until_the_first_byte(ward: Ward) -> None:
    assert ward.health.state(member()).latency is None
    for seconds in (1.0, 2.0):
        begun = ward.health.began(ONE)
        ward.after(seconds)
        begun.answered()
        ward.after(100)  # the rest of the answer
        begun.ended()
    assert ward.health.state(member()).latency == pytest.approx(1.3)
    ward.after(300)
    assert ward.health.state(member()).latency is None, "too old to tell anything"


def test_a_minute_is_never_off_by_more_than_what_came_in_one() -> None:
    chance, minute = random.Random(19), SlidingMinute()
    events: list[float] = []
    at = 7.0
    for _ in range(2000):
        at += chance.expovariate(2.0)
        minute.add(1, at)
        events.append(at)
        exact = sum(1 for each in events if each > at - 60)
        assert abs(minute.within(at) - exact) <= max(20, exact * 0.25)
    assert minute.within(at + 120) == 0
