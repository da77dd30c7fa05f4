"""A context in its steps, without a server: what is read, when, and how often its window is made."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from gateway.context import ContextManager, ContextSources
from gateway.context.build import ContextHooks
from gateway.context.tokens.counter import CounterRegistry
from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings, ContextSettings, Settings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.jsons import Json
from gateway.core.types.chat import ModelFacts, PromptBudget
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, EarlierMessages, new_message
from gateway.documents.file_reader import FileReader
from gateway.storage.cache.memory_cache import open_cache
from tests.support.documents import file_part, keeper, pdf, prose
from tests.unit.making import FACTS, assistant, chat, stored, tool, user

READS_PDFS = replace(FACTS, supports_pdf_input=True)
OLD = "The brass lamp of the north pier is kept by Orsolya."
LONG = "\n".join(f"{n:05} berth {n * 7} is free" for n in range(400))


class OlderMessages:
    """A storage with one older turn; notes how often it is read."""

    def __init__(self) -> None:
        self.reads = 0

    async def secret(self) -> bytes:
        return b"secret"

    async def read_earlier(self, tenant: str, message_id: str, *, max_bytes: int) -> EarlierMessages:
        self.reads += 1
        return EarlierMessages(tuple(stored([user(OLD), assistant("Noted.")])))


class Made:
    """One manager, what it reads from, and the steps that it marked."""

    def __init__(self) -> None:
        self.store = OlderMessages()
        self.steps: list[str] = []
        files = FileReader(open_cache(CacheSettings(), SystemClock()), 100.0)
        self.context = ContextManager(
            settings=Settings(context=ContextSettings(low_water=1)),
            counters=CounterRegistry(),
            sources=ContextSources(files=files, store=self.store),  # type: ignore[arg-type]
            hooks=ContextHooks(on_step=self.step),
        )

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.steps.append(name)
        yield

    async def window(self, history: ConversationHistory, budget: int | None, facts: ModelFacts = FACTS) -> list[Json]:
        """What is forwarded."""
        request = chat([message.body for message in history.new_messages])
        built = await self.context.build(request, history, facts, PromptBudget(budget, 128_000))
        assert budget is None or built.fitted.tokens <= budget
        return built.fitted.forwarded.messages


def goes_on(known: list[Json], new: list[Json]) -> ConversationHistory:
    """A conversation of which older messages than `known` were not read."""
    path = (*stored(known), *(new_message(body) for body in new))
    return ConversationHistory("conv_1", False, (), path, stored=len(known), unread=2, read_from="msg_0")


def with_pdfs(*messages: Json) -> ConversationHistory:
    """A conversation that was not stored before."""
    return ConversationHistory("conv_1", True, (), tuple(ConversationMessage(each["role"], each) for each in messages))


def paper(seed: int, words: int = 400) -> Json:
    """A PDF as a client sends it."""
    return file_part(f"paper{seed}.pdf", pdf(prose(seed, words).split(". ")), "application/pdf")


def files_in(messages: list[Json]) -> int:
    """How many files go up as they came."""
    contents = [message["content"] for message in messages if isinstance(message["content"], list)]
    return sum(part["type"] == "file" for content in contents for part in content)


async def test_older_messages_are_read_before_a_turn_begins_and_its_window_is_made_once() -> None:
    made = Made()
    history = goes_on([user("Hello."), assistant("Hello!")], [user("Who keeps the brass lamp of the north pier?")])
    sent = await made.window(history, 2000)
    assert "Orsolya" in str(sent[-1]["content"])
    assert (made.store.reads, made.steps) == (1, ["fit"])


@pytest.mark.parametrize(("budget", "reads"), [(50_000, 0), (1500, 1)])
async def test_a_tool_loop_reads_older_messages_once_its_window_is_made_anew(budget: int, reads: int) -> None:
    """Where all fits, the storage is not asked; where not, all is decided once more by what it has."""
    made = Made()
    known = [user("Which berths are free?"), assistant(None, "c1")]
    sent = await made.window(goes_on(known, [tool("c1", LONG)]), budget)
    assert (made.store.reads, made.steps) == (reads, ["fit"] * (1 + reads))
    assert (sent[-1]["content"] == LONG) == (not reads)


async def test_without_a_storage_a_tool_loop_is_fitted_as_it_is() -> None:
    made = Made()
    made.context = ContextManager(
        settings=Settings(context=ContextSettings(low_water=1)),
        counters=CounterRegistry(),
        sources=ContextSources(files=FileReader(open_cache(CacheSettings(), SystemClock()), 100.0)),
        hooks=ContextHooks(on_step=made.step),
    )
    history = goes_on([user("Which berths are free?"), assistant(None, "c1")], [tool("c1", LONG)])
    await made.window(history, 1500)
    assert made.steps == ["fit"]


async def test_s14_1_pdfs_stay_as_they_came_while_all_fits() -> None:
    made = Made()
    sent = await made.window(with_pdfs(user([paper(1), {"type": "text", "text": "What is this?"}])), 20_000, READS_PDFS)
    assert files_in(sent) == 1
    assert made.steps == ["fit"]


async def test_s14_1_where_all_pdfs_are_of_now_they_are_text_after_one_more_round() -> None:
    """A round in which the current turn's stay would be the first once more."""
    made = Made()
    question = user([paper(1), paper(2), {"type": "text", "text": f"What is {prose(1, 12)}?"}])
    sent = await made.window(with_pdfs(question), 900, READS_PDFS)
    assert not files_in(sent)
    assert "extract" in str(sent[-1]["content"])
    assert made.steps == ["fit", "fit"]


async def test_s14_1_older_pdfs_become_text_before_those_of_now() -> None:
    made = Made()
    before = [user([paper(1), paper(2), {"type": "text", "text": "Read these."}]), assistant("I did.")]
    question = user([paper(3, 60), {"type": "text", "text": "And what of this one?"}])
    sent = await made.window(with_pdfs(*before, question), 2600, READS_PDFS)
    assert made.steps == ["fit", "fit"]
    assert [part["type"] for part in sent[-1]["content"] if part["type"] == "file"] == ["file"]
    assert files_in(sent[:-1]) == 0


async def test_what_fits_in_no_way_is_an_error_after_every_round() -> None:
    made = Made()
    question = user([paper(1), {"type": "text", "text": keeper(1) * 300}])
    with pytest.raises(ContextLengthExceeded):
        await made.window(with_pdfs(question), 200, READS_PDFS)
    assert made.steps == ["fit", "fit"]
