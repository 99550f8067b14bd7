# SPDX-License-Identifier: Apache-2.0
"""The log is bounded, survives whoever writes it, tells its story, and can be played again."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_world import GPU, Scripted, program, snapshot, view

from detshare.ctl.cli.main import main
from detshare.ctl.core.driver import Gpu
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.snapshot import Snapshot as Look
from detshare.ctl.policy import registry
from detshare.ctl.policy.decisions import why
from detshare.ctl.policy.decisions.log import Log, Turn, lines, segments, turns
from detshare.ctl.policy.decisions.replay import Replay
from detshare.ctl.policy.ledger import decode, encode
from detshare.ctl.policy.types import Bind, ClassRow, Gate, Move, PCtx, Preempt, Reflex, Shape, Slice

DONE = [[{"do": "Slice", "tenant": "1", "slice_us": 300.0, "level": 0, "reason": "it may wait"}, "done"]]


def log_at(folder: Path, **options) -> Log:
    made = Log(folder, **options)
    made.open()
    return made


def found(folder: Path) -> list[Turn]:
    return [each for each in turns(folder) if isinstance(each, Turn)]


tenants = st.builds(
    view,
    st.sampled_from(["1", "2", "33", "104"]),
    active=st.booleans(),
    slice_us=st.sampled_from([50.0, 2048.0]),
    klass=st.sampled_from(["", "low"]),
    shapes=st.sampled_from([(), (Shape("gemm", 8, 256, 100, 1.0, 2.0, 4.0),)]),
    by_hand=st.sampled_from([(), ("Slice",)]),
    deadline_us=st.sampled_from([None, 20.0]),
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(tenants, max_size=4, unique_by=lambda t: t.name),
            st.sampled_from([(), (PCtx("10%", 8, False, ("1",)),)]),
            st.sampled_from(["", "on_tick"]),
        ),
        max_size=30,
    ),
    st.integers(400, 4000),
)
def test_what_is_read_is_what_was_written(tmp_path_factory, steps, segment_bytes):
    folder = tmp_path_factory.mktemp("log")
    log = log_at(folder / "d", segment_bytes=segment_bytes, segments=10_000)
    wrote = []
    for number, (several, pool, hook) in enumerate(steps):
        several = sorted(several, key=lambda t: (len(t.name), t.name))
        now = snapshot(*several, now_us=float(number * 1000), pool=pool)
        calls = [["on_tick", None, []]] if hook else [["on_launch", "1", DONE]]
        log.turn("mine", now, calls)
        wrote.append((now, calls))
    log.close()
    read = [(each.now, each.calls) for each in found(folder / "d")]
    kept = [each for each in wrote if each in read]
    assert read == kept, "what is read was written, in that order"
    assert [each for each in wrote if each[1][0][2]] == [each for each in read if each[1][0][2]]
    assert log.lost == 0


def test_ticks_without_news_share_a_record(tmp_path):
    log = log_at(tmp_path / "d")
    for number in range(100):
        log.turn("mine", snapshot(view("1"), now_us=number * 1e5), [["on_tick", None, []]])
    log.turn("mine", snapshot(view("1"), now_us=1e7), [["on_launch", "1", DONE]])
    assert log.records <= 3
    read = found(tmp_path / "d")
    assert [each.now.now_us for each in read] == [number * 1e5 for number in range(101)]


def test_ticks_that_wait_are_written_before_a_switch_and_at_the_end(tmp_path):
    log = log_at(tmp_path / "d")
    for number in range(5):
        log.turn("first", snapshot(view("1"), now_us=number * 1e5), [["on_tick", None, []]])
    log.note("switch", policy="second", before="first")
    for number in range(5, 9):
        log.turn("second", snapshot(view("1"), now_us=number * 1e5), [["on_tick", None, []]])
    log.close()
    read = [
        (each.policy, each.now.now_us) if isinstance(each, Turn) else each["kind"] for each in turns(tmp_path / "d")
    ]
    first = [("first", number * 1e5) for number in range(5)]
    assert read == [*first, "switch", *[("second", number * 1e5) for number in range(5, 9)]]


def test_the_log_stays_within_its_size(tmp_path):
    log = log_at(tmp_path / "d", segment_bytes=4096, segments=4)
    for number in range(2000):
        log.turn("mine", snapshot(view("1", launches=number), now_us=float(number)), [["on_launch", "1", DONE]])
    size = sum(path.stat().st_size for _, path in segments(tmp_path / "d"))
    assert size <= 4 * (4096 + 600)
    read = found(tmp_path / "d")
    assert read[-1].now.tenants[0].launches == 1999
    assert all(each.now.tenants[0].launches == number for number, each in zip(range(2000 - len(read), 2000), read))  # noqa: B905


def test_records_without_decisions_are_limited_and_those_left_out_are_counted(tmp_path):
    log = log_at(tmp_path / "d")
    many = [view(str(pid), command="python train.py", launches=pid) for pid in range(1000)]
    for number in range(50):
        changed = [view(str(pid), command="python train.py", launches=pid + number) for pid in range(1000)]
        log.turn("mine", snapshot(*changed, now_us=float(number)), [["on_launch", "1", []]])
    log.turn("mine", snapshot(*many, now_us=99.0), [["on_launch", "1", DONE]])
    read = found(tmp_path / "d")
    assert len(read) < 25  # more are let through the longer it takes
    assert len(read) + sum(each.left_out for each in read) == 51
    assert read[-1].calls[0][2] == DONE


@pytest.mark.parametrize("cut", [2, 20, 100])
def test_a_torn_end_is_skipped(tmp_path, cut):
    log = log_at(tmp_path / "d")
    for number in range(10):
        log.turn("mine", snapshot(view("1", launches=number), now_us=float(number)), [["on_launch", "1", DONE]])
    log.close()
    path = segments(tmp_path / "d")[-1][1]
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    assert [each.now.now_us for each in found(tmp_path / "d")] == [float(number) for number in range(9)]
    again = log_at(tmp_path / "d")
    again.turn("mine", snapshot(view("2"), now_us=77.0), [["on_launch", "2", []]])
    assert [each.now.now_us for each in found(tmp_path / "d")][-1] == 77.0


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 3000), st.binary(min_size=1, max_size=30))
def test_garbage_in_the_log_is_skipped(tmp_path_factory, where, garbage):
    folder = tmp_path_factory.mktemp("log") / "d"
    log = log_at(folder)
    for number in range(5):
        log.turn("mine", snapshot(view("1", launches=number), now_us=float(number)), [["on_launch", "1", DONE]])
    log.close()
    path = segments(folder)[-1][1]
    data = path.read_bytes()
    path.write_bytes(data[:where] + garbage + data[where:])
    for each in turns(folder):
        assert isinstance(each, Turn | dict)


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from policy_world import snapshot, view
from detshare.ctl.policy.decisions.log import Log
log = Log(Path(sys.argv[1]), segment_bytes=8192, segments=4)
log.open()
print("ready", flush=True)
number = 0
while True:
    number += 1
    action = {"do": "Slice", "tenant": "1", "slice_us": float(number)}
    now = snapshot(view("1", launches=number), now_us=float(number))
    log.turn("mine", now, [["on_launch", "1", [[action, "done"]]]])
"""


@pytest.mark.e2e
def test_kill_9_loses_at_most_the_record_that_is_being_written(tmp_path):
    for number in range(10):
        folder = tmp_path / f"d{number}"
        command = [sys.executable, "-c", WRITER, str(folder), str(Path(__file__).parent)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.03 * (number + 1))
            os.kill(process.pid, signal.SIGKILL)
        read = found(folder)
        count = [each.now.tenants[0].launches for each in read]
        assert count == list(range(count[0], count[0] + len(count))), "a record is missing in the middle"


@pytest.mark.parametrize(
    "action",
    [
        Slice("1", 300.0, 0, "it may wait"),
        Bind("1", 16),
        Move("1", "10%", "there is room"),
        Gate("1", False),
        Gate("1", True),
        Preempt("1"),
        Reflex("1", None),
        Reflex("1", 0),
        ClassRow("low", turn_us=0, floor_permille=20, reason="x"),
    ],
)
def test_an_action_is_the_same_after_the_log(action):
    assert decode(json.loads(json.dumps(encode(action)))) == action
    assert why.say(encode(action)).startswith(("1: ", "class low: "))


# -- why ------------------------------------------------------------------------------------------------------------


def look(*programs) -> Look:
    return Look("model", "unit", "580.0", 0.0, 0.0, (Gpu(GPU, 0, "Fake", "", 0),), programs)


STATUS = {"name": "mine", "rule": "a test", "failed": ""}


def test_a_story_names_rule_neighbours_decisions_and_refusals(world):
    made = world(programs=[program(1, "train.py", busy=True), program(2, "serve.py", busy=True, klass="high")])
    made.use(
        Scripted(
            on_attach=lambda now, tenant: [Slice("1", 300.0, 0, "2 is a server"), Slice("1", 1e9)]
            if tenant == "1"
            else []
        )
    )
    made.look()
    made.engine.hand("pause", "1", made.do("pause", "1"))
    made.look(0.25)
    told = why.story(1, 600.0, look(*made.programs.values()), made.engine.status(), made.run_dir / "decisions")
    text = json.dumps(told)
    assert told["policy"]["rule"] == "a test"
    assert "2 serve.py (class high), 50% of the GPU" in text
    assert told["refused"] == 1
    lines_ = [each["text"] for each in told["decisions"]]
    assert any("slice 300 us, level low; 2 is a server [mine, for it came (1)]" in line for line in lines_)
    assert any(line.startswith("refused: 1: slice 1e+03 s") for line in lines_)
    assert any("pause by a person: 1" in line for line in lines_)
    done = next(each for each in told["decisions"] if each.get("fate") == "done")
    assert done["active"] == ["2 (serve.py, class high)"]


def test_a_story_of_nobody_is_an_error(world):
    made = world(programs=[program(1)])
    made.look()
    with pytest.raises(ControlError, match="the log has nothing about it"):
        why.story(77, 600.0, look(program(1)), STATUS, made.run_dir / "decisions")


def test_since_leaves_out_what_is_older(tmp_path):
    log = log_at(tmp_path / "d")
    log.turn("mine", snapshot(view("1")), [["on_launch", "1", DONE]], time.time() - 100)
    told = why.story(1, 600.0, look(program(1)), STATUS, tmp_path / "d")
    assert len(told["decisions"]) == 1
    told = why.story(1, 50.0, look(program(1)), STATUS, tmp_path / "d")
    assert told["decisions"] == []


def test_the_newest_decisions_of_several_segments_are_told_in_order(tmp_path):
    log = log_at(tmp_path / "d", segment_bytes=2000, segments=20)
    for number in range(40):
        action = {"do": "Slice", "tenant": "1", "slice_us": 100.0 + number, "level": 1}
        done = [[action, "done"]] if number % 2 == 0 else []
        log.turn("mine", snapshot(view("1", launches=number), now_us=float(number)), [["on_launch", "1", done]])
    log.note("switch", policy="static", before="mine")
    told = why.recent(tmp_path / "d", 600.0, 1000)
    assert [each["text"].partition(";")[0].partition(",")[0] for each in told[:-1]] == [
        f"1: slice {100 + number} us" for number in range(0, 40, 2)
    ]
    assert told[-1]["text"] == "policy static decides from now on, it was mine"
    assert why.recent(tmp_path / "d", 600.0, 3) == told[-3:]
    assert why.recent(tmp_path / "d", 600.0, 0) == []
    assert why.recent(tmp_path / "d", 0.0, 3) == []
    assert why.recent(tmp_path / "none", 600.0, 3) == []


# -- replay ---------------------------------------------------------------------------------------------------------

SHORT = '''
from detshare.ctl.policy.types import Gate, Policy, Slice
class Short(Policy):
    """Rule: short."""
    tick_us = 100_000.0
    def __init__(self, params=None):
        super().__init__(params)
        self.ticks = 0
    def on_attach(self, now, tenant):
        return [Slice(tenant, 300.0, 0, "short")]
    def on_launch(self, now, tenant):
        return [Gate(tenant, False)] if len(now.tenants) > 2 else []
    def on_tick(self, now):
        self.ticks += 1
        if self.ticks % 7 == 0:
            yield Slice(now.tenants[0].name, 1000.0 + self.ticks)
'''


@pytest.fixture
def recorded(world, tmp_path):
    """A log of a policy at work: comers, goers, edges, ticks, people."""
    path = tmp_path / "short.py"
    path.write_text(SHORT)
    made = world(programs=[program(1, busy=True), program(2)])
    made.choose(str(path))
    made.look()
    for number in range(60):
        made.busy(2, number % 3 == 0)
        if number == 20:
            made.programs[3] = program(3)
        if number == 25:
            made.busy(3)
        if number == 40:
            del made.programs[3]
        if number == 45:
            made.engine.hand("set-slice", "2", made.do("set-slice", "2", slice_us=900, level="high"))
        made.look(0.11)
    assert made.engine.status()["counts"]["actions"] > 10
    return str(path), made.run_dir / "decisions"


def test_the_same_policy_decides_the_same_again(recorded):
    name, folder = recorded
    replay = Replay(registry.load(name), folder)
    assert list(replay.differences()) == []
    assert replay.recorded == replay.replayed == replay.same > 10
    assert replay.failed == ""


def test_another_policy_is_compared_action_by_action(recorded, tmp_path):
    _, folder = recorded
    other = tmp_path / "other.py"
    other.write_text(SHORT.replace("300.0", "400.0"))
    replay = Replay(registry.load(str(other)), folder)
    differing = list(replay.differences())
    attach = [each for each in differing if each.hook == "on_attach"]
    assert {each.tenant for each in attach} == {"1", "2", "3"}
    assert attach[0].text() == ["- 1: slice 300 us, level low; short", "+ 1: slice 400 us, level low; short"]
    replay = Replay(registry.load("static"), folder)
    assert len(list(replay.differences())) > 10
    assert (replay.replayed, replay.same) == (0, 0)


def test_who_reads_no_further_is_no_fault_of_the_log(recorded, monkeypatch, capsys):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(SystemExit, match="1"):
        main(["replay", str(recorded[1]), "--policy", "static"])
    assert capsys.readouterr().err == ""


def test_a_file_without_end_is_no_log():
    assert list(lines(Path("/dev/zero"))) == [{"kind": "segment"}]


def test_a_log_that_cannot_be_read_is_told(capsys):
    with pytest.raises(SystemExit, match="1"):
        main(["replay", "/proc/self/mem", "--policy", "static"])
    assert "the log cannot be read: " in capsys.readouterr().err


def test_a_policy_that_fails_in_replay_is_told(recorded, tmp_path):
    _, folder = recorded
    other = tmp_path / "other.py"
    other.write_text(SHORT.replace('return [Slice(tenant, 300.0, 0, "short")]', "return 1 / 0"))
    replay = Replay(registry.load(str(other)), folder)
    list(replay.differences())
    assert "ZeroDivisionError" in replay.failed


def test_lines_of_a_single_segment_can_be_played_too(recorded):
    name, folder = recorded
    path = segments(folder)[-1][1]
    assert len(list(lines(path))) > 10
    replay = Replay(registry.load(name), path)
    assert list(replay.differences()) == []
