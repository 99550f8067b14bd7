# SPDX-License-Identifier: Apache-2.0
"""The claims that a packed guest tries on a GPU, tried on the simulated one: each step is done, and nothing is lost.

How fast anything goes is not looked at: the GPU is a program of an emulated processor here.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detshare.tools.bench.forwarded import rows
from tests.vm.conftest import TOP

CLIENT = ("channel", "group", "memory", "program", "rm", "uvm", "words")
"""of tests/nvclient, for the stand-in"""
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")
STEPS = "mix,gate,pause,steer,limit,storm,unload,hostile"
SPEED = ("p99", "p50", "floor", "of the cap", "away from it", "neighbour, by its kernels", "longest")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, and a libcuda for them."""
    folder = tmp_path_factory.mktemp("claims")
    nvfwd = TOP / "tests" / "nvfwd"
    sources = [TOP / "tests" / "nvclient" / f"{name}.c" for name in CLIENT]
    sources += [TOP / "kmod" / "rm" / f"{name}.c" for name in ("abi", "tables")]
    shared = ["-fPIC", "-shared", "-o", folder / "libcuda.so.1", nvfwd / "standin.c", *sources]
    subprocess.run(["cc", *FLAGS, *map(str, shared)], check=True)
    for source in (nvfwd / "programs").glob("*.c"):
        made = [*FLAGS, "-rdynamic", "-o", str(folder / source.stem), str(source), "-ldl"]
        subprocess.run(["cc", *made], check=True)
    return folder


def test_each_step_is_done(vm: Callable[..., Any], programs: Path) -> None:
    environment = {"PYTHONPATH": f"{TOP}/tests/nvfwd:{TOP}/ctl:{TOP}"}
    python = TOP / ".venv" / "bin" / "python"
    words = f"-m claims --programs {programs} --module $MODULE_KO --steps {STEPS} --seconds 3"
    command = f". /run/detshare/settings; LD_LIBRARY_PATH={programs} exec {python} {words}"
    done = vm(["sh", "-c", command], driver="sim", load=True, mounts=[programs], env=environment)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    lines = [{"guest": "sched", "n": number, **line} for number, line in enumerate(said, 1)]
    assert not [line for line in lines if "failed" in line]
    assert {line["step"] for line in lines if "took" in line} == set(STEPS.split(","))
    for name in ("forwarded-sched", "forwarded-gate", "forwarded-memory", "forwarded-storm", "forwarded-hostile"):
        for row in rows(name, lines):
            # steps that need the helper, a bucket's time or a driver that does as it is told are not among these
            if row.ok is False and not any(word in row.what for word in (*SPEED, "steps that were not done")):
                assert "stood still or ended" in row.what, row
    played = [line for line in lines if line["step"] == "hostile" and "answers" in line]
    assert len(played) > 20
    assert sum(line["denied"] for line in played) > 10
