# SPDX-License-Identifier: Apache-2.0
"""Launches that eBPF counts, in what a daemon tells: with their source, of the right program, and marked partial."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from fake_backend import GPU, programs

from detshare.ctl.cli.main import main
from detshare.ctl.core.config import Config
from detshare.ctl.core.config import Daemon as DaemonConfig
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.observed import Grid
from detshare.ctl.core.snapshot import Program, Snapshot
from detshare.ctl.daemon import launched
from detshare.ctl.daemon.launched import Launched
from detshare.ctl.daemon.requests import Table
from detshare.ebpf.errors import EbpfError
from detshare.ebpf.launch_watch import Sums
from detshare.ebpf.launches import seconds_of

WATCHING = Config(daemon=DaemonConfig(launches=True))


class FakeWatch:
    """Has what a test says."""

    how = "libbpf"
    sums: dict[int, Sums] = {}  # each test sets its own

    def __init__(self) -> None:
        self.forgotten: list[int] = []

    def read(self) -> dict[int, Sums]:
        return self.sums

    def forget(self, pid: int) -> None:
        self.forgotten.append(pid)

    def notes(self) -> list[str]:
        return []

    def close(self) -> None:
        pass


def sums(launches: int, **more: Any) -> Sums:
    return Sums(launches=launches, **more)


@pytest.fixture
def watched(start, monkeypatch: pytest.MonkeyPatch):
    many = Counter({(8, 128): 990, (264, 256): 17})
    seen = sums(1007, graphs=5, copies=3, copied_bytes=4096, fills=1, waits=2, wait_ns=1_500_000, shapes=many)
    monkeypatch.setattr(launched, "LaunchWatch", FakeWatch)
    monkeypatch.setattr(FakeWatch, "sums", {4242: seen, 4300: sums(0, partial=("it maps no libcuda",)), 77: sums(1)})
    return start(config=WATCHING)


def ctl(running, *words: str) -> str:
    done = CliRunner().invoke(main, ["--run-dir", str(running.run_dir), *words], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_look_tells_of_programs_though_launches_cannot_be_read(start, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(watch: FakeWatch) -> dict[int, Sums]:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(launched, "LaunchWatch", FakeWatch)
    monkeypatch.setattr(FakeWatch, "read", broken)
    running = start(config=WATCHING)
    shown = json.loads(ctl(running, "ps", "--json"))
    assert {each["pid"] for each in shown["programs"]} >= {4242, 4300}
    assert all(each.get("observed") is None for each in shown["programs"])
    lines = CliRunner().invoke(main, ["--run-dir", str(running.run_dir), "doctor"], env={"COLUMNS": "160"}).output
    assert "they cannot be read" in lines


def test_the_api_has_them_with_their_source(watched):
    by_pid = {each["pid"]: each["observed"] for each in watched.client.programs()["programs"]}
    assert by_pid[4400] is None
    assert by_pid[4300]["partial"] == ["it maps no libcuda"]
    seen = by_pid[4242]
    assert (seen["source"], seen["launches"], seen["graph_launches"], seen["partial"]) == ("eBPF", 1007, 5, [])
    assert (seen["copies"], seen["copied_bytes"], seen["fills"], seen["waits"], seen["wait_ms"]) == (3, 4096, 1, 2, 1.5)
    assert seen["grids"][0] == {"blocks": 8, "threads": 128, "launches": 990}
    assert seen["blocks"] == 8


def test_show_and_why_tell_of_them(watched):
    shown = ctl(watched, "show", "4242")
    assert "by eBPF" in shown
    assert "1007 launches + 5 of graphs" in shown
    assert "3 copies (4.0K), 1 fill, 2 waits of 1.5 ms" in shown
    assert "grid of 264 x 256 threads: 17 times" in shown
    assert "it maps no libcuda" in ctl(watched, "show", "4300")
    assert "seen by eBPF: 0 launches and 0 graphs a second, most of them 8 blocks" in ctl(watched, "why", "4242")


def test_a_daemon_that_does_not_watch_has_none(start):
    running = start()
    assert {each["observed"] for each in running.client.programs()["programs"]} == {None}
    assert "eBPF" not in ctl(running, "show", "4242")


def test_where_it_cannot_watch_the_daemon_goes_on_and_doctor_tells(start, monkeypatch: pytest.MonkeyPatch):
    def refuse() -> None:
        raise EbpfError("load launches.bpf.c", "no CAP_BPF", "run it as root")

    monkeypatch.setattr(launched, "LaunchWatch", refuse)
    running = start(config=WATCHING)
    assert len(running.client.programs()["programs"]) == 3
    (check,) = [each for each in running.client.doctor()["checks"] if each["name"] == "launches"]
    assert (check["ok"], check["advice"]) == (False, "run it as root")


class Feed:
    """A Launched on a clock and a watch of the test's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.watch = FakeWatch()
        self.made = Launched(True, lambda: self.now)
        self.made._watch = self.watch  # type: ignore[assignment]
        self.program = programs()[0]

    def look(self, found: Sums, at: float, program: Program | None = None) -> Program:
        self.now, self.watch.sums = 100.0 + at, {4242: found}
        whole = Snapshot("root", "unit", "580", self.now, 0.0, (), (program or self.program,))
        return self.made.add_to(whole).programs[0]


def test_rates_are_of_the_last_second_and_grids_of_what_came_in_it():
    feed = Feed()
    first = feed.look(sums(1000, shapes=Counter({(8, 128): 1000})), 0.0)
    assert first.observed.launches_per_s == 0.0, "one look has no rate"
    for step in range(1, 9):
        more = Counter({(8, 128): 1000, (528, 256): 250 * step})
        seen = feed.look(sums(1000 + 250 * step, graphs=10 * step, shapes=more), step / 4)
    assert (seen.observed.launches_per_s, seen.observed.graph_launches_per_s) == (1000.0, 40.0)
    assert seen.observed.blocks == 528
    assert seen.observed.grids == (Grid(528, 256, 2000), Grid(8, 128, 1000))
    for step in range(9, 15):
        seen = feed.look(sums(3000, graphs=80, shapes=more), step / 4)
    assert seen.observed.launches_per_s == 0.0
    assert seen == feed.look(sums(3000, graphs=80, shapes=more), 4.0), "at rest it is no news"


def test_a_number_that_another_process_has_now_begins_anew():
    feed = Feed()
    assert feed.look(sums(1000), 0.0).observed.launches == 1000
    other = replace(feed.program, id=ProcessId(4242, 999))
    assert feed.look(sums(1001), 1.0, other).observed is None
    assert feed.watch.forgotten == [4242]
    assert feed.look(sums(1), 2.0, other).observed.launches == 1


def test_policies_see_launches_grids_and_graphs_of_the_temporal_lane():
    from detshare.ctl.core.driver import Gpu
    from detshare.ctl.policy.types import Shape
    from detshare.ctl.policy.view import Viewer

    feed, viewer = Feed(), Viewer()
    for step in range(9):
        grids = Counter({(8, 128): 12345 * step, (528, 256): step})
        program = feed.look(sums(12346 * step, graphs=7 * step, shapes=grids), step / 4)
        seen = Snapshot("root", "unit", "580", feed.now, 0.0, (Gpu(GPU, 0, "", ""),), (program,))
        viewer.look(seen, feed.now * 1e6)
    view = viewer.tenants(GPU)["4242"]
    assert (view.launches, view.graph_launches, view.blocks) == (98768, 56, 8)
    assert (view.launches_per_s, view.graph_launches_per_s) == (49000.0, 28.0)
    assert view.shapes == (Shape("", 8, 128, 99000, 0.0, 0.0, 0.0), Shape("", 528, 256, 8, 0.0, 0.0, 0.0))


def test_top_tells_launches_a_second_and_who_counted_them():
    from detshare.ctl.top.details import details
    from detshare.ctl.top.rates import Rates
    from detshare.ctl.top.rows import rows

    feed, rates = Feed(), Rates()
    for step in range(5):
        program = feed.look(sums(500 * step, shapes=Counter({(8, 128): 500 * step})), step / 2)
        answer = json.loads(json.dumps(Snapshot("root", "unit", "580", feed.now, 0.0, (), (program,)).to_json()))
        rates.add_to(answer)
    (row,) = rows(answer)
    assert row.launches == 1000.0
    text = "\n".join(line for line, _ in details(answer, row))
    assert "launches (eBPF) a second" in text
    assert "eBPF: 2000 launches, 0 graphs, 0 copies" in text
    assert "8 x 128: 2000" in text


def test_requests_as_seen_from_outside_are_those_since_the_watch_began_and_a_report_goes_before_them():
    feed = Feed()
    ten_ms = bucket_of(0.010)
    assert feed.look(sums(1, requests={ten_ms: 500}), 0.0).requests is None  # of an unknown time ago
    seen = feed.look(sums(1, requests={ten_ms: 590, bucket_of(0.080): 10}), 0.5).requests
    assert (seen.count, seen.total, seen.source) == (100, 100, "eBPF")
    assert 0.010 <= seen.p50_s <= 0.011
    assert seen.p99_s >= 0.010
    assert 0.080 <= seen.p99_s <= 0.087
    table = Table(lambda: feed.now, lambda pid: 100, lambda a, b: False)
    table.take(4242, b"0.5\n")
    whole = Snapshot("root", "unit", "580", feed.now, 0.0, (), (replace(feed.program, requests=seen),))
    (told,) = table.add_to(whole).programs
    assert (told.requests.source, told.requests.count) == ("reported", 1)


def bucket_of(seconds: float) -> int:
    ns = int(seconds * 1e9)
    octave = ns.bit_length() - 1
    bucket = octave << 4 | (ns >> (octave - 4)) & 15
    assert seconds <= seconds_of(bucket) <= 1.07 * seconds
    return bucket
