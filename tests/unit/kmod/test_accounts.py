# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from detshare.ctl.backends.desired import Desired, DesiredState
from detshare.ctl.backends.module.orders import Wanted
from detshare.ctl.core import accounts, cgroups
from detshare.ctl.core.accounts import Target
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import Opener, ProcessId
from detshare.ctl.core.snapshot import AccountKind

CONTAINER = "c0ffee" * 10 + "c0fe"


def opener(pid: int, command: str, cgroup: str = "/", container: str = "") -> Opener:
    return Opener(ProcessId(pid, 7), 1, command, command[:15], "root", cgroup, container, (3,), ())


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the hierarchy."""
    (tmp_path / "kube" / f"pod-{CONTAINER}.scope" / "inner").mkdir(parents=True)
    monkeypatch.setattr(cgroups, "mount", lambda: tmp_path)
    return tmp_path


def test_who_can_be_a_pid_a_tenant_or_a_pattern() -> None:
    openers = [opener(42, "python serve.py"), opener(43, "python train.py"), opener(44, "red wine")]
    (one,) = accounts.resolve("42", ["red"], openers)
    assert (one.kind, one.process) == (AccountKind.PID, ProcessId(42, 7))
    (red,) = accounts.resolve("red", ["red"], openers)
    assert (red.kind, red.text) == (AccountKind.TENANT, "tenant red")
    assert [t.name for t in accounts.resolve("red", [], openers)] == ["44"]
    assert [t.name for t in accounts.resolve("python *", [], openers)] == ["42", "43"]
    assert accounts.resolve("45", [], openers) == []


def test_a_cgroup_by_its_path_or_its_folder(tree: Path) -> None:
    for path in ("/kube", str(tree / "kube"), "/kube/"):
        (found,) = accounts.resolve(path, [], [])
        assert (found.kind, found.name) == (AccountKind.CGROUP, "/kube")
        assert found.cgroup == (tree / "kube").stat().st_ino
    for path in ("/nosuch", "/kube/../..", "/../etc"):
        with pytest.raises(BadRequest, match="there is no cgroup"):
            accounts.resolve(path, [], [])


def test_a_container_is_its_own_cgroup_and_not_one_inside(tree: Path) -> None:
    inside = f"/kube/pod-{CONTAINER}.scope/inner"
    both = [opener(pid, "x", inside, CONTAINER) for pid in (42, 43)]
    found = accounts.resolve(CONTAINER[:12], [], both)
    assert [t.name for t in found] == [f"/kube/pod-{CONTAINER}.scope"]
    assert accounts.resolve("abcdefabcdef", [], [opener(42, "x", inside, CONTAINER)]) == []


def test_the_lineage_of_a_cgroup_goes_up_to_the_root(tree: Path) -> None:
    found = cgroups.lineage(f"/kube/pod-{CONTAINER}.scope/inner")
    assert list(found.values()) == [
        f"/kube/pod-{CONTAINER}.scope/inner", f"/kube/pod-{CONTAINER}.scope", "/kube", "/",
    ]  # fmt: skip
    assert cgroups.find(set(found)) == found
    assert cgroups.lineage("/gone") == {}


@pytest.mark.parametrize("name", ["red", "_x", "team-a.2", "A" * 63])
def test_names_that_a_tenant_may_have(name: str) -> None:
    assert accounts.check_tenant(name) == name


@pytest.mark.parametrize("name", ["", "4242", "-x", "a b", "a/b", "x" * 64, "deadbeefcafe", "a*", "é", None, 5, "a\n"])
def test_names_that_could_be_taken_for_something_else(name: object) -> None:
    with pytest.raises(BadRequest, match="cannot be a tenant's name"):
        accounts.check_tenant(name)


def test_the_mount_of_the_hierarchy(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "24 1 0:22 / /proc rw shared:1 - proc proc rw\n"
        "31 24 0:26 / /sys/fs/my\\040cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
    )
    cgroups.mount.cache_clear()
    assert cgroups.mount(mounts) == Path("/sys/fs/my cgroup")
    cgroups.mount.cache_clear()
    assert cgroups.mount(tmp_path / "absent") is None
    cgroups.mount.cache_clear()


def test_what_was_asked_for_a_container_goes_with_its_cgroup_and_for_a_service_it_waits(tree: Path) -> None:
    wanted = Wanted(DesiredState(tree, "model"))
    pod, service = f"/kube/pod-{CONTAINER}.scope", "/system.slice/train.service"
    (tree / service[1:]).mkdir(parents=True)
    for path in (pod, service):
        wanted.put(Target(AccountKind.CGROUP, path), Desired(klass="low"))
    assert wanted.living() == {path: (tree / path[1:]).stat().st_ino for path in (pod, service)}
    (tree / pod[1:] / "inner").rmdir()
    (tree / pod[1:]).rmdir()
    (tree / service[1:]).rmdir()
    assert wanted.living() == {}
    (tree / pod[1:]).mkdir()
    (tree / service[1:]).mkdir()
    assert list(wanted.living()) == [service]
