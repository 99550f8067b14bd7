# SPDX-License-Identifier: Apache-2.0
"""The parts of a report, each taken out of secrets, and the file that they make. A part that fails says why instead."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from detshare.ctl import oneshot
from detshare.ctl.client import Client
from detshare.ctl.core import config as configuration
from detshare.ctl.core.config import ConfigError
from detshare.ctl.core.errors import ClientError, ControlError
from detshare.ctl.support import machine
from detshare.ctl.support.secrets import REMOVED, Scrubber

__all__ = ["Report", "Source", "collect", "write"]

_SINCE_S: Final = 3600.0
_MOST: Final = 1000
_SEEN: Final = re.compile(r"\b(?:attach|detach) \d+: (?:ended or let go of the GPU: )?(.+)$", re.MULTILINE)
"""a line of the daemon's log that holds a command line"""
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_PLAIN: Final = re.compile(r"[0-9.]{1,20}|true|false|high|normal|low|idle")
"""values of a policy's parameters that may be shown: a string could be anything"""
LEFT_OUT: Final = (
    "environments of programs and of the daemon: never read",
    "contents of the journal, the desired state and other files of the run directory: only their names and sizes",
    "values in the configuration under names such as token, secret, password, and strings of policy parameters",
    "what looks like a secret in any text: keys, tokens, passwords, credentials in addresses",
)
COMMANDS_OUT: Final = "command lines of programs: give --commands to have them in"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a report comes from. `log` None: the journal's entries of the unit detshared."""

    run_dir: Path
    backend: str
    config: Path | None = None
    log: Path | None = None
    kernel: Path = Path("/dev/kmsg")


@dataclass
class Report:
    """File name -> content, and what is not in it."""

    files: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """file name -> why it could not be had"""
    left_out: tuple[str, ...] = LEFT_OUT


def collect(source: Source, folders: Iterable[Path], *, commands: bool = False) -> Report:
    """All parts. `folders`: whose content is listed. `commands`: command lines of programs stay in. Never raises."""
    report = Report(left_out=LEFT_OUT if commands else (COMMANDS_OUT, *LEFT_OUT))
    scrubber = Scrubber(commands)
    client = Client(source.run_dir)
    found: dict[str, Any] = {}

    def have(name: str, read: Callable[[], Any]) -> None:
        try:
            found[name] = read()
        except ControlError as error:
            report.missing[name] = error.stopped
        except OSError as error:
            report.missing[name] = error.strerror or str(error)
        except Exception as error:  # noqa: BLE001  a report of a fault has to come of a faulty machine too
            report.missing[name] = f"{type(error).__name__}: {error}"

    alive = _alive(client)
    asked = _Asked()
    have("versions.json", machine.versions)
    have(
        "doctor.json",
        partial(asked.of, client.doctor) if alive else lambda: oneshot.doctor(source.backend, source.run_dir),
    )
    have("snapshot.json", partial(asked.of, client.programs) if alive else lambda: _look(source))
    for name, read in {
        "events.json": lambda: {"events": list(client.events())},
        "decisions.json": lambda: client.decisions(_SINCE_S, _MOST),
        "policy.json": client.policy,
        "pool.json": client.pool,
        "log-level.json": client.log,
    }.items():
        have(name, partial(asked.of, read))
    have("config.json", lambda: _config(source.config))
    have("files.txt", lambda: machine.listing(folders))
    have("kernel.log", lambda: machine.kernel_log(source.kernel))
    have("daemon.log", lambda: machine.daemon_log(source.log))
    scrubber.learn(_commands(found))
    if not commands:
        for program in _objects(found, "snapshot.json", "programs"):
            program["command"] = f"<left out, {len(program.get('command', ''))} characters>"
        for event in _objects(found, "events.json", "events"):
            if event.get("kind", "attach") in ("attach", "detach"):
                event["text"] = "<left out>"
    for name, value in found.items():
        clean = scrubber.text(value) if isinstance(value, str) else json.dumps(scrubber.tree(value), indent=1) + "\n"
        report.files[name] = clean
    report.missing = {name: scrubber.text(why) for name, why in report.missing.items()}
    report.files["README.txt"] = _readme(report)
    return report


class _Asked:
    """Questions to a daemon: one that hangs is asked once, for each question would be waited for as long."""

    def __init__(self) -> None:
        self._hangs: ClientError | None = None

    def of(self, question: Callable[[], Any]) -> Any:
        """The answer. ClientError."""
        if self._hangs is not None:
            raise self._hangs
        try:
            return question()
        except ClientError as error:
            if isinstance(error.__cause__, TimeoutError):
                self._hangs = error
            raise


def _alive(client: Client) -> bool:
    try:
        return client.alive()
    except ControlError:
        return False


def _look(source: Source) -> dict[str, Any]:
    with oneshot.OneShot.open(source.backend, source.run_dir, "support", lock=False) as shot:
        return shot.backend.look(enforce=False).to_json()


def _config(path: Path | None) -> dict[str, Any]:
    """What the file comes to; where it is wrong, its problems, without the values that they quote."""
    try:
        found = configuration.load(path).to_json()
    except ConfigError as error:
        problems = [
            {"line": each.line, "key": each.key, "reason": _QUOTED.sub(REMOVED, each.reason)} for each in error.problems
        ]
        return {"path": str(error.path), "problems": problems}
    except tomllib.TOMLDecodeError as error:
        return {"path": str(path), "problems": [{"line": 0, "key": "", "reason": str(error)}]}
    given = found["policy"]["parameters"]
    found["policy"]["parameters"] = {
        name: value if _PLAIN.fullmatch(value) else REMOVED for name, value in given.items()
    }
    return found


def _objects(found: Mapping[str, Any], name: str, key: str) -> list[dict[str, Any]]:
    """Of a list in an answer, which may be that of a daemon of another build."""
    listed = found.get(name, {}).get(key)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _commands(found: Mapping[str, Any]) -> Iterable[str]:
    """All command lines that something of this tells."""
    for program in _objects(found, "snapshot.json", "programs"):
        yield program.get("command", "")
    for event in _objects(found, "events.json", "events"):
        if event.get("kind", "attach") in ("attach", "detach"):
            yield event.get("text", "").removeprefix("ended or let go of the GPU: ")
    for text in _SEEN.findall(found.get("daemon.log", "")):
        yield text.partition('","')[0].removesuffix('"}')  # a line of the log may be JSON


def _readme(report: Report) -> str:
    lines = ["A report of detshare-ctl support. Look through it before you give it away.", "", "In it:"]
    lines += [f"  {name}" for name in sorted(report.files)]
    lines += ["", "Could not be had:"] + [f"  {name}: {why}" for name, why in sorted(report.missing.items())]
    lines += ["", "Left out:"] + [f"  {each}" for each in report.left_out]
    lines += ["", "Names of users, containers and hosts are in it."]
    return "\n".join(lines) + "\n"


def write(report: Report, path: Path, folder: str) -> None:
    """A .tar.gz with all of it below one folder, for its owner alone. ControlError where it is there, or cannot be."""
    asked = f"write {path}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        stopped = "there is such a file already"
        raise ControlError(asked, stopped, "give another name with --output", usage=True) from None
    except OSError as error:
        stopped = f"it cannot be made ({error.strerror})"
        raise ControlError(asked, stopped, "give another place with --output") from error
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name, text in sorted(report.files.items()):
                data = text.encode("utf-8", "replace")
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mtime, member.mode = len(data), int(time.time()), 0o600
                tar.addfile(member, io.BytesIO(data))
    except OSError as error:
        path.unlink(missing_ok=True)
        stopped = f"it cannot be written whole ({error.strerror})"
        raise ControlError(asked, stopped, "give a place with room with --output") from error
