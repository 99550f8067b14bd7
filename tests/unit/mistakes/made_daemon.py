# SPDX-License-Identifier: Apache-2.0
"""The daemon, its folder, its configuration and its socket."""

from __future__ import annotations

import asyncio
import dataclasses
import http.client
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stage import Stage, checked, makes, raising

from detshare.ctl import oneshot
from detshare.ctl.backends.root import guardian, looking
from detshare.ctl.cli import version as versions
from detshare.ctl.client import Client
from detshare.ctl.core import config as configuration
from detshare.ctl.core import procfs, rundir, version
from detshare.ctl.core.config import Config
from detshare.ctl.core.gputime import GpuTime
from detshare.ctl.core.rundir import SOCKET_NAME
from detshare.ctl.core.snapshot import Check
from detshare.ctl.daemon import daemon as daemons
from detshare.ctl.daemon import detshared
from detshare.ctl.daemon.access import Access, Caller
from detshare.ctl.daemon.daemon import Daemon
from detshare.ctl.daemon.scrape import scrape
from detshare.ctl.netlink import presence
from detshare.ctl.support.report import Report, write
from detshare.runtime.directory import BOARD_DIR, Directory
from tests.patience import run, until
from tests.unit.daemon.conftest import Running
from tests.unit.daemon.fake_backend import FakeBackend


@contextmanager
def living(stage: Stage, backend: Any = None, spatial: bool = False) -> Iterator[Running]:
    """A daemon over the fake backend; `spatial`: it asks for the spatial lane."""
    stage.run_dir.mkdir(mode=0o700, exist_ok=True)
    backend = backend or FakeBackend()
    stage.patch.setattr(daemons, "build_backend", lambda name, where: oneshot.Built(backend, None))
    made = Running(stage.run_dir, backend, Config(), 0.03)
    made.daemon._spatial = spatial
    made.start()
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def impostor(stage: Stage, answer: bytes) -> Iterator[Client]:
    """Something else that owns the socket and says `answer` to whoever asks."""
    stage.run_dir.mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(stage.run_dir / SOCKET_NAME))
        made.listen(8)

        def serve() -> None:
            asked = False
            while not asked:  # who only looks whether somebody is there asks nothing
                taken, _ = made.accept()
                with taken:
                    if asked := bool(taken.recv(65536)):
                        taken.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Client(stage.run_dir)
        thread.join()


def _http(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


# -- rights and folders -----------------------------------------------------------------------------------------


@makes("PATH belongs to another user (you are uid N)")
def _(stage: Stage) -> str:
    client = Client(stage.run_dir)
    error = client._unreachable("list programs", PermissionError(13, "Permission denied"))
    return stage.refused(raising(error))


@makes("uid N may not change anything")
def _(stage: Stage) -> str:
    stage.patch.setattr(os, "geteuid", lambda: 0)
    return stage.refused(lambda: Access().require_change(Caller(1, 12345), "policy set fair")).replace(", PID 1,", "")


@makes("no daemon answers on PATH")
def _(stage: Stage) -> str:
    return stage.refused(Client(stage.run_dir).programs)


@makes("that needs the daemon, and none answers on PATH (nobody would resume the program)")
def _(stage: Stage) -> str:
    return stage.ctl("pause", "1000")


def _held(stage: Stage, name: str) -> str:
    stage.run_dir.mkdir(mode=0o700, exist_ok=True)
    lock = rundir.Lock(stage.run_dir / "lock", name)
    lock.acquire("hold it")
    try:
        return stage.refused(lambda: rundir.Lock(stage.run_dir / "lock", "x").acquire("start detshared"))
    finally:
        lock.release()


@makes("detshared (PID P) holds DIR/lock")
def _(stage: Stage) -> str:
    return _held(stage, "detshared")


@makes("detshare-ctl VERB (PID P) holds DIR/lock")
def _(stage: Stage) -> str:
    return _held(stage, "detshare-ctl pause")


@makes("DIR cannot be made or read (WHY)", "DIR/lock cannot be opened (WHY)")
def _(stage: Stage) -> str:
    (stage.folder / "file").touch()
    below = stage.folder / "file" / "run"
    stage.run_dir.mkdir(mode=0o700)
    (stage.run_dir / "lock").mkdir()
    lock = rundir.Lock(stage.run_dir / "lock", "x")
    return stage.refused(lambda: rundir.prepare(below, "x")) + stage.refused(lambda: lock.acquire("x"))


@makes("DIR belongs to uid U with mode M")
def _(stage: Stage) -> str:
    stage.run_dir.mkdir()
    stage.run_dir.chmod(0o777)
    return stage.refused(lambda: rundir.prepare(stage.run_dir, "start detshared"))


@makes("PATH cannot be made (...)", "PATH is longer than a socket's path may be (107 bytes)")
def _(stage: Stage) -> str:
    long = stage.folder / ("x" * 120)
    long.mkdir(mode=0o700)
    daemon = Daemon(long, 1.0, None)
    said = stage.refused(lambda: asyncio.run(detshared.listen(daemon, long / SOCKET_NAME)))
    return said + stage.refused(Client(long).programs)


@makes("backend model (detshare.ko is not loaded and there is no NVIDIA driver here)", "model: simulated programs")
def _(stage: Stage) -> str:
    stage.patch.setattr(presence, "loaded", lambda: False)
    stage.patch.setattr(procfs, "driver_version", lambda: None)
    name, why = oneshot.resolve("auto", model_too=True)
    return f"backend {name} ({why}): a simulation\n" + stage.ctl("ps", codes=(0,))


@makes("the guardian of DIR did not start; without it nothing may be changed")
def _(stage: Stage) -> str:
    stage.run_dir.mkdir(mode=0o700)
    stage.patch.setattr(guardian.sys, "executable", "/bin/true")
    return stage.refused(lambda: oneshot.start_guardian(stage.run_dir, "start detshared"))


@makes("left by an earlier daemon and not put back: ...")
def _(stage: Stage) -> str:
    stage.patch.setattr(looking, "recover", lambda *_: ["PID 7: the driver answered NV_ERR_GPU_IS_LOST (0xf)"])
    return "\n".join(event.text for event in stage.backend().drain_events())


@makes("not put back: ...")
def _(stage: Stage) -> str:
    process = stage.program()
    backend = stage.backend()
    assert backend.set_priority(str(process.id.pid), "high").changed
    stage.driver.rm.control = lambda *_: stage.driver.abi.status("NV_ERR_GPU_IS_LOST")  # type: ignore[method-assign,assignment]
    backend.drain_events()
    backend.close()
    return "\n".join(event.text for event in backend.drain_events())


@makes("looks fail since N s, what is shown is that old: WHY", "look failed: WHY", "its last look failed: WHY")
def _(stage: Stage) -> str:
    backend = FakeBackend()
    with living(stage, backend) as running:
        backend.fail_look = OSError(5, "the driver is gone")
        warnings = until(lambda: running.client.programs()["warnings"])
        checks = checked(Check(**each) for each in running.client.doctor()["checks"])
        events = "\n".join(event["text"] for event in running.client.events())
    return "\n".join([*warnings, events, checks])


@makes("PID N (CMD) has work and made no progress for S s: see detshare-ctl why N")
def _(stage: Stage) -> str:
    process = stage.program()
    backend = stage.backend()
    backend.set_priority(str(process.id.pid), "low")
    seen = backend.look().programs
    stuck = GpuTime("GPU-1", 5.0, 0.3, 0.25, 50.0, 1730.0, 18_300.0, (0.3,), stalled_s=9.0)
    warnings = backend._warnings([dataclasses.replace(each, gpu_time=(stuck,)) for each in seen])
    return checked(oneshot.machine_checks(dataclasses.replace(backend.look(), warnings=warnings)))


@makes("restoring failed: left to the guardian")
def _(stage: Stage) -> str:
    return _closing(stage, raising(RuntimeError("of the test")))


@makes("restoring did not end within 30 s: left to the guardian")
def _(stage: Stage) -> str:
    stage.patch.setattr(daemons, "CLOSE_SECONDS", 0.05)
    return _closing(stage, lambda *_: time.sleep(1))


def _closing(stage: Stage, close: Any) -> str:
    """What the daemon logs when its backend closes so."""
    said: list[str] = []
    stage.patch.setattr(daemons.log, "error", lambda text, *args, **_: said.append(text % args))
    stage.patch.setattr(daemons.log, "exception", lambda text, *args, **_: said.append(text % args))
    backend = FakeBackend()
    stage.patch.setattr(backend, "close", close)
    with living(stage, backend):
        pass
    return "\n".join(said)


@makes("the driver did not answer within 60 s; it may still happen")
def _(stage: Stage) -> str:
    backend = FakeBackend()
    stage.patch.setattr(daemons, "VERB_SECONDS", 0.05)
    with living(stage, backend) as running:
        stage.patch.setattr(running.daemon, "_verb_now", lambda *_: time.sleep(1))
        return stage.refused(lambda: running.client.verb("pause", "4242"))


@makes("an error in DetShare itself (...)")
def _(stage: Stage) -> str:
    with living(stage) as running:
        stage.patch.setattr(running.daemon, "_verb_now", raising(ZeroDivisionError("of the test")))
        return stage.refused(lambda: running.client.verb("pause", "4242"))


@makes("the daemon did not answer, and did nothing else for 75 s")
def _(stage: Stage) -> str:
    error = Client(stage.run_dir)._unreachable("list programs", TimeoutError())
    return stage.refused(raising(error))


@makes("the daemon went away (WHY)")
def _(stage: Stage) -> str:
    with impostor(stage, b"") as client:
        return stage.refused(client.programs)


@makes("no usable answer: WHY", "the answer is no JSON object")
def _(stage: Stage) -> str:
    with impostor(stage, _http(b"<html>")) as client:
        said = stage.refused(client.programs)
    (stage.run_dir / SOCKET_NAME).unlink()
    with impostor(stage, _http(b"[]")) as client:
        return said + stage.refused(client.programs)


@makes("HTTP status N: ...")
def _(stage: Stage) -> str:
    with impostor(stage, _http(b"nginx", b"502 Bad Gateway")) as client:
        return stage.refused(client.programs)


@makes("there was no look yet")
def _(stage: Stage) -> str:
    return stage.refused(Daemon(stage.folder, 1.0, None).snapshot)


@makes("PID N ended")
def _(stage: Stage) -> str:
    dead = SimpleNamespace(pid=77, alive=lambda: False, stop=lambda: None)
    with living(stage) as running:
        stage.patch.setattr(running.daemon, "_keep_guarded", lambda: None)
        running.daemon._guard = dead  # type: ignore[assignment]
        checks = running.client.doctor()["checks"]
        running.daemon._guard = None
    return checked(Check(**each) for each in checks if each["name"] == "guardian")


@makes("another daemon (PID N) has /dev/shm/detshare-...")
def _(stage: Stage) -> str:
    path = Path(tempfile.mkdtemp(prefix="detshare-", dir="/dev/shm"))
    stage.patch.setenv(BOARD_DIR, str(path))
    first = Directory(path)
    first.open()
    try:
        with living(stage, spatial=True) as running:
            return checked(Check(**each) for each in running.client.doctor()["checks"])
    finally:
        first.close()
        shutil.rmtree(path, ignore_errors=True)


@makes("NOTIFY_SOCKET does not take READY=1")
def _(stage: Stage) -> str:
    said: list[str] = []
    stage.patch.setattr(detshared.log, "warning", lambda text, *args: said.append(text % args))
    stage.patch.setenv("NOTIFY_SOCKET", str(stage.folder / "nobody"))
    detshared.notify("READY=1")
    return said[0]


@makes("read the simulation: only the model backend has one")
def _(stage: Stage) -> str:
    with living(stage) as running:
        return stage.refused(running.client.readings)


def _status(stage: Stage, method: str, path: str, body: bytes | None = None) -> str:
    with living(stage) as running, socket.socket(socket.AF_UNIX) as made:
        made.connect(str(running.socket))
        connection = http.client.HTTPConnection("x")
        connection.sock = made
        connection.request(method, path, body)
        answer = connection.getresponse()
        return f"{answer.status} {answer.read().decode()}"


@makes("400")
def _(stage: Stage) -> str:
    return _status(stage, "POST", "/v1/verbs/pause", b"[]")


@makes("404, 405, 413")
def _(stage: Stage) -> str:
    large = b"x" * ((64 << 10) + 1)
    said = [_status(stage, "GET", "/nowhere"), _status(stage, "DELETE", "/v1/programs")]
    return ", ".join(each[:3] for each in [*said, _status(stage, "POST", "/v1/verbs/pause", large)])


@makes("403")
def _(stage: Stage) -> str:
    stage.patch.setattr(Access, "may_change", lambda self, caller: False)
    return _status(stage, "POST", "/v1/config/reload", b"{}")


@makes("409")
def _(stage: Stage) -> str:
    backend = FakeBackend()
    with living(stage, backend):
        pass
    return _status(stage, "POST", "/v1/verbs/set-memory", b'{"who": "4242", "limit": 1}')


@makes("the look loop ended by itself")
def _(stage: Stage) -> str:
    said: list[str] = []
    stage.run_dir.mkdir(mode=0o700)
    stage.patch.setattr(detshared.log, "error", lambda text, *_, **__: said.append(text))

    async def broken(self: Daemon) -> None:
        raise RuntimeError("of the test")

    stage.patch.setattr(Daemon, "keep_looking", broken)
    assert asyncio.run(detshared.serve(stage.run_dir, Config(), None, "model")) == 1
    return said[0]


@makes("the daemon stopped")
def _(stage: Stage) -> str:
    with impostor(stage, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"):
        return stage.ctl("events", "--follow")


@makes("detshare guardian: not put back: ...")
def _(stage: Stage) -> str:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from types import SimpleNamespace\n"
        "from detshare.ctl.backends.root import guardian\n"
        "from detshare.ctl.rm import kernel\n"
        "kernel.KernelDriver = lambda: SimpleNamespace()\n"
        "guardian._put_back = lambda *_: ['PID 7: the driver answered NV_ERR_GPU_IS_LOST (0xf)']\n"
        "mine, pipe = os.pipe(), os.pipe()\n"
        "os.close(pipe[1])\n"
        "sys.exit(guardian._watch(Path('.'), pipe[0], mine[1]))\n"
    )
    done = run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


@makes("500")
def _(stage: Stage) -> str:
    stage.patch.setattr(Daemon, "_verb_now", raising(ZeroDivisionError("of the test")))
    return _status(stage, "POST", "/v1/verbs/pause", b'{"who": "4242"}')


@makes("PATH:N: daemon.interval: it is 100; it is a number of seconds ...")
def _(stage: Stage) -> str:
    """As doctor has it; the commands say the same."""
    wrong = stage.folder / "wrong.toml"
    wrong.write_text("[daemon]\ninterval = 100\n")
    wrong.chmod(0o600)
    line = f"{wrong}:2: daemon.interval: it is 100"
    assert line in stage.ctl("config", "check", str(wrong), codes=(2,))
    stage.patch.setattr(configuration, "DEFAULT_PATH", wrong)
    with living(stage) as running:
        assert line in stage.ctl("config", "reload", codes=(2,))
        told = [check for check in running.client.doctor()["checks"] if check["name"] == "configuration"]
    said = checked([oneshot.configuration_check()])
    assert line in said
    assert [(check["ok"], line in check["detail"]) for check in told] == [(False, True)]
    return said


@makes("metrics.listen: ... cannot be listened on (WHY)")
def _(stage: Stage) -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        return stage.refused(lambda: asyncio.run(scrape(Daemon(stage.folder, 1.0, None), listen)))


@makes("page.certificate: ... and its key cannot be used")
def _(stage: Stage) -> str:
    toml = stage.folder / "detshare.toml"
    toml.write_text(f'[page]\nlisten = "127.0.0.1:9836"\ncertificate = "{toml}"\n')
    toml.chmod(0o600)
    return stage.ctl("config", "check", str(toml), codes=(2,)) + checked([oneshot.configuration_check(toml)])


@makes("waits for a restart of detshared: ...", "not in force: ...")
def _(stage: Stage) -> str:
    with living(stage) as running:
        toml = stage.folder / "detshare.toml"
        toml.write_text("[pool]\ntiers = [100]\n")
        toml.chmod(0o600)
        stage.patch.setattr(configuration, "DEFAULT_PATH", toml)
        said = stage.ctl("config", "reload", codes=(0,))
        return said + checked(Check(**each) for each in running.client.doctor()["checks"])


@makes("the daemon is of another build")
def _(stage: Stage) -> str:
    with living(stage) as running:
        stage.patch.setattr(version, "build", lambda: "9.9")
        said = stage.ctl("version", codes=(0,))
        checked(versions.checks(running.client))
        assert "the daemon is of another build" in " ".join(stage.ctl("doctor", codes=(0, 1)).split())
        return said


@makes("there is such a file already", "it cannot be made (WHY)")
def _(stage: Stage) -> str:
    (stage.folder / "there").touch()
    report = Report()
    said = stage.refused(lambda: write(report, stage.folder / "there", "x"))
    return said + stage.refused(lambda: write(report, stage.folder / "none" / "x", "x"))
