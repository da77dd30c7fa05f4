"""The chart, the unit and the compose file of replicas, as far as they can be read without Helm, systemd or Docker.

`make compat` has Helm, Kubernetes' schemas, Compose and nginx read them.
"""

import configparser
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from gateway import __version__
from gateway.api.operations import render
from gateway.core.config.loading import environment_names, load_settings
from gateway.core.config.setting_sections import FileSettings
from gateway.core.config.settings import ServerSettings
from gateway.core.instrumentation.metrics import GatewayMetrics
from tests.support.container import DEPLOY, Dockerfile, interpolated

CHART = DEPLOY / "helm" / "context-gateway"
VALUES: Any = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Any = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {
    str(file.relative_to(CHART)): file.read_text() for file in (CHART / "templates").rglob("*") if file.is_file()
}
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.replicas.yaml").read_text())
GATEWAYS = ("gateway-1", "gateway-2", "gateway-3")
NGINX = (DEPLOY / "nginx" / "nginx.conf").read_text()
LAST_SECONDS = 30
"""After the grace (docs/operations.md#stopping)."""
KNOWN_NAMES = {*environment_names(), "OPENAI_API_KEY", "OPENAI_API_BASE", "DATABASE_URL", "REDIS_URL"}


def paths(values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    """Every value by its path; what Kubernetes reads as a whole counts as one."""
    for name, value in values.items():
        path = f"{before}{name}"
        if isinstance(value, dict) and schema_of(path).get("additionalProperties") is False:
            yield from paths(value, f"{path}.")
        else:
            yield path


def schema_of(path: str) -> Any:
    found = SCHEMA
    for name in path.split("."):
        found = found["properties"][name]
    return found


def used() -> set[str]:
    """What templates read, also through a variable or `with`."""
    text = (
        "\n".join(TEMPLATES.values()).replace("$by := .Values.autoscaling", "").replace("$by.", ".Values.autoscaling.")
    )
    text = text.replace(".secretName", ".Values.serviceMonitor.authorization.secretName")
    text = text.replace(".secretKey", ".Values.serviceMonitor.authorization.secretKey")
    return set(re.findall(r"\.Values\.([A-Za-z.]+\b)", text))


def test_values_keep_their_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)
    for wrong in ({"replicas": 3}, {"secret": {"values": {"PORT": 1}}}, {"image": {"tag": 1}}, {"lastSeconds": 5}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


def test_every_value_is_used_and_every_value_used_is_there() -> None:
    there, read = set(paths(VALUES)), used()
    unused = {path for path in there if not any(path == each or path.startswith(f"{each}.") for each in read)}
    assert unused == set()
    unknown = {each for each in read if not any(path == each or path.startswith(f"{each}.") for path in there)}
    assert unknown == set()
    assert {path.split(".")[0] for path in there} | {"global"} == SCHEMA["properties"].keys()


def test_the_chart_names_settings_environment_and_metrics_that_exist() -> None:
    text = (CHART / "values.yaml").read_text() + "\n".join(TEMPLATES.values())
    assert set(re.findall(r"\bGATEWAY_[A-Z_]+\b", text)) <= KNOWN_NAMES
    named = set(re.findall(r"\bserver\.([a-z_]+)", text))
    assert {"shutdown_grace", "log_format", "metrics"} <= named <= ServerSettings.model_fields.keys()
    assert "gateway_requests_in_flight" in TEMPLATES["templates/horizontalpodautoscaler.yaml"]
    assert b"\ngateway_requests_in_flight " in render(GatewayMetrics([]).snapshot(), "")[0]


def test_the_chart_runs_the_image_as_its_own_user_and_commands() -> None:
    helpers = TEMPLATES["templates/_helpers.tpl"]
    assert "runAsNonRoot: true" in helpers
    assert "readOnlyRootFilesystem: true" in helpers
    assert f"runAsUser: {uid_of_the_image()}" in helpers
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def uid_of_the_image() -> str:
    (uid,) = re.findall(r"useradd .*--uid (\d+)", (DEPLOY / "Dockerfile").read_text())
    return str(uid)


def test_three_replicas_are_alike_and_share_storage_and_cache() -> None:
    services = COMPOSE["services"]
    first, second, third = (services[name] for name in GATEWAYS)
    assert first == second == third
    given = {"OPENAI_API_KEY": "sk-own", "GATEWAY_AUTH_KEYS": "[{key: a-long-secret, tenant: team-a}]"}
    environment = Dockerfile.read().environment | interpolated(first["environment"], given)
    settings = load_settings(str(DEPLOY / "gateway.yaml"), environment)
    assert settings.storage.url.startswith("postgresql")
    assert not settings.storage.auto_migrate
    assert settings.cache.url == "redis://valkey:6379/0"
    assert [key.tenant for key in settings.auth.keys] == ["team-a"]
    assert services["migrate"]["environment"] == first["environment"]
    assert services["migrate"]["command"] == ["migrate"]
    assert first["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
    assert first["read_only"]
    assert first["cap_drop"] == ["ALL"]


def test_whoever_stops_a_gateway_waits_for_its_grace() -> None:
    replica = COMPOSE["services"]["gateway-1"]
    grace = float(replica["environment"]["GATEWAY_SERVER_SHUTDOWN_GRACE"])
    for name in (*GATEWAYS, "nginx"):
        assert float(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s")) >= grace + LAST_SECONDS
    alone = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["gateway"]["stop_grace_period"]
    for waits in (alone, unit_of_systemd()["Service"]["TimeoutStopSec"]):
        assert float(waits.removesuffix("s")) >= ServerSettings().shutdown_grace + LAST_SECONDS
    assert VALUES["lastSeconds"] >= LAST_SECONDS
    assert (
        "add .Values.drainSeconds .Values.shutdownGrace .Values.lastSeconds" in TEMPLATES["templates/deployment.yaml"]
    )


def test_nginx_asks_the_replicas_of_the_compose_file() -> None:
    assert re.findall(r"server (\S+):8000 resolve", NGINX) == list(GATEWAYS)
    services = COMPOSE["services"]
    (port,) = services["nginx"]["ports"]
    assert re.findall(r"listen (\d+);", NGINX) == [port.split(":")[-1]]
    (most,) = re.findall(r"client_max_body_size (\d+)m;", NGINX)
    largest = max(ServerSettings().max_body_bytes, FileSettings().max_bytes)
    assert int(most) * 2**20 == largest + 2**20, "a file, and the form around it"
    (idle,) = re.findall(r"\n        keepalive_timeout (\d+)s;", NGINX.partition("server {")[0])
    assert int(idle) < 75, "what the gateway keeps"
    assert "non_idempotent;" not in NGINX


def unit_of_systemd() -> Any:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd" / "context-gateway.service")
    return parser


def test_the_unit_gives_the_gateway_a_user_without_rights() -> None:
    service = unit_of_systemd()["Service"]
    assert service["DynamicUser"] == service["NoNewPrivileges"] == service["PrivateTmp"] == "yes"
    assert (service["ProtectSystem"], service["CapabilityBoundingSet"]) == ("strict", "")
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert service["KillSignal"] == "SIGTERM"
    assert service["Restart"] == "on-failure"
    text = (DEPLOY / "systemd" / "context-gateway.service").read_text()
    assert set(re.findall(r"\bGATEWAY_[A-Z_]+\b", text)) <= KNOWN_NAMES
