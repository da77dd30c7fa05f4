"""Conversations with agents, pins, summaries, things and profiles switched on at random (guarantee §4, §11)."""

import asyncio
from collections import Counter
from collections.abc import Iterable

import pytest

from gateway.core.config.settings import Settings
from tests.properties.checks.seen import Broken
from tests.properties.everything import PROFILES, Everything
from tests.properties.running import FACTS
from tests.properties.talks import Script
from tests.support.in_process import InProcess
from tests.support.marks import few_or_many

REQUESTS = 8
DOCUMENT_CHARS = 1200
FOUND = (
    *(2_000_972, 2_000_677, 2_002_508, 2292, 100_993, 101_367, 105_352, 105_811, 702_048, 709_279, 721_222, 741_290),
    *(140, 178),
)
"""Conversations that once showed a fault: a pinned document that had left the window was forwarded as a file; the
context of an agent left no room for the label of a file, which was refused; tags in data were taken for marks, with
one in the user's last paragraph or by themselves; the check of §1 forgot the room of blocks that stand, and
that of what a question needs; a block repeated what a pinned message said; the check of §4 I5 took a turn that had
left for its summary, with nothing else in the window that stood, for one that had left for room; a turn left for a
summary that had no room."""

CHANGED_IN_KEPT = 1026
"""A conversation in which a message that kept its block was to keep what it said of its own files."""


@few_or_many(6, 1000)
def test_s4_the_invariants_hold_with_everything_switched_on_at_random(number: int) -> None:
    """§4 I1 to I7 and §11.12 to §11.14 at once; agents with sections have those of §4 that hold for sections."""
    found = asyncio.run(_play(range(number)))
    assert found["asked"] > number * REQUESTS / 2
    for name in ("sections", "chat agent", "pinned", "summaries", "things", "profile", "not stored"):
        assert found[f"with {name}"] >= number / 20, name


@few_or_many(2, 500)
def test_s14_6_documents_that_come_again_stand_once(number: int) -> None:
    """As files, attached or both, in any turn; they leave, are reduced, pinned, and all is sent again."""
    found = asyncio.run(_play((*range(number), CHANGED_IN_KEPT), again=True))
    assert found["with same"] > number / 2


@pytest.mark.chaos
def test_s11_conversations_that_once_showed_a_fault() -> None:
    assert asyncio.run(_play(FOUND))["asked"] > len(FOUND)


async def _play(seeds: Iterable[int], *, again: bool = False) -> Counter[str]:
    """Raises AssertionError: a request broke an invariant; with the conversation's seed."""
    found: Counter[str] = Counter()
    for profiles in (None, PROFILES):
        script = Script()
        own = {"prompt_profiles": profiles} if profiles else {}
        context = {"document_min_chars": DOCUMENT_CHARS}
        settings = Settings.model_validate({"storage": {"url": "sqlite:///:memory:"}, "context": context, **own})
        gateway = await InProcess(settings, FACTS, script).prepare()
        player = Everything(gateway, script, DOCUMENT_CHARS, again=again)
        try:
            for seed in seeds:
                if seed % 2 == bool(profiles):
                    try:
                        found += await player.play(seed, REQUESTS)
                    except Broken as broken:
                        raise AssertionError(f"conversation {seed}: {broken}") from broken
        finally:
            await gateway.close()
    return found
