# SPDX-License-Identifier: Apache-2.0
"""The API about policies: what it takes, what it refuses, and that a policy keeps nobody waiting."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest

from detshare.ctl.core.errors import ControlError
from tests.patience import LONG_S, until

SHORT = '''
from detshare.ctl.policy.types import Policy, Slice
class Short(Policy):
    """Rule: short."""
    def on_attach(self, now, tenant):
        return [Slice(tenant, 300.0, 0, "it may wait")]
'''
HANGS = SHORT.replace('return [Slice(tenant, 300.0, 0, "it may wait")]', "\n        while True: pass")


def ask(daemon, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("detshared", timeout=LONG_S)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(daemon.socket))
    connection.request(method, path, body if isinstance(body, bytes | None) else json.dumps(body).encode())
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def slices(daemon) -> set[int]:
    tsgs = [tsg for each in daemon.client.programs()["programs"] for tsg in each["tsgs"] if tsg["kind"] == "compute"]
    return {tsg["slice_us"] for tsg in tsgs}


@pytest.fixture
def short(tmp_path):
    path = tmp_path / "short.py"
    path.write_text(SHORT)
    return str(path)


def test_the_default_policy_decides_and_does_nothing(start):
    daemon = start()
    answer = daemon.client.policy()
    assert answer["policy"]["name"] == "slo-aware"
    assert answer["policy"]["failed"] == ""
    assert {"slo-aware", "static", "fair"} <= {each["name"] for each in answer["known"]}
    until(lambda: daemon.backend.looks > 10)
    assert daemon.backend.calls == []
    checks = {each["name"]: each for each in daemon.client.doctor()["checks"]}
    assert checks["policy"]["ok"] is True


HEARING = """
from detshare.ctl.policy.types import Policy
class Mine(Policy):
    kicks = "always"
    def on_launch(self, now, tenant):
        with open({!r}, "a") as file:
            file.write(f"{{tenant}} {{now.tenant(tenant).active}}\\n")
"""


def test_a_launch_that_the_kernel_tells_reaches_the_policy_and_no_person(start, tmp_path):
    daemon = start()
    path, told = tmp_path / "hearing.py", tmp_path / "told"
    path.write_text(HEARING.format(str(told)))
    assert daemon.backend.calls == []
    daemon.client.policy_set(str(path))
    until(lambda: daemon.backend.calls == [("attend", True)])
    before = [each["kind"] for each in daemon.client.events()]
    daemon.backend.edge(4300, True)
    until(lambda: told.exists() and "4300 True\n" in told.read_text())
    assert [each["kind"] for each in daemon.client.events()] == before
    daemon.client.policy_set("static")
    until(lambda: daemon.backend.calls == [("attend", True), ("attend", False)])


def test_a_policy_whose_kicks_cannot_be_meant_is_refused(start, tmp_path):
    daemon = start()
    path = tmp_path / "hearing.py"
    path.write_text(HEARING.format("x").replace("always", "often"))
    with pytest.raises(ControlError, match="its kicks is 'often'"):
        daemon.client.policy_set(str(path))
    assert daemon.client.policy()["policy"]["name"] == "slo-aware"


def test_a_policy_from_a_file_decides_and_why_tells_it(start, short):
    daemon = start()
    status = daemon.client.policy_set(short)
    assert status["name"] == short
    until(lambda: daemon.client.policy()["policy"]["counts"]["actions"] == 2)
    until(lambda: daemon.client.programs()["programs"][0]["decided"] == {"Slice": f"policy {short}"})
    until(lambda: slices(daemon) == {300})
    told = daemon.client.why(4242)
    assert any("slice 300 us, level low; it may wait" in each["text"] for each in told["decisions"])
    assert f"time slice decided by policy {short}" in told["now"]
    texts = [each["text"] for each in daemon.client.decisions()["decisions"]]
    assert any(text.startswith("4300: slice 300 us") for text in texts)
    assert len(daemon.client.decisions(most=1)["decisions"]) == 1


def test_what_a_person_sets_wins_until_policy_resume(start, short):
    daemon = start()
    daemon.client.verb("set-priority", "4242", klass="high")
    daemon.client.policy_set(short)
    until(lambda: daemon.client.policy()["policy"]["counts"]["refused"] == 1)
    until(lambda: daemon.client.programs()["programs"][0]["decided"] == {"Slice": "hand"})
    assert daemon.client.policy_resume("4242") == {"resumed": [4242], "class": ""}
    until(lambda: daemon.client.programs()["programs"][0]["decided"] == {"Slice": f"policy {short}"})
    with pytest.raises(ControlError, match="nothing that a person set matches"):
        daemon.client.policy_resume("nobody-of-that-name")


def test_a_policy_that_hangs_keeps_nobody_waiting(start, tmp_path):
    path = tmp_path / "hangs.py"
    path.write_text(HANGS)
    daemon = start()
    daemon.client.policy_set(str(path))
    until(lambda: daemon.client.policy()["policy"]["failed"])
    assert "on_attach ran for more than 50 ms" in daemon.client.policy()["policy"]["failed"]
    looks = daemon.backend.looks
    until(lambda: daemon.backend.looks > looks + 5)
    assert daemon.client.verb("set-priority", "4242", klass="high")["changed"]
    checks = {each["name"]: each for each in daemon.client.doctor()["checks"]}
    assert checks["policy"]["ok"] is False
    until(lambda: daemon.client.policy()["policy"]["stuck_threads"] == 0)
    daemon.client.policy_set("static")
    assert daemon.client.policy()["policy"]["failed"] == ""


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": 3},
        {"name": ""},
        {"name": "fair", "params": []},
        {"name": "fair", "params": {"unit_ms": 1}},
        {"name": "fair", "more": 1},
        {"name": "fair", "gpu": -1},
        {"name": "fair", "gpu": True},
        {"name": "fair", "gpu": ""},
        {"name": "fair", "gpu": 7},
        {"name": "fair", "gpu": "GPU-nosuch"},
        {"name": "nosuch"},
        {"name": "fair", "params": {"nosuch": "1"}},
        {"name": "fair", "params": {"unit_ms": "x"}},
        {"name": "/nosuch/file.py"},
        {"name": "fair\n"},
        [],
        b"{",
    ],
)
def test_what_cannot_be_meant_changes_nothing(start, body):
    daemon = start()
    status, answer = ask(daemon, "POST", "/v1/policy/set", body)
    assert status == 400
    assert set(answer["error"]) == {"asked", "stopped", "next"}
    assert daemon.client.policy()["policy"]["name"] == "slo-aware"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/why/x", 400),
        ("/v1/why/4242?since=x", 400),
        ("/v1/why/4242?since=-1", 400),
        ("/v1/why/4242?since=nan", 400),
        ("/v1/why/99999999999", 400),
        ("/v1/why/31337", 409),
        ("/v1/decisions?most=1e9", 400),
        ("/v1/decisions?since=", 400),
        ("/v1/policy", 200),
    ],
)
def test_reading(start, path, status):
    assert ask(start(), "GET", path)[0] == status


def test_who_may_not_change_anything_may_not_set_a_policy(start, monkeypatch):
    daemon = start()
    monkeypatch.setattr("detshare.ctl.daemon.access.Access.may_change", lambda self, caller: False)
    for path, body in (("/v1/policy/set", {"name": "fair"}), ("/v1/policy/resume", {"who": "4242"})):
        status, answer = ask(daemon, "POST", path, body)
        assert status == 403
        assert "may not" in answer["error"]["stopped"]
    assert daemon.client.policy()["policy"]["name"] == "slo-aware"
    assert ask(daemon, "GET", "/v1/policy")[0] == 200


def test_only_root_has_the_daemon_run_a_file(start, short, monkeypatch):
    daemon = start()
    monkeypatch.setattr("detshare.ctl.daemon.access.Access.may_change", lambda self, caller: True)
    monkeypatch.setattr("detshare.ctl.daemon.policy_routes.runs_files", lambda caller: False)
    status, answer = ask(daemon, "POST", "/v1/policy/set", {"name": short})
    assert status == 403
    assert "run a file" in answer["error"]["stopped"]
    assert ask(daemon, "POST", "/v1/policy/set", {"name": "fair"})[0] == 200


def test_a_deadline_is_set_and_taken_away(start):
    daemon = start()
    assert daemon.client.policy_deadline("4242", 20_000.0) == {"pids": [4242], "deadline_us": 20_000.0}
    texts = [each["text"] for each in daemon.client.why(4242)["decisions"]]
    assert "4242: deadline 20 ms, by a person" in texts
    assert daemon.client.policy_deadline("4242", None)["deadline_us"] is None
    with pytest.raises(ControlError, match="no program on a GPU matches"):
        daemon.client.policy_deadline("nobody-of-that-name", 20_000.0)
    for us in (0, -1, 1e10, True, "20ms"):
        assert ask(daemon, "POST", "/v1/policy/deadline", {"who": "4242", "us": us})[0] == 400


def test_one_gpu_has_a_policy_of_its_own(start, short):
    daemon = start()
    uuid = daemon.client.programs()["gpus"][0]["uuid"]
    status = daemon.client.policy_set(short, gpu=0)
    assert status["name"] == "slo-aware"
    assert [(each["gpu"], each["uuid"], each["name"]) for each in status["gpus"]] == [(0, uuid, short)]
    until(lambda: slices(daemon) == {300})
    assert daemon.client.why(4242)["policy"]["name"] == short
    assert f'detshare_policy_info{{gpu="{uuid}",name="' in daemon.client.metrics()
    assert f'detshare_policy_standing{{gpu="{uuid}"}} 2.0' in daemon.client.metrics()
    assert [each["ok"] for each in daemon.client.doctor()["checks"] if each["name"] == "policy"] == [True, True]
    assert daemon.client.policy_unset(uuid[:8])["gpus"] == []
    until(lambda: len([call for call in daemon.backend.calls if call[0] == "release"]) == 2)
    with pytest.raises(ControlError, match="no policy of its own"):
        daemon.client.policy_unset(0)


@pytest.mark.parametrize("body", [{}, {"gpu": None}, {"gpu": 0, "more": 1}, {"gpu": []}, {"gpu": "x" * 65}, {"gpu": 9}])
def test_what_unset_does_not_take(start, body):
    status, answer = ask(start(), "POST", "/v1/policy/unset", body)
    assert status == 400
    assert answer["error"]
