# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus scrapes a real daemon over its model backend, and evaluates all that is shipped."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from dashboard import DASHBOARD, RULES, RULES_FILE
from monitor import Monitor
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from detshare.ctl.client import Client
from detshare.ctl.daemon.metric_names import NAMES
from tests.patience import LONG_S, ended, run, until

pytestmark = pytest.mark.e2e


def free_addresses() -> tuple[str, str]:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}", f"127.0.0.1:{two.getsockname()[1]}"


@dataclass
class Scene:
    """A daemon, and a Prometheus that scrapes it each second."""

    daemon: subprocess.Popen[bytes]
    client: Client
    target: str
    address: str

    def ask(self, path: str, **query: object) -> Any:
        """What Prometheus' HTTP API has to say; AssertionError where it refuses."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=LONG_S) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            told = json.loads(error.read())
        assert told["status"] == "success", (query, told)
        return told["data"]

    def value(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def ready(self) -> bool:
        try:
            return bool(self.value(f'up{{instance="{self.target}"}} == 1'))
        except (OSError, ValueError):  # nobody listens yet, or it says 503 in plain words while it starts
            return False


@pytest.fixture(scope="module")
def scene(monitor: Monitor) -> Iterator[Scene]:
    folder = Path(tempfile.mkdtemp(prefix="detshare-"))  # short: a socket's path has 107 bytes at most
    target, address = free_addresses()
    toml = folder / "detshare.toml"
    toml.write_text(f'[daemon]\nbackend = "model"\n[metrics]\nlisten = "{target}"\n')
    toml.chmod(0o600)
    config = folder / "prometheus.yml"
    scrape = {"job_name": "detshare", "static_configs": [{"targets": [target]}]}
    often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config.write_text(yaml.safe_dump({"global": often, "rule_files": [str(RULES_FILE)], "scrape_configs": [scrape]}))
    begun: list[subprocess.Popen[bytes]] = []
    try:
        words = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", folder / "run", "--config", toml]
        begun.append(subprocess.Popen([*map(str, words)], stderr=(folder / "daemon.log").open("wb")))
        begun.append(
            subprocess.Popen(
                [
                    monitor.prometheus,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={folder / 'tsdb'}",
                    f"--web.listen-address={address}",
                ],
                stderr=(folder / "prometheus.log").open("wb"),
                cwd=folder,
            )
        )
        made = Scene(begun[0], Client(folder / "run"), target, address)
        until(made.ready, pause=0.05, said=lambda: (folder / "prometheus.log").read_text())
        yield made
    finally:
        for process in begun:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            ended(process)
        shutil.rmtree(folder)


def scraped(scene: Scene) -> set[str]:
    return {name for name in scene.ask("label/__name__/values") if name.startswith("detshare_")}


def test_it_takes_the_page_as_openmetrics(scene: Scene) -> None:
    (target,) = scene.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    told = {each["metric"]: each for each in scene.ask("targets/metadata", match_target='{job="detshare"}')}
    known = {each.name: each for each in NAMES}
    mine = {name for name in told if name.startswith("detshare_")}
    assert mine <= set(known)
    assert len(mine) > 15
    for name in mine:
        each = known[name]
        # the text format has no units: who has them was given OpenMetrics
        assert (told[name]["type"], told[name]["unit"], told[name]["help"]) == (each.kind, each.unit, each.help)


@pytest.mark.parametrize("openly", [True, False])
def test_the_page_on_the_wire_is_as_strict_readers_want_it(scene: Scene, monitor: Monitor, openly: bool) -> None:
    accept = "application/openmetrics-text; version=1.0.0; q=0.9, text/plain; q=0.5" if openly else "text/plain"
    asked = urllib.request.Request(f"http://{scene.target}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=LONG_S) as answer:
        kind, page = answer.headers["Content-Type"], answer.read().decode()
    assert kind.startswith("application/openmetrics-text; version=1.0.0" if openly else "text/plain; version=0.0.4")
    if openly:
        assert len(list(text_string_to_metric_families(page))) > 15
        with pytest.raises(ValueError, match="EOF"):
            list(text_string_to_metric_families(page.removesuffix("# EOF\n")))
    else:
        done = run([monitor.promtool, "check", "metrics"], input=page, capture_output=True, text=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_what_it_keeps_is_what_the_page_of_names_has(scene: Scene) -> None:
    assert scraped(scene) <= {each.sample for each in NAMES}
    assert scene.value("detshare_programs")[0]["value"][1] == str(len(scene.client.programs()["programs"]))


def test_each_question_of_the_dashboard_is_answered(
    scene: Scene, record_property: Callable[[str, object], None]
) -> None:
    """Over the last minutes and now; where the page has all that is asked for, there is something to draw."""
    scene.client.verb("set-priority", "train.py", klass="low")
    until(lambda: scene.value('detshare_verbs_total{verb="set-priority"}'), pause=0.05)
    until(lambda: scene.value("rate(detshare_verbs_total[1m])"), pause=0.05)  # two scrapes since
    there = scraped(scene)
    drawn, answered = set(), 0
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            asked = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
            assert "$" not in asked
            now = time.time()
            found = scene.value(asked)
            answered += 1
            lines = scene.ask("query_range", query=asked, start=now - 60, end=now, step=1)["result"]
            if set(re.findall(r"\bdetshare_\w+", asked)) <= there:
                assert found, asked
                assert lines, asked
                drawn.add(panel["title"])
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    assert all(label in each["metric"] for each in found), target
    record_property("questions of the dashboard that are answered", answered)
    record_property("panels with something to draw on the model", len(drawn))
    assert drawn >= {"Backend", "Policy", "Programs", "Looks that failed", "GPU memory", "Changes by people"}


def test_the_machines_to_choose_from_are_those_that_are_scraped(scene: Scene) -> None:
    (variable,) = DASHBOARD["templating"]["list"]
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
    assert found is not None
    assert scene.ask(f"label/{found[2]}/values", **{"match[]": found[1]}) == [scene.target]


def alerts(scene: Scene) -> dict[str, str]:
    return {each["labels"]["alertname"]: each["state"] for each in scene.ask("alerts")["alerts"]}


def test_the_rules_are_evaluated_and_the_simulation_is_noticed(
    scene: Scene, record_property: Callable[[str, object], None]
) -> None:
    def evaluated() -> list[dict[str, Any]]:
        groups = scene.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return rules if rules and all(rule["health"] != "unknown" for rule in rules) else []

    rules = until(evaluated, pause=0.05)
    assert {rule["name"] for rule in rules} == {rule["alert"] for rule in RULES}
    record_property("rules that are evaluated without an error", len(rules))
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}
    until(lambda: "DetShareSimulation" in alerts(scene), pause=0.05)
    assert set(alerts(scene)) == {"DetShareSimulation"}


def test_a_daemon_that_ends_is_missed(scene: Scene) -> None:
    """The last one: it ends the scene's daemon."""
    scene.daemon.send_signal(signal.SIGTERM)
    assert ended(scene.daemon) == 0
    until(lambda: alerts(scene).get("DetShareDown"), pause=0.05)
    assert alerts(scene)["DetShareDown"] == "pending"
