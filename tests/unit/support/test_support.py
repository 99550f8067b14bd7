# SPDX-License-Identifier: Apache-2.0
"""detshare-ctl support: what a report needs is in it, what is planted as a secret is not, whatever is broken."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.client import Client
from detshare.ctl.support import machine, report
from detshare.ctl.support.report import Source, collect
from detshare.ctl.support.secrets import Scrubber
from tests.patience import ended, run, until

SERVE = "python /srv/serve.py --model llama --hf-token hf_PLANTEDaaaaaaaa --data s3://bucket-PLANTEDname/x"
GONE = "/opt/old/run.py --api-key=PLANTEDbbbbbb --mail someone@PLANTEDc.example"
PLANTED = "PLANTED"
"""in each secret, and nowhere else"""
CONFIG = """\
[daemon]
backend = "model"
[daemon.classes]
"*--token PLANTEDdddd*" = "low"
[policy]
name = "slo-aware"
[policy.parameters]
hook = "PLANTEDeee"
api_token = "PLANTEDfff"
limit = 0.5
"""
LOG = f"""\
2026-11-25 10:00:00,000 INFO detshared: attach 77: {GONE}
2026-11-25 10:00:01,000 WARNING detshared: PID 77 ({GONE[:40]}) has work and made no progress for 2.0 s
2026-11-25 10:00:02,000 INFO detshared: detach 77: ended or let go of the GPU: {GONE}
2026-11-25 10:00:03,000 WARNING detshared.audit: uid 0, PID 9: set-priority --api-key=PLANTEDbbbbbb low: unchanged
2026-11-25 10:00:04,000 ERROR detshared: GET https://ann:PLANTEDggg@registry/v1: Authorization: Bearer PLANTEDhhh.iii
2026-11-25 10:00:05,000 INFO detshared: key -----BEGIN PRIVATE KEY-----
PLANTEDjjj
-----END PRIVATE KEY-----
{{"time":"2026-11-25T10:00:06.000Z","logger":"detshared","message":"attach 78: worker --pw PLANTEDkkkkk"}}
2026-11-25 10:00:07,000 INFO detshared: released 78 PLANTEDkkkkk
"""
KERNEL = """\
6,100,5000000,-;detshare: loaded, branch 580
4,101,6000000,-;NVRM: Xid (PCI:0000:06:00): 31, pid=77, name=run.py
6,102,7000000,-;audit: user PLANTEDlll logged in
 CONTINUATION=PLANTEDmmm
"""


@pytest.fixture
def box(tmp_path: Path) -> Path:
    for name, text in (("detshare.toml", CONFIG), ("log", LOG), ("kmsg", KERNEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "PLANTEDnnn")


@pytest.fixture
def daemon(box: Path, environment: None) -> Iterator[Path]:
    """A real daemon over the model backend, which has seen programs come."""
    run_dir = box / "run"
    toml = box / "detshare.toml"
    words = [sys.executable, "-m", "detshare.ctl.daemon.detshared", "--run-dir", run_dir, "--config", toml]
    toml.write_text(CONFIG.partition("[policy.parameters]")[0])
    with subprocess.Popen([*map(str, words)], stderr=(box / "daemon.log").open("wb")) as process:
        until(lambda: process.poll() is not None or Client(run_dir).alive())
        assert process.poll() is None, (box / "daemon.log").read_text()
        toml.write_text(CONFIG)
        yield run_dir
        process.terminate()
        ended(process)


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        assert {member.name.partition("/")[0] for member in members} == {members[0].name.partition("/")[0]}
        assert all(member.isfile() and member.mode == 0o600 for member in members)
        texts = {}
        for member in members:
            file = tar.extractfile(member)
            assert file is not None
            texts[member.name.partition("/")[2]] = file.read().decode()
        return texts


@pytest.mark.e2e
def test_a_report_of_a_living_daemon(daemon: Path, box: Path) -> None:
    words = ["--config", str(box / "detshare.toml"), "--log", str(box / "log"), "--output", str(box / "r.tar.gz")]
    command = [sys.executable, "-m", "detshare.ctl.cli", "--run-dir", str(daemon), "support", "--json", *words]
    done = run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert stat.S_IMODE((box / "r.tar.gz").stat().st_mode) == 0o600
    files = unpacked(box / "r.tar.gz")
    assert set(files) == set(told["files"])
    wanted = {"versions", "doctor", "snapshot", "events", "decisions", "policy", "pool", "config", "log-level"}
    assert {f"{name}.json" for name in wanted} | {"files.txt", "daemon.log", "README.txt"} <= set(files)
    assert json.loads(files["versions.json"])["packages"]["detshare"]
    assert {check["name"] for check in json.loads(files["doctor.json"])["checks"]} >= {"backend", "daemon", "guardian"}
    programs = json.loads(files["snapshot.json"])["programs"]
    assert all(program["command"].startswith("<left out, ") for program in programs)
    assert json.loads(files["config.json"])["policy"]["parameters"] == {
        "hook": "<removed>", "api_token": "<removed>", "limit": "0.5",
    }  # fmt: skip
    assert "desired-model.json" in files["files.txt"] or "lock" in files["files.txt"]
    whole = "\n".join(files.values())
    assert PLANTED not in whole
    for program in Client(daemon).programs()["programs"]:
        assert program["command"] not in whole
    again = run(command, capture_output=True, text=True)
    assert again.returncode == 2
    assert "there is such a file already" in again.stderr


def source(box: Path) -> Source:
    return Source(box / "nobody", "model", box / "detshare.toml", box / "log", box / "kmsg")


def test_secrets_do_not_appear_and_what_helps_does(box: Path, environment: None) -> None:
    made = collect(source(box), [box])
    whole = "\n".join(made.files.values())
    assert PLANTED not in whole
    log = made.files["daemon.log"]
    assert "attach 77: <command>" in log
    assert "PID 77 (<command>) has work and made no progress for 2.0 s" in log
    assert "set-priority <command> low: unchanged" in log
    assert "GET https://<removed>@registry/v1" in log
    assert "released 78 <command>" in log
    assert made.files["kernel.log"].splitlines() == [
        "[5.000000] detshare: loaded, branch 580", "[6.000000] NVRM: Xid (PCI:0000:06:00): 31, pid=77, name=run.py",
    ]  # fmt: skip
    assert made.left_out[0].startswith("command lines of programs")
    for each in (*made.left_out, *made.missing):
        assert each in made.files["README.txt"]


def test_the_planted_secrets_would_be_found_without_the_scrubber(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scrubber, "text", lambda self, given: given)
    monkeypatch.setattr(Scrubber, "tree", lambda self, given: given)
    assert collect(source(box), [box]).files["daemon.log"].count(PLANTED) > 7


def test_command_lines_come_when_told_and_their_secrets_do_not(box: Path) -> None:
    kept = Scrubber(commands=True)
    kept.learn([SERVE])
    assert kept.text(SERVE).startswith("python /srv/serve.py --model llama --hf-token <removed> --data s3://")
    made = collect(source(box), [], commands=True)
    programs = json.loads(made.files["snapshot.json"])["programs"]
    assert any(program["command"].startswith("python") for program in programs)
    assert not any("command lines" in each for each in made.left_out)
    assert "PLANTEDbbbbbb" not in made.files["daemon.log"]


def test_a_wrong_configuration_is_told_without_its_values(box: Path) -> None:
    (box / "detshare.toml").write_text('[daemon]\ninterval = "PLANTEDooo"\n[x]\npassword = "PLANTEDppp"\n')
    made = collect(source(box), [])
    problems = json.loads(made.files["config.json"])["problems"]
    assert [(each["line"], each["key"]) for each in problems] == [(2, "daemon.interval"), (3, "x")]
    (box / "detshare.toml").write_text('[daemon\npassword = "PLANTEDqqq"\n')
    assert json.loads(collect(source(box), []).files["config.json"])["problems"][0]["reason"].startswith("no TOML")
    assert PLANTED not in "\n".join([*collect(source(box), []).files.values(), *made.files.values()])


def test_what_cannot_be_had_is_said(tmp_path: Path) -> None:
    broken = Source(tmp_path / "run", "nosuch", tmp_path / "none.toml", tmp_path / "none.log", tmp_path / "none")
    made = collect(broken, [tmp_path / "gone"])
    assert {"snapshot.json", "events.json", "decisions.json", "daemon.log", "kernel.log"} <= set(made.missing)
    assert {"versions.json", "doctor.json", "config.json", "files.txt", "README.txt"} <= set(made.files)
    assert "there is no such file" in made.files["config.json"]
    assert f"{tmp_path / 'gone'}: is not there" in made.files["files.txt"]


def test_a_daemon_that_hangs_is_waited_for_once(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = box / "run"
    run_dir.mkdir(mode=0o700)
    listens = """
import socket, sys, time
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen(99)
time.sleep(3600)
"""
    asked: list[str] = []
    real = Client._body
    monkeypatch.setattr(Client, "_body", lambda self, *args, **kw: asked.append(args[1]) or real(self, *args, **kw))
    monkeypatch.setattr(report, "Client", lambda folder: Client(folder, 0.5))
    with subprocess.Popen([sys.executable, "-c", listens, run_dir / "detshared.sock"]) as process:
        try:
            until(lambda: (run_dir / "detshared.sock").exists() and Client(run_dir).alive())
            made = collect(Source(run_dir, "model", box / "detshare.toml", box / "log", box / "kmsg"), [box])
        finally:
            process.kill()
    assert asked == ["/v1/doctor"]
    silent = {"doctor.json", "snapshot.json", "events.json", "decisions.json", "policy.json", "pool.json"}
    for name in (*silent, "log-level.json"):
        assert made.missing[name].startswith("the daemon did not answer"), name
    assert {"versions.json", "config.json", "kernel.log", "daemon.log"} <= set(made.files)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: /dev/kmsg")
def test_the_real_kernel_log_can_be_read() -> None:
    try:
        assert machine.kernel_log().endswith("\n")
    except PermissionError:
        pytest.skip("this container may not read /dev/kmsg")


@given(st.text(min_size=12, max_size=60), st.text(max_size=20), st.text(max_size=20))
def test_a_command_that_is_known_never_stands_whole(command: str, before: str, after: str) -> None:
    scrubber = Scrubber()
    scrubber.learn([command])
    assert command not in scrubber.text(f"{before}{command}{after}").replace("<command>", "")


@pytest.mark.parametrize(
    "text",
    [
        "--password PLANTED", "--db-password=PLANTED", "DB_PASSWORD: PLANTED", '"token": "PLANTED two"',
        "postgres://u:PLANTED@db/x", "Authorization: Bearer PLANTED", "ghp_PLANTEDxxxxxxxx", "eyJhPLANTEDxx.yyy.zzz",
        "api_key='PLANTED three'", "AKIAPLANTED12345678",
        "https://u:a@PLANTED@host/x", "Authorization: Token PLANTED", '{"Authorization": "ApiKey PLANTED"}',
        "authorization=PLANTED",
        "x-api-token PLANTED", "url=token=PLANTED", "args: --my-token=PLANTED", "--no-auth --api-key PLANTED",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_goes(text: str) -> None:
    said = Scrubber().text(f"before {text} after")
    assert PLANTED not in said
    assert said.startswith("before ")


@pytest.mark.parametrize("part", ["a", "-", "_token", "token-", "a:", "--auth "])
def test_a_text_of_any_length_comes_to_an_end(part: str) -> None:
    # by a process, for no thread of this one would run beside it
    code = """
import sys
from detshare.ctl.support.secrets import Scrubber
said = Scrubber(commands=True).text(sys.argv[1] * 100_000 + " --api-key PLANTED")
assert said.endswith(" --api-key <removed>"), said[-80:]
"""
    done = run([sys.executable, "-c", code, part], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names_of_ours_stay_and_patterns_of_commands_go() -> None:
    scrubber = Scrubber()
    scrubber.learn(["run --mode=interval --deep=PLANTEDvalue"])
    told = scrubber.tree({"interval": 1, "classes": {"*--deep=PLANTEDvalue*": "low"}, "api_token": ["PLANTED"]})
    assert told == {"interval": 1, "classes": {"*<command>*": "low"}, "api_token": "<removed>"}


def test_a_thousand_programs_are_taken_out() -> None:
    commands = [f"python train_{n}.py --name experiment-{n} --out /data/of/somebody/{n}" for n in range(1000)]
    scrubber = Scrubber()
    scrubber.learn(commands)
    text = "".join(f"attach {n}: {command}\n" for n, command in enumerate(commands))
    assert scrubber.text(text) == "".join(f"attach {n}: <command>\n" for n in range(1000))


def test_of_a_log_that_goes_on_while_it_is_read_only_so_much_is_taken() -> None:
    assert set(machine.daemon_log(Path("/dev/zero"))) == {"\0", "\n"}
