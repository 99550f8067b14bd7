# SPDX-License-Identifier: Apache-2.0
"""Real processes: detshared --backend model and detshare-ctl over its socket."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from detshare.ctl.cli.main import main as cli
from detshare.ctl.client import Client
from detshare.ctl.core import version
from detshare.ctl.core.config import Config
from detshare.ctl.core.config import Daemon as DaemonConfig
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.rundir import SOCKET_NAME
from detshare.ctl.daemon import detshared as daemon_module
from tests.patience import LONG_S, run, until, words

pytestmark = pytest.mark.e2e


def spawn(run_dir: Path, *args: str, **kwargs) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model"]
    return subprocess.Popen([*command, "--run-dir", str(run_dir), *args], stderr=subprocess.PIPE, text=True, **kwargs)


def ctl(run_dir: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(run_dir), *args]
    return run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def spawned(run_dir) -> Iterator[list[subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []
    yield made
    for process in made:
        if process.poll() is None:
            process.kill()
        words(process)


@pytest.fixture
def begin(run_dir, spawned):
    def make(*args: str, **kwargs) -> subprocess.Popen[str]:
        process = spawn(run_dir, *args, **kwargs)
        spawned.append(process)
        until(lambda: process.poll() is not None or Client(run_dir).alive())
        assert process.poll() is None, process.communicate()
        return process

    return make


def pids(run_dir: Path) -> dict[str, int]:
    answer = json.loads(ctl(run_dir, "ps", "--json").stdout)
    assert answer["proof"] == "model"
    return {p["command"].split()[1].removesuffix(".py"): p["pid"] for p in answer["programs"]}


def guardian(run_dir: Path) -> int:
    checks = {c["name"]: c for c in Client(run_dir).doctor()["checks"]}
    assert checks["guardian"]["ok"] is True
    found = re.search(r"PID (\d+)", checks["guardian"]["detail"])
    assert found is not None
    return int(found[1])


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_commands_against_a_daemon(run_dir, begin):
    begin()
    pid = str(pids(run_dir)["serve"])
    assert "model:" in ctl(run_dir, "ps").stdout
    done = ctl(run_dir, "set-priority", pid, "high", "--json")
    assert done.returncode == 0, done.stderr
    change = json.loads(done.stdout)["changed"][0]
    assert change["pid"] == int(pid)
    assert change["tsgs"][0]["level"] == "high"
    assert ctl(run_dir, "pause", "train.py").returncode == 0
    states = {p["pid"]: p for p in Client(run_dir).programs()["programs"]}
    assert states[pids(run_dir)["train"]]["state"] == "paused"
    assert states[int(pid)]["class"] == "high"
    assert ctl(run_dir, "resume", "train.py").returncode == 0
    assert ctl(run_dir, "set-weight", "train.py", "3").returncode == 0
    assert ctl(run_dir, "set-slice", pid, "5000", "--level", "low").returncode == 0
    assert ctl(run_dir, "preempt", pid).returncode == 0
    shown = json.loads(ctl(run_dir, "show", pid, "--json").stdout)["programs"][0]
    compute = [t for t in shown["tsgs"] if t["kind"] == "compute"]
    assert [(t["slice_us"], t["level"]) for t in compute] == [(5000, "low")]
    assert ctl(run_dir, "release", "--all").returncode == 0
    shown = json.loads(ctl(run_dir, "show", pid, "--json").stdout)["programs"][0]
    assert {t["slice_us"] for t in shown["tsgs"] if t["kind"] == "compute"} == {2048}
    assert ctl(run_dir, "set-priority", pid, "urgent").returncode == 2
    assert ctl(run_dir, "set-slice", "0", "5").returncode == 2
    assert ctl(run_dir, "pause", "nobody").returncode == 1
    events = json.loads(ctl(run_dir, "events", "--json").stdout)["events"]
    assert {"attach", "daemon"} <= {e["kind"] for e in events}
    doctor = ctl(run_dir, "doctor")
    assert "simulation" in doctor.stdout
    assert Client(run_dir).readings()[pid]["count"] > 0


def test_a_floor_of_one_gpu_is_said_wherever_floors_are(run_dir, begin):
    first = begin()
    pid = str(pids(run_dir)["train"])
    assert ctl(run_dir, "set-priority", pid, "low").returncode == 0
    done = ctl(run_dir, "set-class", "low", "--floor", "7.5", "--gpu", "0")
    assert done.returncode == 0, done.stderr
    assert "class low: at least 7.5 % of the time on GPU 0" in done.stdout
    assert ctl(run_dir, "set-class", "low", "--floor", "5", "--gpu", "9").returncode == 2
    first.terminate()
    words(first)
    begin()
    rows = [line.split() for line in ctl(run_dir, "classes").stdout.splitlines()]
    assert [row for row in rows if row[0] == "low"] == [["low", "each", "2%"], ["low", "0", "7.5%"]]
    floors = json.loads(ctl(run_dir, "classes", "--json").stdout)["floors"]
    assert [(row["gpu"], row["floor"]) for row in floors if row["name"] == "low"] == [(None, 0.02), (0, 0.075)]
    assert ctl(run_dir, "set-priority", "train.py", "low").returncode == 0
    assert "7.5% of the time" in ctl(run_dir, "show", "train.py").stdout
    assert ctl(run_dir, "set-class", "low", "--reset", "--gpu", "0").returncode == 0
    assert "2.0% of the time" in ctl(run_dir, "show", "train.py").stdout


def test_the_second_daemon_names_the_first(run_dir, begin):
    first = begin()
    second = spawn(run_dir)
    _, told = words(second)
    assert second.returncode == 1
    assert f"detshared (PID {first.pid}) holds" in told
    assert "next: " in told
    assert first.poll() is None
    assert ctl(run_dir, "ps").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_restores_and_removes_the_socket(run_dir, begin, number):
    daemon = begin()
    watcher = guardian(run_dir)
    assert ctl(run_dir, "set-priority", "train.py", "idle").returncode == 0
    assert ctl(run_dir, "pause", "train.py").returncode == 0
    journal = run_dir / "journal-model.jsonl"
    assert journal.read_text().count('"slice"')
    daemon.send_signal(number)
    _, told = words(daemon)
    assert daemon.returncode == 0, told
    assert "restoring" in told
    assert not journal.exists()  # it holds what remains to be put back
    assert not (run_dir / SOCKET_NAME).exists()
    assert ended(watcher)
    assert ctl(run_dir, "events").returncode == 1


def test_a_command_waits_for_a_daemon_that_is_starting(run_dir, spawned):
    spawned.append(spawn(run_dir))
    until(lambda: (run_dir / "lock").exists() and (run_dir / "lock").read_text().endswith("detshared\n"))
    # no --backend model here: without the daemon this would fail for want of a driver, or act on a real one
    for command in (("ps",), ("set-priority", "serve.py", "high")):
        done = ctl(run_dir, *command)
        assert done.returncode == 0, done.stderr


def test_killed_and_started_again(run_dir, begin):
    first = begin()
    watcher = guardian(run_dir)
    first.kill()
    first.wait(LONG_S)
    assert (run_dir / SOCKET_NAME).exists()
    gone = ctl(run_dir, "events")
    assert gone.returncode == 1
    assert "no" in gone.stderr
    assert "detshared --run-dir" in gone.stderr
    until(lambda: ended(watcher))
    begin()
    assert ctl(run_dir, "ps").returncode == 0
    assert guardian(run_dir) != watcher


def test_a_guardian_that_ends_is_replaced_and_does_not_end_easily(run_dir, begin):
    begin()
    first = guardian(run_dir)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(first, number)
    time.sleep(0.3)
    assert not ended(first)
    os.kill(first, signal.SIGKILL)

    def another() -> bool:
        checks = {c["name"]: c for c in Client(run_dir).doctor()["checks"]}
        return checks["guardian"]["ok"] is True and f"PID {first};" not in checks["guardian"]["detail"]

    until(another)
    assert ctl(run_dir, "pause", "train.py").returncode == 0
    assert ctl(run_dir, "resume", "train.py").returncode == 0


def test_a_held_pause_in_a_process_of_its_own(run_dir):
    command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(run_dir), "--backend", "model"]
    held = subprocess.Popen([*command, "pause", "train.py", "--foreground"], stderr=subprocess.PIPE, text=True)
    assert held.stderr is not None
    assert held.stderr.readline() == "held until Ctrl-C or SIGTERM\n"
    refused = spawn(run_dir)
    _, told = words(refused)
    assert refused.returncode == 1
    assert f"held detshare-ctl pause (PID {held.pid})" in told
    held.send_signal(signal.SIGINT)
    _, told = words(held)
    assert held.returncode == 0, told
    assert told == "resumed\n"


def test_systemd_is_told(run_dir, begin, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(run_dir / "notify"))
        sock.settimeout(LONG_S)
        daemon = begin(env={**os.environ, "NOTIFY_SOCKET": str(run_dir / "notify")})
        assert sock.recv(100) == b"READY=1"
        assert Client(run_dir).programs()["programs"]
        daemon.terminate()
        assert sock.recv(100) == b"STOPPING=1"


@pytest.mark.skipif(Path("/sys/module/nvidia").exists(), reason="an NVIDIA driver is loaded")
def test_a_daemon_that_waits_for_a_driver_says_so_and_ends_when_it_is_told_to(run_dir):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(run_dir / "notify"))
        sock.settimeout(LONG_S)
        command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", str(run_dir)]
        environment = {**os.environ, "NOTIFY_SOCKET": str(run_dir / "notify")}
        process = subprocess.Popen([*command, "--wait-for-driver"], stderr=subprocess.PIPE, text=True, env=environment)
        try:
            ready, status = sock.recv(200).decode().splitlines()
            assert ready == "READY=1"
            assert status.startswith("STATUS=no NVIDIA driver is loaded; waiting for it")
            assert not Client(run_dir).alive()
        finally:
            process.terminate()
            told = words(process)[1]
    assert process.returncode == -signal.SIGTERM  # what systemd counts as a clean end
    assert "waiting for it" in told


def test_it_goes_on_once_the_driver_is_there_and_does_not_wait_for_the_model(run_dir, begin, monkeypatch):
    assert begin("--wait-for-driver").poll() is None  # backend model
    told: list[str] = []
    answers = iter([None, None, "580.1"])
    monkeypatch.setattr(daemon_module.procfs, "driver_version", lambda: next(answers))
    monkeypatch.setattr(daemon_module, "notify", told.append)
    daemon_module._wait_for_driver(0.0)
    assert [each.partition("=")[0] for each in told] == ["READY", "STATUS"]
    assert told[1] == "STATUS="
    assert next(answers, "all asked") == "all asked"


def test_versions_of_the_command_and_of_a_daemon_that_is_of_another_build(run_dir, begin, monkeypatch):
    alone = ctl(run_dir, "version")
    assert alone.stdout.splitlines()[1].split() == ["daemon", "none"]
    begin()
    answer = json.loads(ctl(run_dir, "version", "--json").stdout)
    assert answer["daemon"] == answer["command"]
    assert answer["daemon"]["api"] == 1
    # what is installed is exchanged under it: it still says what it is
    monkeypatch.setattr(version, "build", lambda: "9.9")
    said = CliRunner().invoke(cli, ["--run-dir", str(run_dir), "version"]).output.splitlines()
    assert said[0] == "command  9.9 (API 1)"
    assert said[1] == f"daemon   {answer['daemon']['version']} (API 1)"
    assert said[-1] == "the daemon is of another build: sudo systemctl restart detshared"


def test_no_root_no_daemon(run_dir, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ControlError, match="needs root") as caught:
        daemon_module.run(run_dir / "new", Config(daemon=DaemonConfig(backend="root")))
    assert "sudo" in caught.value.next_step
    assert not (run_dir / "new").exists()


@pytest.mark.skipif(Path("/sys/module/nvidia").exists(), reason="an NVIDIA driver is loaded")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_no_driver_no_daemon(run_dir):
    command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", str(run_dir), "--backend", "root"]
    done = run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no NVIDIA driver is loaded" in done.stderr
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (run_dir / SOCKET_NAME).exists()


@pytest.mark.skipif(Path("/sys/module/nvidia").exists(), reason="an NVIDIA driver is loaded")
def test_without_a_driver_auto_is_the_model_and_says_so(run_dir):
    command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", str(run_dir)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: process.poll() is not None or Client(run_dir).alive())
        assert ctl(run_dir, "ps").stdout.startswith("model: simulated programs")
        checks = {check["name"]: check for check in Client(run_dir).doctor()["checks"]}
        assert "because detshare.ko is not loaded and there is no NVIDIA driver here" in checks["backend"]["detail"]
    finally:
        process.terminate()
        told = words(process)[1]
    assert "backend model (detshare.ko is not loaded and there is no NVIDIA driver here)" in told


@pytest.mark.parametrize("args", [["--backend", "magic"], ["--interval", "0"], ["--interval", "nan"], ["--fast"]])
def test_bad_options_are_2(args):
    command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", *args]
    assert run(command, capture_output=True, check=False).returncode == 2


def test_a_wrong_configuration_is_told_and_nothing_starts(run_dir):
    path = run_dir / "x.toml"
    path.write_text("[daemon]\ninterval = 0\n[pool]\ntiers = [10]\n")
    done = spawn(run_dir, "--config", str(path))
    _, told = words(done)
    assert done.returncode == 2
    assert f"{path}:2: daemon.interval: it is 0; it is a number of seconds from 0.02 to 60" in told
    assert f"{path}:4: pool.tiers: 100 is missing" in told
    assert "next: correct it" in told
    assert not (run_dir / "lock").exists()


def test_a_configuration_is_followed_and_options_go_before_it(run_dir, spawned):
    path = run_dir / "x.toml"
    path.write_text(
        "[daemon]\nbackend = 'model'\nlog_format = 'json'\nlog_level = 'error'\n[pool]\ntiers = [20, 100]\n"
    )
    command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", str(run_dir), "--config", str(path)]
    process = subprocess.Popen([*command, "--log-level", "info"], stderr=subprocess.PIPE, text=True)
    spawned.append(process)
    until(lambda: process.poll() is not None or Client(run_dir).alive())
    names = {member["name"] for member in json.loads(ctl(run_dir, "pool", "--json").stdout)["pool"]}
    assert names == {"20%", "100%"}
    checks = {check["name"]: check for check in Client(run_dir).doctor()["checks"]}
    assert f"because {path} says so" in checks["backend"]["detail"]
    assert ctl(run_dir, "set-priority", "serve.py", "high").returncode == 0
    process.terminate()
    _, told = words(process)
    lines = [json.loads(line) for line in told.splitlines()]
    assert any(line["message"] == f"configuration: {path}" for line in lines)
    (audit,) = [line for line in lines if line.get("event") == "audit"]
    assert (audit["verb"], audit["result"], audit["uid"]) == ("set-priority", "changed", os.geteuid())


def test_metrics_on_loopback_by_configuration(run_dir, spawned):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = run_dir / "x.toml"
    path.write_text(f"[metrics]\nlisten = '127.0.0.1:{port}'\n")
    spawned.append(spawn(run_dir, "--config", str(path)))
    until(lambda: spawned[0].poll() is not None or Client(run_dir).alive())
    address = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(f"{address}/metrics", timeout=LONG_S) as answer:
        assert "detshare_programs" in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/v1/programs", timeout=LONG_S)
    for host in ("localhost:1", "[::1]"):
        asked = urllib.request.Request(f"{address}/metrics", headers={"Host": host})
        assert urllib.request.urlopen(asked, timeout=LONG_S).status == 200
    rebound = urllib.request.Request(f"{address}/metrics", headers={"Host": f"rebound.example:{port}"})
    with pytest.raises(urllib.error.HTTPError, match="403") as refused:
        urllib.request.urlopen(rebound, timeout=LONG_S)
    assert "as 127.0.0.1, [::1] or localhost" in refused.value.read().decode()
    other = spawn(run_dir / "other", "--config", str(path))
    _, told = words(other)
    assert other.returncode == 1
    assert f"127.0.0.1:{port} cannot be listened on" in told


def test_a_run_directory_that_is_too_long_is_told(run_dir):
    long = run_dir / ("x" * 120)
    done = spawn(long)
    _, told = words(done)
    assert done.returncode == 1
    assert "shorter --run-dir" in told
    assert not long.exists()
