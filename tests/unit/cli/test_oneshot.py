# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl without a daemon: each command, exit codes, texts, JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from fake_backend import CONTAINER, programs, refusing

from detshare.ctl import oneshot
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.root import doctor
from detshare.ctl.cli import link, tables
from detshare.ctl.cli.main import main
from detshare.ctl.cli.top import alone as alone_in_top
from detshare.ctl.core import rundir
from detshare.ctl.core.driver import DriverAbsent
from detshare.ctl.core.snapshot import Check, State
from tests.patience import comes


def test_ps_is_readable_in_80_columns(ctl, alone):
    done = ctl("ps")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].split() == ["PID", "GPU", "CLASS", "SLICE", "LEVEL", "MEM", "SHARE", "STATE", "COMMAND"]
    assert lines[2].split() == ["4242", "0", "-", "2048us", "-", "3.0G", "25%", "running", "python", "serve.py"]
    assert alone.closed == [False]


def test_ps_of_long_commands_and_many_states_fits(ctl, alone):
    alone.programs = [
        dataclasses.replace(p, command="/opt/x/bin/python " + "long " * 50, state=state, klass="normal")
        for p, state in zip(programs(), [State.NOT_UNDERSTOOD, State.MPS_SERVER, State.READ_ONLY], strict=True)
    ]
    lines = ctl("ps").output.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "not-understood" in lines[2]
    assert "python long" in lines[2]
    assert "…" in lines[2]


def test_no_escape_sequence_of_a_program_reaches_the_terminal(ctl, alone):
    assert "\x1b" not in ctl("ps").output
    assert "\x1b" not in ctl("show", "4400").output


def test_ps_json(ctl, alone):
    answer = json.loads(ctl("ps", "--json").stdout)
    assert set(answer) >= {"programs", "gpus", "backend", "proof"}
    expected = {"pid", "start", "command", "user", "container", "state", "class", "weight", "gpus", "tsgs"}
    assert set(answer["programs"][0]) >= expected | {"memory_bytes", "gpu_share", "adopted_ms", "notes"}


def test_a_model_is_called_a_model(ctl, alone):
    alone.proof = "model"
    assert ctl("ps").output.startswith("model:")
    assert ctl("show", "4242").output.startswith("model:")
    assert "simulation" in ctl("doctor").output


@pytest.mark.parametrize("who", ["4242", "serve.py", "*serve*", CONTAINER[:12], CONTAINER])
def test_show(ctl, alone, who):
    done = ctl("show", who)
    assert done.exit_code == 0
    assert "serve.py" in done.output
    assert "train.py" not in done.output
    assert "0x5c000010" in done.output
    answer = json.loads(ctl("show", who, "--json").stdout)
    assert [p["pid"] for p in answer["programs"]] == [4242]


@pytest.mark.parametrize(
    ("args", "texts"),
    [
        (["set-priority", "4242", "high"], ["4242: set-priority done", "2048us -> 777us", "level high"]),
        (["set-weight", "4242", "3"], ["4242: set-weight done"]),
        (["set-slice", "4242", "500"], ["2048us -> 500us"]),
        (["set-slice", "4242", "500", "--level", "low"], ["2048us -> 500us", "level low"]),
        (["resume", "4242"], ["4242: runs again"]),
        (["preempt", "4242"], ["4242: preempted"]),
        (["release", "4242"], ["4242: released"]),
        (["release", "--all"], ["4242: released", "4300: released"]),
    ],
)
def test_verbs(ctl, alone, args, texts):
    done = ctl(*args)
    assert done.exit_code == 0
    for text in texts:
        assert text in done.output
    assert alone.closed == [False]  # what was set stands
    answer = json.loads(ctl(*args, "--json").stdout)
    assert set(answer) >= {"changed", "skipped", "seconds"}
    assert answer["changed"][0]["pid"] == 4242


@pytest.mark.parametrize(
    "args",
    [
        ["set-priority", "4242", "urgent"],
        ["set-weight", "4242", "0"],
        ["set-weight", "4242", "1001"],
        ["set-weight", "4242", "three"],
        ["set-slice", "4242", "0"],
        ["set-slice", "4242", "500", "--level", "highest"],
        ["set-priority", "0", "high"],
        ["set-priority", "4242", "high", "--wait", "nan"],
        ["set-priority", "", "high"],
        ["set-priority", "99999999", "high"],
        ["set-priority", "-5", "high"],
        ["set-priority", "--", "-5", "high"],
        ["pause", "", "--foreground"],
        ["preempt", "a\nb"],
        ["preempt", "x" * 5000],
        ["show", " "],
        ["show"],
        ["release"],
        ["release", "4242", "--all"],
        ["ps", "--yaml"],
        ["explode"],
        ["help", "explode"],
    ],
)
def test_bad_usage_is_2_and_changes_nothing(ctl, alone, args):
    before = alone.state()
    done = ctl(*args)
    assert done.exit_code == 2, done.output
    assert done.stderr.strip()
    assert alone.state() == before


@pytest.mark.parametrize(
    "args", [["set-priority", "4242", "low", "--floor", "nan"], ["set-class", "low", "--floor", "nan"]]
)
def test_a_floor_that_is_no_number_is_called_so(ctl, args):
    done = ctl(*args)
    assert done.exit_code == 2
    assert "'nan' is no number" in done.stderr
    assert "seconds" not in done.stderr


@pytest.mark.parametrize(
    ("args", "stopped"),
    [
        (["show", "nobody"], "no program that holds a GPU matches"),
        (["preempt", "nobody"], "nothing matches nobody"),
        (["preempt", "4243"], "nothing matches 4243"),
        (["preempt", "999"], "it uses no GPU"),
        (["pause", "999", "--foreground"], "it uses no GPU"),
        (["preempt", "4400"], "it has no GPU context"),
        (["pause", "4242"], "nobody would resume"),
        (["events"], "needs the daemon"),
        (["set-priority", "4400", "high"], "no context on a GPU yet"),
        (["set-priority", "999", "high"], "no context on a GPU yet"),
        (["set-weight", "4400", "5"], "no context on a GPU yet"),
        (["set-slice", "4400", "500"], "a daemon that is started while it lives will apply it"),
    ],
)
def test_failures_are_1_and_say_what_was_asked_what_stopped_it_and_what_is_next(ctl, alone, args, stopped):
    done = ctl(*args)
    assert done.exit_code == 1, done.output
    assert stopped in done.stderr
    assert "\nnext: " in done.stderr
    assert done.stderr.startswith("detshare-ctl: ")
    assert done.stderr.count("detshare-ctl ps") <= 1
    assert alone.state() == programs()


def test_json_of_a_failure_is_one_document(ctl, alone):
    assert json.loads(ctl("preempt", "nobody", "--json").stdout)["changed"] == []
    assert set(json.loads(ctl("show", "nobody", "--json").stdout)["error"]) == {"asked", "stopped", "next"}


def test_what_the_kernel_refuses(ctl, alone):
    alone.fail = refusing().fail
    done = ctl("set-priority", "4242", "high")
    assert done.exit_code == 1
    assert "kernel refused" in done.stderr
    assert "root" in done.stderr


def test_what_is_kept_for_a_later_daemon_says_where_and_how(ctl, alone, run_dir):
    told = ctl("set-priority", "4400", "high").stderr
    assert f"kept in {run_dir}" in told
    assert f"next: sudo detshared --run-dir {run_dir}, or wait here: detshare-ctl set-priority 4400 high --wait" in told


def test_a_change_of_a_model_that_ends_at_once_says_so(ctl, alone):
    assert "--backend model" in ctl("--backend", "model", "preempt", "4242").stderr
    assert ctl("preempt", "4242").stderr == ""


def test_an_event_of_another_day_has_its_date():
    item = {"when": time.time(), "kind": "pause", "pid": 4242, "text": "paused"}
    assert tables.event(item).partition(" ")[2] == "pause 4242: paused"
    assert tables.event({**item, "when": 86_400.0 * 365})[:7] in ("1970-12", "1971-01")


def test_wait_until_there_is_a_context(ctl, alone):
    def make_context() -> None:
        time.sleep(0.3)
        alone.programs[2] = dataclasses.replace(alone.programs[2], tsgs=alone.programs[1].tsgs)

    thread = threading.Thread(target=make_context)
    thread.start()
    done = ctl("set-priority", "4400", "high", "--wait", "10")
    thread.join()
    assert done.exit_code == 0, done.stderr
    assert alone.programs[2].klass == "high"


def test_wait_ends(ctl, alone):
    done = ctl("set-priority", "4400", "high", "--wait", "0.2")
    assert done.exit_code == 1
    assert "nor had it after 0.2 s" in done.stderr


def test_hold_a_pause_until_a_signal(ctl, alone, guards):
    states = []

    def end() -> None:
        comes(lambda: alone.programs[0].state is State.PAUSED)
        states.append(alone.programs[0].state)
        assert [g.stopped for g in guards] == [0]
        # to that thread: one that an earlier test left would end the process; for a real one see daemon/test_process.py
        signal.pthread_kill(waiting, signal.SIGTERM)

    waiting = threading.get_ident()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        thread = threading.Thread(target=end)
        thread.start()
        done = ctl("pause", "4242", "--foreground")
        thread.join()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    assert states == [State.PAUSED]
    assert done.exit_code == 0, done.stderr
    assert alone.programs[0].state is State.RUNNING
    assert [g.stopped for g in guards] == [1]
    assert "resumed" in done.stderr


def test_a_held_pause_ends_with_its_program(ctl, alone, guards):
    thread = threading.Timer(0.5, lambda: alone.programs.pop(0))
    thread.start()
    done = ctl("pause", "4242", "--foreground")
    assert done.exit_code == 0
    assert "the program ended" in done.stderr


def test_a_pause_that_cannot_be_resumed_is_left_to_the_guardian(ctl, alone, guards):
    real = alone.pause

    def pause_then_break(who):
        outcome = real(who)
        alone.fail_look = OSError("the driver is gone")
        return outcome

    alone.pause = pause_then_break
    done = ctl("pause", "4242", "--foreground")
    assert done.exit_code == 1
    assert "the driver is gone" in done.stderr
    assert [g.stopped for g in guards] == [0]


def test_a_refused_pause_sends_the_guardian_home(ctl, alone, guards):
    assert ctl("pause", "nobody", "--foreground").exit_code == 1
    assert [g.stopped for g in guards] == [1]


def test_one_changing_command_at_a_time(ctl, alone, monkeypatch, run_dir):
    monkeypatch.setattr(link, "PATIENCE", 0.05)
    lock = rundir.Lock(run_dir / "lock", "detshare-ctl pause")
    lock.acquire("test")
    done = ctl("preempt", "4242")
    assert done.exit_code == 1
    assert f"detshare-ctl pause (PID {os.getpid()}) holds" in done.stderr
    assert ctl("ps").exit_code == 0  # looking needs no lock
    lock.release()
    assert ctl("preempt", "4242").exit_code == 0


def test_no_root(ctl, monkeypatch):
    monkeypatch.setattr(oneshot.os, "geteuid", lambda: 1000)
    for args in (["ps"], ["set-priority", "4242", "high"], ["show", "4242"]):
        done = ctl(*args)
        assert done.exit_code == 1
        assert "needs root" in done.stderr
        assert "sudo" in done.stderr
    done = ctl("doctor")
    assert done.exit_code == 1
    assert "needs root" in done.output


def test_no_driver(ctl, alone, monkeypatch):
    monkeypatch.setattr(oneshot, "nodes_check", lambda: Check("devices", False, "there is none", "make them"))
    monkeypatch.setattr(oneshot, "configuration_check", lambda: Check("configuration", True, "nothing is wrong"))

    def absent(name, run_dir, repair=True):
        raise DriverAbsent("no NVIDIA driver is loaded here")

    monkeypatch.setattr(oneshot, "build_backend", absent)
    done = ctl("doctor")
    assert done.exit_code == 1
    assert "no NVIDIA driver is loaded here" in done.output
    assert "nvidia-smi" in done.output
    checks = json.loads(ctl("doctor", "--json").stdout)["checks"]
    assert {c["name"]: c["ok"] for c in checks} == {
        "daemon": None, "configuration": True, "backend": False, "devices": False,
    }  # fmt: skip


def test_doctor(ctl, alone, monkeypatch):
    monkeypatch.setattr(oneshot, "nodes_check", lambda: Check("devices", True, "/dev/nvidia0, /dev/nvidiactl"))
    monkeypatch.setattr(oneshot, "Nvml", lambda: SimpleNamespace(problem="", memory_total=lambda: {"GPU-1": 1}))
    done = ctl("doctor")
    assert done.exit_code == 0
    assert "does not hold a hostile tenant" in " ".join(done.output.split())
    checks = json.loads(ctl("doctor", "--json").stdout)["checks"]
    assert set(checks[0]) == {"name", "ok", "detail", "advice"}
    monkeypatch.setattr(oneshot, "Nvml", lambda: SimpleNamespace(problem="NVML: not found", memory_total=dict))
    done = ctl("doctor")
    assert done.exit_code == 0
    assert "libnvidia-ml" in done.output
    assert "NVML: not found" in done.output


@pytest.mark.parametrize("columns", ["1", "40"])
def test_doctor_tells_all_in_few_columns(ctl, alone, run_dir, columns):
    done = CliRunner().invoke(main, ["--run-dir", str(run_dir), "doctor"], env={"COLUMNS": columns})
    said = done.stdout.split()
    for check in json.loads(ctl("doctor", "--json").stdout)["checks"]:
        assert set(check["name"].split()) <= set(said)
        assert check["detail"].split()[0] in said


def test_doctor_knows_mps(ctl, alone):
    alone.proof = "model"
    alone.programs[0] = dataclasses.replace(alone.programs[0], state=State.MPS_SERVER)
    assert "1 process(es): slices act on the server" in " ".join(ctl("doctor").output.split())


def test_a_run_directory_that_others_can_write_to_is_refused(ctl, alone, run_dir):
    run_dir.chmod(0o777)
    done = ctl("preempt", "4242")
    assert done.exit_code == 1
    assert "mode 777" in done.stderr
    assert alone.calls == []


@pytest.mark.parametrize(
    "typed", ["ps", "show 1000", "doctor", "events", "classes", "tenant list", "pool", "policy show"]
)
def test_a_command_that_asks_makes_no_folder(run_dir, typed):
    done = CliRunner().invoke(main, ["--run-dir", str(run_dir / "new"), "--backend", "model", *typed.split()])
    assert isinstance(done.exception, SystemExit | None)
    assert done.exit_code == 0 or typed not in ("ps", "show 1000")
    assert list(run_dir.iterdir()) == []


def test_nor_does_top_or_support(run_dir, alone):
    new = run_dir / "new"
    assert alone_in_top(new)["programs"]
    with oneshot.OneShot.open("model", new, "support", lock=False) as shot:
        assert shot.programs()["programs"]
    assert list(run_dir.iterdir()) == []


def test_a_folder_that_a_change_could_not_make_fails_the_doctor(run_dir, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    checks = doctor.checks(ModelDriver(), None, [], 0, run_dir / "new", "model")
    assert [check.ok for check in checks if "cannot be made" in check.detail] == [False]


COMMANDS = sorted(set(main.commands) - {"help"})


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_an_example_and_json(ctl, command):
    text = ctl(command, "--help").output
    assert "Example:\n  sudo detshare-ctl " + command in text
    assert "--json" in text
    assert ctl("help", command).output.partition("\n\n")[2] == text.partition("\n\n")[2]


@pytest.mark.parametrize("command", sorted(main.commands["tenant"].commands))
def test_each_command_of_tenants_has_an_example_and_json(ctl, command):
    text = ctl("tenant", command, "--help").output
    assert f"Example:\n  sudo detshare-ctl tenant {command}" in text
    assert "  --json " in text


def test_without_a_command_there_is_help():
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 0
    assert all(command in done.output for command in COMMANDS)
    assert CliRunner().invoke(main, ["help"]).output == done.output
