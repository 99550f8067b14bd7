# SPDX-License-Identifier: Apache-2.0
"""set-memory, tenant, and what ps, show and doctor say of limits."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result
from fake_backend import FakeBackend

from detshare.ctl import oneshot
from detshare.ctl.core import procfs
from detshare.ctl.netlink import presence

Ctl = Callable[..., Result]


def test_a_limit_is_set_shown_and_taken_away(ctl: Ctl, backend: FakeBackend) -> None:
    done = ctl("set-memory", "4242", "4G")
    assert done.exit_code == 0, done.stderr
    assert done.output == "pid 4242: memory limit none -> 4.0G, uses 3.0G\n"
    assert backend.calls == [("set-memory", "4242", 4 << 30, None)]
    lines = ctl("ps").output.splitlines()
    assert "held by the kernel" in lines[0]
    assert lines[1].split()[5:7] == ["MEM", "LIMIT"]
    assert [line.split()[5:7] for line in lines[2:4]] == [["3.0G", "4.0G"], ["-", "-"]]
    assert all(len(line) <= 80 for line in lines)
    shown = " ".join(ctl("show", "4242").output.split())
    assert "containment held by the kernel: pid 4242, 3.0G of 4.0G" in shown
    assert "no memory limit" in ctl("show", "4300").output
    program = json.loads(ctl("ps", "--json").stdout)["programs"][0]
    assert (program["containment"], program["memory_limit"]) == ("kernel", 4 << 30)
    done = ctl("set-memory", "4242", "max", "--json")
    assert json.loads(done.stdout)["changed"][0]["limit"] == {
        "account": "pid 4242", "gpu": None, "before": 4 << 30, "limit": None, "used": 3 << 30,
    }  # fmt: skip


def test_one_gpu_only(ctl: Ctl, backend: FakeBackend) -> None:
    assert "pid 4242 on GPU 1: memory limit none -> 512M" in ctl("set-memory", "4242", "512M", "--gpu", "1").output
    assert backend.calls == [("set-memory", "4242", 512 << 20, 1)]


@pytest.mark.parametrize(
    "args",
    [
        ["set-memory", "4242", "0"],
        ["set-memory", "4242", str((1 << 64) - 1)],
        ["set-memory", "4242", "four"],
        ["set-memory", "4242", "4G", "--gpu", "-1"],
        ["set-memory", "4242", "4G", "--gpu", "64"],
        ["set-memory", "4242"],
        ["set-memory", "", "4G"],
        ["set-memory", "0", "4G"],
        ["tenant", "add", "4242"],
        ["tenant", "add", "deadbeefcafe"],
        ["tenant", "attach", "a b", "4242"],
        ["tenant", "del", "x" * 64],
        ["tenant", "nosuch"],
    ],
)
def test_what_cannot_be_meant_is_refused_with_2_and_changes_nothing(
    ctl: Ctl, backend: FakeBackend, args: list[str]
) -> None:
    done = ctl(*args)
    assert done.exit_code == 2
    assert done.stderr
    assert backend.calls == []
    assert backend.tenants == []


def test_tenants(ctl: Ctl, backend: FakeBackend) -> None:
    assert "there is no tenant" in ctl("tenant", "list").output
    assert ctl("tenant", "add", "red").exit_code == 0
    assert "tenant red: memory limit none -> 20.0G" in ctl("set-memory", "red", "20G").output
    assert ctl("tenant", "attach", "red", "4242").exit_code == 0
    assert backend.programs[0].tenant == "red"
    lines = ctl("tenant", "list").output.splitlines()
    assert lines[0].split() == ["TENANT", "LIMITS", "PROGRAMS"]
    assert lines[1].split() == ["red", "no", "memory", "limit", "4242"]
    assert json.loads(ctl("tenant", "list", "--json").stdout)["tenants"] == [{"name": "red", "pids": [4242]}]
    assert ctl("tenant", "del", "red").exit_code == 0
    assert backend.tenants == []


def test_without_the_module_the_next_step_is_to_load_it(ctl: Ctl, backend: FakeBackend) -> None:
    backend.name = "root"
    listed = ["tenant", "list"]
    for args in (["set-memory", "4242", "4G"], ["tenant", "add", "red"], listed, [*listed, "--json"]):
        done = ctl(*args)
        assert done.exit_code == 1, args
        assert "backend root holds no memory limits" in done.stderr
        assert "insmod detshare.ko" in done.stderr
    assert "LIMIT" not in ctl("ps").output


def test_doctor_says_which_backend_is_in_force_and_why(ctl: Ctl, backend: FakeBackend) -> None:
    text = " ".join(ctl("doctor").output.split())
    assert "kmod (proof level gpu): the kernel holds memory limits" in text
    assert "in force because told" in text


@pytest.mark.parametrize(
    ("family", "driver", "model_too", "name"),
    [
        (True, "580.1", True, "kmod"),
        (False, "580.1", True, "root"),
        (False, None, True, "model"),
        (False, None, False, "root"),
        (True, None, True, "kmod"),
    ],
)
def test_auto_is_the_first_backend_that_can_be_had(
    monkeypatch: pytest.MonkeyPatch, family: bool, driver: str | None, model_too: bool, name: str
) -> None:
    monkeypatch.setattr(presence, "loaded", lambda: family)
    monkeypatch.setattr(procfs, "driver_version", lambda: driver)
    found, why = oneshot.resolve(oneshot.AUTO, model_too=model_too)
    assert found == name
    assert "detshare.ko" in why
    assert oneshot.resolve("root") == ("root", "--backend root was given")
