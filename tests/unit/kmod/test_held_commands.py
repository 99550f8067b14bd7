# SPDX-License-Identifier: Apache-2.0
"""hold, set-bucket, set-ceiling, set-class, classes, and what ps and show say of launches."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import Result
from fake_backend import FakeBackend

from detshare.ctl.client import Client
from detshare.ctl.core.errors import ClientError
from detshare.ctl.core.snapshot import AccountKind, Bucket, ClassInfo, Hold, StandingOrder, State
from detshare.ctl.core.work import Activity, Denial

Ctl = Callable[..., Result]


@pytest.mark.parametrize(
    ("args", "call"),
    [
        (["hold", "4242", "--lease", "60"], ("hold 60", "4242")),
        (["set-bucket", "/crew", "25%"], ("set-bucket", "/crew", 250_000, None)),
        (["set-bucket", "red", "0.01%", "--burst", "5"], ("set-bucket", "red", 100, 5)),
        (["set-bucket", "4242", "1000000"], ("set-bucket", "4242", 1_000_000, None)),
        (["set-bucket", "4242", "off"], ("set-bucket", "4242", None, None)),
        (["set-ceiling", "4242", "40"], ("set-ceiling", "4242", 40)),
        (["set-class", "low", "--turn", "50000"], ("set-class", "low", {"turn_us": 50_000})),
        (
            ["set-class", "mine", "--weight", "5", "--level", "low", "--gpu", "1"],
            ("set-class", "mine", {"weight": 5, "level": 0, "gpu": 1}),
        ),
        (["set-class", "low", "--reset"], ("set-class", "low", None)),
        (["set-class", "low", "--reset", "--gpu", "1"], ("set-class", "low", {"reset": True, "gpu": 1})),
    ],
)
def test_commands_reach_the_backend(ctl: Ctl, backend: FakeBackend, args: list[str], call: tuple[object, ...]) -> None:
    done = ctl(*args)
    assert done.exit_code == 0, done.stderr
    assert backend.calls == [call]
    assert json.loads(ctl(*args, "--json").stdout)["changed"]


@pytest.mark.parametrize(
    "args",
    [
        ["set-bucket", "4242", "0"],
        ["set-bucket", "4242", "-5%"],
        ["set-bucket", "4242", "101%"],
        ["set-bucket", "4242", "nan"],
        ["set-bucket", "4242", "fast"],
        ["set-bucket", "4242", "25%", "--burst", "0"],
        ["set-ceiling", "4242", "0"],
        ["set-ceiling", "4242", "101"],
        ["set-class", "a b", "--weight", "1"],
        ["set-class", "low"],
        ["set-class", "low", "--rank", "5"],
        ["set-class", "low", "--floor", "1001"],
        ["set-class", "low", "--reset", "--weight", "5"],
        ["hold", "4242", "--lease", "0"],
        ["hold", "4242", "--lease", "3601"],
        ["hold", "0", "--lease", "1"],
    ],
)
def test_what_cannot_be_meant_is_refused_with_2(ctl: Ctl, backend: FakeBackend, args: list[str]) -> None:
    done = ctl(*args)
    assert done.exit_code == 2, done.output
    assert done.stderr
    assert backend.calls == []


def test_without_the_module_the_next_step_is_to_load_it(ctl: Ctl, backend: FakeBackend) -> None:
    backend.name = "root"
    for args in (
        ["set-bucket", "4242", "5%"],
        ["set-class", "low", "--weight", "5"],
        ["set-ceiling", "4242", "5"],
        ["classes"],
        ["classes", "--json"],
    ):
        done = ctl(*args)
        assert done.exit_code == 1, args
        assert "insmod detshare.ko" in done.stderr


@pytest.mark.parametrize(
    "typed",
    [
        "set-bucket /batch.slice 25%",
        "set-bucket /batch.slice 0.333%",
        "set-bucket /batch.slice 250000",
        "set-bucket /batch.slice off",
        "set-bucket /batch.slice 101%",
        "set-class low --floor 0.04",
        "reserve off",
        "set-busy 4242 hold",
    ],
)
def test_an_error_names_what_was_typed(ctl: Ctl, backend: FakeBackend, typed: str) -> None:
    backend.name = "root"
    done = ctl(*typed.split())
    assert done.exit_code
    assert done.stderr.startswith(f"detshare-ctl: {typed}: ")
    assert json.loads(ctl(*typed.split(), "--json").stdout)["error"]["asked"] == typed


@pytest.mark.parametrize(
    ("told", "asked"),
    [("set-bucket /batch.slice 250000", "set-bucket /batch.slice 25%"), ("read the answer", "read the answer")],
)
def test_an_error_of_the_daemon_names_what_was_typed(
    ctl: Ctl, monkeypatch: pytest.MonkeyPatch, told: str, asked: str
) -> None:
    def refuse(self: Client, name: str, who: str, **args: object) -> dict[str, object]:
        raise ClientError(told, "it is stopping", "wait")

    monkeypatch.setattr(Client, "alive", lambda self: True)
    monkeypatch.setattr(Client, "verb", refuse)
    assert ctl("set-bucket", "/batch.slice", "25%").stderr == f"detshare-ctl: {asked}: it is stopping\nnext: wait\n"


def test_a_hold_without_a_lease_needs_the_daemon(ctl: Ctl, backend: FakeBackend) -> None:
    done = ctl("hold", "4242")
    assert done.exit_code == 1
    assert "detshared" in done.stderr
    assert backend.calls == []


def test_launches_are_shown(ctl: Ctl, backend: FakeBackend) -> None:
    doing = Activity(
        "gated", ("order", "bucket"), 1_500_000, 3.5, 7, 8, 2, 40.25, 1, 3, 1, 0, 40, 5,
        (Denial(0xA06C0103, "NVA06C_CTRL_CMD_SET_TIMESLICE", "order", 0, 5),),
    )  # fmt: skip
    backend.programs[0] = replace(backend.programs[0], state=State.GATED, activity=doing)
    backend.programs[1] = replace(backend.programs[1], activity=Activity("active"))
    lines = ctl("ps").output.splitlines()
    assert "gated (order,bucket)" in lines[2]
    assert "active" in lines[3]
    shown = " ".join(ctl("show", "4242").output.split())
    assert "activity gated, held by order and bucket; last sign 3.5 ms ago" in shown
    assert "waited 2 times, 40.2 ms; 1 waiting now" in shown
    assert "TPC ceiling 40 %" in shown
    assert "denied NVA06C_CTRL_CMD_SET_TIMESLICE: 5 times (order; told done, did nothing)" in shown
    program = json.loads(ctl("ps", "--json").stdout)["programs"][0]
    assert program["activity"]["denials"][0]["count"] == 5
    assert program["activity"]["reasons"] == ["order", "bucket"]


def test_what_stands_is_listed(ctl: Ctl, backend: FakeBackend) -> None:
    backend.standing = {
        "classes": (ClassInfo("low", None, None, 50, "low", 20, 3, 100_000),),
        "orders": (StandingOrder(AccountKind.CGROUP, "/crew", "class low"),),
        "buckets": (Bucket(AccountKind.TENANT, "red", 250_000, 25_000, empty=True, emptied=4),),
        "holds": (
            Hold(AccountKind.PID, "4242", True, True, 8000, True),
            Hold(AccountKind.CGROUP, "/x", True, False, 60_000),
        ),
    }
    text = " ".join(ctl("classes").output.split())
    assert "low each - 50us low 100ms 2% 3" in text
    assert "cgroup /crew class low" in text
    assert "tenant red 25%" in text
    assert "pid 4242 paused renewed" in text
    assert "cgroup /x gated 60 s left" in text
    data = json.loads(ctl("classes", "--json").stdout)
    assert data["holds"][0] == {
        "kind": "pid", "name": "4242", "gate": True, "pause": True, "lease_ms": 8000, "renewed": True,
    }  # fmt: skip
    assert list(data) == ["classes", "orders", "buckets", "holds"]


@pytest.mark.parametrize("name", ["hold", "set-bucket", "set-ceiling", "set-class", "classes"])
def test_help_has_an_example(ctl: Ctl, name: str) -> None:
    text = ctl(name, "--help").output
    assert "Example:" in text
    assert f"sudo detshare-ctl {name}" in text
    assert all(len(line) <= 80 for line in text.splitlines())
