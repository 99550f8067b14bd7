# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from builds import ROOT, made
from programs import DRIVER, LIBRARY, alone, good, program, run

from tests import patience
from tests.rest import after_first

pytestmark = pytest.mark.e2e

FUNCTIONS = json.loads((ROOT / "runtime" / "api.json").read_text())["functions"]
WRAPPED = sorted(one["name"] for one in FUNCTIONS if one["kind"] != "none")


def exported(library: Path) -> set[str]:
    lines = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in lines.stdout.splitlines()}


def test_exports_all_that_is_wrapped_and_nothing_else() -> None:
    made("runtime")
    names = exported(LIBRARY)
    assert names - {"dlsym"} == set(WRAPPED)


def test_its_sources_may_lie_in_any_folder_and_nobody_sees_in_which(tmp_path: Path) -> None:
    top = tmp_path / "it's a\tfolder" / "runtime"
    shutil.copytree(ROOT / "runtime", top, ignore=shutil.ignore_patterns("*.so", "detshare"))
    patience.run(["make", "-s", "-C", str(top), "../build/runtime/base/log.o"], check=True)
    assert b"folder" not in (top.parent / "build/runtime/base/log.o").read_bytes()


@pytest.mark.rest
def test_the_resident_control_kernel_can_be_left_out(tmp_path: Path) -> None:
    make = ["make", "-s", "-j2", "-C", str(ROOT / "runtime"), f"OUT={tmp_path}", f"BUILD={tmp_path / 'obj'}"]
    without = tmp_path / "libdetshare.so"
    for option, there in (("yes", True), ("no", False)):
        subprocess.run([*make, f"RCK={option}"], check=True)
        assert (b"resident control kernel" in without.read_bytes()) == there
    assert exported(without) - {"dlsym"} == set(WRAPPED)
    good(run(program("order"), "1", "50", preload=str(without)))


def test_needs_only_the_c_library() -> None:
    made("runtime")
    text = subprocess.run(["readelf", "-d", str(LIBRARY)], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED.*\[(.*?)\]", text)
    assert all(name.startswith(("libc.", "libpthread.", "libdl.", "ld-linux")) for name in needed), needed


def test_every_way_to_a_function_ends_in_the_library() -> None:
    path = alone("ways")
    there = sorted(exported(DRIVER / "libcuda.so.1") & {one["name"] for one in FUNCTIONS})
    lines = good(run(path, stdin="\n".join(there))).splitlines()
    assert lines[0] == "before absent"
    assert lines[-2].split() == ["malloc", "libc.so.6"]
    assert lines[-1].split() == ["nobody", "absent"]
    answers = {line.split()[0]: line.split()[1:] for line in lines[1:-2]}
    assert len(answers) == len(there) > 200
    for name in there:
        if name in WRAPPED:
            assert answers[name][:3] == ["libdetshare.so"] * 3, name
        else:
            assert answers[name][:3] == ["libcuda.so.1", "absent", "absent"], name
    # cuGetProcAddress takes names without version: a wrapped one in whatever version is ours
    for name in ("cuLaunchKernel", "cuMemcpyHtoD", "cuStreamSynchronize", "cuGetProcAddress", "cuMemcpyAsync"):
        assert answers.get(name, run(path, stdin=name).stdout.splitlines()[1].split()[1:])[3:] == ["libdetshare.so"] * 3


def test_another_library_between_program_and_driver(tmp_path: Path) -> None:
    overlay = alone("overlay")
    for preload in (f"{overlay}:{LIBRARY}", f"{LIBRARY}:{overlay}"):
        assert run(program("order"), "1", "50", preload=preload).returncode == 0


def test_streams_run_on_the_tier_of_now() -> None:
    out = good(run(program("tiers")))
    assert int(out.split()[1]) > 20
    assert int(out.split()[3]) > 0


@pytest.mark.parametrize("seed", after_first(range(3)))
def test_no_order_is_lost_while_streams_move(seed: int) -> None:
    out = good(run(program("order"), str(seed), "250"))
    assert int(out.split()[1]) > 20


@pytest.mark.parametrize("seed", after_first(range(3)))
def test_legacy_and_blocking_streams_keep_their_order(seed: int) -> None:
    out = good(run(program("legacy"), str(seed), "600"))
    assert int(out.split()[1]) > 100


@pytest.mark.parametrize("name", ["order", "legacy", "shared"])
def test_the_programs_are_right_without_the_library(name: str) -> None:
    good(run(program(name), "1", "100", preload="", CLIENT_NATIVE="1"))


def test_threads_that_share_a_stream_keep_its_order() -> None:
    good(run(program("shared")))


def test_a_stream_that_cannot_move_keeps_its_sms_and_is_counted() -> None:
    good(run(program("stuck")))


def test_a_policy_is_acknowledged_when_its_tiers_are_there() -> None:
    good(run(program("acks"), FAKECUDA_GREEN_US="20000"))


def test_a_policy_whose_tier_cannot_be_made_is_acknowledged() -> None:
    good(run(program("acks"), "132", FAKECUDA_GREEN_FAIL="1"))


@pytest.mark.parametrize("ahead", [1000, 4000])
def test_work_ahead_is_bounded_where_the_policy_says_so(ahead: int) -> None:
    good(run(program("ahead"), str(ahead)))


def test_a_copy_to_the_gpu_announces_kernels() -> None:
    good(run(program("soon")))


def test_default_streams_are_those_of_the_context_that_is_current() -> None:
    good(run(program("current")))


def test_a_newer_driver_is_asked_which_context_is_current() -> None:
    good(run(program("current"), "unseen", FAKECUDA_VERSION="13010"))


def test_contexts_come_and_go() -> None:
    good(run(program("life")))


def test_contexts_that_ended_leave_no_pages() -> None:
    result = run(program("cycles"))
    good(result)
    assert result.stderr == ""


def test_threads_and_handles_come_and_go_and_attributes_hold_on_every_tier(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    good(run(program("threads"), FAKECUDA_TRACE=str(trace)))
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    seen = [(row["priority"], row["domain"]) for row in rows if (row["what"], row["sms"]) == ("census", 100)]
    assert seen[-3:] == [(-3, 1), (-4, 1), (-1, 0)]


def test_streams_end_while_others_launch() -> None:
    good(run(program("destroy")))


def test_a_handle_that_is_destroyed_under_a_launch_is_the_drivers_business() -> None:
    result = run(program("destroy"), "race", FAKECUDA_EXIT="0")
    assert result.returncode == 0, result.stderr
    wrong = [line for line in result.stderr.splitlines() if "use of destroyed stream" not in line]
    assert wrong in ([], [result.stderr.splitlines()[-1]]), wrong


def test_a_forked_child_takes_nothing_of_its_parent() -> None:
    good(run(program("forks")))


def test_who_loads_it_at_run_time_cannot_unload_it() -> None:
    good(run(program("unloads"), str(LIBRARY), preload="", DETSHARE_PARK="1"))


def test_a_fork_beside_the_first_call_leaves_the_child_its_own() -> None:
    good(run(program("forks_early")))


@pytest.mark.parametrize(("when", "busy"), [("begun", "REGISTER"), ("begun", "GREEN"), ("later", "GRAPH")])
def test_no_helper_is_inside_the_driver_when_the_program_ends(when: str, busy: str) -> None:
    good(run(program("quits"), when, **{f"FAKECUDA_{busy}_US": "100000"}))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="steps by a flag of x86")
def test_what_the_daemon_reads_is_what_threads_have() -> None:
    good(run(program("charges")))


def test_captures_stay_at_home() -> None:
    good(run(program("capture")))


def test_steps_aside_and_says_so_once() -> None:
    # no green contexts in this driver
    result = run(program("order"), "1", "50", CLIENT_NATIVE="1", FAKECUDA_GREEN="0")
    good(result)
    said = [line for line in result.stderr.splitlines() if line.startswith("detshare[")]
    assert len(said) == 1
    assert "runs natively" in said[0]


@pytest.mark.parametrize("number", [1, 2])
def test_a_tier_that_cannot_be_made_runs_on_all_sms(number: int) -> None:
    result = run(program("order"), "1", "1500", CLIENT_NATIVE="1", FAKECUDA_GREEN_FAIL=str(number))
    assert "runs on all SMs" in result.stderr
    good(result)
