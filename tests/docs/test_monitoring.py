"""The files for Prometheus and Grafana: they can be read, and the docs say what is in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml

from tests.conftest import ROOT

MONITORING = ROOT / "docs" / "monitoring"
RULES = [rule for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
AGGREGATED = re.compile(r"(max|min|sum) by \(application\)")


def expressions() -> Iterator[tuple[str, str]]:
    """All expressions, and where they are."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_an_expression_can_be_read(place: str, expression: str) -> None:
    promql_parser.parse(expression)
    # An application that was restarted elsewhere, or is read twice, is one line.
    assert AGGREGATED.search(expression), place


def test_the_docs_list_the_alerts() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(StateFiles\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_of_what_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert "{{ $labels.application }}" in rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith(".")


def test_panels_do_not_lie_on_each_other() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
