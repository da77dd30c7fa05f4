"""A client that has all of its conversation, sends as much of it as it likes, and looks at what the model gets."""

from tests.support.answers import Json, assistant, chat, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

LONG = "This answer is long enough that whoever knows it took part in the conversation. " * 3


class Talk:
    """One conversation. `said` is all of it, `id` what `ask` names it by."""

    def __init__(self, upstream: MockUpstream, name: str) -> None:
        self.said: list[Json] = []
        self.id = ""
        self._upstream = upstream
        self._name = name

    def begin(self, gateway: GatewayProcess) -> None:
        """The first turn."""
        self.id = self.ask(gateway, whole=False, by_id=False)

    def ask(self, gateway: GatewayProcess, *, whole: bool, by_id: bool) -> str:
        """A turn; the model must see all of the conversation, each message once. Returns the id that the answer names.

        Args:
            whole: everything is sent again, not the question alone.
        """
        number = len(self.said) // 2
        question, text = user(f"{self._name} {number}"), f"{self._name} answers {number}. {LONG}".strip()
        self._upstream.reply(text=text)
        body: Json = {"conversation": self.id} if by_id else {}
        body["messages"] = [*self.said, question] if whole else [question]
        answer = chat(gateway, model="gpt-4o", **body)
        self.said += [question, assistant(text)]
        forwarded = self._upstream.last.body["messages"]
        if forwarded != self.said[:-1]:
            raise AssertionError(f"the model got {forwarded}, said was {self.said[:-1]}")
        found: str = answer["conversation"]["id"]
        return found
