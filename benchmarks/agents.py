"""Agents' sessions of tool steps, as the load generator sends them, in the words of each API.

What the model is to call next stands in each result, so that what a session resends is what it was answered.
"""

import json
from typing import Any

from benchmarks.traffic import MODEL, prose

NAMES = ("read", "write", "search", "run")
ABOUT = prose(7, 300)
INSTRUCTIONS = prose(1, 3000)
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
STEPS = 200
"""Tool steps of a session before the first that is measured: about 400 KB."""


class Session:
    """An agent's loop by chat completions: each request resends everything, with the last answer's tool call and its
    result behind it."""

    path = "/v1/chat/completions"
    history = "messages"
    """The field that holds it."""

    def __init__(self, first: bool = False, stream: bool = False) -> None:
        """`first`: each request is a session never seen before."""
        self.first = first
        self._stream = stream
        self._results = [json.dumps(prose(1000 + i, 1800)) for i in range(50)]
        self._written: dict[int, str] = {}

    def body(self, number: int, step: int, answered: str = "") -> bytes:
        """Request `step`, from 0, of the session of that number; steps are asked for in order.
        `answered`: the id of the answer before."""
        if self.first:
            number, step = 100_000 * number + step, 0
        written = self._written.pop(number, None)
        if written is None:
            written = self._head(number) + ",".join(self._step(number, each) for each in range(STEPS))
        elif step:
            written += "," + self._step(number, STEPS + step - 1)
        self._written[number] = written
        return self._whole(written)

    def fields(self) -> dict[str, Any]:
        """All others of a request."""
        functions = [{"name": name, "description": ABOUT, "parameters": PARAMETERS} for name in NAMES]
        return {"model": MODEL, "tools": [{"type": "function", "function": each} for each in functions]}

    def instructions(self) -> tuple[str, ...]:
        """The system message, where it stands in the history."""
        return (self.message("system", INSTRUCTIONS),)

    def message(self, role: str, content: str) -> str:
        """A message of the history, as JSON."""
        return json.dumps({"role": role, "content": content})

    def call(self, made: int) -> str:
        """The model's call, as JSON."""
        return (
            f'{{"role":"assistant","content":null,"tool_calls":[{{"id":"call_{made:010d}","type":"function",'
            f'"function":{{"name":"read","arguments":"{{\\"path\\":\\"notes/{made:010d}.md\\"}}"}}}}]}}'
        )

    def result(self, made: int, text: str) -> str:
        """What the tool said, as JSON; `text` is what stands between quotes."""
        return f'{{"role":"tool","tool_call_id":"call_{made:010d}","content":"{text}"}}'

    def _whole(self, written: str, **more: str) -> bytes:
        fields = {**self.fields(), **({"stream": True} if self._stream else {}), **more}
        # The SDK's order: messages first.
        return f'{{"{self.history}":[{written}],{json.dumps(fields, separators=(",", ":"))[1:]}'.encode()

    def _head(self, number: int) -> str:
        task = f"Session {number}: {prose(2, 500)} [bench call={self._call(number, 0)}]"
        return "".join(f"{each}," for each in (*self.instructions(), self.message("user", task)))

    def _step(self, number: int, step: int) -> str:
        """The model's call and what the tool said, which tells the mock what to call next."""
        return self.call(self._call(number, step)) + "," + self._result(number, step)

    def _result(self, number: int, step: int) -> str:
        made = self._call(number, step)
        said = f"{made}: {self._results[step % len(self._results)][1:-1]} [bench call={self._call(number, step + 1)}]"
        return self.result(made, said)

    def _call(self, number: int, step: int) -> int:
        return number * 10_000 + step


class Responses(Session):
    """The same by Responses."""

    path = "/v1/responses"
    history = "input"

    def fields(self) -> dict[str, Any]:
        told = {"type": "function", "description": ABOUT, "parameters": PARAMETERS}
        return {"model": MODEL, "tools": [{"name": name, **told} for name in NAMES]}

    def message(self, role: str, content: str) -> str:
        return json.dumps({"type": "message", "role": role, "content": [{"type": "input_text", "text": content}]})

    def call(self, made: int) -> str:
        return (
            f'{{"type":"function_call","call_id":"call_{made:010d}","name":"read",'
            f'"arguments":"{{\\"path\\":\\"notes/{made:010d}.md\\"}}"}}'
        )

    def result(self, made: int, text: str) -> str:
        return f'{{"type":"function_call_output","call_id":"call_{made:010d}","output":"{text}"}}'


class ResponsesById(Responses):
    """The same, where all but the first request name the answer before, and send what is new."""

    def body(self, number: int, step: int, answered: str = "") -> bytes:
        if not step:
            return super().body(number, step)
        return self._whole(self._result(number, STEPS + step - 1), previous_response_id=answered)


class Messages(Session):
    """The same by Anthropic's Messages."""

    path = "/v1/messages"

    def fields(self) -> dict[str, Any]:
        told = {"description": ABOUT, "input_schema": PARAMETERS}
        system = [{"type": "text", "text": INSTRUCTIONS}]
        return {"model": MODEL, "max_tokens": 4096, "system": system, "tools": [{"name": n, **told} for n in NAMES]}

    def instructions(self) -> tuple[str, ...]:
        return ()

    def message(self, role: str, content: str) -> str:
        return json.dumps({"role": role, "content": [{"type": "text", "text": content}]})

    def call(self, made: int) -> str:
        return (
            f'{{"role":"assistant","content":[{{"type":"tool_use","id":"call_{made:010d}","name":"read",'
            f'"input":{{"path":"notes/{made:010d}.md"}}}}]}}'
        )

    def result(self, made: int, text: str) -> str:
        said = f'{{"type":"tool_result","tool_use_id":"call_{made:010d}","content":"{text}"}}'
        return f'{{"role":"user","content":[{said}]}}'


APIS = {"chat": Session, "responses": Responses, "by id": ResponsesById, "messages": Messages}


def session(first: bool = False, api: str = "chat", stream: bool = False) -> Session:
    """An agent's session of 400 KB that grows by two messages a request."""
    return APIS[api](first, stream)
