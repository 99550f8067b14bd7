# SPDX-License-Identifier: Apache-2.0
"""The dashboard and the alert rules that are shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

PACKAGING = Path(__file__).resolve().parents[3] / "packaging"
RULES_FILE = PACKAGING / "prometheus" / "detshare.rules.yml"
DASHBOARD: dict[str, Any] = json.loads((PACKAGING / "grafana" / "detshare.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]


def expressions() -> list[str]:
    """All that the dashboard's panels ask for."""
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
