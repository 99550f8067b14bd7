# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from detshare.tools import spdx


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "head", "licence"),
    [
        ("ctl/a.py", "", "Apache-2.0"),
        ("kmod/doorbell/gate.c", "", "GPL-2.0-only"),
        ("kmod/Makefile", "", "GPL-2.0-only"),
        ("kmod/rm/tree.c", "", "GPL-2.0-only OR Apache-2.0"),
        ("kmod/check.py", "", "Apache-2.0"),
        ("tests/nvsim/rm.c", "", "GPL-2.0-only"),
        ("tests/fakegpu/Kbuild", "", "GPL-2.0-only"),
        ("tests/unit/kmod/harness.c", "", "GPL-2.0-only"),
        ("Kbuild", "", "GPL-2.0-only"),
        ("ebpf/watch.bpf.c", "", "GPL-2.0-only"),
        ("ebpf/load.py", "", "Apache-2.0"),
        ("runtime/hook.c", "", "Apache-2.0"),
        (".ci/run", "#!/usr/bin/env bash\n", "Apache-2.0"),
        ("docs/a.md", "", None),
        ("tools/abi/data/a.json", "", None),
        ("LICENSES/GPL-2.0-only.txt", "", None),
    ],
)
def test_expected_licence(name: str, head: str, licence: str | None) -> None:
    assert spdx.expected(PurePosixPath(name), head) == licence


def test_check_names_each_file_without_its_licence(checkout: Path) -> None:
    word = "SPDX-License-" + "Identifier"
    put(checkout, "ctl/good.py", f"# {word}: Apache-2.0\n")
    put(checkout, "ctl/empty.py", "")
    put(checkout, "ctl/late.py", "\n" * 9 + f"# {word}: Apache-2.0\n")
    put(checkout, "kmod/good.c", f"/* {word}: GPL-2.0-only */\n")
    put(checkout, "kmod/offers_more.h", f"/* {word}: GPL-2.0-only OR Apache-2.0 */\n")
    put(checkout, "kmod/wrong.c", f"// {word}: Apache-2.0\n")
    put(checkout, ".gitignore", "ignored.py\n")
    put(checkout, "ignored.py", "x = 1\n")
    problems = spdx.check(checkout)
    assert [problem.split(":")[0] for problem in problems] == ["ctl/late.py", "kmod/wrong.c"]
    assert "it says Apache-2.0" in problems[1]


def test_shell_scripts_are_found_by_name_and_by_first_line(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(checkout, "a.sh", "echo\n")
    put(checkout, ".ci/run", "#!/usr/bin/env bash\n")
    put(checkout, "old", "#!/bin/sh -e\n")
    put(checkout, "tool", "#!/usr/bin/env python3\n")
    monkeypatch.chdir(checkout)
    assert spdx.main(["--list-shell"]) == 0
    assert capsys.readouterr().out.split("\0") == [".ci/run", "a.sh", "old", ""]
    assert spdx.main([]) == 1
    assert spdx.main(["--guess"]) == 2


def test_outside_git_is_a_failure_with_a_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert spdx.main([]) == 1
    assert "run this in a git checkout" in capsys.readouterr().err
