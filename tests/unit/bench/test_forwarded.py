# SPDX-License-Identifier: Apache-2.0
"""The judge of forwarded runs, on the raw output of the first one."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from detshare.tools import results
from detshare.tools.bench.forwarded import forwarded, read, rows

RAW = results.DEFAULT_FOLDER / "raw" / "forwarded.jsonl.gz"
Lines = list[dict[str, Any]]


@pytest.fixture
def lines() -> Lines:
    with gzip.open(RAW, "rt", encoding="utf-8") as stream:
        return [json.loads(text) for text in stream]


def missed(lines: Lines) -> set[str]:
    return {row.what.partition(":")[0] for row in rows(lines) if row.ok is False}


def test_the_published_rows_are_those_of_the_raw_output(lines: Lines) -> None:
    published = results.load(results.DEFAULT_FOLDER / "forwarded.json")
    assert [(row.what, float(row.value)) for row in published.rows] == [
        (row.what, float(row.value)) for row in rows(lines)
    ]


def change(lines: Lines, step: str, key: str, do: Callable[[Any], Any]) -> Lines:
    made = copy.deepcopy(lines)
    for line in made:
        if line["step"] == step and key in line:
            line[key] = do(line[key])
    return made


@pytest.mark.parametrize(
    ("step", "key", "do", "name"),
    [
        ("gate", "after", lambda _: 1, "gate"),
        ("pause", "rest", lambda rest: {**rest, "ran": rest["ran"] - 1}, "pause"),
        ("gate", "again", lambda _: 0, "gate"),
        ("limit", "answer", lambda answer: {**answer, "result": 0}, "limit"),
        ("limit", "answer", lambda answer: {**answer, "result": 2}, "limit"),
        ("memory", "after", lambda some: [{**each, "memory_used": each["memory_used"] + (1 << 20)} for each in some],
         "memory"),
        ("steer", "preempt", lambda order: {**order, "tsgs_failed": 1}, "slices, levels and a preemption"),
        ("helper", "maps", lambda _: 1, "storm"),
        ("after", "mib", lambda _: 14, "the GPU's memory after all ended, by the host"),
        ("after", "log_lines", lambda _: 1, "lines in the host's kernel log"),
    ],
)  # fmt: skip
def test_what_was_not_held_is_a_miss(lines: Lines, step: str, key: str, do: Callable[[Any], Any], name: str) -> None:
    assert name in missed(change(lines, step, key, do)) - missed(lines)


def test_a_step_that_failed_is_no_claim_and_a_miss(lines: Lines) -> None:
    broken = [*lines, {"step": "gate", "failed": "TimeoutError"}]
    assert not [row for row in rows(broken) if row.what.startswith("gate")]
    assert "steps that were not done" in missed(broken)


def folder(tmp_path: Path, lines: Lines) -> Path:
    (tmp_path / "guest").mkdir()
    said = [json.dumps(line) for line in lines if line["step"] not in ("host", "helper", "after")]
    (tmp_path / "guest" / "stdout").write_text("\n".join(said))
    (helper,) = (line for line in lines if line["step"] == "helper")
    (tmp_path / "guest" / "helper.log").write_text(json.dumps(helper))
    host = [f"{line['t']} 516, {line['mib']};" for line in lines if line["step"] == "host"]
    (tmp_path / "host-memory").write_text("\n".join(host))
    for name, text in {
        "memory-after": "",
        "log-before": "7",
        "log-after": "7",
        "machine": "a GPU",
        "commit": "8b6dea6",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_folder_is_read_and_a_broken_one_is_refused(tmp_path: Path, lines: Lines) -> None:
    place = folder(tmp_path, lines)
    assert rows(read(place)) == rows(lines)
    (place / "guest" / "stdout").write_text("{")
    done = CliRunner().invoke(forwarded, [str(place), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "name a folder that nvfwd/claims wrote to its end" in done.output
