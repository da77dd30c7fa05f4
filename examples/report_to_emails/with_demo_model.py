"""The servers of `make demo`, for this example: a local model and the gateway before it, ended whatever happens."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai

DEMO = Path(__file__).parents[2] / "deploy" / "demo"
SECONDS_TO_ANSWER = 300.0
OPTIONS = {"max_tokens": 60, "temperature": 0, "seed": 7}
"""A model as small as this one goes on after its answer, about anything."""
MAX_INPUT_TOKENS = 1000
"""It reads them in a second or two on two cores."""


@contextmanager
def demo_model() -> Iterator[tuple[openai.OpenAI, str]]:
    """A client of the gateway, and the name of the model."""
    sys.path.insert(0, str(DEMO))
    import run
    from asking import MODEL
    from children import Children

    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, run.leave)
    run.set_environment()
    with tempfile.TemporaryDirectory(prefix="gateway-example-") as folder, Children(Path(folder)) as children:
        _, gateway = run.servers(children, Path(folder))
        yield openai.OpenAI(base_url=gateway, api_key="demo", max_retries=0, timeout=SECONDS_TO_ANSWER), MODEL
