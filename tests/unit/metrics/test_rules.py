# SPDX-License-Identifier: Apache-2.0
"""The shipped alert rules, and the page that they ask, by promtool: each alert fires when it should, only then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from dashboard import RULES, RULES_FILE
from monitor import Monitor
from test_metrics import pages

from detshare.ctl.daemon.metric_names import NAMES
from tests.patience import run

KNOWN = {each.sample: each for each in NAMES}
ON = 'instance="a:9835",job="detshare"'
VERB = f'{ON},verb="pause",result="failed"'
PROGRAM = f'{ON},pid="7",command="train.py",user="ann",container=""'
TENANT = f'{ON},kind="tenant",name="red",gpu=""'


def series(name: str, values: str, labels: str = ON) -> dict[str, str]:
    return {"series": f"{name}{{{labels}}}", "values": values}


CASES: list[tuple[str, bool, int, list[dict[str, str]]]] = [
    ("DetShareDown", True, 5, [series("up", "0x10")]),
    ("DetShareDown", False, 1, [series("up", "0x10")]),
    ("DetShareDown", False, 5, [series("up", "1x10")]),
    ("DetShareDown", False, 5, [series("up", "0x10", 'job="node",instance="b"')]),
    ("DetShareLooksFail", True, 6,
     [series("detshare_looks_failed_total", "0+4x10"), series("detshare_looks_total", "9x10")]),
    # a look hangs in the driver: nothing is counted any more
    ("DetShareLooksFail", True, 6,
     [series("detshare_looks_failed_total", "0x10"), series("detshare_looks_total", "9x10")]),
    ("DetShareLooksFail", False, 6,
     [series("detshare_looks_failed_total", "0+4x10"), series("detshare_looks_total", "9+1x10")]),
    # daemon.interval is 60, and a scrape comes between two looks
    ("DetShareLooksFail", False, 9, [series("detshare_looks_total", "9 9 10 11 11 12 13 13 14 15")]),
    ("DetShareLooksFail", False, 6, [series("detshare_looks_total", "_ _ _ 0 1 1 2 3")]),
    ("DetShareNotEnforced", True, 3, [series("detshare_lapse", "1x10", f'{ON},cause="a hook is missing"')]),
    ("DetShareNotEnforced", False, 3, [series("detshare_lapse", "1 stale", f'{ON},cause="a hook is missing"')]),
    ("DetShareSimulation", True, 7, [series("detshare_backend_info", "1x10", f'{ON},name="model",proof="model"')]),
    ("DetShareSimulation", False, 3, [series("detshare_backend_info", "1x10", f'{ON},name="model",proof="model"')]),
    ("DetShareSimulation", False, 7, [series("detshare_backend_info", "1x10", f'{ON},name="kmod",proof="model"')]),
    ("DetSharePolicyFailed", True, 3, [series("detshare_policy_failed", "1x10")]),
    ("DetSharePolicyFailed", False, 3, [series("detshare_policy_failed", "0 1 0 0 0")]),
    ("DetShareVerbsFail", True, 3, [series("detshare_verbs_total", "0 0 1 1 1", VERB)]),
    ("DetShareVerbsFail", True, 3, [series("detshare_verbs_total", "_ _ 1 1 1", VERB)]),
    ("DetShareVerbsFail", False, 9, [series("detshare_verbs_total", "_ 1x20", VERB)]),
    ("DetShareVerbsFail", False, 3, [series("detshare_verbs_total", "0 0 1 1 1", VERB.replace("failed", "refused"))]),
    ("DetShareStalled", True, 4, [series("detshare_program_stalled_seconds", "0 30 90 150 210", f'{PROGRAM},gpu="G"')]),
    ("DetShareStalled", False, 4, [series("detshare_program_stalled_seconds", "0 30 0 5 30", f'{PROGRAM},gpu="G"')]),
    ("DetShareMemoryFull", True, 7, [series("detshare_program_memory_bytes", "99x10", PROGRAM),
                                     series("detshare_program_memory_limit_bytes", "100x10", PROGRAM)]),
    ("DetShareMemoryFull", True, 7, [series("detshare_account_memory_bytes", "99x10", TENANT),
                                     series("detshare_account_limit_bytes", "100x10", TENANT)]),
    ("DetShareMemoryFull", False, 7, [series("detshare_program_memory_bytes", "90x10", PROGRAM),
                                      series("detshare_program_memory_limit_bytes", "100x10", PROGRAM)]),
    ("DetShareMemoryFull", False, 7, [series("detshare_program_memory_bytes", "99x10", PROGRAM)]),
    ("DetShareMemoryRefused", True, 4, [series("detshare_program_memory_refused_total", "0 0 2 2 2", PROGRAM)]),
    ("DetShareMemoryRefused", True, 4, [series("detshare_account_refused_total", "0 0 2 2 2", TENANT)]),
    ("DetShareMemoryRefused", True, 3, [series("detshare_program_memory_refused_total", "_ _ 2 2 2", PROGRAM)]),
    ("DetShareMemoryRefused", True, 3, [series("detshare_account_refused_total", "_ _ 2 2 2", TENANT)]),
    ("DetShareMemoryRefused", False, 9, [series("detshare_account_refused_total", "_ 2x20", TENANT)]),
    ("DetShareMemoryRefused", False, 9, [series("detshare_account_refused_total", "0 0 2x9", TENANT)]),
    ("DetShareCallsDenied", True, 4, [series("detshare_program_denied_total", "0+40x9", PROGRAM)]),
    ("DetShareCallsDenied", True, 3, [series("detshare_program_denied_total", "_ _ 40 40 40", PROGRAM)]),
    ("DetShareCallsDenied", False, 4, [series("detshare_program_denied_total", "_ 3x9", PROGRAM)]),
    ("DetShareCallsDenied", False, 4, [series("detshare_program_denied_total", "0 3x9", PROGRAM)]),
    ("DetShareSeriesLeftOut", True, 12, [series("detshare_programs_left_out", "4x20")]),
    ("DetShareSeriesLeftOut", False, 12, [series("detshare_programs_left_out", "4x5 0x20")]),
]  # fmt: skip
"""alert, whether it fires, after how many minutes, of what; a value a minute"""


def promtool(monitor: Monitor, *words: str, given: str | None = None) -> tuple[int, str]:
    done = run([monitor.promtool, *words], capture_output=True, text=True, input=given)
    return done.returncode, done.stdout + done.stderr


def asked(cases: list[tuple[str, bool, int, list[dict[str, str]]]]) -> str:
    """A file for `promtool test rules`."""
    tests: list[Mapping[str, Any]] = [
        {
            "interval": "1m",
            "name": f"{alert} {'fires' if fires else 'rests'} ({index})",
            "input_series": given,
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                    "eval_time": f"{minutes}m",
                    "exp_samples": [{"labels": "{}", "value": int(fires)}],
                }
            ],
        }
        for index, (alert, fires, minutes, given) in enumerate(cases)
    ]
    return yaml.safe_dump({"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": tests})


def test_the_rules_are_rules(monitor: Monitor) -> None:
    code, said = promtool(monitor, "check", "rules", "--lint-fatal", str(RULES_FILE))
    assert (code, f"SUCCESS: {len(RULES)} rules found" in said) == (0, True), said


def test_each_alert_fires_when_it_should_and_only_then(
    monitor: Monitor, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    for fires in (True, False):
        assert {alert for alert, does, *_ in CASES if does is fires} == {rule["alert"] for rule in RULES}
    file = tmp_path / "rules_test.yml"
    file.write_text(asked(CASES))
    code, said = promtool(monitor, "test", "rules", str(file))
    assert code == 0, said
    for word, fires in (("fires", True), ("rests", False)):
        record_property(f"series on which an alert {word} as it should", sum(does is fires for _, does, *_ in CASES))


@pytest.mark.parametrize("index", range(len(CASES)))
def test_the_other_outcome_would_be_told(monitor: Monitor, tmp_path: Path, index: int) -> None:
    alert, fires, minutes, given = CASES[index]
    file = tmp_path / "rules_test.yml"
    file.write_text(asked([(alert, not fires, minutes, given)]))
    assert promtool(monitor, "test", "rules", str(file))[0] == 1


def test_what_an_alert_says_names_who_it_is_about(monitor: Monitor, tmp_path: Path) -> None:
    rule = next(rule for rule in RULES if rule["alert"] == "DetShareMemoryFull")
    said = {
        "summary": "PID 7 on a:9835 is at its memory limit",
        "description": "99% of the limit is in use. What is asked for beyond it is refused.",
        "next": rule["annotations"]["next"],
    }
    labels = dict(re.findall(r'(\w+)="([^"]*)"', PROGRAM)) | rule["labels"]
    labels = {name: value for name, value in labels.items() if value}
    given = next(series for alert, fires, _, series in CASES if alert == rule["alert"] and fires)
    test = {
        "interval": "1m",
        "input_series": given,
        "alert_rule_test": [
            {
                "eval_time": "7m",
                "alertname": rule["alert"],
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": said}],
            }
        ],
    }
    file = tmp_path / "rules_test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": [test]}))
    code, told = promtool(monitor, "test", "rules", str(file))
    assert code == 0, told


def test_rules_name_metrics_and_labels_that_there_are() -> None:
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "description", "next"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        names = set(re.findall(r"\bdetshare_\w+", rule["expr"]))
        assert names <= set(KNOWN), rule["alert"]
        has = {"instance"} | {label for name in names for label in KNOWN[name].labels}
        for text in rule["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= has, rule["alert"]


def test_promtool_has_nothing_against_the_page(monitor: Monitor) -> None:
    plain, _ = pages()
    assert promtool(monitor, "check", "metrics", given=plain) == (0, "")
    code, said = promtool(monitor, "check", "metrics", given=plain.replace("_total", "_totals"))
    assert code != 0
    assert "_total" in said


def test_the_page_lists_the_alerts() -> None:
    text = (RULES_FILE.parents[2] / "docs" / "use" / "metrics.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(DetShare\w+)` \| .* \| (\w+) \|$", text, re.MULTILINE)
    assert told == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]
