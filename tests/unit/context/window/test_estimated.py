"""A prompt of a model whose tokenizer is another is as good as its estimate: a little stays free (guarantee §4 I1)."""

import pytest

from gateway.core.config.settings import ContextSettings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.types.chat import ModelFacts
from tests.unit.making import assistant, build, user

ESTIMATED = ModelFacts("openai/some-llama", token_margin=0.9)
OWN = ModelFacts("gpt-4o")
FULL = ContextSettings(low_water=1)
TALK = [m for n in range(60) for m in (user(f"question {n} " + "word " * 40), assistant(f"answer {n} " + "word " * 60))]


async def filled(facts: ModelFacts, words: int, budget: int) -> int:
    asked = [*TALK, user("last " + "word " * words)]
    return (await build(asked, budget, settings=FULL, facts=facts)).fitted.tokens


@pytest.mark.long
async def test_s4_i1_an_estimate_leaves_room_for_what_it_may_be_wrong_by() -> None:
    budgets = range(1000, 5000, 500)
    for budget in budgets:
        assert 0.95 * budget < await filled(ESTIMATED, 20, budget) <= 0.99 * budget
    assert any([await filled(OWN, 20, budget) > 0.99 * budget for budget in budgets])


async def test_what_cannot_be_made_shorter_may_take_all_of_the_budget() -> None:
    least = (await build([user("last " + "word " * 900)], None, facts=ESTIMATED)).counting
    assert least is not None
    needed = least.message(user("last " + "word " * 900)) + 3
    assert await filled(ESTIMATED, 900, needed) == needed
    with pytest.raises(ContextLengthExceeded):
        await filled(ESTIMATED, 900, needed - 1)


@pytest.mark.parametrize(
    ("url", "estimated"),
    [
        ("data:image/png;base64,AAAA", False),
        ("DATA:image/png;base64,AAAA", False),
        ("https://example.invalid/a.png", True),
    ],
)
async def test_s6_a_picture_is_guessed_only_where_its_data_is_elsewhere(url: str, estimated: bool) -> None:
    picture = {"type": "image_url", "image_url": {"url": url}}
    asked = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}
    assert (await build([asked], None, facts=OWN)).fitted.estimated is estimated
