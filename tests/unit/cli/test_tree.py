# SPDX-License-Identifier: Apache-2.0
"""Every command that there is: help with an example, --json, completion, and its place in the manual."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from detshare.ctl.cli.completion import PROGRAM, SHELLS, VARIABLE, script
from detshare.ctl.cli.main import main
from detshare.ctl.client import Answer, Client
from detshare.tools.manpages import PROGRAMS, commands, escape, page, program
from tests.patience import run

ROOT = click.Context(main, info_name=PROGRAM)
EVERY = {inner.command_path: found for found, inner in commands(main, ROOT)}
VERBS = {path: found for path, found in EVERY.items() if not isinstance(found, click.Group)}


def test_the_walk_finds_the_commands_of_groups_too() -> None:
    assert {f"detshare-ctl {each}" for each in ("ps", "tenant add", "policy set", "completion")} <= set(EVERY)
    assert len(VERBS) > 30


@pytest.mark.parametrize("path", [path for path in EVERY if path != "detshare-ctl help"])
def test_help_has_an_example_that_is_a_command_line_of_ours(path: str) -> None:
    done = CliRunner().invoke(main, [*path.split()[1:], "--help"], prog_name=PROGRAM)
    assert done.exit_code == 0, done.output
    (_, _, after) = done.output.partition("Example:\n")
    assert path in after if not isinstance(EVERY[path], click.Group) else PROGRAM in after


@pytest.mark.parametrize("path", [path for path in VERBS if path != "detshare-ctl help"])
def test_every_verb_takes_json(path: str) -> None:
    names = {name for param in VERBS[path].params for name in param.opts}
    assert "--json" in names


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="with a driver the commands would act on this machine")
@pytest.mark.parametrize("path", sorted({*VERBS} - {"detshare-ctl help", "detshare-ctl completion"}))
def test_with_json_a_failure_is_one_document_too(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a daemon and a driver most commands fail; those that do not, answer. Either way it is JSON."""
    monkeypatch.chdir(tmp_path)  # `support` leaves its file here
    done = _invoke(path, tmp_path, "--json")
    assert done.exit_code in (0, 1, 2), (done.output, done.exception)
    told = json.loads(done.stdout)
    if done.exit_code:
        # doctor answers with what it found, and fails by its exit code alone
        assert path == "detshare-ctl doctor" or set(told["error"]) >= {"asked", "stopped", "next"}
        assert path == "detshare-ctl doctor" or "next: " in done.stderr


@pytest.mark.parametrize("path", sorted({*VERBS} - {"detshare-ctl help"}))
def test_a_daemon_of_another_build_is_named(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers lack what the command wants to tell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Client, "alive", lambda client: True)
    answer = b'{"programs": [{"pid": 42}], "policy": {}, "version": "0"}'
    monkeypatch.setattr(Client, "_body", lambda client, *asked: answer)
    monkeypatch.setattr(Client, "events", lambda client, follow=False: iter([Answer()]))
    done = _invoke(path, tmp_path)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    if path.split()[1] in ("ps", "set-priority", "doctor", "why", "events", "page", "pool", "version"):
        assert "is of another build" in done.stderr
        assert "next: " in done.stderr
    if path == "detshare-ctl support":
        assert done.exit_code == 0, done.stderr


def _invoke(path: str, folder: Path, *options: str) -> Result:
    """The command on a folder without a daemon, with something for each argument that it asks for."""
    words: list[str] = []
    for param in VERBS[path].params:
        if isinstance(param, click.Argument) and param.required:
            words.append(_argument(param, folder))
        elif param.required:
            words += [param.opts[0], "strict"]
    return CliRunner().invoke(
        main, ["--run-dir", str(folder / "none"), *path.split()[1:], *words, *options], prog_name=PROGRAM
    )


def _argument(param: click.Argument, folder: Path) -> str:
    if isinstance(param.type, click.Choice):
        return str(param.type.choices[0])
    if isinstance(param.type, click.Path):
        return str(folder)
    return {"rate": "25%", "limit": "8G", "goal": "20ms", "klass": "high", "sms": "32"}.get(str(param.name), "42")


# -- completion -------------------------------------------------------------------------------------------------


def complete(words: list[str], incomplete: str) -> set[str]:
    return {item.value for item in ShellComplete(main, {}, PROGRAM, VARIABLE).get_completions(words, incomplete)}


def test_commands_options_and_choices_are_completed() -> None:
    assert complete([], "set-p") == {"set-priority"}
    assert complete(["tenant"], "a") == {"add", "attach"}
    assert "--json" in complete(["ps"], "--")
    assert complete(["completion"], "") == set(SHELLS)
    assert complete(["set-slice", "42", "100", "--level"], "h") == {"high"}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_names_the_program_and_its_variable(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell], prog_name=PROGRAM)
    assert done.exit_code == 0
    assert done.output.strip() == script(shell).strip()
    assert PROGRAM in done.output
    assert VARIABLE in done.output
    told = json.loads(CliRunner().invoke(main, ["completion", shell, "--json"]).output)
    assert told == {"shell": shell, "script": script(shell)}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_reads_its_script(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    path = tmp_path / "script"
    path.write_text(script(shell))
    run([shell, "-n", str(path)], check=True, capture_output=True)


@pytest.mark.e2e
def test_bash_completes_a_command_with_the_installed_script() -> None:
    if shutil.which("bash") is None:
        pytest.skip("bash is not here")
    folder = Path(sys.executable).parent
    words = "COMP_WORDS=(detshare-ctl set-pr); COMP_CWORD=1; _detshare_ctl_completion detshare-ctl"
    done = run(
        ["bash", "-c", f'eval "$(detshare-ctl completion bash)"; {words}; echo "${{COMPREPLY[@]}}"'],
        capture_output=True, text=True, check=True, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.stdout.split() == ["set-priority"]


# -- the manual -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_page_has_each_command_and_each_option(name: str) -> None:
    text = page(name)
    command, section = program(name)
    context = click.Context(command, info_name=name)
    assert f'" "{section}" ' in text.splitlines()[1]
    for found, inner in [(command, context), *commands(command, context)]:
        path = inner.command_path.removeprefix(name).strip()
        assert f".SS {escape(path)}" in text if path else True
        for param in found.get_params(inner):
            record = param.get_help_record(inner)
            # an argument goes by its metavar
            named = param.opts[0] if isinstance(param, click.Option) else record and record[0]
            assert record is None or escape(named) in text


def test_roff_takes_text_literally() -> None:
    assert escape("--json a\\b") == "\\-\\-json a\\eb"
    assert escape("ok\n.TH not a macro\n'nor this") == "ok\n\\&.TH not a macro\n\\&'nor this"
    for name in PROGRAMS:
        macros = {line.split()[0] for line in page(name).splitlines() if line.startswith((".", "'"))}
        assert macros <= {".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi", '.\\"'}


@pytest.mark.parametrize("name", PROGRAMS)
def test_man_formats_a_page_without_a_warning(name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not here")
    command = ["groff", "-man", "-Tutf8", "-ww", "-z"]
    done = run(command, input=page(name), capture_output=True, text=True, check=True)
    assert not re.search("warning|error", done.stderr), done.stderr
