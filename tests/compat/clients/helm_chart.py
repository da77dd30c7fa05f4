"""Lints and renders a chart with Helm's own library, and holds what comes out against Kubernetes' schemas.

Reads {"chart": folder, "values": {name: values}, "kubernetes": [versions], "ours": [group names that have
no schema]} from its input, and prints {"lint": …, "rendered": {name: {file: text} | "error: …"}, "wrong": [text]}.
"""

import json
import sys
from typing import Any

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError


def main() -> None:
    asked = json.load(sys.stdin)
    chart, wrong = Chart.load(asked["chart"]), []
    rendered: dict[str, Any] = {}
    for name, values in asked["values"].items():
        try:
            rendered[name] = chart.render(values, name="prod", namespace="llm")
        except HelmError as error:
            rendered[name] = f"error: {error}"
            continue
        for file, text in rendered[name].items():
            if file.endswith(".yaml"):
                wrong += [f"{name}: {file}: {fault}" for fault in faults(text, asked["kubernetes"], asked["ours"])]
    report = [lint(asked["chart"], values, strict=True) for values in asked["values"].values()]
    print(json.dumps({"lint": report, "rendered": rendered, "wrong": wrong}))


def faults(text: str, versions: list[str], ours: list[str]) -> list[str]:
    found = []
    for each in filter(None, yaml.safe_load_all(text)):
        if each["apiVersion"].split("/")[0] in ours:
            continue
        for version in versions:
            try:
                kubernetes_validate.validate(each, version, strict=True)
            except Exception as error:  # whatever it is, it is told
                found.append(f"{version}: {each['kind']}: {error}")
    return found


main()
