# SPDX-License-Identifier: Apache-2.0
"""Folders of tests go together in one run of pytest, in whatever order they are named."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_nobody_imports_a_conftest_by_name() -> None:
    """Several folders are on the path at once: the first of them would give its own."""
    found = [
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and node.module == "conftest")
        or (isinstance(node, ast.Import) and any(each.name == "conftest" for each in node.names))
    ]
    assert found == []
