# SPDX-License-Identifier: Apache-2.0
"""The stand-in libcuda keeps the driver's contract: C programs, one per theme, one process per test."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from builds import once

from tests.patience import run, words

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
THEMES = sorted(path.stem for path in HERE.glob("*.c"))


def names_in(theme: str) -> list[str]:
    return re.findall(r"^TEST\((\w+)\)", (HERE / f"{theme}.c").read_text(), re.MULTILINE)


TESTS = [(theme, name) for theme in THEMES for name in names_in(theme)]
VIOLATES = {"violations_end_the_process_with_a_status"}
STATUS_OF_VIOLATIONS = 86


@pytest.fixture(scope="session")
def programs(fakecuda: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    flags = ["-D_GNU_SOURCE", "-std=gnu11", "-O0", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-pthread"]

    def build(folder: Path) -> Path:
        builds = {
            theme: subprocess.Popen(
                ["gcc", *flags, f"-I{ROOT}/tests/fakecuda", "-o", str(folder / theme), str(HERE / f"{theme}.c"),
                 f"-L{fakecuda}", "-lcuda", "-ldl"],
                stderr=subprocess.PIPE, text=True)
            for theme in THEMES
        }  # fmt: skip
        for theme, build in builds.items():
            _, errors = words(build)
            assert build.returncode == 0, f"{theme}.c: {errors}"
        return folder

    folder = once(tmp_path_factory, "fakecuda", build)
    return {theme: folder / theme for theme in THEMES}


def environment(fakecuda: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAKECUDA_", "DETSHARE_"))}
    return {**kept, "LD_LIBRARY_PATH": str(fakecuda), **more}


@pytest.mark.parametrize(("theme", "name"), TESTS, ids=[f"{theme}-{name}" for theme, name in TESTS])
def test_contract(theme: str, name: str, programs: dict[str, Path], fakecuda: Path) -> None:
    done = run([programs[theme], name], env=environment(fakecuda), capture_output=True, text=True, check=False)
    assert done.returncode == (STATUS_OF_VIOLATIONS if name in VIOLATES else 0), done.stderr


def test_every_entry_point_of_the_driver_is_exported(fakecuda: Path) -> None:
    table = json.loads((ROOT / "runtime" / "api.json").read_text())
    wanted = {function["name"] for function in table["functions"]}
    command = ["nm", "-D", "--defined-only", str(fakecuda / "libcuda.so.1")]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert wanted - exported == set()


def test_the_trace_says_where_work_ran(programs: dict[str, Path], fakecuda: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = [str(programs["green"]), "kernels_stay_on_their_sms"]
    subprocess.run(command, env=environment(fakecuda, FAKECUDA_TRACE=str(trace)), check=True)
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [row["sms"] for row in rows if row["what"] == "census"] == [32, 100, 132]
    assert all(row["start"] <= row["end"] for row in rows)


def test_virtual_time_repeats_exactly(programs: dict[str, Path], fakecuda: Path, tmp_path: Path) -> None:
    runs = []
    for i in range(2):
        trace = tmp_path / f"trace{i}"
        command = [str(programs["streams"]), "a_kernel_takes_as_many_waves_as_its_sms_need"]
        variables = environment(fakecuda, FAKECUDA_TRACE=str(trace), FAKECUDA_CLOCK="virtual")
        run(command, env=variables, check=True)
        runs.append(trace.read_text())
    assert runs[0] == runs[1]


def test_violations_go_to_the_report(programs: dict[str, Path], fakecuda: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    command = [str(programs["race"]), "violations_end_the_process_with_a_status"]
    variables = environment(fakecuda, FAKECUDA_REPORT=str(report), FAKECUDA_EXIT="0")
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "race: mix" in report.read_text()


@pytest.mark.parametrize("status", [100, 999])
def test_init_may_be_told_to_fail(status: int, programs: dict[str, Path], fakecuda: Path) -> None:
    variables = environment(fakecuda, FAKECUDA_INIT=str(status))
    command = [str(programs["entry"]), "ptx_text_is_an_image_too"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"gave {status}" in done.stderr
