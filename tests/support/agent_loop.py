"""An agent's tool loop, answered by the gateway's pipeline in this process."""

from typing import Any

from gateway.core.errors import UpstreamUnreachable
from tests.support.answers import assistant, function_tool, tool_call, tool_result, user
from tests.support.in_process import InProcess

Json = dict[str, Any]
TOOLS = [function_tool("search", parameters={"type": "object"})]


def step(number: int, text: str | list[str]) -> tuple[Json, list[Json]]:
    """A call of each tool, and the results."""
    texts = [text] if isinstance(text, str) else text
    calls = [tool_call(f"c{number}_{n}", f"search{n or ''}") for n in range(len(texts))]
    results = [tool_result(f"c{number}_{n}", each) for n, each in enumerate(texts)]
    return assistant(None, tool_calls=calls), results


class Agent:
    """One conversation. `reply` is what its model says next; where it `fails`, it says nothing."""

    def __init__(self, *, resends: bool = False) -> None:
        self.process: InProcess
        self.reply: Json = {"content": "So it is."}
        self.fails = False
        self.said: list[Json] = []
        self.completions: list[str] = []
        self.conversation: str | None = None
        self._resends = resends

    def answer(self, _: Json) -> Json:
        """The provider's answer."""
        if self.fails:
            raise UpstreamUnreachable("The upstream cannot be reached.")
        return self.reply

    async def send(self, *messages: Json, tools: bool = True, **more: Any) -> Json:
        """Sends messages, or all that was said with them; returns the answer."""
        self.said += messages
        body = {"model": "m", "messages": self.said if self._resends else list(messages), **more}
        if self.conversation and not self._resends:
            body["conversation"] = self.conversation
        answer = await self.process.ask({**body, **({"tools": TOOLS} if tools else {})})
        self.said.append(answer["choices"][0]["message"])
        self.conversation = answer["conversation"]["id"]
        self.completions.append(answer["id"])
        return answer

    async def turn(self, question: str, texts: list[Any], *, first: int = 0, **more: Any) -> Json:
        """A question, and a step for each text; the answer to the last of them."""
        messages: list[Json] = [user(question)]
        for number, text in enumerate(texts, first):
            self.reply, results = step(number, text)
            await self.send(*messages, **more)
            messages, more = results, {}
        self.reply = {"content": "So it is."}
        return await self.send(*messages)
