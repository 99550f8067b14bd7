# SPDX-License-Identifier: Apache-2.0
"""The judge of forwarded runs: on the raw output of the first one, and on what a run may say."""

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
from detshare.tools.bench.forward.folder import read
from detshare.tools.bench.forwarded import RESULTS, forwarded, rows

RAW = results.DEFAULT_FOLDER / "raw" / "forwarded.jsonl.gz"
Lines = list[dict[str, Any]]
MIB = 1 << 20
FIRST = ("forwarded-gate", "forwarded-memory")
"""what the first run tried, of today's results"""


@pytest.fixture
def first() -> Lines:
    """Of a GPU: gate, pause, steer, limit as they are tried still."""
    with gzip.open(RAW, "rt", encoding="utf-8") as stream:
        return [json.loads(text) for text in stream]


def rest(launched: int, ran: int) -> dict[str, int]:
    return {"launched": launched, "ran": ran}


def trick(step: str, name: str, goal: str, **what: Any) -> dict[str, Any]:
    seen = {"answers": [{"errno": 0, "status": 27}], "denied": 1, "ran": 5, "neighbour_ran": 5, "neighbour_after": 5}
    return {"step": step, "trick": name, "goal": goal, **seen, **what}


def phase(scheme: str, p99: float, kernels: list[int], served: int = 10) -> dict[str, Any]:
    return {"step": "mix", "scheme": scheme, "seconds": 10.0, "latencies": [1500.0] * 98 + [p99] * 2, "served": served,
            "kernels": kernels, "kernel_us": 2000, "request_us": 1500}  # fmt: skip


def part(name: str, result: int, right: int = 1) -> dict[str, Any]:
    return {"event": "part", "part": name, "result": result, "at": "cuSomething" if result else "", "right": right}


def programs(step: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"step": step, "program": "apis", "code": 0, "lines": list(parts)}


@pytest.fixture
def lines() -> Lines:
    """A run that kept all that is claimed."""
    parts = part("graphs", 0), part("managed memory", 801, 0), part("ipc: takes", 201, 0)
    said: Lines = [
        {"step": "begin"},
        phase("default slicing, no module", 9000.0, [1500, 1500, 1500]),
        phase("DetShare", 3000.0, [1500, 1500, 1500]),
        phase("DetShare, server never rests", 3000.0, [33, 33, 34], 6000),
        {"step": "mix", "rest": rest(100, 100)},
        {"step": "buckets", "what": "none", "seconds": 4.0, "before": {}, "after": {}, "kernel_us": 2000,
         "kernels": [1000, 1000]},
        {"step": "buckets", "what": "one has a bucket", "seconds": 8.0, "before": {"used_us": 0},
         "after": {"used_us": 2_000_000}, "kernel_us": 2000, "kernels": [1000, 2900]},
        {"step": "buckets", "rest": rest(100, 100)},
        {"step": "storm", "round": 0, "ready": False, "ended": -9},
        {"step": "storm", "round": 0, "killed": 3, "left": {"handles": 0, "maps": 0}, "vctxs": 0},
        *({"step": "unload", "words": words, "took_ms": 10.0, "requests": 90, "kernels": 300}
          for words in ("rmmod", "insmod")),
        {"step": "unload", "adopted": [[{"pid": 1}], [{"pid": 2}]]},
        {"step": "unload", "rest": rest(100, 100)},
        programs("programs-alone", *parts),
        programs("programs", *parts),
        {"step": "kinds", "what": "a context", "used": 520 * MIB},
        {"step": "kinds", "over": "a context"},
        {"step": "kinds", "asked": "device 1", "answer": {"result": 0}},
        *(trick(step, name, goal, **what)
          for step in ("hostile", "hostile-unfiltered")
          for name, goal, what in (
              ("own-slice", "order", {}), ("other-off", "neighbour", {}), ("dup-group", "share", {}),
              ("other-numbers", "tell", {}), ("resume", "run", {"ran": 0}), ("second-door", "door", {"ran": 0}))),
        {"step": "hostile", "neighbour": rest(500, 500), "own": rest(500, 500)},
    ]  # fmt: skip
    said += [{"step": step, "took": 1.0} for _, steps, _ in RESULTS.values() for step in steps]
    numbered: Lines = [{"guest": "sched", "n": number, **line} for number, line in enumerate(said, 1)]
    state = next(line["n"] for line in numbered if line.get("what") == "a context")
    helper = {"guest": "sched", "step": "helper", "calls": 9, "handles": 0, "maps": 0, "pins": 0, "waits": 0}
    host = {"step": "host", "used": {"7": 520 * MIB}, "lines": {"sched": state, "programs": 0}}
    before = {**host, "used": {}, "lines": {"sched": state - 1}}
    return [*numbered, helper, host, before, {"step": "after", "mib": 0, "log": []}]


def missed(lines: Lines, *names: str) -> set[str]:
    """Of these results, or all."""
    return {row.what for name in names or RESULTS for row in rows(name, lines) if row.ok is False}


def test_what_the_first_run_showed_of_gates_and_limits_is_what_was_published(first: Lines) -> None:
    """It tried neither kinds of memory nor all steps."""
    published = {row.what: row for row in results.load(results.DEFAULT_FOLDER / "forwarded.json").rows}
    found = {row.what: row for name in FIRST for row in rows(name, first)}
    common = [what for what in found if what in published and what != "steps that were not done"]
    assert len(common) == 20
    assert [(found[what].value, found[what].ok) for what in common] == [
        (published[what].value, published[what].ok) for what in common
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
        ("gate", "after", lambda _: 1, "gate: requests after it in 1.5 s"),
        ("pause", "rest", lambda it: {**it, "ran": it["ran"] - 1}, "pause: kernels launched and not run, of 505"),
        ("gate", "again", lambda _: 0, "gate: requests in the second after it is let go"),
        ("limit", "answer", lambda answer: {**answer, "result": 0},
         "limit: allocation 1 of 256 MiB, beyond it: libcuda answers"),
        ("limit", "answer", lambda answer: {**answer, "result": 2},
         "limit: allocation 2 of 64 MiB, allowed: libcuda answers"),
        ("steer", "preempt", lambda order: {**order, "tsgs_failed": 1},
         "slices, levels and a preemption: refused by the driver, of 4"),
    ],
)  # fmt: skip
def test_what_was_not_held_is_a_miss(first: Lines, step: str, key: str, do: Callable[[Any], Any], name: str) -> None:
    assert name in missed(change(first, step, key, do), *FIRST) - missed(first, *FIRST)


def test_a_run_that_kept_all_has_no_miss(lines: Lines) -> None:
    assert missed(lines) == set()


@pytest.mark.parametrize(
    ("step", "key", "do", "words"),
    [
        ("mix", "latencies", lambda some: [9000.0 for _ in some], "mix, DetShare: p99"),
        ("mix", "kernels", lambda some: [0, *some[1:]], "mix, DetShare: background 1 of 3"),
        ("mix", "kernels", lambda some: [each + 200 for each in some], "floor of 2 %"),
        ("mix", "rest", lambda it: {**it, "ran": 99}, "mix: kernels launched and not run"),
        ("buckets", "kernels", lambda some: [some[0] + 200, some[1]], "away from it"),
        ("buckets", "after", lambda _: {"used_us": 1_000_000}, "the account's distance"),
        ("buckets", "kernels", lambda some: [some[0], some[1] // 2], "neighbour, by its kernels"),
        ("storm", "left", lambda left: {**left, "maps": 1}, "objects that the helper holds more"),
        ("storm", "ended", lambda _: 1, "of these ended by themselves"),
        ("storm", "vctxs", lambda _: 1, "contexts that the module still knows"),
        ("unload", "requests", lambda _: 0, "requests in the 0.8 s after it"),
        ("unload", "adopted", lambda each: [each[0], []], "programs that the module does not know"),
        ("helper", "pins", lambda _: 1, "what the helper holds"),
        ("after", "mib", lambda _: 14, "the GPU's memory after all ended"),
        ("after", "log", lambda _: ["NVRM: Xid"], "lines in the host's kernel log"),
        ("programs", "lines", lambda _: [part("graphs", 719)], "graphs, detshare.ko"),
        ("programs", "lines", lambda some: [part("graphs", 0, 0), *some[1:]], "computed something wrong"),
        ("programs-alone", "lines", lambda some: [part("managed memory", 0), *some[:1]], "managed memory, no module"),
        ("kinds", "used", lambda used: used + 1, "distance from the host's figure"),
        ("kinds", "answer", lambda _: {"result": 2}, "libcuda refuses"),
        ("host", "lines", lambda _: {"sched": 1}, "states of which the host had no figure"),
        ("hostile", "denied", lambda _: 0, "own-slice, filter: calls that were not denied"),
        ("hostile", "neighbour_ran", lambda _: 0, "other-off, filter: the neighbour's kernels"),
        ("hostile", "answers", lambda _: [{"errno": 0, "status": 0}], "dup-group, filter: objects"),
        ("hostile", "ran", lambda _: 1, "resume, filter: own kernels while paused"),
        ("hostile", "neighbour", lambda it: {**it, "ran": 499}, "hostile: neighbour: kernels launched and not run"),
    ],
)  # fmt: skip
def test_each_claim_can_be_missed(lines: Lines, step: str, key: str, do: Callable[[Any], Any], words: str) -> None:
    assert [what for what in missed(change(lines, step, key, do)) if words in what]


def test_what_the_driver_does_without_the_filter_is_no_miss(lines: Lines) -> None:
    free = change(lines, "hostile-unfiltered", "neighbour_ran", lambda _: 0)
    assert missed(free) == set()
    assert [row.baseline for row in rows("forwarded-hostile", free) if row.what == (
        "other-off, filter: the neighbour's kernels meanwhile")] == [0]  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_a_step_that_failed_or_never_ended_is_a_miss(lines: Lines, name: str) -> None:
    step = RESULTS[name][1][0]
    broken = [*lines, {"guest": "sched", "n": 999, "step": step, "failed": "TimeoutError"}]
    assert "steps that were not done" in missed(broken)
    assert "steps that were not done" in missed([
        line for line in lines if not (line["step"] == step and "took" in line)
    ])  # fmt: skip


def test_a_result_of_which_nothing_was_tried_is_none(lines: Lines) -> None:
    assert not rows("forwarded-storm", [line for line in lines if line["step"] not in ("storm", "unload")])


def folder(place: Path, lines: Lines) -> Path:
    for guest in ("sched", "programs"):
        (place / guest).mkdir(parents=True)
    own = ("guest", "n")
    said = [json.dumps({key: value for key, value in line.items() if key not in own}) for line in lines if "n" in line]
    (place / "sched" / "stdout").write_text("\n".join(said) + "\n")
    (helper,) = (line for line in lines if line["step"] == "helper")
    words = {key: value for key, value in helper.items() if key not in ("guest", "step")}
    refusals = "nvfwd: refused: NV_A (0x1), verdict 1\n"
    (place / "sched" / "helper.log").write_text(refusals + json.dumps({"event": "ended", **words}) + "\n")
    host = [{key: line[key] for key in ("used", "lines")} for line in lines if line["step"] == "host"]
    (place / "host").write_text("\n".join(map(json.dumps, host)) + "\n")
    for name, text in {"memory-after": "", "log-before": "a\n", "log-after": "a\n", "machine": "a GPU\n",
                       "commit": "8b6dea6\n"}.items():  # fmt: skip
        (place / name).write_text(text)
    return place


def test_a_folder_is_read_and_written_as_results(tmp_path: Path, lines: Lines) -> None:
    place = folder(tmp_path / "run", lines)
    again = read(place)
    assert {name: rows(name, again) for name in RESULTS} == {name: rows(name, lines) for name in RESULTS}
    assert [line["names"] for line in again if line["step"] == "refused"] == [["NV_A (0x1)"], []]
    done = CliRunner().invoke(forwarded, [str(place), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert {path.stem for path in (tmp_path / "out").glob("*.json")} == set(RESULTS)
    results.check_folder(tmp_path / "out")


def test_a_run_that_was_ended_early_has_what_it_has(tmp_path: Path, lines: Lines) -> None:
    place = folder(tmp_path / "run", lines)
    for name in ("memory-after", "log-after"):
        (place / name).unlink()
    said = place / "sched" / "stdout"
    text = said.read_text()
    said.write_text(text[: text.index('"step": "storm"') + 20])
    (place / "sched" / "helper.log").unlink()
    done = CliRunner().invoke(forwarded, [str(place), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert {path.stem for path in (tmp_path / "out").glob("*.json")} == {"forwarded-sched"}


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(forwarded, [str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "name a folder that nvfwd/claims wrote" in done.output
