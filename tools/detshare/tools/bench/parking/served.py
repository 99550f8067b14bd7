# SPDX-License-Identifier: Apache-2.0
"""A language model behind HTTP (docs/use/models/server.py), and the time to its first token."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from detshare.tools.bench.process import ProgramError

__all__ = ["Answer", "Server", "argv"]

SCRIPT: Final = Path(__file__).resolve().parents[5] / "docs" / "use" / "models" / "server.py"
TOKENS: Final = 8
REQUEST_S: Final = 120.0
END_S: Final = 15.0


@dataclass(frozen=True)
class Answer:
    """Tokens of a request with their logits, and seconds from the request to the first of them."""

    first_s: float
    tokens: tuple[str, ...]


def argv(mib: int, seed: int) -> list[str]:
    """The command of a server on a port of its choice. ProgramError outside a checkout."""
    if not SCRIPT.is_file():
        raise ProgramError(f"there is no {SCRIPT}; run it from a checkout")
    return [sys.executable, str(SCRIPT), "--port", "0", "--mib", str(mib), "--seed", str(seed)]


class Server:
    """A running one. ProgramError where it ends, or does not answer."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name, self._log, self._port = name, log, 0
        self.began = time.monotonic()
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                list(command), stdout=subprocess.PIPE, stderr=stream, stdin=subprocess.DEVNULL, env=dict(env)
            )
        self.pid = self._process.pid

    def listens(self) -> None:
        """Wait until it has loaded its model."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"listening on port "):
                self._port = int(line.split()[-1])
                return
        raise ProgramError(f"{self.name} does not listen: {self.last_words()}")

    def ask(self, seed: int) -> Answer:
        """One request."""
        began, tokens, first = time.monotonic(), [], 0.0
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=REQUEST_S)
        try:
            connection.request("GET", f"/generate?seed={seed}&tokens={TOKENS}")
            answer = connection.getresponse()
            while line := answer.readline():
                first = first or time.monotonic() - began
                tokens.append(line.decode().strip())
        except OSError as error:
            raise ProgramError(f"{self.name} does not answer ({error}): {self.last_words()}") from error
        finally:
            connection.close()
        if len(tokens) != TOKENS:
            raise ProgramError(f"{self.name} gave {len(tokens)} of {TOKENS} tokens: {self.last_words()}")
        return Answer(first, tuple(tokens))

    def unload(self) -> float:
        """Have it give the GPU's memory back by itself; seconds."""
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=REQUEST_S)
        try:
            connection.request("POST", "/unload")
            connection.getresponse().read()
        except OSError as error:
            raise ProgramError(f"{self.name} does not unload ({error}): {self.last_words()}") from error
        finally:
            connection.close()
        return time.monotonic() - began

    def end(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def last_words(self) -> str:
        """The end of its standard error."""
        return self._log.read_text(errors="replace")[-600:].strip() or "(nothing on its standard error)"
