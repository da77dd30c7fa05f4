"""One question with the official client, at once or streamed, and what has to be true of its answer."""

from dataclasses import dataclass
from typing import Any

import openai
from bill import Json, show
from children import DemoFailed
from screen import GREEN, YELLOW, Flow, Waiting, row

MODEL = "smollm2"
# A model as small as this one goes on after its answer, about anything: a new paragraph ends it.
SAMPLING = {"max_tokens": 120, "temperature": 0, "seed": 7, "stop": ["\n\n"]}
# Two cores read a prompt at 100 to 200 tokens a second: a full window of 8192 would take this model about a
# minute. The cap keeps each step well below half of that.
MAX_INPUT_TOKENS = 3000


@dataclass(frozen=True)
class Question:
    """A question about the handbook, and words of the one sentence there that answers it."""

    text: str
    fact: str


@dataclass(frozen=True)
class Answer:
    """What came back for one question: whether it has the fact, and whether the model was shown it, where known."""

    text: str
    finish_reason: str | None
    conversation_id: str | None
    bill: Json
    is_right: bool = False
    was_shown: bool | None = None


def ask(
    client: openai.OpenAI, question: Question, fields: Json, system: str | None = None, stream: bool = False
) -> Answer:
    """Asks, shows the answer and its bill, and checks both. `fields` are the gateway's own, beside OpenAI's.

    Raises:
        DemoFailed: the answer is empty, or the bill is not what a bill has to be.
    """
    row("question", question.text)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question.text})
    extra = {**fields, "context": {"max_input_tokens": MAX_INPUT_TOKENS, **fields.get("context", {})}}
    request: Json = {"model": MODEL, "messages": messages, **SAMPLING, "extra_body": extra}
    was_shown = _is_shown(client, request, question.fact)
    answer = _streamed(client, request) if stream else _at_once(client, request)
    found = question.fact.lower() in answer.text.lower()
    row("handbook", f'says "{question.fact}"; the answer {"does, too" if found else "does not"}', _warned(found))
    if was_shown is not None:
        row("passage", f"shown to the model: {'yes' if was_shown else 'no'}", _warned(was_shown))
    show(answer.bill)
    _check(answer)
    return Answer(answer.text, answer.finish_reason, answer.conversation_id, answer.bill, found, was_shown)


def _is_shown(client: openai.OpenAI, request: Json, fact: str) -> bool | None:
    """Whether the fact is in what would be forwarded, by a dry run; None where that would ask a planner."""
    context = request["extra_body"]["context"]
    if context.get("planning") == "always":
        return None
    dry = {**request, "extra_body": {**request["extra_body"], "context": {**context, "dry_run": True}}}
    told: Any = client.chat.completions.create(**dry)
    return any(fact.lower() in str(message["content"]).lower() for message in told.messages)


def _warned(fine: bool) -> str | None:
    return None if fine else YELLOW


def refusal(model: openai.OpenAI, prompt: str) -> str:
    """What the model itself says to a prompt longer than its window.

    Raises:
        DemoFailed: it takes the prompt, so that the demo would show nothing.
    """
    messages: Any = [{"role": "user", "content": prompt}]
    try:
        model.chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
    except openai.BadRequestError as error:
        body = error.body if isinstance(error.body, dict) else {}
        return f"{error.status_code}: {body.get('message') or error.message}"
    raise DemoFailed("the model took the whole handbook, which was meant to be longer than its window")


def _at_once(client: openai.OpenAI, request: Json) -> Answer:
    with Waiting("waiting for the answer"):
        completion = client.chat.completions.create(**request)
    choice = completion.choices[0]
    text = choice.message.content or ""
    row("answer", text, GREEN)
    return _answer(text, choice.finish_reason, completion.model_extra or {})


def _streamed(client: openai.OpenAI, request: Json) -> Answer:
    """The bill is on the finish chunk and the usage chunk; earlier chunks hold what is known by then."""
    text, finish_reason = "", None
    last: Json = {}
    flow = Flow("answer", GREEN)
    with Waiting("waiting for the first token") as waiting:
        create: Any = client.chat.completions.create
        for chunk in create(**request, stream=True, stream_options={"include_usage": True}):
            last.update(chunk.model_extra or {})
            for choice in chunk.choices:
                finish_reason = choice.finish_reason or finish_reason
                if choice.delta.content:
                    waiting.stop()
                    flow.add(choice.delta.content)
                    text += choice.delta.content
    flow.end()
    return _answer(text, finish_reason, last)


def _answer(text: str, finish_reason: str | None, extra: Json) -> Answer:
    bill = extra.get("response_metadata") or {}
    conversation = (extra.get("conversation") or {}).get("id") or bill.get("conversation_id")
    return Answer(text, finish_reason, conversation, bill)


def _check(answer: Answer) -> None:
    if not answer.text.strip():
        raise DemoFailed("the answer is empty")
    if answer.finish_reason is None:
        raise DemoFailed("the answer ended without a finish reason")
    if not answer.conversation_id:
        raise DemoFailed("the answer names no conversation")
    if not answer.bill.get("usage") or not answer.bill.get("cost"):
        raise DemoFailed("the answer has no bill")
    context = answer.bill.get("context_utilization") or {}
    used, budget = context.get("tokens_used"), context.get("budget_tokens")
    if not isinstance(used, int) or not isinstance(budget, int) or used > budget:
        raise DemoFailed(f"{used} tokens were used of a budget of {budget}")
