# SPDX-License-Identifier: Apache-2.0
"""What is set while a daemon runs: its configuration read again, the level of its log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from detshare.ctl.client import Client, ClientError
from detshare.ctl.core import config as configuration
from detshare.ctl.core.config import Config, ConfigError
from detshare.ctl.daemon.access import Access, Caller
from detshare.ctl.daemon.settings import LIVE, Settings
from tests.patience import ended, run, until

BASE = '[daemon]\nbackend = "model"\nlog_level = "info"\n'


class Daemon:
    """What a reload changes."""

    def __init__(self, config: Config) -> None:
        self.config, self.access, self.interval = config, Access(config.access), config.daemon.interval
        self.rules: list[object] = []
        self.unread: Callable[[], Sequence[str]] = tuple

    async def stand(self, rules: object) -> None:
        self.rules.append(rules)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "detshare.toml"
    made.write_text(BASE)
    made.chmod(0o600)
    return made


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


@pytest.fixture
def daemon(file: Path) -> Daemon:
    return Daemon(configuration.load(file))


def reload(daemon: Daemon, file: Path) -> dict[str, object]:
    return asyncio.run(Settings(daemon, lambda: configuration.load(file)).reload())


def test_what_can_change_changes_at_once(daemon: Daemon, file: Path) -> None:
    user = pwd.getpwuid(os.geteuid()).pw_name
    file.write_text(
        '[daemon]\nbackend = "model"\nlog_level = "error"\ninterval = 2\nclasses = {"*train*" = "low"}\n'
        f'[access]\nusers = ["{user}", "ann"]\n'
    )
    told = reload(daemon, file)
    assert told == {
        "path": str(file),
        "changed": ["daemon.interval", "daemon.log_level", "daemon.classes", "access.users"],
        "restart": [],
    }
    assert daemon.interval == 2
    assert daemon.rules == [{"*train*": "low"}]
    assert logging.getLogger().level == logging.ERROR
    assert daemon.access.may_change(Caller(1, os.geteuid()))
    assert reload(daemon, file)["changed"] == []
    assert len(daemon.rules) == 1


def test_what_waits_for_a_restart_is_said_each_time(daemon: Daemon, file: Path) -> None:
    file.write_text('[daemon]\nbackend = "kmod"\n[pool]\ntiers = [100]\n[metrics]\nlisten = "127.0.0.1:9"\n')
    waits = ["daemon.backend", "pool.tiers", "metrics.listen"]
    assert reload(daemon, file)["restart"] == waits
    assert reload(daemon, file)["restart"] == waits
    assert (daemon.config.daemon.backend, daemon.config.pool.tiers) == ("model", (10, 25, 50, 75, 100))


def test_a_certificate_with_which_no_daemon_would_start_is_refused(daemon: Daemon, file: Path) -> None:
    wrong = f'[page]\nlisten = "127.0.0.1:9836"\ncertificate = "{file}"\n'
    file.write_text(BASE.replace("info", "error") + wrong)
    with pytest.raises(ConfigError, match=r":6: page\.certificate: .* cannot be used"):
        reload(daemon, file)
    assert daemon.config.daemon.log_level == "info"


def test_doctor_knows_a_file_that_is_not_in_force(run_dir: Path, file: Path) -> None:
    # an option of the command line is in force whatever the file says
    words = ["--run-dir", str(run_dir), "--config", str(file), "--interval", "0.1"]
    with subprocess.Popen([sys.executable, "-m", "detshare.ctl.daemon.detshared", *words]) as process:
        client = Client(run_dir)
        until(lambda: process.poll() is not None or client.alive())

        def told() -> list[object]:
            (check,) = (each for each in client.doctor()["checks"] if each["name"] == "configuration")
            return [check["ok"], check["detail"]]

        assert told() == [True, f"{file}: nothing is wrong"]
        file.write_text(BASE.replace("info", "error") + "interval = 2\n[pool]\ntiers = [100]\n")
        assert told() == [None, f"{file}: not in force: daemon.log_level, pool.tiers"]
        assert client.config_reload()["restart"] == ["pool.tiers"]
        assert told() == [None, f"{file}: not in force: pool.tiers"]
        file.write_text(BASE.replace("info", "error"))
        assert told() == [True, f"{file}: nothing is wrong"]
        process.terminate()
        ended(process)


def test_a_bad_file_leaves_the_old_one_in_force(daemon: Daemon, file: Path) -> None:
    before = daemon.config
    wrong = 'log_level = "error"\ninterval = 100\n[metric]\nlisten = ""\n[daemon.classes]\n"x" = "urgent"\n'
    file.write_text(f"[daemon]\n{wrong}")
    with pytest.raises(ConfigError) as caught:
        reload(daemon, file)
    assert [(each.line, each.key) for each in caught.value.problems] == [
        (3, "daemon.interval"), (4, "metric"), (7, "daemon.classes.x"),
    ]  # fmt: skip
    assert daemon.config is before
    assert daemon.interval == before.daemon.interval
    assert daemon.rules == []
    assert logging.getLogger().level != logging.ERROR


def test_keys_that_change_at_once_are_keys(daemon: Daemon) -> None:
    known = {f"{section}.{key}" for section, keys in daemon.config.to_json().items() for key in keys or ()}
    assert set(LIVE) <= known


def ctl(run_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "detshare.ctl.cli", "--run-dir", run_dir, *words], capture_output=True, text=True)


@pytest.mark.e2e
def test_a_living_daemon_reads_its_file_again(run_dir: Path, file: Path) -> None:
    words = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", run_dir, "--config", file]
    log = (run_dir / "log").open("wb")
    with subprocess.Popen([*map(str, words), "--interval", "0.5"], stderr=log) as daemon:
        until(lambda: Client(run_dir).alive())
        assert ctl(run_dir, "log-level").stdout == "info\n"
        assert ctl(run_dir, "log-level", "debug").stdout == "debug (configured: info)\n"
        assert ctl(run_dir, "log-level", "loud").returncode == 2
        file.write_text(BASE + "interval = 9\nlog_levl = 1\n")
        wrong = ctl(run_dir, "config", "reload")
        assert wrong.returncode == 2
        assert f"{file}:5: daemon.log_levl: there is no such key" in wrong.stderr
        assert ctl(run_dir, "log-level").stdout == "debug (configured: info)\n"
        more = 'interval = 9\nclasses = {"*train*" = "low"}\n[pool]\ntiers = [100]\n'
        file.write_text(BASE.replace("info", "warning") + more)
        told = json.loads(ctl(run_dir, "config", "reload", "--json").stdout)
        # the interval that its command line gives goes before the file
        assert (told["changed"], told["restart"]) == (["daemon.log_level", "daemon.classes"], ["pool.tiers"])
        assert ctl(run_dir, "log-level").stdout == "warning\n"

        def lowered() -> bool:
            programs = Client(run_dir).programs()["programs"]
            return any(p["class"] == "low" and "train.py" in p["command"] for p in programs)

        until(lowered)
        assert "every 0.5 s" in next(c["detail"] for c in Client(run_dir).doctor()["checks"] if c["name"] == "daemon")
        daemon.send_signal(signal.SIGTERM)
        assert ended(daemon) == 0
    text = (run_dir / "log").read_text()
    assert "config reload: refused" in text
    assert "config reload: changed: restart for pool.tiers" in text
    assert "log-level debug: changed" in text
    assert ctl(run_dir, "config", "reload").returncode == 1


def test_only_who_may_change_things_may(running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Access, "may_change", lambda self, caller: False)
    for ask in (lambda: running.client.log("debug"), running.client.config_reload):
        with pytest.raises(ClientError, match="may not change anything") as caught:
            ask()
        assert caught.value.status == 403
    assert running.client.log()["configured"] == "info"


def test_a_level_that_is_none_is_told(running) -> None:
    with pytest.raises(ClientError, match="it is one of debug, info, warning, error"):
        running.client.log("loud")
    assert replace(Config()).daemon.log_level == "info"
