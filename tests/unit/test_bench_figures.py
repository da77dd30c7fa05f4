"""The benchmark's arithmetic: what a figure is divided by, and which way a ratio goes."""

import math
import os
from typing import Any

import pytest

from benchmarks.cases import CASES, OPEN
from benchmarks.connection import Answer
from benchmarks.context.contents import session
from benchmarks.job import Gathered, Job, Kind, Result, Window
from benchmarks.load import bodies
from benchmarks.processor import cpu_ns
from benchmarks.report import cost_us, figures
from benchmarks.rounds import Plan, Sample
from gateway.context.tokens.counter import CounterRegistry
from gateway.core.types.chat import ModelFacts

CASE = {case.name: case for case in CASES}


def sample(case: str, server: str, **result: Any) -> Sample:
    return Sample(0, CASE[case], 4, server, Result(seconds=1.0, **result))


def test_a_request_costs_its_share_of_the_time() -> None:
    assert cost_us(sample("chat1k", "bare", requests=10, cpu_ns=5_000_000), {}) == 500


def test_a_chunk_of_a_burst_costs_what_opening_does_not() -> None:
    """10 streams of 200 chunks and a finish chunk, 1.4 ms each of which 0.4 ms are the opening with its two."""
    burst = sample("burst", "bare", requests=10, cpu_ns=14_000_000, events=2010)
    assert cost_us(burst, {(0, 4, "bare"): 400.0}) == pytest.approx(1000 / 199)


def test_a_paced_chunk_costs_what_the_window_says() -> None:
    assert cost_us(sample("chunk", "bare", requests=4, cpu_ns=10**9, window_cpu_ns=10**6, window_events=50), {}) == 20
    assert math.isnan(cost_us(sample("chunk", "bare", requests=4, cpu_ns=10**9), {}))


def test_above_one_is_cheaper_than_the_bare_relay() -> None:
    bare = sample("chat1k", "bare", requests=10, cpu_ns=10_000_000)
    ours = sample("chat1k", "gateway", requests=10, cpu_ns=2_500_000)
    (figure,) = figures([bare, ours])
    assert figure["us"] == {"bare": 1000, "gateway": 250}
    assert figure["times_cheaper_than_bare"] == {"gateway": 4}


def test_the_window_holds_the_time_in_which_all_streams_run() -> None:
    window = Window(iter([100, 160]).__next__, streams=2)
    window.read(first=True, events=5)
    window.read(first=False, events=7)
    window.read(first=True, events=1)
    window.read(first=False, events=3)
    window.stream_ended()
    window.read(first=False, events=9)
    assert (window.cpu_ns, window.events) == (60, 3)


def test_cut_streams_and_5xx_fail_but_those_hung_up_on_do_not() -> None:
    gathered = Gathered(Result())
    for answer in (
        Answer(status=200, whole=True),
        Answer(status=200, whole=False),
        Answer(status=502, whole=True),
        Answer(status=0, dropped=True),
        Answer(status=429, whole=True),
    ):
        gathered.add(answer)
    result = gathered.summed()
    assert (result.requests, result.failed, result.dropped, result.refused) == (5, 2, 1, 1)


def test_chunks_at_once_are_measured_with_the_opening_of_streams() -> None:
    measured = [case for _, case, _ in Plan(1, (4,), (CASE["burst"],), 1)]
    assert measured == [OPEN, CASE["burst"]]


def test_no_two_requests_are_alike() -> None:
    job = Job(1, 1, 1, 50, (Kind("chat"), Kind("stream", (3, 0)), Kind("long_chat")))
    made = [body for body, _ in bodies(job)]
    assert len(set(made)) == 50
    assert {len(body) // 50_000 for body in made} == {0, 8}


def test_the_kernels_account_grows_with_work() -> None:
    before = cpu_ns(os.getpid())
    sum(range(200_000))
    assert cpu_ns(os.getpid()) > before


def test_a_session_is_as_large_as_asked_and_like_no_other() -> None:
    counter = CounterRegistry().counter(ModelFacts("gpt-4o"))
    messages, first, second = session(10_000, 1)
    assert 9_000 <= sum(map(counter.message, messages)) <= 20_000
    assert first != second
    assert session(10_000, 1)[0] == messages != session(10_000, 2)[0]
