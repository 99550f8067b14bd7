# SPDX-License-Identifier: Apache-2.0
"""GPU time of several programs is that of one moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path, PosixPath

import pytest

from detshare.tools.bench.vm.inside import workers
from detshare.tools.bench.vm.inside.workers import Worker, held, reading

READY = '#!/bin/sh\necho \'{"event":"ready","client":CLIENT}\'\nexec sleep 60\n'
FIRST, SECOND = 0xC1D00001, 0xC1D00002


class Gpu(PosixPath):
    """A folder of lists that are another each time they are read: all GPU times have grown by 1000."""

    reads = 0

    def read_text(self, *_: object, **__: object) -> str:
        Gpu.reads += 1
        rows = ((FIRST, 0x1, 10), (FIRST, 0x2, 20), (SECOND, 0x1, 400), (0xC1D00003, 0x1, 7))
        lines = [f"0x{client:08x} 0x{tsg:08x} {us + 1000 * Gpu.reads}" for client, tsg, us in rows]
        return "\n".join(["client handle gpu_time_us", *lines, ""])


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Worker]]:
    monkeypatch.setenv("DETSHARE_NVCLIENT", str(tmp_path))
    monkeypatch.setattr(workers, "_GPU", Gpu("/nowhere"))
    monkeypatch.setattr(Gpu, "reads", 0)
    for name, client in (("first", FIRST), ("second", SECOND)):
        program = tmp_path / name
        program.write_text(READY.replace("CLIENT", str(client)), encoding="ascii")
        program.chmod(0o755)
    with workers.workers(("first",), ("second",)) as made:
        yield made


def test_all_members_are_read_from_one_list(members: list[Worker]) -> None:
    before = time.monotonic()
    at, used = reading(*members)
    assert used == [2030, 1400]
    assert before <= at <= time.monotonic()
    assert members[1].gpu_us() == 2400


def test_a_spell_is_from_one_list_to_another(members: list[Worker]) -> None:
    before = time.monotonic()
    spell = held(0.05, *members)
    assert spell.used_us == [2000, 1000]
    assert before <= spell.begin <= spell.end - 0.05
    assert spell.span == spell.end - spell.begin
