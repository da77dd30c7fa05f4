"""A stored conversation leaves indexes of its texts; they go with it, and `store: false` leaves none."""

from pathlib import Path
from typing import Any

from gateway.core.config.settings import Settings
from gateway.core.ids import content_digest
from gateway.core.types.chat import ModelFacts
from tests.support.in_process import InProcess
from tests.support.schemas import sqlite_url

DOCUMENT = "\n\n".join(f"The keeper of lamp {n} is called Name{n}, and lives by it." for n in range(2000))
FACTS = {"m": ModelFacts("m", context_window=8000, max_input_tokens=8000)}


def question(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


async def test_s2_indexes_are_kept_with_their_conversation_and_no_longer(tmp_path: Path) -> None:
    settings = Settings.model_validate({"storage": {"url": sqlite_url(tmp_path)}})
    process = await InProcess(settings, FACTS, lambda _: {"content": "Name77."}).prepare()
    digest = content_digest(DOCUMENT)
    attached = [{"content": DOCUMENT}]
    try:
        await process.ask(question("Who keeps lamp 77?", attachments=attached, store=False))
        await process.ask(question("Who keeps lamp 77?", attachments=attached, context={"dry_run": True}))
        assert process.indexes.get("tenant", digest) is None
        answers = [await process.ask(question("Who keeps lamp 77?", attachments=attached)) for _ in range(2)]
        assert process.indexes.get("tenant", digest) is not None
        assert process.indexes.get("another", digest) is None
        first, second = (answer["conversation"]["id"] for answer in answers)
        await process.store.delete_conversation("tenant", first)
        assert process.indexes.get("tenant", digest) is not None, "the other conversation holds it, too"
        await process.store.delete_conversation("tenant", second)
        assert process.indexes.get("tenant", digest) is None
    finally:
        await process.close()
