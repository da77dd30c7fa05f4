"""What a newcomer does with the wheel alone: installs it into a clean environment, and is answered.

    python deploy/try_wheel.py dist/*.whl     # in the Python that runs this; needs an index for its packages

An upstream of a few lines stands in for OpenAI. Ends with 1 and says so if anything is not as it should be.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o-mini",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}
QUESTION = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Say hello."}]}
SECONDS = 60.0


class StandIn(BaseHTTPRequestHandler):
    """Answers each chat alike."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        pass


def main(wheel: Path) -> int:
    with tempfile.TemporaryDirectory() as folder, HTTPServer(("127.0.0.1", 0), StandIn) as upstream:
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        home = Path(folder)
        began = time.monotonic()
        venv.create(home / "env", with_pip=True)
        programs = home / "env" / ("Scripts" if sys.platform == "win32" else "bin")
        pip = [str(programs / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", str(wheel)], check=True)
        print(f"installed in {time.monotonic() - began:.0f} s")
        told = subprocess.run([programs / "gateway", "--version"], check=True, capture_output=True, text=True).stdout
        assert told.split()[1] == version_of(wheel), told
        served(programs / "gateway", home, f"http://127.0.0.1:{upstream.server_port}/v1")
        print(f"answered after {time.monotonic() - began:.0f} s, by Python {sys.version.split()[0]}, {told.strip()}")
        upstream.shutdown()
    return 0


def version_of(package: Path) -> str:
    """Of a wheel or an sdist, by its name."""
    return package.name.removesuffix(".tar.gz").split("-")[1]


def served(gateway: Path, home: Path, upstream: str) -> None:
    """Starts it without a configuration and asks it one question; its storage is made by the migrations it brings."""
    environ = {"OPENAI_BASE_URL": upstream, "GATEWAY_SERVER_PORT": str(free_port()), "PATH": str(gateway.parent)}
    with subprocess.Popen([gateway, "serve"], cwd=home, env=environ) as process:
        try:
            base = f"http://127.0.0.1:{environ['GATEWAY_SERVER_PORT']}"
            ended = time.monotonic() + SECONDS
            while not ready(base):
                assert process.poll() is None, "gateway serve ended"
                assert time.monotonic() < ended, "gateway serve is not ready"
                time.sleep(0.2)
            headers = {"content-type": "application/json", "authorization": "Bearer sk-mine"}
            asked = urllib.request.Request(f"{base}/v1/chat/completions", json.dumps(QUESTION).encode(), headers)
            with urllib.request.urlopen(asked, timeout=SECONDS) as response:
                answer = json.load(response)
            assert answer["choices"][0]["message"]["content"] == "hello", answer
            assert answer["response_metadata"]["cost"], "the answer has no bill"
        finally:
            process.terminate()


def ready(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/health/ready", timeout=1) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def free_port() -> int:
    with HTTPServer(("127.0.0.1", 0), StandIn) as server:
        return server.server_port


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
