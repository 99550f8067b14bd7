# SPDX-License-Identifier: Apache-2.0
"""Each breach of the layers is told, in a small tree that breaks that one rule; the checkout breaks none."""

from __future__ import annotations

from pathlib import Path

import pytest

from detshare.tools.layers.imports import check, problems

ROOT = Path(__file__).resolve().parents[3]


def tree(root: Path, files: dict[str, str]) -> Path:
    """A checkout in which nothing is wrong yet, and `files`."""
    good = {
        "ctl/detshare/__init__.py": "",
        "ctl/detshare/ctl/core/errors.py": "",
        "ctl/detshare/ctl/client.py": "from detshare.ctl.core.errors import ControlError",
        "ctl/detshare/ctl/backends/root/backend.py": "import detshare.ctl.core.errors\nimport json",
        "ctl/detshare/ctl/daemon/daemon.py": "from detshare.ctl.backends.root import backend",
        "tools/detshare/tools/bench/cli.py": "from tests.tracee import images\nfrom detshare.ctl.daemon import daemon",
    }
    for name, text in (good | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_checkout_keeps_the_layers() -> None:
    assert check(ROOT) == []


def test_a_good_tree_has_no_problems(tmp_path: Path) -> None:
    assert problems(tree(tmp_path, {}), {}) == []


@pytest.mark.parametrize(
    "text",
    [
        "import json\nfrom detshare.ctl.daemon.daemon import Daemon",
        "import json\nimport detshare.ctl.daemon.daemon",
        "import json\nfrom ..daemon import daemon",
        "def late():\n    from detshare.ctl.daemon import daemon",
        "if TYPE_CHECKING:\n    from detshare.ctl.daemon import daemon",
        'import importlib\nLATE = importlib.import_module("detshare.ctl.daemon.daemon")',
        'from importlib import import_module\nLATE = import_module("detshare.ctl.daemon.daemon")',
        'import json\nLATE = __import__("detshare.ctl.daemon.daemon")',
    ],
)
def test_an_import_of_an_upper_room_is_told_wherever_it_stands(tmp_path: Path, text: str) -> None:
    (said,) = problems(tree(tmp_path, {"ctl/detshare/ctl/core/errors.py": text}), {})
    edge = "ctl/detshare/ctl/core/errors.py:2 -> detshare.ctl.daemon.daemon"
    assert said == f"{edge}: upward: ctl.core may not know ctl.daemon"


def test_rooms_of_one_row_do_not_know_each_other(tmp_path: Path) -> None:
    (said,) = problems(tree(tmp_path, {"runtime/detshare/runtime/mps.py": "import detshare.ctl.client"}), {})
    assert said == "runtime/detshare/runtime/mps.py:1 -> detshare.ctl.client: upward: runtime may not know ctl.client"


def test_the_screen_knows_core_and_client_only(tmp_path: Path) -> None:
    text = "from detshare.ctl.client import Client\nfrom detshare.ctl.backends.root import backend"
    (said,) = problems(tree(tmp_path, {"ctl/detshare/ctl/top/source.py": text}), {})
    target = "detshare.ctl.backends.root.backend"
    assert said == f"ctl/detshare/ctl/top/source.py:2 -> {target}: ctl.top may know ctl.client and ctl.core only"


def test_a_new_folder_needs_a_room(tmp_path: Path) -> None:
    (said,) = problems(tree(tmp_path, {"ctl/detshare/ctl/loft/odd.py": "import detshare.ctl.core.errors"}), {})
    assert said.endswith("detshare.ctl.loft.odd is in no room of tools/detshare/tools/layers/imports.py")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("from tests import patience", "tests"),
        ('X = __import__("tests.patience")', "tests"),
        ("import detshare.tools.bench.cli", "detshare.tools.bench"),
    ],
)
def test_the_product_imports_neither_tests_nor_bench(tmp_path: Path, text: str, what: str) -> None:
    (said,) = problems(tree(tmp_path, {"tools/detshare/tools/demo/screen.py": text}), {})
    assert said.startswith("tools/detshare/tools/demo/screen.py:1 -> ")
    assert said.endswith(f": the product may not import {what}")


@pytest.mark.parametrize(("files", "told"), [(4, 0), (5, 1)])
def test_a_circle_of_more_than_four_files_is_told(tmp_path: Path, files: int, told: int) -> None:
    ring = {
        f"ctl/detshare/ctl/core/m{number}.py": f"def late():\n    from detshare.ctl.core import m{(number + 1) % files}"
        for number in range(files)
    }
    found = problems(tree(tmp_path, ring), {})
    assert len(found) == told
    assert all("in a circle of 5 files" in said and "detshare.ctl.core.m3" in said for said in found)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("runtime/stray.py", "Python of runtime lies in runtime/detshare"),
        ("ebpf/detshare/ebpf/stray.h", "C of ebpf lies outside ebpf/detshare, which is Python's"),
        ("runtime/detshare/runtime/gate/stray.c", "C of runtime lies outside runtime/detshare, which is Python's"),
    ],
)
def test_c_and_python_of_a_part_are_apart(tmp_path: Path, name: str, told: str) -> None:
    assert problems(tree(tmp_path, {name: ""}), {}) == [f"{name}:1: {told}"]


def test_what_is_known_is_not_told_until_it_is_gone(tmp_path: Path) -> None:
    known = {"ctl/detshare/ctl/core/errors.py -> detshare.ctl.client": "why"}
    made = tree(tmp_path, {"ctl/detshare/ctl/core/errors.py": "import detshare.ctl.client"})
    assert problems(made, known) == []
    (made / "ctl/detshare/ctl/core/errors.py").write_text("")
    (said,) = problems(made, known)
    assert said == f"{next(iter(known))}: known in tools/detshare/tools/layers/imports.py, but not there any more"
