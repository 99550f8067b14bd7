# SPDX-License-Identifier: Apache-2.0
"""docs/use/troubleshooting.md as a list: each row with its messages, and what of a message is fixed words."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "use" / "troubleshooting.md"
_ROW = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")
_DOCTORS = re.compile(r"`([^`]+)`(?: at \w+)? \((?:doctor|warning)\b")
_HOLE = re.compile(
    r"\.\.\.|(?<![A-Za-z_'])'?(?:[BDFHMNPSTUVX]|WHY|NAME|PATH|DIR|CMD|DOING|WORDS|VERB|ID|RUN_DIR|MODULE)'?(?![A-Za-z_'])"
    r"|\d+(?:\.\d+)?[GM]?(?![A-Za-z])|\(0x\.\.\)"
)
"""what stands for something else: capitals, dots, and numbers, which are constants of the sources"""


@dataclass(frozen=True)
class Entry:
    """A row of a table. `messages`: what its first cell shows as code, or that cell itself where it shows none."""

    section: str
    messages: tuple[str, ...]
    cure: str
    doctors: tuple[str, ...] = ()
    """those that the page says doctor has: marked (doctor) or (warning)"""

    @property
    def name(self) -> str:
        return self.messages[0]


def entries() -> list[Entry]:
    """All rows, in their order."""
    found, section, body = [], "", False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
        if not line.startswith("|"):
            body = False
            continue
        cells = [cell.strip() for cell in _ROW.split(line)[1:-1]]
        if set(cells[0]) <= set("-: "):
            body = True
        elif body:
            shown = tuple(_CODE.findall(cells[0])) or (cells[0],)
            known = tuple(_DOCTORS.findall(cells[0]))
            found.append(Entry(section, tuple(each.replace("\\|", "|") for each in shown), cells[-1], known))
    return found


def words(message: str, *, finely: bool = False) -> list[str]:
    """The fixed parts of a message that are long enough to mean something; `finely`: as the sources put it together."""
    if not re.search("[a-z]", message):
        return [message.removesuffix(": ...")]  # a number, a name
    if finely:
        message = re.sub(r"[:;,()] |[()]", "...", message)
    parts = [each.strip(" ;:,()'\"") for each in _HOLE.split(message)]
    return [part for part in parts if len(part) >= 5] or [max(parts, key=len)]


def matches(message: str, said: str) -> bool:
    """Whether a text holds a message: its fixed parts in their order."""
    parts = [re.escape(part) for part in words(message)]
    return re.search(".*?".join(parts), " ".join(said.split()), re.DOTALL) is not None


def _texts(path: Path) -> Iterator[str]:
    """Strings of a Python source, with a hole for each expression in them; other sources whole."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield " ".join(re.sub(r'"\s*"', "", source).split())
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "\0" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@functools.cache
def sources() -> str:
    """All that the product can say."""
    files = [path for part in ("ctl", "runtime", "ebpf", "tools") for path in (ROOT / part).rglob("*.py")]
    files += [*(ROOT / "kmod").rglob("*.c"), *(ROOT / "runtime").rglob("*.c"), *(ROOT / "ctl").rglob("*.js")]
    files.append(ROOT / "tools" / "setup.sh")
    return "\n".join(text for path in files for text in _texts(path))
