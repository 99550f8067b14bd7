# SPDX-License-Identifier: Apache-2.0
"""What lies in packaging/ fits what the daemon reads."""

from __future__ import annotations

import configparser
import re
import tomllib
from dataclasses import replace
from pathlib import Path

from detshare.ctl.core import config

TOP = Path(__file__).parents[3]


def test_the_example_is_the_defaults():
    text = (TOP / "packaging/detshare.toml").read_bytes()
    assert replace(config.parse(text), path=None) == config.Config()


def test_every_comment_of_the_example_that_is_a_key_can_be_used():
    text = (TOP / "packaging/detshare.toml").read_text()
    more = "\n".join(line.removeprefix("# ") for line in text.splitlines() if re.match(r'# (\[|name|sms|gpu|")', line))
    found = config.parse(more.encode())
    assert found.daemon.classes == {"*train.py*": "low", "vllm serve *": "high"}
    assert found.pool.exclusive == (config.Exclusive("inference", 32, "GPU-12345678-1111-2222-3333-444444444444"),)


def test_the_page_names_every_key():
    page = (TOP / "docs/use/configuration.md").read_text()
    for section, keys in config.Config().to_json().items():
        for key in keys or ():
            assert f"`{section}.{key}`" in page


def test_each_release_says_what_it_asks_of_an_operator():
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    notes = re.findall(r"^## (\d\S*)$", (TOP / "docs/use/upgrade.md").read_text(), re.MULTILINE)
    assert notes[:1] == [version]


def test_the_unit_reloads_by_the_command_that_tells_what_is_wrong():
    unit = (TOP / "packaging/detshared.service").read_text()
    start, reload = (re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE) for name in ("ExecStart", "ExecReload"))
    assert [line.endswith("/detshare-ctl --run-dir /run/detshare config reload") for line in reload] == [True]
    assert Path(start[0].split()[0]).parent == Path(reload[0].split()[0]).parent


def test_systemd_starts_the_daemon_again_for_as_long_as_it_takes():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(TOP / "packaging/detshared.service")
    # systemd's own limit is 5 starts in 10 s: a failure that comes at once is for good then, 9 s after the first
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert (unit["Service"]["Restart"], unit["Service"]["RestartPreventExitStatus"]) == ("on-failure", "2")


def test_pages_and_example_say_what_the_unit_wants_for_an_address():
    unit = (TOP / "packaging/detshared.service").read_text()
    assert re.findall(r"^RestrictAddressFamilies=(.*)$", unit, re.MULTILINE) == ["AF_UNIX AF_NETLINK"]
    for name in ("docs/use/metrics.md", "docs/use/page.md", "packaging/detshare.toml"):
        assert "RestrictAddressFamilies=AF_INET AF_INET6" in (TOP / name).read_text(), name
