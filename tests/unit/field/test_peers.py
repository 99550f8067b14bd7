# SPDX-License-Identifier: Apache-2.0
"""Peers that are built from a folder, with sources of the test's own, and MIG on an NVML of the test's own."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from click.testing import CliRunner

from detshare.tools.bench.field import run as runs
from detshare.tools.bench.field.cells import Pace, failed
from detshare.tools.bench.field.cli import field
from detshare.tools.bench.field.mig import Mig, instances
from detshare.tools.bench.field.peers import Build, HamiCore, Peer, XSched, peer
from detshare.tools.bench.field.suites import Suite
from detshare.tools.bench.field.systems import System, SystemMissing
from detshare.tools.bench.mix.figures import Measured
from detshare.tools.bench.mix.store import load
from detshare.tools.bench.session import Options, Session

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
from fake_steer import FakeSteer

SMALL = Suite("field-tally", "a test", ("graph",), (("vit",),), load=0.2)
LIBRARY = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void)
{
    const char *limit = getenv("CUDA_DEVICE_SM_LIMIT");
    FILE *out = fopen(SEEN, "a");
    if (out) { fprintf(out, "%s\\n", limit ? limit : "none"); fclose(out); }
    if (getenv("BREAKS")) { fprintf(stderr, "libvgpu: no device\\n"); _Exit(3); }
}
"""
XSERVER = """#!/usr/bin/env python3
import socket, sys, time
assert sys.argv[1] == "HPF"
with socket.create_server(("127.0.0.1", int(sys.argv[2]))):
    time.sleep(600)
"""


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[System], dict[str, Measured]]:
    """The cells of a small suite under one way."""

    def argv(self: object) -> list[str]:
        fake = Path(__file__).resolve().parents[1] / "bench" / "fake_mix_worker.py"
        return [sys.executable, str(fake), "--kind", self.kind]  # type: ignore[attr-defined]

    monkeypatch.setattr("detshare.tools.bench.field.programs.Program.argv", property(argv))

    def run(system: System) -> dict[str, Measured]:
        path = tmp_path / "raw" / "cells.jsonl"
        pace = Pace(requests=20, least=0.3, most=0.5, alone=0.3, overhead=0.4, start=2.0, end=0.5)
        with Session(Options("field-tally", 1.0, 1, tmp_path, budget=100.0)) as session:
            session.steer = FakeSteer(tmp_path / "run")  # type: ignore[assignment]
            runs.run(session, runs.Asked(SMALL, (system,), (), (), pace, 0.05), path)
        return {cell.cell: cell for cell in load(path)}

    return run


@pytest.fixture
def hami(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HamiCore:
    """A source whose library notes the limit of who loads it."""
    monkeypatch.setattr(HamiCore, "LOCKS", tmp_path / "locks")
    source = tmp_path / "hami"
    source.mkdir()
    (source / "vgpu.c").write_text(LIBRARY)
    seen = tmp_path / "seen"
    build = f"mkdir -p build && gcc -shared -fPIC -DSEEN='\"{seen}\"' vgpu.c -o build/libvgpu.so"
    return HamiCore("HAMi-core", source, build)


# -- builds -------------------------------------------------------------------------------------------------------


def test_hami_is_built_and_its_library_is_in_each_program(
    measured: Callable[[System], dict[str, Measured]], hami: HamiCore, tmp_path: Path
) -> None:
    cells = measured(hami)
    cell = cells["graph + vit: HAMi-core"]
    assert cell.server is not None
    assert cell.server.count > 0
    seen = (tmp_path / "seen").read_text().split()
    assert set(seen) == {"25", "none"}, "the background has a quarter of the SMs, the server no limit"
    assert hami.memory(4096) == {"CUDA_DEVICE_MEMORY_LIMIT": "4096m"}
    assert (tmp_path / "locks").is_dir()


def test_a_program_of_theirs_that_does_not_start_says_why(
    measured: Callable[[System], dict[str, Measured]], hami: HamiCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HamiCore.command
    monkeypatch.setattr(
        HamiCore, "command", lambda self, argv, server: (argv, {**real(self, argv, server)[1], "BREAKS": "1"})
    )
    cells = measured(hami)
    assert "libvgpu: no device" in failed(cells["graph + vit: HAMi-core"])


def test_a_program_that_the_linker_starts_without_the_library_is_none_of_theirs(
    measured: Callable[[System], dict[str, Measured]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HamiCore, "LOCKS", tmp_path / "locks")
    (tmp_path / "libvgpu.so").write_text("no library")
    cells = measured(HamiCore("HAMi-core", tmp_path))
    assert "libvgpu.so is not in it: it would run without HAMi-core" in failed(cells["graph + vit: HAMi-core"])


@pytest.mark.parametrize(
    ("build", "why"),
    [
        ("echo 'nvml.h: No such file' >&2; exit 2", "its build ended with 2: nvml.h: No such file"),
        ("true", "libvgpu.so"),
    ],
)
def test_a_build_that_fails_or_leaves_nothing_is_the_result(
    measured: Callable[[System], dict[str, Measured]], tmp_path: Path, build: str, why: str
) -> None:
    assert why in failed(measured(HamiCore("HAMi-core", tmp_path, build))["graph + vit: HAMi-core"])


def test_xscheds_server_runs_while_its_programs_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(XSched, "PORT", free.getsockname()[1])
    output = tmp_path / "output"
    (output / "bin").mkdir(parents=True)
    (output / "lib").mkdir()
    (output / "lib" / "libcuda.so.1").touch()
    server = output / "bin" / "xserver"
    server.write_text(XSERVER)
    server.chmod(0o755)
    way = XSched("XSched", tmp_path)
    with Session(Options("field-tally", 1.0, 1, tmp_path)) as session:
        way.begin(session)
        assert way._answers()
        first, low = way.command(["a"], True)[1], way.command(["b"], False)[1]
        way.end()
        assert not way._answers()
    assert first["LD_LIBRARY_PATH"].split(":")[0] == str(output / "lib")
    assert (first["XSCHED_AUTO_XQUEUE_PRIORITY"], low["XSCHED_AUTO_XQUEUE_PRIORITY"]) == ("1", "0")
    assert (first["XSCHED_AUTO_XQUEUE_THRESHOLD"], low["XSCHED_AUTO_XQUEUE_THRESHOLD"]) == ("16", "4")


def test_a_server_of_theirs_that_ends_says_why(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()
    server = tmp_path / "xserver"
    server.write_text("#!/bin/sh\necho no shared memory >&2\nexit 1\n")
    server.chmod(0o755)
    with Session(Options("field-tally", 1.0, 1, tmp_path)) as session, pytest.raises(SystemMissing, match="no shared"):
        XSched("XSched", tmp_path).begin(session)


def test_any_other_has_a_command(tmp_path: Path) -> None:
    with Session(Options("field-tally", 1.0, 1, tmp_path)) as session, pytest.raises(SystemMissing, match="no program"):
        Build("TGS", tmp_path, "bin/run --quiet").begin(session)
    launcher = tmp_path / "wrap"
    launcher.write_text('#!/bin/sh\nexec "$@"\n')
    launcher.chmod(0o755)
    argv, env = Build("TGS", tmp_path, "wrap").command(["python3", "x.py"], True)
    assert argv == [str(launcher), "python3", "x.py"]
    assert env == {"FIELD_ROLE": "server"}


def test_the_command_line_names_them(tmp_path: Path) -> None:
    known: list[Peer] = [peer(f"HAMi-core={tmp_path}", ()), peer(f"XSched={tmp_path}", ["XSched=make cuda"])]
    assert [type(each) for each in known] == [HamiCore, XSched]
    run = CliRunner().invoke
    words = ["plan", "--peer", f"HAMi-core={tmp_path}", "--peer-build", "HAMi-core=make"]
    assert "resnet50-infer + bert-train: HAMi-core" in run(field, words).output
    for wrong, said in (
        (["--peer", f"TGS={tmp_path}"], "does not say what starts a program"),
        (["--peer", "TGS"], "is neither"),
        (["--peer-build", "TGS=make"], "there is no --peer of that name"),
    ):
        done = run(field, ["plan", *wrong])
        assert done.exit_code == 2
        assert said in done.output


# -- MIG ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Instances by their number; None where there is none of that number."""
    told = SimpleNamespace(on=1, some=[("MIG-b", 2, 20000), None, ("MIG-a", 3, 40000), ("MIG-c", 2, 20000)])

    def handle(_gpu: object, number: int) -> object:
        if number >= len(told.some) or told.some[number] is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return told.some[number]

    for name, answer in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByIndex": lambda _number: "gpu",
        "nvmlDeviceGetMigMode": lambda _gpu: (told.on, told.on),
        "nvmlDeviceGetMaxMigDeviceCount": lambda _gpu: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": handle,
        "nvmlDeviceGetUUID": lambda one: one[0],
        "nvmlDeviceGetAttributes": lambda one: SimpleNamespace(computeInstanceSliceCount=one[1], memorySizeMB=one[2]),
    }.items():
        monkeypatch.setattr(pynvml, name, answer)
    return told


def test_mig_gives_the_server_the_largest_instance(nvml: SimpleNamespace, tmp_path: Path) -> None:
    assert [each.uuid for each in instances()] == ["MIG-a", "MIG-b", "MIG-c"]
    way = Mig()
    with Session(Options("field-tally", 1.0, 1, tmp_path)) as session:
        way.begin(session)
    chosen = [way.command(["x"], server)[1]["CUDA_VISIBLE_DEVICES"] for server in (True, False, False, False)]
    assert chosen == ["MIG-a", "MIG-b", "MIG-c", "MIG-b"]


@pytest.mark.parametrize(
    ("on", "some", "why"),
    [(0, [], "MIG is off"), (1, [], "no instance"), (1, [("MIG-a", 7, 80000)], "one instance only")],
)
def test_migs_refusal_is_its_result(
    nvml: SimpleNamespace,
    measured: Callable[[System], dict[str, Measured]],
    on: int,
    some: list[tuple[str, int, int]],
    why: str,
) -> None:
    nvml.on, nvml.some = on, some
    assert why in failed(measured(Mig())["graph + vit: MIG"])
