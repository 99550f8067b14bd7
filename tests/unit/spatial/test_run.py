# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from spatial_lane import Lane

from detshare.ctl.client import Client, ClientError
from detshare.ctl.core import procfs
from detshare.runtime import run as module
from detshare.runtime.admission import Request
from tests import patience
from tests.patience import Slept, ended, until

pytestmark = pytest.mark.e2e

SHOW = (
    "import os,json;print(json.dumps({k:v for k,v in os.environ.items()"
    " if k.startswith(('DETSHARE_','CUDA_MPS_','LD_PRELOAD'))}|{'pid':os.getpid()}))"
)


def run(where: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(where), *args]
    # any shared object serves: the programs here are told what they would be preloaded with
    library = next(path for path in Path("/lib").glob("*/libm.so.6"))
    made = {**os.environ, "DETSHARE_LIBRARY": str(library), **environment}
    return patience.run(command, capture_output=True, text=True, check=False, env=made)


def shown(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_without_a_daemon_the_program_runs_and_says_what_to_do(folder: Path) -> None:
    done = run(folder, "--lane", "spatial", "--", sys.executable, "-c", "print('works'); raise SystemExit(7)")
    assert (done.stdout, done.returncode) == ("works\n", 7)
    assert "runs without DetShare: no daemon answers" in done.stderr
    assert "next: sudo detshared" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_spatial_lane_is_an_environment(lane: Lane, folder: Path) -> None:
    options = ["--lane", "spatial", "--priority", "high", "--sm", "25", "--tenant", "red", "--memory", "8G"]
    given = {"LD_PRELOAD": "", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    done = run(folder, *options, "--", sys.executable, "-c", SHOW, **given)
    seen = shown(done)
    assert seen["CUDA_MPS_PIPE_DIRECTORY"] == str(lane.mps.pipe)
    assert seen["DETSHARE_SOCKET"] == str(lane.service.socket)
    assert seen["DETSHARE_TENANT"] == "red"
    assert seen["DETSHARE_MEMORY"] == str(8 << 30)
    assert seen["LD_PRELOAD"].endswith("libm.so.6")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in seen
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is taken out" in done.stderr


def test_what_gates_wait_at_is_chosen_in_the_spatial_lane(lane: Lane, folder: Path) -> None:
    program = ["--", sys.executable, "-c", SHOW]
    assert shown(run(folder, "--lane", "spatial", "--gate", "rck", *program))["DETSHARE_GATE"] == "rck"
    assert "DETSHARE_GATE" not in shown(run(folder, "--lane", "spatial", *program))
    assert "DETSHARE_GATE" not in shown(run(folder, "--lane", "temporal", "--gate", "rck", *program))


def test_a_run_within_a_run_takes_nothing_of_the_outer_one(lane: Lane, folder: Path) -> None:
    outer = ["--lane", "spatial", "--memory", "8G", "--tenant", "red", "--gate", "rck", "--"]
    again = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(folder)]
    other = str(next(path for path in Path("/lib").glob("*/libdl.so.2")))
    program = ["--", sys.executable, "-c", SHOW]
    seen = shown(run(folder, *outer, *again, "--lane", "temporal", *program, LD_PRELOAD=other))
    assert not [name for name in seen if name.startswith("CUDA_MPS_")]
    assert not set(seen) & {"DETSHARE_SOCKET", "DETSHARE_TENANT", "DETSHARE_MEMORY", "DETSHARE_PARK", "DETSHARE_GATE"}
    assert seen["LD_PRELOAD"] == other
    seen = shown(run(folder, *outer, *again, "--lane", "spatial", *program, LD_PRELOAD=other))
    assert not set(seen) & {"DETSHARE_MEMORY", "DETSHARE_GATE"}
    assert seen["DETSHARE_TENANT"] != "red"
    assert seen["CUDA_MPS_PIPE_DIRECTORY"] == str(lane.mps.pipe)
    assert len(seen["LD_PRELOAD"].split(":")) == 2
    theirs = {"CUDA_MPS_PIPE_DIRECTORY": "/somebody/elses"}
    seen = shown(run(folder, "--", *again, "--lane", "temporal", *program, **theirs))
    assert seen["CUDA_MPS_PIPE_DIRECTORY"] == "/somebody/elses"


@pytest.mark.parametrize("word", ["x", "", "\x01" * 8000, "\N{CYRILLIC SMALL LETTER ZHE}" * 8000, "\udcff" * 8000])
def test_a_long_command_is_arranged_for_too(lane: Lane, folder: Path, word: str) -> None:
    done = run(folder, "--lane", "spatial", "--", sys.executable, "-c", SHOW, *[word] * (1 if len(word) > 1 else 9000))
    assert "DETSHARE_SOCKET" in shown(done), done.stderr


def test_a_library_that_the_loader_cannot_be_told_of_leaves_the_program_alone(lane: Lane, folder: Path) -> None:
    where = folder / "my programs" / "libdetshare.so"
    where.parent.mkdir()
    where.symlink_to(next(path for path in Path("/lib").glob("*/libm.so.6")))
    done = run(folder, "--lane", "spatial", "--", sys.executable, "-c", SHOW, DETSHARE_LIBRARY=str(where))
    assert not set(shown(done)) & {"LD_PRELOAD", "DETSHARE_SOCKET", "CUDA_MPS_PIPE_DIRECTORY"}
    (line,) = done.stderr.splitlines()
    assert "runs in the temporal lane" in line
    assert "my programs" in line
    assert "next: " in line


def test_what_was_preloaded_before_stays(lane: Lane, folder: Path) -> None:
    other = next(path for path in Path("/lib").glob("*/libdl.so.2"))
    seen = shown(run(folder, "--lane", "spatial", "--", sys.executable, "-c", SHOW, LD_PRELOAD=str(other)))
    assert seen["LD_PRELOAD"].split(":")[1:] == [str(other)]


def test_the_temporal_lane_leaves_the_program_alone(lane: Lane, folder: Path) -> None:
    seen = shown(run(folder, "--lane", "temporal", "--priority", "low", "--", sys.executable, "-c", SHOW))
    assert not set(seen) & {"LD_PRELOAD", "DETSHARE_SOCKET", "CUDA_MPS_PIPE_DIRECTORY"}
    # asked for under the number that the program has, before it began
    assert lane.steered == [(int(seen["pid"]), "low", None, "")]


def test_auto_says_what_it_chose_and_why_in_one_line(lane: Lane, folder: Path) -> None:
    done = run(folder, "--", sys.executable, "-c", SHOW)
    seen = shown(done)
    (line,) = done.stderr.splitlines()
    assert "runs in the temporal lane: too little is known" in line
    assert "DETSHARE_SOCKET" in seen  # it is watched
    assert "CUDA_MPS_PIPE_DIRECTORY" not in seen


def test_without_the_library_it_says_how_to_build_it(lane: Lane, folder: Path) -> None:
    done = run(folder, "--lane", "spatial", "--", sys.executable, "-c", SHOW, DETSHARE_LIBRARY=str(folder / "none.so"))
    assert "LD_PRELOAD" not in shown(done)
    assert "make -C runtime" in done.stderr


def test_no_mps_binary_means_the_temporal_lane(lane: Lane, folder: Path, control: Path) -> None:
    control.unlink()
    done = run(folder, "--lane", "spatial", "--", sys.executable, "-c", SHOW)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in shown(done)
    assert "runs in the temporal lane: not in the spatial lane: there is no" in done.stderr


@pytest.mark.parametrize(
    "options", [["--sm", "0"], ["--sm", "101"], ["--memory", "much"], ["--priority", "urgent"], ["--lane", "fast"], []]
)
def test_bad_usage_starts_nothing(folder: Path, options: list[str]) -> None:
    command = ["--", "touch", str(folder / "started")] if options else []
    done = run(folder, *options, *command)
    assert done.returncode == 2
    assert not (folder / "started").exists()


def test_a_program_that_is_not_there(folder: Path) -> None:
    assert run(folder, "--", "no-such-program").returncode == 127
    (folder / "text").write_text("x")
    done = run(folder, "--", str(folder / "text"))
    assert done.returncode == 126
    assert "next: " in done.stderr
    (folder / "script").write_text("#!/no/such/python\n")
    (folder / "script").chmod(0o755)
    done = run(folder, "--", str(folder / "script"))
    assert done.returncode == 127
    assert "its first line names" in done.stderr


def test_a_script_without_a_first_line_runs_as_a_shell_would_run_it(folder: Path) -> None:
    script = folder / "a job"
    script.write_text('echo "$0 $1"; exit 3\n')
    script.chmod(0o755)
    done = run(folder, "--", str(script), "one two")
    assert (done.stdout, done.returncode) == (f"{script} one two\n", 3)
    done = run(folder, "--", script.name, "two", PATH=f"{folder}:{os.environ['PATH']}")
    assert (done.stdout, done.returncode) == (f"{script} two\n", 3)
    script.write_bytes(b"\x7fELF\0 of another machine\n")
    done = run(folder, "--", str(script))
    assert done.returncode == 126
    assert "cannot be started" in done.stderr


def test_signals_reach_the_program_itself(lane: Lane, folder: Path) -> None:
    code = "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(42)); print('up', flush=True); time.sleep(30)"
    command = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(folder), "--lane", "temporal"]
    process = subprocess.Popen([*command, "--", sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert procfs.start_time(process.pid) is not None
    process.send_signal(signal.SIGTERM)
    assert ended(process) == 42
    process.stdout.close()


def test_the_program_dies_of_a_closed_pipe_as_it_would_alone(folder: Path) -> None:
    inner = f"{sys.executable} -m detshare.tools.main run --run-dir {folder} -- yes | head -1; echo ${{PIPESTATUS[0]}}"
    done = patience.run(["bash", "-c", inner], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["y", str(128 + signal.SIGPIPE)]


def test_a_daemon_that_does_not_answer_is_not_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.3)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "boards.sock"))
        listener.listen()
        with pytest.raises(module.NoAnswer, match=r"within 0\.3 s"):
            module.ask(folder / "boards.sock", Request(("x",), "auto", None, None, None, ""))


@contextlib.contextmanager
def crowded(path: Path, kind: int) -> Iterator[None]:
    """Somebody listens there, accepts nobody, and as many wait as can."""
    with socket.socket(socket.AF_UNIX, kind) as listener, contextlib.ExitStack() as waiting:
        listener.bind(str(path))
        listener.listen(0)
        for _ in range(100):
            other = waiting.enter_context(socket.socket(socket.AF_UNIX, kind))
            other.setblocking(False)
            if other.connect_ex(str(path)) == errno.EAGAIN:
                break
        else:
            raise AssertionError("there is always room")
        yield


def test_a_daemon_at_whose_door_many_wait_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.3)
    with crowded(folder / "boards.sock", socket.SOCK_SEQPACKET), pytest.raises(module.NoAnswer, match=r"within 0\.3 s"):
        module.ask(folder / "boards.sock", Request(("x",), "auto", None, None, None, ""))
    client = Client(folder, answer_s=0.3)
    with crowded(client.socket, socket.SOCK_STREAM), pytest.raises(ClientError, match="did not answer"):
        client.version()


def test_who_has_many_before_him_asks_again(folder: Path) -> None:
    path, answers = folder / "boards.sock", [{"error": {}, "again": True}, {"error": {}, "again": True}, {"lane": "x"}]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            for each in answers:
                link, _ = listener.accept()
                with link:
                    link.recv(1 << 16)
                    link.send(json.dumps(each).encode())

        daemon = threading.Thread(target=answer, daemon=True)
        daemon.start()
        assert module.ask(path, Request(("x",), "auto", None, None, None, "")) == {"lane": "x"}
        daemon.join()


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_a_program_runs_alike_where_nothing_can_be_told(lane: Lane, folder: Path, where: str) -> None:
    command = f"{sys.executable} -m detshare.tools.main run --run-dir {folder} -- echo works {where}"
    done = patience.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("works\n", "", 0)


@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LANG": "C"}])
def test_the_program_has_the_locale_that_it_was_given(lane: Lane, folder: Path, locale: dict[str, str]) -> None:
    command = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(folder), "--lane", "temporal"]
    done = patience.run([*command, "--", "/usr/bin/env"], capture_output=True, text=True, check=True, env=locale)
    assert dict(line.split("=", 1) for line in done.stdout.splitlines()) == locale


def test_a_program_that_starts_while_mps_refuses_starts_within_five_seconds(lane: Lane, folder: Path) -> None:
    run(folder, "--lane", "spatial", "--", "true")
    lane.mps.doubt()
    (folder / "refuse").touch()
    begun = time.monotonic()
    command = [sys.executable, "-m", "detshare.tools.main", "run", "--run-dir", str(folder), "--lane", "spatial"]
    with Slept() as slept:
        process = subprocess.Popen([*command, "--", "true"])
        until(lambda: lane.mps.falls or time.monotonic() - begun > 1)
        (folder / "refuse").unlink()
        assert ended(process) == 0
    assert slept.seconds < 6
