"""A gateway in this process, for tests that only look at what is forwarded."""

import asyncio
from types import SimpleNamespace
from typing import Any, Self, cast

from gateway.core.config.settings import Settings
from gateway.core.types.chat import ModelFacts
from tests.support.agent_session import AgentSession
from tests.support.gateway_process import GatewayProcess
from tests.support.in_process import InProcess
from tests.support.mock_upstream import MockUpstream

Json = dict[str, Any]
SMALL = ModelFacts("small", context_window=4096, max_output_tokens=512, tokenizer="o200k_base")
LARGE = ModelFacts("gpt-4o", max_input_tokens=128_000, tokenizer="o200k_base")


class LocalGateway:
    """A gateway with an empty storage, and its provider, of which a test says what it answers next. It has its own
    event loop, so that tests need none."""

    def __init__(self) -> None:
        self._message: Json = {"content": "So it is."}
        settings = Settings.model_validate({"storage": {"url": "sqlite:///:memory:"}})
        self._runner = asyncio.Runner()
        self._gateway = self._runner.run(self._open(settings))

    async def _open(self, settings: Settings) -> InProcess:
        facts = {"small": SMALL, "gpt-4o": LARGE}
        return await InProcess(settings, facts, lambda _: self._message).prepare()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._gateway.close())
        self._runner.close()

    def session(self, **more: Any) -> "LocalSession":
        """An agent's session; `more` as `AgentSession` has it."""
        return LocalSession(cast(MockUpstream, self), cast(list[GatewayProcess], [self]), **more)

    def reply(self, text: str = "", message: Json | None = None) -> None:
        """The provider's answers from now on."""
        self._message = message if message is not None else {"content": text}

    @property
    def last(self) -> Any:
        """What went up last: its `body`."""
        return SimpleNamespace(body=self._gateway.upstream.sent[-1])

    def chat(self, *messages: Json, reply: str | Json = "So it is.", **body: Any) -> Json:
        """The small model's answer, which is `reply`."""
        self.reply(**({"text": reply} if isinstance(reply, str) else {"message": reply}))
        return self.ask({"model": "small", "messages": list(messages), **body})

    def ask(self, body: Json) -> Json:
        """The answer's body."""
        return self._runner.run(self._gateway.ask(body))


class LocalSession(AgentSession):
    """One whose requests stay in this process."""

    def _post(self, gateway: Any, body: Json) -> Json:
        found: Json = gateway.ask(body)
        return found
