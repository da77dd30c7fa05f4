"""Relayed calls that are metered."""

import csv
import io
from typing import Any

import httpx

from tests.support.answers import Json
from tests.support.command import gateway_command
from tests.support.gateway_process import GatewayProcess
from tests.support.relayed import bill


def post(gateway: GatewayProcess, path: str, body: Json, **headers: str) -> httpx.Response:
    return gateway.post(path, json=body, headers=headers)


def billed(gateway: GatewayProcess, answer: httpx.Response) -> Json:
    """The bill of an answer, which says that it is relayed."""
    assert answer.headers["x-gateway-managed"] == "false"
    found = bill(gateway, answer.headers["x-request-id"])
    metadata = found["response_metadata"]
    assert (metadata["managed"], metadata["context_utilization"], found["choices"]) == (False, None, [])
    return found


def form(gateway: GatewayProcess, path: str, files_first: bool, **fields: str) -> httpx.Response:
    """A multipart form with a file of 300 KB."""
    recording = {"file": ("a.wav", b"RIFF" + bytes(300_000), "audio/wav")}
    parts: list[Any] = [(name, (None, value)) for name, value in fields.items()]
    every = [*recording.items(), *parts] if files_first else [*parts, *recording.items()]
    return gateway.post(path, files=every)


def audited(gateway: GatewayProcess, *options: str) -> list[Json]:
    """The ledger as `gateway audit` tells it; all of it balances."""
    done = gateway_command(
        "audit", "--config", str(gateway.config_path), "--csv", *options, directory=gateway.directory
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return list(csv.DictReader(io.StringIO(done.stdout, newline="")))
