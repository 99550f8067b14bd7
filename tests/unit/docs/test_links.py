# SPDX-License-Identifier: Apache-2.0
"""README and docs/: each link and each page that code names is there, and docs/README.md leads to every page."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from builds import ROOT

DOCS = ROOT / "docs"
MADE = {page for page in (DOCS / "results").glob("*.md") if page.stem.islower()}
"""rows of results; their list has them all"""
PAGES = [ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if page not in MADE)]
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)
NAMED = re.compile(r"\bdocs/(?:[\w-]+/)*[\w-]+\.md\b")
"""a page as code, messages and other pages name it"""


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(slug(heading) for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))))


def links(page: Path) -> list[str]:
    found = LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def problems(page: Path) -> list[str]:
    found = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            found.append(f"{link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            found.append(f"{link}: there is no such heading")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert problems(page) == []


def test_a_wrong_link_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# What is `here`, and why\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#what-is-here-and-why) [b](gone.md) [c](other.md#gone) [d](#gone)\n")
    assert [said.partition(":")[0] for said in problems(page)] == ["gone.md", "other.md#gone", "#gone"]


def test_each_page_is_two_clicks_away() -> None:
    start = DOCS / "README.md"
    assert "docs/README.md" in links(ROOT / "README.md")
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(start)}
    assert {str(page.relative_to(ROOT)) for page in {*PAGES[1:]} - linked - {start}} == set()


def test_each_page_that_a_file_names_is_there() -> None:
    asked = ["git", "-C", ROOT, "grep", "-IlE", r"docs/[a-z/-]*\.md"]
    names = subprocess.run(asked, capture_output=True, text=True, check=False)
    if names.returncode:
        pytest.skip("not a git checkout")
    assert len(names.stdout.split()) > 20
    gone = {
        f"{name}: {page}"
        for name in names.stdout.split()
        if not name.startswith(("tests/unit/docs/", "tests/unit/tools/test_spdx.py", "docs/results/raw/"))
        for page in NAMED.findall((ROOT / name).read_text(encoding="utf-8"))
        if not (ROOT / page).is_file()
    }
    assert gone == set()
