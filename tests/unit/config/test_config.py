# SPDX-License-Identifier: Apache-2.0
"""The configuration file: what is wrong in it is told with file, line, key and reason; nothing else ever comes out."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detshare.ctl.cli.main import main
from detshare.ctl.core import config
from detshare.ctl.core.config import Config, ConfigError
from detshare.ctl.oneshot import configuration_check

TIMES = int(os.environ.get("DETSHARE_FUZZ", "1"))
WHOLE = """\
# all there is
[daemon]
backend = "kmod"
interval = 1
log_level = "debug"
log_format = "json"
observers = true
launches = true
dirty = true
[daemon.classes]
"*train.py*" = "low"
vllm = "high"

[policy]
name = "tpot-first"
[policy.parameters]
quota = 0.5
strict = true

[pool]
tiers = [100, 25, 50]
[[pool.exclusive]]
name = "inference"
sms = 32
gpu = "GPU-12345678-1111-2222-3333-444444444444"
[[pool.exclusive]]
name = "other"
sms = 16
gpu = "GPU-12345678-1111-2222-3333-555555555555"

[access]
group = "gpu"
users = ["ann", "bob"]

[metrics]
listen = "127.0.0.1:9835"
"""


def wrong(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(ConfigError) as caught:
        config.parse(text.encode(), Path("/etc/x.toml"))
    return [(each.line, each.key, each.reason) for each in caught.value.problems]


def test_every_key_is_read():
    found = config.parse(WHOLE.encode())
    classes = {"*train.py*": "low", "vllm": "high"}
    watched = {"observers": True, "dirty": True, "launches": True}
    assert found.daemon == config.Daemon("kmod", 1.0, "debug", "json", classes=classes, **watched)
    assert found.policy == config.Policy("tpot-first", {"quota": "0.5", "strict": "true"})
    assert found.pool.tiers == (25, 50, 100)
    assert [(each.name, each.sms, each.gpu[-1]) for each in found.pool.exclusive] == [
        ("inference", 32, "4"),
        ("other", 16, "5"),
    ]
    assert found.access == config.Access("gpu", ("ann", "bob"))
    assert found.metrics.listen == "127.0.0.1:9835"


def test_an_empty_file_and_none_are_the_defaults(tmp_path, monkeypatch):
    assert config.parse(b"", tmp_path) == Config(path=tmp_path)
    monkeypatch.setattr(config, "DEFAULT_PATH", tmp_path / "none.toml")
    assert config.load() == Config()


@pytest.mark.parametrize(
    ("text", "line", "key", "reason"),
    [
        ("[daemon]\n\ninterval = 0\n", 3, "daemon.interval", "from 0.02 to 60"),
        ("[daemon]\ninterval = nan\n", 2, "daemon.interval", "from 0.02 to 60"),
        ("[daemon]\ninterval = true\n", 2, "daemon.interval", "it is true"),
        ("[daemon]\nbackend = 'magic'\n", 2, "daemon.backend", "one of auto, kmod, root, model"),
        ("[daemon]\nlog_format = 'xml'\n", 2, "daemon.log_format", "one of text, json"),
        ("[daemon]\nspeed = 1\n", 2, "daemon.speed", "takes backend, interval"),
        ("[daemon]\nobservers = 1\n", 2, "daemon.observers", "true or false"),
        ("[daemon]\ndirty = 'yes'\n", 2, "daemon.dirty", "true or false"),
        ("[daemon]\nlaunches = 0\n", 2, "daemon.launches", "true or false"),
        ("[daemon]\nclasses = 'low'\n", 2, "daemon.classes", "it is a table"),
        ("[daemon.classes]\na = 'high'\nb = 'best'\n", 3, "daemon.classes.b", "one of high, normal, low, idle"),
        ("[daemon.classes]\n' ' = 'low'\n", 2, "daemon.classes. ", "no command line is like that"),
        ("\n[engine]\nx = 1\n", 2, "engine", "sections are daemon, policy"),
        ("daemon = 3\n", 1, "daemon", "it is a section"),
        ("[policy]\nname = 'no such thing'\n", 2, "policy.name", "no policy's name"),
        ("[policy]\nname = 'a'\nparameters = {a = [1]}\n", 3, "policy.parameters.a", "a list"),
        ("[policy.parameters]\na = 1\nb = nan\n", 3, "policy.parameters.b", "number"),
        ("[policy]\ngpus = 3\n", 2, "policy.gpus", "[policy.gpus.1]"),
        ("[policy.gpus.1]\nparameters = {}\n", 1, "policy.gpus.1", "name is missing"),
        ("[policy.gpus]\n1 = 'strict'\n", 2, "policy.gpus.1", "it is a table"),
        ("[policy.gpus.1]\nname = 'a'\n\nmore = 1\n", 4, "policy.gpus.1.more", "takes name, parameters"),
        ("[policy.gpus.1]\nname = 'no such'\n", 2, "policy.gpus.1.name", "no policy's name"),
        ("[policy.gpus.1]\nname = 'a'\nparameters = {a = [1]}\n", 3, "policy.gpus.1.parameters.a", "a list"),
        ("[policy.gpus.64]\nname = 'a'\n", 1, "policy.gpus.64", "0 to 63"),
        ("[policy.gpus.01]\nname = 'a'\n", 1, "policy.gpus.01", "is no GPU"),
        ("[policy.gpus.MIG-1234]\nname = 'a'\n", 1, "policy.gpus.MIG-1234", "a whole GPU"),
        ("[pool]\ntiers = [\n 10,\n 101,\n]\n", 2, "pool.tiers", "101 is no share"),
        ("[pool]\ntiers = [10]\n", 2, "pool.tiers", "100 is missing"),
        ("[pool]\ntiers = [10, 100, 10]\n", 2, "pool.tiers", "twice"),
        ("[pool]\nexclusive = 3\n", 2, "pool.exclusive", "[[pool.exclusive]]"),
        ("[[pool.exclusive]]\nname = 'a'\n", 1, "pool.exclusive[0]", "sms is missing"),
        ("[[pool.exclusive]]\nname = 'a'\nsms = 0\n", 3, "pool.exclusive[0].sms", "from 1 to 4096"),
        (
            "[[pool.exclusive]]\nname='a'\nsms=8\n[[pool.exclusive]]\nname='b'\nsms=8\n",
            4,
            "pool.exclusive[1]",
            "a is exclusive on that GPU already",
        ),
        ("[access]\nusers = 'ann'\n", 2, "access.users", "a list of users"),
        ("[access]\nusers = ['a b']\n", 2, "access.users", "no user's name"),
        ("[metrics]\nlisten = '0.0.0.0:80'\n", 2, "metrics.listen", "not this machine's loopback"),
        ("[page]\nlisten = '[::1]:8'\n[metrics]\nlisten = '[::1]:8'\n", 2, "page.listen", "of metrics.listen"),
        ("[metrics]\nlisten = '127.0.0.1:0'\n", 2, "metrics.listen", "127.0.0.1:9835"),
        ("[daemon\n", 1, "", "no TOML"),
        ("x = 1\nx = 2\n", 2, "", "no TOML"),
        ("[daemon]\ninterval = " + "9" * 5000, 0, "", "a number is too long"),
    ],
)
def test_what_is_wrong_is_told_with_line_key_and_reason(text, line, key, reason):
    found = wrong(text)
    assert len(found) == 1
    assert found[0][:2] == (line, key)
    assert reason in found[0][2]


def test_all_that_is_wrong_is_told_at_once():
    assert [(line, key) for line, key, _ in wrong("[daemon]\nbackend = 1\ninterval = 'x'\n[a]\n")] == [
        (2, "daemon.backend"),
        (3, "daemon.interval"),
        (4, "a"),
    ]


def test_a_file_that_others_may_write_is_refused(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(WHOLE)
    path.chmod(0o664)
    with pytest.raises(ConfigError, match="others may write it"):
        config.load(path)
    path.chmod(0o644)
    assert config.load(path).access.group == "gpu"


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"\xff")])
def test_no_file_and_no_text_are_told(tmp_path, make):
    make(tmp_path / "x.toml")
    with pytest.raises(ConfigError) as caught:
        config.load(tmp_path / "x.toml")
    assert str(tmp_path / "x.toml") in str(caught.value)
    assert "config check" in caught.value.next_step


def test_the_next_step_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "my settings.toml"
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert shlex.split(caught.value.next_step)[-3:] == ["config", "check", str(path)]


# -- the commands -------------------------------------------------------------------------------------------------


def test_config_check_and_show(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(WHOLE.replace("quota = 0.5\nstrict = true", "margin = 0.5"))
    checked = CliRunner().invoke(main, ["config", "check", str(path)])
    assert (checked.exit_code, checked.stdout) == (0, f"{path}: nothing is wrong\n")
    shown = CliRunner().invoke(main, ["config", "show", str(path)])
    assert config.parse(shown.stdout.encode(), path) == config.load(path)  # it may be used as a file
    data = json.loads(CliRunner().invoke(main, ["config", "show", str(path), "--json"]).stdout)
    assert data["pool"]["tiers"] == [25, 50, 100]
    path.write_text("[pool]\ntiers = 3\n")
    failed = CliRunner().invoke(main, ["config", "check", str(path), "--json"])
    assert failed.exit_code == 2
    problem = {"line": 2, "key": "pool.tiers", "file": str(path)}
    assert json.loads(failed.stdout)["error"]["problems"][0].items() >= problem.items()
    assert f"{path}:2: pool.tiers: " in failed.stderr


@pytest.mark.parametrize(
    ("policy", "line", "told"),
    [
        ('name = "slo-awre"', 3, "there is no policy 'slo-awre'"),
        ('parameters = { margn = 0.5 }', 2, "SloAware has no parameter 'margn'"),
        ('parameters = { margin = 7 }\nname = "slo-aware"', 4, "margin is 7"),
        ('name = "/nowhere/mine.py:Mine"', 3, "/nowhere/mine.py:Mine is no file"),
    ],
)
def test_config_check_tells_of_a_policy_that_cannot_be_had(tmp_path: Path, policy: str, line: int, told: str) -> None:
    """With it a daemon starts, and `static` decides."""
    path = tmp_path / "x.toml"
    path.write_text(f"\n[policy]\n{policy}\n")
    failed = CliRunner().invoke(main, ["config", "check", str(path), "--json"])
    assert failed.exit_code == 2
    (problem,) = json.loads(failed.stdout)["error"]["problems"]
    assert (problem["line"], problem["key"]) == (line, "policy.name")
    assert problem["reason"].startswith(told)


def test_policies_of_single_gpus_are_read_shown_and_checked_like_that_of_all(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    uuid = "GPU-12345678-1111-2222-3333-444444444444"
    first = '[policy.gpus.1]\nname = "strict"\nparameters = { low = 5 }\n'
    path.write_text(f'{first}[policy.gpus.{uuid}]\nname = "fair"\n')
    made = config.load(path).policy
    assert made == config.Policy(gpus={"1": config.GpuPolicy("strict", {"low": "5"}), uuid: config.GpuPolicy("fair")})
    assert CliRunner().invoke(main, ["config", "check", str(path)]).exit_code == 0
    shown = CliRunner().invoke(main, ["config", "show", str(path)])
    assert config.parse(shown.stdout.encode(), path) == config.load(path)
    path.write_text('[policy]\nname = "slo-awre"\n[policy.gpus.1]\nname = "strikt"\n')
    failed = CliRunner().invoke(main, ["config", "check", str(path), "--json"])
    problems = json.loads(failed.stdout)["error"]["problems"]
    assert [(each["line"], each["key"]) for each in problems] == [(2, "policy.name"), (4, "policy.gpus.1.name")]


def test_config_check_runs_no_code_of_a_policy(tmp_path: Path) -> None:
    mine, path = tmp_path / "mine.py", tmp_path / "x.toml"
    mine.write_text("raise SystemExit(9)\n")
    for spec in (mine, f"{mine}:Mine"):
        path.write_text(f'[policy]\nname = "{spec}"\n')
        assert CliRunner().invoke(main, ["config", "check", str(path)]).exit_code == 0
    mine.chmod(0o666)
    assert "can be changed by others" in CliRunner().invoke(main, ["config", "check", str(path)]).stderr


def test_config_check_tells_of_a_certificate_that_cannot_be_used(tmp_path: Path) -> None:
    """With it no daemon starts; without an address none reads it."""
    pem, path = tmp_path / "my page.pem", tmp_path / "x.toml"
    listen = f'[page]\nlisten = "127.0.0.1:9836"\ncertificate = "{pem}"\n'

    def told(text: str) -> tuple[int, str]:
        path.write_text(text)
        done = CliRunner().invoke(main, ["config", "check", str(path)])
        return done.exit_code, done.stderr

    code, said = told(listen)
    assert (code, f"{path}:3: page.certificate: {pem} and its key cannot be used (No such file" in said) == (2, True)
    pem.write_text("no PEM\n")
    assert told(listen)[0] == 2
    assert told(f'[page]\ncertificate = "{pem}"\n')[0] == 0
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=x"]
    subprocess.run([*words, "-keyout", pem, "-out", tmp_path / "c"], check=True, capture_output=True)
    assert told(listen)[0] == 2
    pem.write_bytes(pem.read_bytes() + (tmp_path / "c").read_bytes())
    assert told(listen) == (0, "")


def test_config_check_warns_of_what_this_machine_lacks(tmp_path: Path) -> None:
    """A daemon starts with it: with the socket for root alone, users who are nobody, an arena that cannot be filled."""
    path = tmp_path / "x.toml"
    there = pwd.getpwuid(0).pw_name

    def told(text: str) -> list[str]:
        path.write_text(text)
        done = CliRunner().invoke(main, ["config", "check", str(path)])
        assert (done.exit_code, done.stdout) == (0, f"{path}: nothing is wrong\n")
        return done.stderr.splitlines()

    (group,) = told('[access]\ngroup = "no-such-group"\n')
    assert group.startswith(f"warning: {path}:2: access.group: there is no group 'no-such-group' here")
    (user,) = told(f'[access]\nusers = ["{there}", "no-such-user"]\n')[-1:]
    assert user == f"warning: {path}:2: access.users: there is no user 'no-such-user' here"
    (arena,) = told('[park]\narena = "9999T"\n')
    assert arena.startswith(f"warning: {path}:2: park.arena: it is 10238976G, and this host has ")
    (warning,) = json.loads(CliRunner().invoke(main, ["config", "check", str(path), "--json"]).stdout)["warnings"]
    assert (warning["line"], warning["key"]) == (2, "park.arena")
    check = configuration_check(path)
    assert (check.ok, "park.arena: it is 10238976G" in check.detail) == (None, True)
    known = grp.getgrgid(0).gr_name
    assert told(f'[access]\ngroup = "{known}"\nusers = ["{there}"]\n[park]\narena = "99%"\n') == []
    assert told('[access]\ngroup = ""\n') == []
    assert told('[access]\ngroup = "detshare"\n') == []  # it is the package's to make


# -- garbage ------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["daemon", "policy", "pool", "access", "metrics", "exclusive", "parameters", "tiers", "users"])
KEYS = st.one_of(
    NAMES, st.sampled_from(["backend", "interval", "name", "sms", "gpu", "group", "listen"]), st.text(max_size=5)
)
VALUES = st.recursive(
    st.one_of(
        st.integers(),
        st.floats(),
        st.booleans(),
        st.text(max_size=8),
        st.dates(),
        st.sampled_from(["auto", "127.0.0.1:1"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str | bool):
        return json.dumps(value)
    return str(value)


def _line() -> st.SearchStrategy[str]:
    pair = st.tuples(KEYS, VALUES).map(lambda each: f"{json.dumps(each[0])} = {_toml(each[1])}")
    below = st.tuples(NAMES, KEYS).map(lambda each: f"{each[0]}.{json.dumps(each[1])}")
    header = st.one_of(NAMES, below).flatmap(lambda name: st.sampled_from([f"[{name}]", f"[[{name}]]"]))
    return st.one_of(pair, header, st.text(max_size=12))


GARBAGE = st.one_of(
    st.lists(_line(), max_size=8).map(lambda lines: "\n".join(lines).encode(errors="surrogatepass")),
    st.binary(max_size=80),
    st.tuples(st.integers(0, len(WHOLE)), st.binary(max_size=6)).map(
        lambda each: WHOLE.encode()[: each[0]] + each[1] + WHOLE.encode()[each[0] :]
    ),
    st.integers(1, 20_000).map(lambda n: b"a = " + b"[" * n),
)


def _garbage(examples: int) -> settings:
    checks = list(HealthCheck)
    return settings(max_examples=examples * TIMES, deadline=None, database=None, suppress_health_check=checks)


def garbage(data: bytes) -> None:
    """A Config, or errors with places: never another exception, never a control character."""
    problems: tuple[config.Problem, ...] = ()
    told: dict[str, object]
    try:
        told = config.parse(data).to_json()
    except ConfigError as error:
        problems, told = error.problems, error.to_json()
    json.dumps(told)
    assert ("error" in told) is bool(problems)
    for problem in problems:
        assert 0 <= problem.line <= data.count(b"\n") + 1
        assert problem.reason
        assert problem.text(Path("/x")).isprintable(), problem


@_garbage(300)
@given(data=GARBAGE)
def test_garbage(data):
    garbage(data)


@pytest.mark.rest
@pytest.mark.e2e
@_garbage(3000)
@given(data=GARBAGE)
def test_all_garbage(data):
    garbage(data)
