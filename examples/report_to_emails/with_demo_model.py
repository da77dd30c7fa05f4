"""The servers of `make demo`, for this example: a local model and the gateway before it, ended whatever happens."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai

DEMO = Path(__file__).parents[2] / "deploy" / "demo"
SECONDS_TO_ANSWER = 300.0


@contextmanager
def demo_model() -> Iterator[tuple[openai.OpenAI, str]]:
    """A client of the gateway, and the name of the model."""
    sys.path.insert(0, str(DEMO))
    import run
    from asking import MODEL
    from children import Children

    run.set_environment()
    with tempfile.TemporaryDirectory(prefix="gateway-example-") as folder, Children(Path(folder)) as children:
        _, gateway = run.servers(children, Path(folder))
        yield openai.OpenAI(base_url=gateway, api_key="demo", max_retries=0, timeout=SECONDS_TO_ANSWER), MODEL
