"""One conversation and the client that has it: what it sends next, and what it has been told."""

import http.client
import json
import socket
from typing import Any

from benchmarks.history.forms import Form
from benchmarks.traffic import MODEL, prose
from tests.support.http_server import Record
from tests.support.reply import Reply

CHARS = 400
RESULT_CHARS = 800
STRANGER = "conv_" + "0" * 24
"""An id of the right shape that nobody has: a request that names it is read, checked and refused."""
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
Message = dict[str, Any]


def answering(record: Record) -> Reply:
    """The upstream: a call to a question that comes with tools, a text to everything else."""
    last = record.body["messages"][-1]
    if record.body.get("tools") and last["role"] == "user":
        return Reply(tool_calls=[("look_up", {"about": "the harbour"})])
    return Reply(text=prose(len(str(last["content"])), CHARS))


class Client:
    """One connection to a gateway."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._connection.connect()
        # Head and body are sent apart: without this the second waits for the first one's acknowledgement.
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, body: bytes, expected: int = 200) -> Any:
        """The answer's JSON. Raises RuntimeError: another status than expected."""
        self._connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != expected:
            raise RuntimeError(f"{answer.status} instead of {expected}: {text[:500]!r}")
        return json.loads(text)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()


class Talk:
    """A conversation of a client of that form."""

    def __init__(self, form: Form, number: int) -> None:
        self.form = form
        self.conversation_id: str | None = None
        self.session = f"session {form.name} {number}"
        self._number = number
        self._count = 0
        self._all: list[bytes] = []
        self._said: list[bytes] = []
        self.messages: list[Message] = []

    def begin(self, client: Client, length: int, at_once: bool = True) -> None:
        """Has `length` messages stored: sent in one request, or said turn by turn."""
        if at_once:
            while len(self.messages) < length - 1:
                for message in self._made()[: length - 1 - len(self.messages)]:
                    self._add(message)
            if self.messages[-1]["role"] not in ("user", "tool"):
                raise ValueError(f"{length} messages do not end with an answer")
            name = {"session": self.session} if self.form.named == "session" else {}
            self._hear(client.post(self._body(self._all, context=name)))
        while len(self.messages) < length:
            self.turn(client)

    def turn(self, client: Client) -> None:
        """A question and its answer; an agent's has a call and its result between them."""
        sent = self._earlier()
        new = [self._question()]
        self._add(new[0])
        answer = self._hear(client.post(self.request([*sent, *map(_bytes, new)])))
        while calls := answer.get("tool_calls"):
            new += [answer, *(_result(call, self._count) for call in calls)]
            for message in new[-len(calls) :]:
                self._add(message)
            fresh = new[-len(calls) :] if self.form.sent == "delta" else new
            answer = self._hear(client.post(self.request([*sent, *map(_bytes, fresh)])))

    def refused(self, client: Client) -> None:
        """The requests of a turn under a conversation's name that does not exist: read, hashed and refused."""
        messages = [*self._earlier(), _bytes({"role": "user", "content": prose(1, CHARS)})]
        client.post(self._body(messages, conversation=STRANGER), expected=404)
        if self.form.agent:
            messages += [_bytes(message) for message in _step(self._count)]
            client.post(self._body(messages, conversation=STRANGER), expected=404)

    def request(self, messages: list[bytes]) -> bytes:
        """The body of a request in this client's form."""
        context: dict[str, Any] = {"max_input_tokens": self.form.window} if self.form.window else {}
        if self.form.named == "id":
            return self._body(messages, conversation=self.conversation_id, context=context)
        if self.form.named == "session":
            context = {**context, "session": self.session}
        return self._body(messages, context=context)

    def _body(self, messages: list[bytes], **fields: Any) -> bytes:
        tools = {"tools": TOOLS} if self.form.agent else {}
        rest = json.dumps({"model": MODEL, **tools, **fields})
        return b'%s,"messages":[%s]}' % (rest[:-1].encode(), b",".join(messages))

    def _earlier(self) -> list[bytes]:
        return {"delta": [], "all": self._all, "said": self._said}[self.form.sent].copy()

    def _question(self) -> Message:
        self._count += 1
        number = 100_000 * self._number + self._count
        return {"role": "user", "content": f"{self.form.name} {number}: {prose(number, CHARS)}"}

    def _made(self) -> list[Message]:
        """The messages of a turn that is told and not asked."""
        question, answer = self._question(), {"role": "assistant", "content": prose(self._count, CHARS)}
        if not self.form.agent:
            return [question, answer]
        return [question, *_step(self._count), answer]

    def _hear(self, answer: Any) -> Message:
        known = answer["conversation"]["id"]
        if self.conversation_id not in (None, known):
            raise RuntimeError(f"{self.form.title}: {known} instead of {self.conversation_id}")
        self.conversation_id = known
        told: Message = answer["choices"][0]["message"]
        message: Message = {name: told[name] for name in ("role", "content", "tool_calls") if name in told}
        self._add(message)
        return message

    def _add(self, message: Message) -> None:
        self.messages.append(message)
        self._all.append(_bytes(message))
        if message["role"] != "tool" and not message.get("tool_calls"):
            self._said.append(self._all[-1])


def _step(number: int) -> list[Message]:
    """A call and its result."""
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, _result(call, number)]


def _result(call: Message, number: int) -> Message:
    return {"role": "tool", "tool_call_id": call["id"], "content": f"{number}: {prose(number, RESULT_CHARS)}"}


def _bytes(message: Message) -> bytes:
    return json.dumps(message).encode()
