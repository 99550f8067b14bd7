# SPDX-License-Identifier: Apache-2.0
"""Entries in systemd's journal: our bytes read by the protocol's rules, and by a real journald where there is one."""

from __future__ import annotations

import array
import json
import logging
import os
import re
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.ctl.core.snapshot import Event
from detshare.ctl.daemon import journald, logs
from detshare.ctl.daemon.access import Caller
from tests.patience import run

JOURNALD = Path("/lib/systemd/systemd-journald")


def fields(data: bytes) -> dict[str, bytes]:
    """Strictly: no rest, no name that the protocol does not allow, no name twice."""
    found: dict[str, bytes] = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if equals:
            data = rest
        else:
            (length,) = struct.unpack("<Q", rest[:8])
            value, end, data = rest[8 : 8 + length], rest[8 + length : 9 + length], rest[9 + length :]
            assert (len(value), end) == (length, b"\n")
        assert re.fullmatch(rb"[A-Z][A-Z0-9_]{0,63}", name), name
        assert name.decode() not in found
        found[name.decode()] = value
    return found


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], dict[str, bytes]]]]:
    """A socket as journald has it, and the next entry that comes there."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(path))
        made.settimeout(60)

        def read() -> dict[str, bytes]:
            data, ancillary, _, _ = made.recvmsg(1 << 20, socket.CMSG_SPACE(4))
            if not ancillary:
                return fields(data)
            assert data == b""
            (descriptor,) = array.array("i", ancillary[0][2])
            with os.fdopen(descriptor, "rb") as file:
                file.seek(0)
                return fields(file.read())

        yield path, read


@pytest.fixture
def told(receiver) -> Iterator[Callable[..., dict[str, bytes]]]:
    """Log something; the entry that came of it."""
    path, read = receiver
    logger = logging.getLogger("detshared.audit")
    handler = journald.Journal(logs._clean, path)
    logger.addHandler(handler)
    before, logger.propagate, logger.level = (logger.propagate, logger.level), False, logging.DEBUG

    def tell(say: Callable[[], object]) -> dict[str, bytes]:
        say()
        return read()

    yield tell
    logger.removeHandler(handler)
    handler.close()
    logger.propagate, logger.level = before


def test_an_audit_line_is_fields(told) -> None:
    entry = told(lambda: logs.audit(Caller(7, 0), "pause", "pause 5", "changed", more={"changed": [5, 6]}))
    assert entry["MESSAGE"] == b"uid 0 (root), PID 7: pause 5: changed"
    assert (entry["PRIORITY"], entry["SYSLOG_IDENTIFIER"], entry["LOGGER"]) == (b"4", b"detshared", b"detshared.audit")
    mine = {name: value for name, value in entry.items() if name.startswith("DETSHARE_")}
    assert mine == {
        "DETSHARE_EVENT": b"audit", "DETSHARE_UID": b"0", "DETSHARE_USER": b"root", "DETSHARE_PID": b"7",
        "DETSHARE_VERB": b"pause", "DETSHARE_ASKED": b"pause 5", "DETSHARE_RESULT": b"changed",
        "DETSHARE_CHANGED": b"5,6",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("level", "number"),
    [
        (logging.DEBUG, b"7"), (logging.INFO, b"6"), (logging.WARNING, b"4"), (logging.ERROR, b"3"),
        (logging.CRITICAL, b"2"),
    ],
)  # fmt: skip
def test_levels_are_syslogs(told, level: int, number: bytes) -> None:
    assert told(lambda: logging.getLogger("detshared.audit").log(level, "x"))["PRIORITY"] == number


def test_nobody_forges_a_field_or_a_line(told) -> None:
    entry = told(lambda: logs.audit(None, "v", "train.py\nPRIORITY=0\n\x1b[31mred", "changed"))
    assert entry["PRIORITY"] == b"4"
    assert b"\n" not in entry["MESSAGE"]
    assert b"\x1b" not in entry["MESSAGE"]
    assert entry["DETSHARE_ASKED"] == b"train.py\nPRIORITY=0\n\x1b[31mred"


def test_a_traceback_is_a_field(told) -> None:
    def fail() -> None:
        try:
            raise RuntimeError("of the test")
        except RuntimeError:
            logging.getLogger("detshared.audit").exception("failed")

    entry = told(fail)
    assert entry["MESSAGE"] == b"failed"
    assert entry["TRACE"].endswith(b"RuntimeError: of the test")


def test_what_is_too_long_for_a_datagram_comes_whole(told) -> None:
    text = "a" * (4 << 20)
    assert told(lambda: logging.getLogger("detshared.audit").info("%s", text))["MESSAGE"] == text.encode()


def test_without_a_journal_it_goes_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handler = journald.Journal(logs._clean, tmp_path / "nobody")
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    handler.handle(logging.LogRecord("x", logging.ERROR, __file__, 1, "lost?", (), None))
    assert capsys.readouterr().err == "ERROR lost?\n"


def test_standard_error_is_the_journal_only_where_it_is_that_very_stream() -> None:
    mine = os.fstat(2)
    assert journald.is_stderr({"JOURNAL_STREAM": f"{mine.st_dev}:{mine.st_ino}"})
    for other in ("", "8", f"{mine.st_dev}:{mine.st_ino + 1}", "x:y"):
        assert not journald.is_stderr({"JOURNAL_STREAM": other})


SCENE = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/journal /run/log/journal
{journald} & server=$!
trap 'kill $server; wait $server || true' EXIT
until [ -S /run/systemd/journal/socket ] && [ -S /run/systemd/journal/stdout ]; do
    kill -0 $server
    sleep 0.05
done
# JOURNAL_STREAM is set as systemd sets it for a service
systemd-cat bash -c 'export JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2); exec {daemon}' &
until {ctl} doctor >/dev/null 2>&1; do kill -0 $!; sleep 0.05; done
{ctl} set-priority train.py low >&2
kill %2
wait %2
journalctl --sync
journalctl -o json --no-pager -t detshared
"""


@pytest.mark.e2e
def test_a_real_journald_has_the_fields(tmp_path: Path) -> None:
    if os.geteuid() or not JOURNALD.exists() or shutil.which("systemd-cat") is None:
        pytest.skip("needs root, systemd-journald and systemd-cat: a journal of its own in a mount namespace")
    python = sys.executable
    scene = SCENE.format(
        journald=JOURNALD,
        daemon=f"{python} -m detshare.ctl.daemon.detshared --backend model --run-dir {tmp_path / 'run'}",
        ctl=f"{python} -m detshare.ctl.cli --run-dir {tmp_path / 'run'}",
    )
    done = run(["unshare", "--mount", "--propagation", "private", "bash", "-c", scene], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    (audit,) = [each for each in entries if each.get("DETSHARE_EVENT") == "audit"]
    assert (audit["PRIORITY"], audit["DETSHARE_VERB"], audit["DETSHARE_RESULT"]) == ("4", "set-priority", "changed")
    assert (audit["LOGGER"], audit["DETSHARE_UID"]) == ("detshared.audit", "0")
    assert any(each["MESSAGE"].startswith("ready on") and each["_TRANSPORT"] == "journal" for each in entries)


def test_who_logs_warnings_alone_hears_of_errors(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("detshared")
    with caplog.at_level(logging.WARNING, "detshared"):
        logs.event(log, Event(0.0, "attach", 7, "python"))
        logs.event(log, Event(0.0, "error", None, "policy x cannot be had"))
    assert [record.getMessage() for record in caplog.records] == ["error: policy x cannot be had"]
