"""One question with the official client, at once or streamed, and what has to be true of its answer."""

from dataclasses import dataclass, replace
from typing import Any

import openai
from bill import Json, show
from children import DemoFailed
from screen import GREEN, RED, Flow, Waiting, row

MODEL = "smollm2"
# A model as small as this one goes on after its answer, about anything: a new paragraph ends it.
SAMPLING = {"max_tokens": 120, "temperature": 0, "seed": 7, "stop": ["\n\n"]}
# A model as small as this one answers best from little, and reads that in a second or two on two cores.
MAX_INPUT_TOKENS = 1000
CHARS_OF_BEGINNING = 3500
"""Of the handbook they take about as many tokens."""
SHORT = 24
"""Tokens of an answer that nobody has to read to its end."""
AROUND = 160
"""Characters of a passage that are printed before and after the words that answer the question."""


@dataclass(frozen=True)
class Question:
    """A question about the handbook, and words of the one sentence there that answers it."""

    text: str
    fact: str


@dataclass(frozen=True)
class Answer:
    """What came back for one question: whether it says the fact, and the passage with the fact that the model was shown
    (None: it was shown none)."""

    text: str
    finish_reason: str | None
    conversation_id: str | None
    bill: Json
    is_right: bool = False
    passage: str | None = None


def ask(
    client: openai.OpenAI, question: Question, fields: Json, system: str | None = None, stream: bool = False
) -> Answer:
    """Asks; shows passage, answer and bill, and checks them. `fields` are the gateway's own, beside OpenAI's.

    Raises:
        DemoFailed: the answer is empty, or the bill is not what a bill has to be.
    """
    row("question", question.text)
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": question.text})
    request: Json = {
        "model": MODEL,
        "messages": messages,
        **SAMPLING,
        "extra_body": {**fields, "context": {"max_input_tokens": MAX_INPUT_TOKENS}},
    }
    passage = _shown(client, request, question)
    answer = _streamed(client, request) if stream else _at_once(client, request)
    is_right = says(answer.text, question)
    row("shown", f'"{passage}"' if passage else "nothing that answers it", None if passage else RED)
    row("checked", checked(answer.text, question), GREEN if is_right else RED)
    show(answer.bill)
    _check(answer)
    return replace(answer, is_right=is_right, passage=passage)


def says(text: str, question: Question) -> bool:
    """Whether the text has the words that answer the question."""
    return question.fact.lower() in text.lower()


def checked(text: str, question: Question) -> str:
    """Whether an answer is right, for a person."""
    return "right" if says(text, question) else f'wrong: the handbook says "{question.fact}"'


def passage_of(text: str, question: Question) -> str | None:
    """The paragraph that answers the question, cut between words to what stands around the words that do; None if no
    paragraph does."""
    fact = question.fact
    for line in text.splitlines():
        if not says(line, question):
            continue
        at = line.lower().find(fact.lower())
        begin, end = max(0, at - AROUND), min(len(line), at + len(fact) + AROUND)
        begin = line.find(" ", begin, at) + 1 if begin else 0
        end = end if end == len(line) else max(line.rfind(" ", at + len(fact), end), at + len(fact))
        return f"{'… ' if begin else ''}{line[begin:end].strip()}{' …' if end < len(line) else ''}"
    return None


def _shown(client: openai.OpenAI, request: Json, question: Question) -> str | None:
    """The passage that answers it among the messages that the gateway forwards, by a dry run: it calls no model."""
    context = {**request["extra_body"]["context"], "dry_run": True}
    told: Any = client.chat.completions.create(
        **{**request, "extra_body": {**request["extra_body"], "context": context}}
    )
    forwarded = [passage_of(str(message["content"]), question) for message in told.messages]
    return next((passage for passage in reversed(forwarded) if passage), None)


def beginning(model: openai.OpenAI, system: str, document: str, question: Question) -> str:
    """What the model answers from as much of the document's beginning as the gateway would send of all of it."""
    prompt = f"{document[:CHARS_OF_BEGINNING]}\n\n{question.text}"
    messages: Any = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
    create: Any = model.chat.completions.create
    with Waiting("waiting for the answer"):
        completion = create(model=MODEL, messages=messages, **{**SAMPLING, "max_tokens": SHORT})
    return str(completion.choices[0].message.content or "")


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
