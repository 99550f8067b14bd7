# SPDX-License-Identifier: Apache-2.0
"""The hook of a container: what it asks of whom, and what it lets a container do where that cannot be had."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detshare.ctl.cdi.container import Container, Wanted, forget, give
from detshare.ctl.cli import hook
from detshare.ctl.client import Client
from detshare.ctl.core import cgroups
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.rundir import SOCKET_NAME
from tests.patience import run, until, words

ID = "5f" * 32
POD = f"/kubepods/burstable/podabc/cri-containerd-{ID}.scope"
GIB = 1 << 30


class Asked:
    """A control that notes what it is asked."""

    def __init__(self, backend: str, **refused: str) -> None:
        self._backend, self._refused = backend, refused
        self.verbs: list[tuple[str, str, dict[str, object]]] = []

    def programs(self) -> dict[str, Any]:
        return {"backend": self._backend}

    def verb(self, name: str, who: str, **args: object) -> dict[str, Any]:
        self.verbs.append((name, who, args))
        why = self._refused.get(name.replace("-", "_"), "")
        if why.startswith("!"):
            raise ControlError(name, why[1:], "-")
        return {"changed": [] if why else [{}], "skipped": [{"reason": why}] if why else []}


@pytest.fixture
def within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "of", lambda pid: f"{POD}/container")


# -- what is asked ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("within")
def test_with_the_module_the_containers_own_cgroup_is_named() -> None:
    control = Asked("kmod")
    give(Container(ID, 7), Wanted("high", 2 * GIB), control)
    assert control.verbs == [("set-priority", POD, {"class": "high"}), ("set-memory", POD, {"limit": 2 * GIB})]


@pytest.mark.usefixtures("within")
def test_the_module_takes_a_weight_with_the_class() -> None:
    control = Asked("kmod")
    give(Container(ID, 7), Wanted("low", None, 3), control)
    first, second = control.verbs
    assert first == ("set-priority", POD, {"class": "low"}), "what stands where a class has no weight beside it"
    assert second == ("set-priority", POD, {"class": "low", "weight": 3})


@pytest.mark.usefixtures("within")
def test_without_the_module_the_containers_id_is_named() -> None:
    control = Asked("root")
    give(Container(ID, 7), Wanted("low", None, 3, 2.5), control)
    assert control.verbs == [("set-priority", ID, {"class": "low", "weight": 3, "floor": 2.5})]


@pytest.mark.usefixtures("within")
@pytest.mark.parametrize(
    ("control", "wanted", "told"),
    [
        (Asked("kmod", set_memory="no room"), Wanted("low", GIB), "set-memory: no room"),
        (Asked("kmod", set_priority="!no such class"), Wanted("low"), "set-priority: no such class"),
        (Asked("kmod"), Wanted("low", None, None, 5), "set-class CLASS --floor"),
        (Asked("root", set_memory="!no memory limits"), Wanted("low", GIB), "set-memory: no memory limits"),
    ],
)
def test_what_is_not_set_is_told_and_the_rest_is_set(control: Asked, wanted: Wanted, told: str) -> None:
    with pytest.raises(ControlError, match=told):
        give(Container(ID, 7), wanted, control)
    assert [name for name, _, _ in control.verbs] == ["set-priority", *(["set-memory"] if wanted.memory else [])]


@pytest.mark.parametrize("path", ["/", "/user.slice/user-0.slice/session-1.scope", None])
def test_a_cgroup_that_is_not_the_containers_alone_is_never_limited(
    path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "of", lambda pid: path)
    control = Asked("kmod")
    with pytest.raises(ControlError, match="no cgroup of"):
        give(Container(ID, 7), Wanted("low", GIB), control)
    assert control.verbs == []


def test_a_name_that_is_no_id_takes_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "of", lambda pid: "/default/web")
    give(Container("web", 7), Wanted("low"), control := Asked("kmod"))
    assert control.verbs[0][1] == "/default/web"
    with pytest.raises(ControlError, match="64 hexadecimal digits"):
        give(Container("web", 7), Wanted("low"), Asked("root"))


def test_what_has_ended_is_forgotten_where_the_kernel_does_not() -> None:
    for backend, asked in (("root", [("release", ID, {})]), ("kmod", [])):
        control = Asked(backend)
        forget(Container(ID), control)
        assert control.verbs == asked


@pytest.mark.parametrize(
    ("path", "name", "own"),
    [
        (f"/machine.slice/libpod-{ID}.scope/container", ID, [f"/machine.slice/libpod-{ID}.scope"]),
        (f"/libpod_parent/libpod-{ID}", ID, [f"/libpod_parent/libpod-{ID}"]),
        (f"/system.slice/docker-{ID}.scope", ID, [f"/system.slice/docker-{ID}.scope"]),
        ("/default/web/inner", "web", ["/default/web"]),
        ("/web/web", "web", ["/web", "/web/web"]),
        ("/default/webserver/cobweb", "web", []),
        ("/machine.slice/x", "a", []),
        ("/", "web", []),
        ("/x", "", []),
    ],
)
def test_the_cgroup_of_a_container_is_found_as_engines_name_them(path: str, name: str, own: list[str]) -> None:
    assert cgroups.bearing(path, name) == own


@pytest.mark.parametrize(
    "state",
    [b"", b"{", b"[]", b"{}", b'{"id": ""}', b'{"id": "a/b", "pid": 1}', b'{"id": "a", "pid": true}',
     b'{"id": "a", "pid": -1}', b'{"id": "a", "pid": "1"}', b"[" * 100_000, b" " * (2 << 20)],
)  # fmt: skip
def test_a_state_that_is_none_is_told(state: bytes) -> None:
    with pytest.raises(ControlError, match="no state of an OCI runtime"):
        Container.parse(state)


# -- what the container may do ------------------------------------------------------------------------------------


@pytest.fixture
def run_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="detshare-") as folder:
        yield Path(folder)


def start(run_dir: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The hook's exit code, in this process."""
    data = json.dumps({"ociVersion": "1.0.2", "id": ID, "status": "created", "pid": os.getpid(), "bundle": "/b"})
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data.encode())))
    return hook.main(["--run-dir", str(run_dir), *words])


@pytest.mark.parametrize(("words", "code", "end"), [([], 0, "it starts"), (["--required"], 1, "does not start")])
def test_without_daemon_and_module_a_container_starts_unless_told_otherwise(
    run_dir: Path,
    words: list[str],
    code: int,
    end: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("detshare.ctl.netlink.presence.loaded", lambda: False)
    assert start(run_dir, "--priority", "high", "--memory", str(GIB), *words, monkeypatch=monkeypatch) == code
    told = capsys.readouterr().err
    assert f"give container {ID[:12]} class high, memory limit 1G: no daemon answers on {run_dir}" in told
    assert end in told
    assert "next: start it: sudo systemctl start detshared" in told
    assert start(run_dir, "--forget", *words, monkeypatch=monkeypatch) == 0


def test_a_mistake_of_ours_stops_no_container(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hook, "_run", lambda *_: {}["nothing"])
    assert start(run_dir, "--priority", "high", monkeypatch=monkeypatch) == 0
    assert start(run_dir, "--priority", "high", "--required", monkeypatch=monkeypatch) == 1
    assert "an error in DetShare itself (KeyError" in capsys.readouterr().err


# -- the model daemon, real processes -----------------------------------------------------------------------------


@pytest.fixture
def daemon(run_dir: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--backend", "model", "--run-dir", str(run_dir)]
    environment = {**os.environ, "DETSHARE_BOARD_DIR": str(run_dir / "boards")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    until(lambda: process.poll() is not None or Client(run_dir).alive())
    yield process
    process.terminate()
    words(process)


@pytest.fixture
def container() -> Iterator[int]:
    """PID of a process in a cgroup that bears ID."""
    root = cgroups.mount()
    folder = (root or Path("/none")) / f"libpod-{ID}"
    sleeper = subprocess.Popen(["sleep", "infinity"])
    try:
        try:
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(sleeper.pid))
        except OSError as error:
            pytest.skip(f"no cgroup can be made here ({error})")
        yield sleeper.pid
    finally:
        sleeper.kill()
        sleeper.wait()
        if folder.exists():
            until(lambda: not (folder / "cgroup.procs").read_text())
            folder.rmdir()


def hooked(run_dir: Path, pid: int, *words: str) -> subprocess.CompletedProcess[str]:
    """As a runtime starts it: without an environment, the state on standard input."""
    command = [sys.executable, "-I", "-m", "detshare.ctl.cli.hook", "--run-dir", str(run_dir), *words]
    state = json.dumps({"ociVersion": "1.0.2", "id": ID, "status": "created", "pid": pid, "bundle": "/b"})
    return run(command, input=state, capture_output=True, text=True, env={})


@pytest.mark.e2e
def test_a_containers_class_is_kept_by_the_daemon_and_forgotten_at_its_end(
    run_dir: Path, daemon: subprocess.Popen[str], container: int
) -> None:
    done = hooked(run_dir, container, "--priority", "low", "--weight", "3", "--required")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (kept,) = json.loads((run_dir / "desired-model.json").read_text())
    assert kept.items() >= {"container": ID, "klass": "low", "weight": 3}.items()
    assert hooked(run_dir, 0, "--forget").returncode == 0
    assert not (run_dir / "desired-model.json").exists()


@pytest.mark.e2e
def test_a_limit_that_the_daemon_cannot_hold_is_told_and_the_class_stands(
    run_dir: Path, daemon: subprocess.Popen[str], container: int
) -> None:
    asked = ("--priority", "high", "--memory", str(GIB))
    for more, code in (([], 0), (["--required"], 1)):
        done = hooked(run_dir, container, *asked, *more)
        assert done.returncode == code
        assert "set-memory: " in done.stderr
        assert "no memory limits" in done.stderr
        assert "next: " in done.stderr
    (kept,) = json.loads((run_dir / "desired-model.json").read_text())
    assert kept["klass"] == "high"


@pytest.mark.e2e
def test_who_may_not_change_anything_is_told(run_dir: Path, daemon: subprocess.Popen[str], container: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    for path in (run_dir, run_dir / SOCKET_NAME):
        path.chmod(0o777)
    # imported first: nobody else may be able to read this checkout
    code = f"import os, sys; from detshare.ctl.cli import hook; os.setgid(65534); os.setuid(65534); \
sys.argv[1:] = {['--run-dir', str(run_dir), '--priority', 'high', '--required']!r}; sys.exit(hook.main())"
    state = json.dumps({"id": ID, "pid": container})
    done = run([sys.executable, "-c", code], input=state, capture_output=True, text=True)
    assert done.returncode == 1
    assert "it does not start (--required)" in done.stderr
    assert "a program of your own is named by its PID" in done.stderr
    assert not (run_dir / "desired-model.json").exists()
