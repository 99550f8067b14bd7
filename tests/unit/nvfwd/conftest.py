# SPDX-License-Identifier: Apache-2.0
"""The helper, built with the sanitizers, and a guest in front of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detshare.tools.vm import builds, checkout, forward
from tests.unit.builds import once
from tests.unit.nvfwd.fake_qemu import FakeQemu

REPO = Path(__file__).resolve().parents[3]
TRACE = REPO / "tests" / "data" / "traces" / "h100-580-runtime-greenctx.jsonl.gz"


@pytest.fixture(scope="session")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> Path:
        flags = "-O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
        words = ["make", "-s", "-C", str(REPO / "tests" / "nvfwd" / "host"), f"OUT={folder}"]
        words += [f"TABLES={builds.generated(checkout.NVFWD)}", f"MORE={flags}"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return folder / "nvfwd-helper"

    return once(tmp_path_factory, "nvfwd-helper", build)


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def write(folder: Path) -> Path:
        forward.write_recording(TRACE, folder / "recording")
        return folder / "recording"

    return once(tmp_path_factory, "nvfwd-recording", write)


@pytest.fixture
def qemu(helper: Path, recording: Path) -> Iterator[Callable[[], FakeQemu]]:
    """qemu(): a helper that answers from the recording, and we are its QEMU. It must end well, with nothing left."""
    made: list[FakeQemu] = []

    def make() -> FakeQemu:
        made.append(FakeQemu(helper, "--replay", str(recording)))
        return made[-1]

    yield make
    for each in made:
        code, last, text = each.end()
        assert code == 0, text
        assert [last[name] for name in ("handles", "maps", "pins", "waits")] == [0, 0, 0, 0], text
        assert "Sanitizer" not in text, text
