# SPDX-License-Identifier: Apache-2.0
"""A file that is too long is told, wherever and in whatever language; the checkout has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from detshare.tools.layers.lengths import LINES, check

ROOT = Path(__file__).resolve().parents[3]


def test_the_checkout_has_no_long_file() -> None:
    assert check(ROOT) == []


NAMES = [
    "kmod/api/msg.c",
    "runtime/api/msg.h",
    "tests/unit/test_long.py",
    "tests/nvsim/long.c",
    "packaging/kubernetes/long.py",
    "tools/long.sh",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_long_file_is_told_unless_it_is_generated(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text("\n" * LINES)
    assert check(tmp_path) == []
    path.write_text("\n" * (LINES + 1))
    assert check(tmp_path) == [f"{name}:{LINES + 1}: {LINES + 1} lines; a file has {LINES} at most"]
    path.write_text("/* Made by a tool; do not edit. */\n" + "\n" * LINES)
    assert check(tmp_path) == []
