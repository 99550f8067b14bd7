# SPDX-License-Identifier: Apache-2.0
"""Who may do what on the socket, asked by real users; and the audit line that each change leaves."""

from __future__ import annotations

import grp
import json
import logging
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from fake_backend import FakeBackend, tsg

from detshare.ctl.core import config
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.procfs import start_time
from detshare.ctl.core.snapshot import Level, Program, State
from detshare.ctl.daemon import logs
from detshare.ctl.daemon.access import Access, Caller, Denied

NOBODY = pwd.getpwnam("nobody").pw_uid
GROUP = grp.getgrgid(os.getegid()).gr_name
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it asks as other users")

ASK = """
import json, os, sys
from detshare.ctl.client import Client, ClientError
from detshare.ctl.library.tenant import tenant
client = Client(sys.argv[1])
uid, gid, *groups = map(int, sys.argv[2:])
os.setgroups(groups)
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
print("ready", flush=True)
for line in sys.stdin:
    verb, who, args = json.loads(line)
    try:
        if verb == "block":
            with tenant(priority="low", run_dir=sys.argv[1]):
                pass
            print(json.dumps([200, []]), flush=True)
            continue
        answer = client.programs() if verb == "ps" else client.verb(verb, who, **args)
        print(json.dumps([200, [c["pid"] for c in answer.get("changed", answer.get("programs"))]]), flush=True)
    except ClientError as error:
        print(json.dumps([error.status, error.stopped]), flush=True)
"""


class Stranger:
    """A process of another user, which is a program of the fake backend too."""

    def __init__(self, run_dir, uid: int, groups: list[int]) -> None:
        # it becomes that user by itself: this interpreter may lie where nobody else can read it
        command = [sys.executable, "-c", ASK, str(run_dir), *map(str, (uid, NOBODY, *groups))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    @property
    def id(self) -> ProcessId:
        start = start_time(self.process.pid)
        assert start is not None
        return ProcessId(self.process.pid, start)

    def ask(self, verb: str, who: object = "", **args: object) -> tuple[int, object]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([verb, str(who), args]) + "\n")
        self.process.stdin.flush()
        status, told = json.loads(self.process.stdout.readline())
        return status, told


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def running(start, backend):
    return start(backend, config=config.Config(access=config.Access(GROUP, ("games",))))


@pytest.fixture
def stranger(running, backend) -> Iterator[Stranger]:
    made = Stranger(running.run_dir, NOBODY, [os.getegid()])
    backend.programs.append(Program(made.id, "mine", "nobody", "", State.RUNNING, (tsg(0x5C000010),)))
    yield made
    made.process.kill()
    made.process.communicate()


@root
def test_a_member_reads_and_changes_nothing(running, stranger, backend):
    assert stranger.ask("ps")[0] == 200
    for verb, args in (("pause", {}), ("release", {}), ("set-weight", {"weight": 9}), ("set-slice", {"slice_us": 9})):
        for who in (4242, stranger.id.pid):
            status, told = stranger.ask(verb, who, **args)
            assert status == 403
            assert "nobody" in told
            assert "lower the class of his own" in told
    assert backend.calls == []


@root
def test_a_tenant_lowers_its_own_class_and_never_raises_it(stranger, backend):
    pid = stranger.id.pid
    assert stranger.ask("set-priority", pid, **{"class": "high"})[0] == 403
    backend.programs[-1] = replace(backend.programs[-1], klass="low")
    status, told = stranger.ask("set-priority", pid, **{"class": "normal"})
    assert (status, told) == (403, "it has class low: you may lower it (idle), not raise it")
    assert stranger.ask("set-priority", pid, **{"class": "low"}) == (200, [pid])
    assert stranger.ask("set-priority", pid, **{"class": "idle"}) == (200, [pid])
    assert stranger.ask("set-priority", 4242, **{"class": "idle"})[0] == 403
    assert stranger.ask("set-priority", "mine", **{"class": "idle"})[0] == 403
    assert stranger.ask("set-priority", f"0{pid}", **{"class": "high"})[0] == 403
    assert {call[1] for call in backend.calls} == {str(pid)}


@root
def test_who_lowered_a_class_takes_that_back(running, stranger, backend):
    """As a block of the library does at its end; but not what an administrator did since."""
    pid, admin = stranger.id.pid, running.client

    def ask(klass):
        return stranger.ask("set-priority", pid, **{"class": klass})[0]

    assert [ask("low"), ask("idle"), ask("low"), ask("normal"), ask("high")] == [200, 200, 200, 200, 403]
    assert ask("low") == 200
    running.daemon.access.use(config.Access(GROUP, ("games", "daemon")))  # as a reload of the configuration does
    assert [ask("normal"), ask("low")] == [200, 200]
    admin.verb("set-priority", str(pid), **{"class": "low"})
    assert [ask("normal"), ask("idle"), ask("low"), ask("normal")] == [403, 200, 200, 403]
    assert ask("idle") == 200
    backend.programs[-1] = replace(backend.programs[-1], klass="low")  # by a policy, or another daemon before
    assert ask("normal") == 403
    assert ask("idle") == 200
    admin.verb("release", str(pid))
    backend.programs[-1] = replace(backend.programs[-1], klass=None, tsgs=(tsg(0x5C000010),))
    assert [ask("high"), ask("low"), ask("normal")] == [403, 200, 200]


@root
def test_a_block_of_the_library_lowers_a_class_and_takes_it_back(stranger, backend):
    assert stranger.ask("block") == (200, [])
    assert backend.programs[-1].klass == "normal"
    assert stranger.ask("block") == (200, [])


@root
@pytest.mark.parametrize("more", [{"floor": 50}, {"weight": 1000}, {"tenant": "others"}, {"floor": 0, "weight": 2}])
def test_who_lowers_a_class_sets_nothing_else(stranger, backend, more):
    """A floor or a weight would be taken from the others."""
    status, told = stranger.ask("set-priority", stranger.id.pid, **{"class": "low"}, **more)
    assert status == 403
    assert all(name in str(told) for name in more)
    assert backend.calls == []


@root
def test_what_an_administrator_gave_with_the_class_stays(stranger, backend, monkeypatch):
    """A floor of 0, or turns together with others, are not shed by naming the class once more."""
    given, sets = [], backend.set_priority
    monkeypatch.setattr(backend, "kept", lambda pid: {"floor": 0, "tenant": "lab"} if pid == stranger.id.pid else {})
    monkeypatch.setattr(backend, "set_priority", lambda who, **args: (given.append(args), sets(who, **args))[1])
    assert stranger.ask("set-priority", stranger.id.pid, **{"class": "low"})[0] == 200
    assert given == [{"klass": "low", "floor": 0.0, "tenant": "lab"}]


@root
def test_the_class_of_anothers_mps_server_is_not_lowered(stranger, backend):
    mine = backend.programs[-1] = replace(backend.programs[-1], state=State.MPS_CLIENT, tsgs=())
    assert stranger.ask("set-priority", stranger.id.pid, **{"class": "low"})[0] == 403
    server = replace(mine, id=ProcessId(os.getpid(), start_time(os.getpid()) or 0), state=State.MPS_SERVER)
    backend.programs.insert(0, server)
    status, told = stranger.ask("set-priority", stranger.id.pid, **{"class": "low"})
    assert (status, told) == (403, "its class is that of an MPS server which others use, too")
    backend.programs[0] = replace(server, id=stranger.id)
    assert stranger.ask("set-priority", stranger.id.pid, **{"class": "low"})[0] == 200


@root
def test_what_an_administrator_set_otherwise_is_not_undone_by_lowering(stranger, backend):
    mine = backend.programs[-1]
    for changed in (
        replace(mine, weight=1),
        replace(mine, klass="batch"),
        replace(mine, tsgs=(replace(tsg(1), level=Level.LOW),)),
    ):
        backend.programs[-1] = changed
        status, told = stranger.ask("set-priority", stranger.id.pid, **{"class": "low"})
        assert status == 403
        assert "an administrator" in told
    assert backend.calls == []


@root
def test_who_is_no_member_cannot_connect(running):
    other = Stranger(running.run_dir, NOBODY, [])
    try:
        assert other.ask("ps")[0] == 0
    finally:
        other.process.kill()
        other.process.communicate()


@root
def test_a_listed_user_changes_everything(running, backend):
    games = Stranger(running.run_dir, pwd.getpwnam("games").pw_uid, [os.getegid()])
    try:
        assert games.ask("pause", 4242) == (200, [4242])
    finally:
        games.process.kill()
        games.process.communicate()


def test_the_socket_is_for_the_group(running):
    assert stat.S_IMODE(running.socket.stat().st_mode) == 0o660
    assert running.socket.stat().st_gid == os.getegid()
    assert stat.S_IMODE(running.run_dir.stat().st_mode) & 0o066 == 0  # passed through, not read


def test_a_reused_number_is_nobodys_program():
    fake = FakeBackend()
    mine = ProcessId(os.getpid(), 1)
    fake.programs.append(Program(mine, "x", "", "", State.RUNNING, (tsg(1),)))
    with pytest.raises(Denied, match="is no program of uid"):
        Access().check_lowering(Caller(1, 12345), str(os.getpid()), {"class": "low"}, fake.look(), "x")


# -- audit --------------------------------------------------------------------------------------------------------


def test_each_change_leaves_a_line(running, caplog):
    with caplog.at_level(logging.WARNING, "detshared.audit"):
        running.client.verb("set-priority", "4242", klass="high")
        running.client.verb("pause", "nobody")
        with pytest.raises(Exception, match="is no class"):
            running.client.verb("set-priority", "4242", klass="best")
    lines = [record.fields for record in caplog.records if record.name == "detshared.audit"]
    assert [(line["verb"], line["result"]) for line in lines] == [
        ("set-priority", "changed"),
        ("pause", "unchanged"),
        ("set-priority", "refused"),
    ]
    assert all((line["uid"], line["pid"]) == (os.geteuid(), os.getpid()) for line in lines)
    assert lines[0]["asked"] == "set-priority 4242 high"
    assert lines[0]["changed"] == [4242]
    assert "is no class" in lines[2]["reason"]


@root
def test_a_refusal_leaves_a_line_too(stranger, caplog):
    with caplog.at_level(logging.WARNING, "detshared.audit"):
        stranger.ask("pause", 4242)
    (line,) = [record.fields for record in caplog.records if record.name == "detshared.audit"]
    assert (line["uid"], line["user"], line["pid"], line["result"]) == (NOBODY, "nobody", stranger.id.pid, "refused")


def written(capsys, form: str, *messages: str) -> str:
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        logs.begin("info", form)
        for message in messages:
            logging.getLogger("x").info("%s", message)
        logs.audit(Caller(7, 0), "pause", "pause 4242\nforged", "changed", more={"changed": [4242]})
    finally:
        logging.getLogger().handlers[:] = before[0]
        logging.getLogger().setLevel(before[1])
    return capsys.readouterr().err


def test_json_lines_are_json(capsys):
    lines = [json.loads(line) for line in written(capsys, "json", "a\nb", "\x1b[31m").splitlines()]
    assert [line["message"] for line in lines[:2]] == ["a\nb", "\x1b[31m"]
    assert (lines[2]["event"], lines[2]["uid"], lines[2]["changed"]) == ("audit", 0, [4242])
    assert {"time", "level", "logger"} <= lines[0].keys()


def test_nobody_forges_a_line_of_text(capsys):
    lines = written(capsys, "text", "a\nb", "\x1b[31m").splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("x: a\\nb")
    assert "\x1b" not in "".join(lines)
    assert lines[2].endswith("detshared.audit: uid 0 (root), PID 7: pause 4242\\nforged: changed")
