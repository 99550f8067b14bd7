# SPDX-License-Identifier: Apache-2.0
"""`detshare-ctl page`, and what the configuration and detshared take about the page."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from detshare.ctl.cli.main import main
from detshare.ctl.core import config
from detshare.ctl.daemon import detshared


def ctl(run_dir: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--run-dir", str(run_dir), *words])


def test_it_prints_an_address_that_opens_the_page_once(paged, run_dir: Path) -> None:
    page = paged()
    said = ctl(run_dir, "page")
    assert said.exit_code == 0
    address, _, code = said.stdout.strip().partition("#")
    assert address == f"http://127.0.0.1:{page.port}/"
    assert "read-only" in said.stderr
    assert page.ask("POST", "/page/session", {"code": code})[0] == 200
    told = json.loads(ctl(run_dir, "page", "--json").stdout)
    assert (told["expires_s"], told["changes"]) == (300, False)


def test_it_says_how_far_the_page_may_go(paged, run_dir: Path) -> None:
    paged(changes=True)
    assert "changes what you may change" in ctl(run_dir, "page").stderr


def test_revoke_closes_every_page(paged, run_dir: Path) -> None:
    page = paged()
    token = page.token()
    said = ctl(run_dir, "page", "--revoke")
    assert (said.exit_code, said.stderr) == (0, "")
    assert page.ask("GET", "/page/view", token=token)[0] == 401
    assert json.loads(ctl(run_dir, "page", "--revoke", "--json").stdout) == {"revoked": True}


def test_where_the_page_has_no_address_it_says_what_to_do(paged, run_dir: Path) -> None:
    paged(listen="")
    said = ctl(run_dir, "page")
    assert said.exit_code == 1
    assert "page.listen" in said.stderr
    assert "ssh" in said.stderr


def test_without_a_daemon_it_says_so(run_dir: Path) -> None:
    said = ctl(run_dir, "page")
    assert said.exit_code == 1
    assert "needs the daemon" in said.stderr


GOOD = {
    'listen = "127.0.0.1:9836"': "http://127.0.0.1:9836/",
    'listen = "[::1]:80"': "http://[::1]:80/",
    'listen = "192.0.2.1:9836"\ncertificate = "/c.pem"': "https://192.0.2.1:9836/",
    'listen = "0.0.0.0:1"\ncertificate = "/c.pem"': f"https://{socket.gethostname()}:1/",
    'listen = "0.0.0.0:1"\ncertificate = "/c.pem"\nhosts = ["gpu1.example.org", "g"]': "https://gpu1.example.org:1/",
    'listen = "127.0.0.1:1"\nhosts = ["gpu1.example.org"]': "http://127.0.0.1:1/",
}


@pytest.mark.parametrize("text", GOOD)
def test_an_address_can_be_set(text: str) -> None:
    assert config.parse(f"[page]\n{text}".encode()).page.address == GOOD[text]


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ('listen = "0.0.0.0:9836"', "page.listen", "takes page.certificate"),
        ('listen = "localhost:9836"', "page.listen", "127.0.0.1:9836"),
        ('listen = "127.0.0.1:0"', "page.listen", "127.0.0.1:9836"),
        ('listen = "::1:80"', "page.listen", "127.0.0.1:9836"),
        ("listen = 9836", "page.listen", "127.0.0.1:9836"),
        ('changes = "yes"', "page.changes", "true or false"),
        ('certificate = "c.pem"', "page.certificate", "begins with /"),
        ('key = "/k.pem"', "page.key", "page.certificate is not set"),
        ('hosts = "gpu1"', "page.hosts", "list of names"),
        ('hosts = ["gpu1:80"]', "page.hosts", "no machine's name"),
        ('hosts = ["192.0.2.1"]', "page.hosts", "no machine's name"),
        ('hosts = ["a..b"]', "page.hosts", "no machine's name"),
    ],
)
def test_what_is_wrong_in_the_configuration_is_told(text: str, key: str, said: str) -> None:
    with pytest.raises(config.ConfigError) as wrong:
        config.parse(f"[page]\n{text}".encode())
    assert [each.key.partition("[")[0] for each in wrong.value.problems] == [key]
    assert said in wrong.value.problems[0].reason


def started(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Result, list[config.Config]]:
    found: list[config.Config] = []
    monkeypatch.setattr(detshared, "run", lambda run_dir, made, why, load: found.append(made) or 0)
    monkeypatch.setattr(detshared.logs, "begin", lambda *_: None)
    return CliRunner().invoke(detshared.main, list(words)), found


def test_flags_go_before_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "detshare.toml"
    path.write_text('[page]\nlisten = "127.0.0.1:1"\nchanges = true\n')
    _, (plain,) = started(monkeypatch, "--config", str(path))
    assert (plain.page.listen, plain.page.changes) == ("127.0.0.1:1", True)
    words = ("--config", str(path), "--page-listen", "[::1]:2", "--no-page-changes")
    _, (made,) = started(monkeypatch, *words)
    assert (made.page.listen, made.page.changes) == ("[::1]:2", False)


def test_a_flag_that_cannot_be_meant_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said, found = started(monkeypatch, "--page-listen", "here")
    assert (said.exit_code, found) == (2, [])
    assert "--page-listen" in said.stderr


def test_as_it_comes_there_is_no_address() -> None:
    assert config.Config().page == config.Page(listen="", changes=False)

