# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import multiprocessing
import os
import pwd
import subprocess
import time
from pathlib import Path

import pytest

from detshare.tools.vm import cache
from detshare.tools.vm.checkout import TOP
from detshare.tools.vm.errors import VmError
from tests.patience import LONG_S


def test_a_thing_is_made_once(own_cache: Path) -> None:
    made = []

    def make(stage: Path) -> None:
        made.append(stage)
        stage.write_text("x")

    assert cache.ensure("part/thing", make) == own_cache / "part" / "thing"
    assert cache.ensure("part/thing", make).read_text() == "x"
    assert len(made) == 1


def test_what_an_interrupted_making_left_is_not_taken_for_the_thing(own_cache: Path) -> None:
    def broken(stage: Path) -> None:
        stage.mkdir()
        (stage / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.ensure("part/thing", broken)
    assert list((own_cache / "part").iterdir()) == []

    # killed, nothing could be cleaned up
    left = own_cache / "part" / ".part-thing.1.2"
    left.mkdir()
    (left / "half").write_text("x")

    def whole(stage: Path) -> None:
        stage.mkdir()
        (stage / "whole").write_text("x")

    assert sorted(path.name for path in cache.ensure("part/thing", whole).iterdir()) == ["whole"]
    assert [path.name for path in (own_cache / "part").iterdir()] == ["thing"]


def test_what_a_killed_making_started_and_still_writes_does_no_harm(own_cache: Path) -> None:
    # as dpkg-deb or make, when detshare-vm was killed
    left = own_cache / "part" / ".part-thing.1.2"
    left.mkdir(parents=True)
    writer = subprocess.Popen(
        ["sh", "-c", f"while :; do mkdir -p {left}/x; : >{left}/x/y; done"], stderr=subprocess.DEVNULL
    )
    try:
        made = cache.ensure("part/thing", lambda stage: stage.write_text("x"))
    finally:
        writer.kill()
        writer.wait()
    assert made.read_text() == "x"


def _slow(stage: Path) -> None:
    time.sleep(0.3)
    with (cache.root() / "count").open("a") as count:
        count.write("x")
    stage.write_text(str(os.getpid()))


def _ensure() -> None:
    cache.ensure("part/shared", _slow)


def test_of_processes_that_want_the_same_one_makes_it_and_the_others_wait() -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_ensure) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LONG_S)
        assert process.exitcode == 0
    assert (cache.root() / "count").read_text() == "x"


def _hold(begun: multiprocessing.synchronize.Event) -> None:
    with cache.lock("held"):
        begun.set()
        time.sleep(60)


def test_a_lock_goes_with_its_holder() -> None:
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    holder = context.Process(target=_hold, args=(begun,))
    holder.start()
    assert begun.wait(LONG_S)
    with cache.lock("held", wait=False) as got:
        assert not got
    with pytest.raises(VmError, match="another detshare-vm"):
        cache.clean()
    holder.kill()
    holder.join()
    with cache.lock("held", wait=False) as got:
        assert got


def test_clean_leaves_what_a_guest_runs_from() -> None:
    cache.ensure("build/thing", lambda stage: stage.write_text("x"))
    with cache.in_use(), pytest.raises(VmError, match="running guests"):
        cache.clean()
    assert "MB" in cache.clean()
    assert not (cache.root() / "build").exists()


def test_clean_of_old_builds_keeps_those_that_were_used() -> None:
    old = cache.ensure("build/old", lambda stage: stage.write_text("x"))
    used = cache.ensure("build/used", lambda stage: stage.write_text("x"))
    kernel = cache.ensure("kernel/any", lambda stage: stage.write_text("x"))
    for path in (old, used, kernel):
        os.utime(path, (0, 0))
    cache.ensure("build/used", lambda stage: stage.write_text("y"))
    cache.clean(older_than_days=1)
    assert not old.exists()
    assert used.read_text() == "x"
    assert kernel.exists()


def test_key_depends_on_each_part_and_on_where_it_ends(tmp_path: Path) -> None:
    assert len({cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key("ab", "c", "")}) == 4
    assert cache.key("ab", "c") == cache.key(b"ab", b"c")
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("x")
    two.write_text("x")
    before = cache.key_of_files(tmp_path, [one, two])
    assert cache.key_of_files(tmp_path, [two, one]) == before
    one.chmod(0o755)
    changed = cache.key_of_files(tmp_path, [one, two])
    two.write_text("y")
    assert len({before, changed, cache.key_of_files(tmp_path, [one, two])}) == 3


def test_a_cache_where_make_cannot_work_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETSHARE_CACHE", str(tmp_path / "with space"))
    with pytest.raises(VmError, match="space") as error:
        cache.root()
    assert error.value.usage


@pytest.mark.parametrize("home", [None, ""])
def test_without_a_home_the_cache_lies_in_that_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None
) -> None:
    for name in ("DETSHARE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    entry = pwd.struct_passwd(("me", "x", 1, 1, "", str(tmp_path / "me"), "/bin/sh"))
    monkeypatch.setattr(cache.pwd, "getpwuid", lambda _: entry)
    assert cache.root() == tmp_path / "me/.cache/detshare"


def test_a_user_without_an_entry_is_told_to_name_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DETSHARE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def absent(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(cache.pwd, "getpwuid", absent)
    with pytest.raises(VmError, match="set DETSHARE_CACHE"):
        cache.root()


def test_make_finds_the_same_cache_without_a_home() -> None:
    environment = {name: os.environ[name] for name in ("PATH",)}
    words = ["make", "-n", "-C", str(TOP), "lint-python"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert f'MYPY_CACHE_DIR="{home}/.cache/detshare/mypy"' in done.stdout
