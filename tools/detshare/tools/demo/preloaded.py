# SPDX-License-Identifier: Apache-2.0
"""Commands of DetShare without the seconds that Python needs to import them on an emulated processor.

A process imports them once and forks for each command: what runs is the console script's own function, in a process of
its own, with the arguments and the output that a person would have.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, Self

from detshare.tools.demo.errors import DemoError

ENTRIES: Final[Mapping[str, str]] = {
    "detshare-ctl": "detshare.ctl.cli.main",
    "detshare-top": "detshare.ctl.cli.top",
}
"""console script -> module whose function `main` it is"""


class Preloaded:
    """The importing process. Start it before any thread; use as a context."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _serve(theirs)
        theirs.close()
        self._wire = ours.makefile("rw", encoding="utf-8")
        ours.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()  # ends it
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)

    def wait(self) -> None:
        """Until everything is imported. DemoError where that failed."""
        if self._answer("import the commands") != {"ready": True}:
            raise DemoError("import the commands", "the importing process said something else", "report it")

    def run(self, name: str, *words: str) -> tuple[int, str]:
        """Exit code and output, standard error after standard output."""
        self._wire.write(json.dumps([name, *words]) + "\n")
        self._wire.flush()
        answer = self._answer(f"run {name}")
        return int(answer["code"]), str(answer["output"])

    def _answer(self, asked: str) -> dict[str, Any]:
        line = self._wire.readline()
        if not line:
            raise DemoError(asked, "the process that had imported the commands ended", "see the lines above")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer


def _serve(wire: socket.socket) -> NoReturn:
    """Import, then fork for each line until the other side ends."""
    code = 1
    try:
        stream = wire.makefile("rw", encoding="utf-8")
        mains = {name: importlib.import_module(module).main for name, module in ENTRIES.items()}
        importlib.import_module("detshare.ctl.client")
        stream.write('{"ready": true}\n')
        stream.flush()
        for line in stream:
            name, *words = json.loads(line)
            stream.write(json.dumps(_forked(mains[name], name, words)) + "\n")
            stream.flush()
        code = 0
    finally:
        os._exit(code)


def _forked(main: Any, name: str, words: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            _become(main, name, words, out.fileno(), err.fileno())
        _, status = os.waitpid(pid, 0)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace").rstrip())
    return {"code": os.waitstatus_to_exitcode(status), "output": "\n".join(filter(None, texts))}


def _become(main: Any, name: str, words: Sequence[str], out: int, err: int) -> NoReturn:
    """Be the command, with its own standard streams."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - ours until _exit
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8", line_buffering=True)
        sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding="utf-8", line_buffering=True)
        main(list(words), prog_name=name)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
