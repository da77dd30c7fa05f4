"""`gateway keys`, beside a running server that knows no key of the configuration (guarantee §12.1, §12.2)."""

import csv
import io
import json
from typing import Any

import pytest

from tests.support.answers import Json, status
from tests.support.command import gateway_command
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.process import wait_until

WITHIN = 5.0


keyed = shared_gateway({"auth": {"mode": "keys"}})
"""Only keys made at runtime are accepted, and there are none."""


def run(gateway: GatewayProcess, *arguments: str, status: int = 0) -> Any:
    done = gateway_command(*arguments, "--config", str(gateway.config_path), directory=gateway.directory)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def read(gateway: GatewayProcess, *arguments: str) -> Json:
    found: Json = json.loads(run(gateway, "keys", *arguments, "--json").stdout)
    return found


def test_s12_1_the_first_key_is_made_by_the_command(keyed: GatewayProcess) -> None:
    """An administrator's; with it the API makes others."""
    assert [status(keyed, each, "small") for each in (None, "sk-own", "sk-gw-" + "x" * 43)] == [401, 401, 401]
    key = run(keyed, "keys", "create", "--tenant", "ops", "--role", "admin", "--quiet").stdout.strip()
    made = keyed.post("/gateway/keys", json={"name": "Ann's"}, key=key).json()
    assert (made["tenant"], made["created_by"] is not None) == ("ops", True)
    assert status(keyed, made["key"], "small") == 200
    assert "made at runtime" in gateway_check(keyed)


def gateway_check(gateway: GatewayProcess) -> str:
    done = gateway_command("check", "--config", str(gateway.config_path), directory=gateway.directory)
    return next(line for line in done.stdout.splitlines() if " keys: " in line)


def test_s12_2_what_commands_change_holds_in_a_running_server(keyed: GatewayProcess) -> None:
    made = read(keyed, "create", "--tenant", "acme", "--name", "a", "--budget", "5/day",
                "--budget", "1234567.89/month:soft", "--rpm", "60", "--context", "mode=simple", "--expires", "90d",
                "--model", "small")  # fmt: skip
    assert made["budgets"] == [
        {"usd": 5.0, "period": "day", "hard": True},
        {"usd": 1234567.89, "period": "month", "hard": False},
    ]
    assert status(keyed, made["key"], "small") == 200
    changed = read(keyed, "update", made["id"], "--tpm", "100000", "--clear", "name", "--context", "recall=true")
    assert changed["limits"] == {"rpm": 60, "tpm": 100_000, "concurrent": None}
    assert (changed["name"], changed["context"]) == (None, {"mode": "simple", "recall": True})
    shown = read(keyed, "show", made["id"])
    assert shown == changed
    assert "5/day, 1234567.89/month:soft" in run(keyed, "keys", "show", made["id"]).stdout
    changed = read(keyed, "update", made["id"], "--clear", "budgets", "--clear", "limits", "--budget", "7/week",
                   "--rpm", "9")  # fmt: skip
    assert changed["budgets"] == [{"usd": 7.0, "period": "week", "hard": True}]
    assert changed["limits"] == {"rpm": 9, "tpm": None, "concurrent": None}
    new = read(keyed, "rotate", made["id"], "--grace", "1h")
    assert [status(keyed, each["key"], "small") for each in (made, new)] == [200, 200]
    assert read(keyed, "revoke", made["id"])["revoked_at"] is not None
    for each in (made, new):
        wait_until(lambda key=each["key"]: status(keyed, key, "small") == 401, "it is refused", timeout=WITHIN)  # type: ignore[misc]
    assert made["id"] not in run(keyed, "keys", "list", "--tenant", "acme").stdout
    assert "revoked" in run(keyed, "keys", "list", "--revoked").stdout
    assert "revoked" in run(keyed, "keys", "rotate", made["id"], status=1).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "--tenant", "a b"], "tenant"),
        (["create", "--tenant", "a", "--budget", "5"], "--budget"),
        (["create", "--tenant", "a", "--budget", "x/day"], "--budget usd must be"),
        (["create", "--tenant", "a", "--expires", "soon"], "--expires"),
        (["create", "--tenant", "a", "--expires", "999999999h"], "--expires"),
        (["create", "--tenant", "a", "--expires", "999999999w"], "--expires"),
        (["rotate", "key_1", "--grace", "999999999w"], "--grace"),
        (["rotate", "key_1", "--grace", "8d"], "--grace: at most 7d"),
        (["create", "--tenant", "a", "--role", "root"], "--role must be"),
        (["create", "--tenant", "a", "--context", "mode"], "--context"),
        (["create", "--tenant", "a", "--context", "speed=1"], "--context speed is not known"),
        (["create", "--tenant", "a", "--rpm", "-1"], "--rpm must be"),
        (["create", "--tenant", "a", "--retention-days", "0"], "--retention-days must be"),
    ],
)
def test_what_cannot_be_said_of_a_key_is_told(keyed: GatewayProcess, arguments: list[str], said: str) -> None:
    done = run(keyed, "keys", *arguments, status=2)
    assert said in done.stderr
    assert not done.stdout


def test_a_key_that_is_over_when_it_is_made_is_told(keyed: GatewayProcess) -> None:
    assert "expired already" in run(keyed, "keys", "create", "--tenant", "a", "--expires", "2020-01-01").stderr
    assert "expired already" not in run(keyed, "keys", "create", "--tenant", "a", "--expires", "1d").stderr


configured = shared_gateway({"auth": {"keys": [{"key": "of-the-file-1234", "tenant": "acme", "name": "Ann's"}]}})


def test_s12_1_keys_of_the_configuration_are_listed_after_others(configured: GatewayProcess) -> None:
    """§13.9: marked, under the ids that bills name."""
    made = read(configured, "create", "--tenant", "acme", "--role", "admin")
    served = configured.get("/gateway/keys", key=made["key"]).json()["data"]
    listed = read(configured, "list", "--tenant", "acme")["data"]
    assert [(each["id"], each["source"]) for each in listed] == [(each["id"], each["source"]) for each in served]
    assert listed[1]["source"] == "configuration"
    assert "Ann's (configuration)" in run(configured, "keys", "list").stdout
    for action in ("show", "revoke", "rotate", "update"):
        assert "stands in auth.keys" in run(configured, "keys", action, listed[1]["id"], status=1).stderr
    assert run(configured, "keys", "list", "--tenant", "other").stderr == "there are no keys\n"


def test_s12_1_keys_are_listed_as_csv(keyed: GatewayProcess) -> None:
    """§13.9: what `--json` lists, a line each, without anything that a spreadsheet would obey."""
    made = read(keyed, "create", "--tenant", "csv", "--name", "=1+1", "--role", "user", "--role", "viewer")
    budget = ["--budget", "5/day", "--rpm", "3", "--owner", "Ann, B."]
    more = read(keyed, "create", "--tenant", "csv", *budget)
    told = run(keyed, "keys", "list", "--tenant", "csv", "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(told)))
    assert [row["id"] for row in rows] == [more["id"], made["id"]]
    assert rows[1]["name"].startswith("'=1+1")
    assert (rows[1]["roles"], rows[0]["owner"]) == ("user;viewer", "Ann, B.")
    assert json.loads(rows[0]["limits"])["rpm"] == 3
    assert json.loads(rows[0]["budgets"]) == more["budgets"]
    assert rows[0]["created_at"] == more["created_at"]
    assert made["key"] not in told
    assert run(keyed, "keys", "list", "--tenant", "nobody", "--csv").stdout.splitlines() == [",".join(rows[0])]
    run(keyed, "keys", "list", "--csv", "--json", status=2)
