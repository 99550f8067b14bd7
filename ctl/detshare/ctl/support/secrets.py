# SPDX-License-Identifier: Apache-2.0
"""Taking out what is nobody else's business: command lines that are known, and what looks like a secret in any text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

__all__ = ["REMOVED", "Scrubber", "is_secret"]

REMOVED: Final = "<removed>"
COMMAND: Final = "<command>"
_WORD: Final = (
    r"(?:(?:api|access|private)[-_]?key|token|secret|passw(?:or)?d|passphrase|credential|cookie|auth(?!or)|dsn|webhook)"
)
_NAME: Final = re.compile(_WORD, re.IGNORECASE)
_START: Final = r"(?<![\w-])"
"""of a name, which is read from there alone, once: a command line may be one name of a hundred thousand characters"""
_VALUE: Final = r"""("[^"]*"|'[^']*'|[^\s,;]+)"""
_PATTERNS: Final = (
    (re.compile(r"-----BEGIN [^-]+-----.*?(?:-----END [^-]+-----|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s,;\"']+", re.IGNORECASE), rf"\1 {REMOVED}"),
    (re.compile(r"(authorization[\"']?\s*[=:]\s*[\"']?)(?:[\w-]+\s+)?[^\s,;\"']+", re.IGNORECASE), rf"\1{REMOVED}"),
    # up to the last @: a password may hold one
    (re.compile(r"://[^/\s]+@"), f"://{REMOVED}@"),
    (re.compile(rf"({_START}(?=[\w-]*?{_WORD})[\w-]++[\"']?\s*[=:]\s*){_VALUE}", re.IGNORECASE), rf"\1{REMOVED}"),
    (re.compile(rf"({_START}(?=\w*-[\w-]*?{_WORD})[\w-]++\s+)(?!--\w){_VALUE}", re.IGNORECASE), rf"\1{REMOVED}"),
    (re.compile(r"\b(?:hf_|gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA|ASIA|eyJ)[A-Za-z0-9_.=-]{8,}"), REMOVED),
)
"""each with what stands in its place"""
_PLAIN: Final = re.compile(r"[a-z0-9_-]{1,40}")
_KEY: Final = 12
"""characters from which on a part of a command line is taken for one: texts cut them"""
_LONG: Final = 8
"""characters of an argument that is taken out wherever it stands alone"""


def is_secret(name: str) -> bool:
    """Whether a setting that is called so has a value that nobody else may see."""
    return _NAME.search(name) is not None


def _escaped(text: str) -> str:
    """As the daemon's log has it."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class Scrubber:
    """Knows the command lines of GPU programs, of those that have ended too as far as somebody told them."""

    def __init__(self, commands: bool = False) -> None:
        """`commands`: they may stay; what looks like a secret in them goes all the same."""
        self._keep = commands
        self._known: dict[str, list[str]] = {}
        """first characters -> what begins so"""

    def learn(self, commands: Iterable[str]) -> None:
        """Command lines that are to go."""
        if self._keep:
            return
        for command in commands:
            for text in {command, _escaped(command)}:
                self._add(text)
                for word in text.split()[1:]:
                    for part in (word, word.partition("=")[2]):
                        if len(part) >= _LONG:
                            self._add(part)

    def _add(self, text: str) -> None:
        if len(text) >= 2:
            known = self._known.setdefault(text[:_KEY], [])
            if text not in known:
                known.append(text)

    def text(self, given: str) -> str:
        """The same without."""
        given = self._without_commands(given)
        for pattern, instead in _PATTERNS:
            given = pattern.sub(instead, given)
        return given

    def _without_commands(self, given: str) -> str:
        # a look-up at each place, not a pattern of all commands: there may be a thousand of them
        lengths = sorted({len(key) for key in self._known}, reverse=True)
        made, kept, at = [], 0, 0
        while lengths and at < len(given):
            begun = next((each for n in lengths if (each := self._known.get(given[at : at + n]))), None)
            if begun is None:
                at += 1
                continue
            made += [given[kept:at], COMMAND]
            kept = at = at + max(self._same(given, at, text) for text in begun)
        return "".join([*made, given[kept:]])

    @staticmethod
    def _same(given: str, at: int, command: str) -> int:
        """How many characters of a command stand there, from its first on."""
        count = 0
        for mine, other in zip(command, given[at : at + len(command)], strict=False):
            if mine != other:
                break
            count += 1
        return count

    def tree(self, value: Any) -> Any:
        """The same for all texts in JSON; values under a secret's name go whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._name(str(name)): self._under(str(name), each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(each) for each in value]
        return value

    def _name(self, name: str) -> str:
        """A name of ours stays; the pattern of a command may be a name too."""
        return name if _PLAIN.fullmatch(name) else self.text(name)

    def _under(self, name: str, value: Any) -> Any:
        return REMOVED if is_secret(name) and not isinstance(value, dict) else self.tree(value)
