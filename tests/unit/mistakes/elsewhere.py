# SPDX-License-Identifier: Apache-2.0
"""Messages of the page that other tests make, and those that nothing here can make."""

from __future__ import annotations

ELSEWHERE: dict[str, str] = {
    "CMD runs in the temporal lane: not in the spatial lane: WHY":
        "unit/spatial/test_run.py::test_no_mps_binary_means_the_temporal_lane",
    "PID N did not acknowledge within 5 s":
        "unit/spatial/test_daemon.py::test_set_sm_that_is_not_acknowledged_says_so_and_stands",
    "if it is killed in mid-kernel, its neighbours may be lost: its descriptors are not given":
        "unit/spatial/test_leaving.py::test_who_may_not_be_asked_runs_on_and_it_is_said",
    "what it has on the GPU is kept for N s":
        "unit/spatial/test_leaving.py::test_a_program_killed_in_mid_work_keeps_its_gates_closed_until_its_kernels_ended",
    "the MPS server (PID N) ended; taken along: ...":
        "unit/spatial/test_service.py::test_who_fell_with_the_server_is_named",
    "EPERM from a GPU program's first calls": "vm/guest/kmod_closed.py::test_in_a_lapse",
    "stalled": "unit/top/test_turns.py::test_who_makes_no_progress_is_said_and_marked",
    "it has no context on a GPU yet; kept in RUN_DIR, a daemon that is started while it lives will apply it":
        "unit/cli/test_oneshot.py::test_failures_are_1_and_say_what_was_asked_what_stopped_it_and_what_is_next",
    "there is no GPU N": "unit/ebpf/test_timeline.py::test_what_was_not_done_says_why",
    "NV_ERR_INVALID_CLIENT":
        "unit/model/test_rm.py::test_a_question_is_answered_for_the_descriptors_own_client_only",
    "NV_ERR_OBJECT_NOT_FOUND":
        "unit/model/test_rm.py::test_a_question_is_answered_for_the_descriptors_own_client_only",
    "NV_ERR_INVALID_OBJECT_HANDLE": "unit/model/test_rm.py::test_what_a_dup_names_must_be_there",
    "no virtual machine: WHY": "unit/demo/test_demo.py::test_where_no_virtual_machine_can_be_the_model_plays",
    "... playing on the model of the driver":
        "unit/demo/test_demo.py::test_where_no_virtual_machine_can_be_the_model_plays",
    "NOT better; see detshare-ctl doctor": "unit/demo/test_demo.py::test_it_can_fail",
    "find programs to run on the GPU: none of ... has torch or cuda-bindings, and there is no nvcc":
        "unit/demo/test_choice.py::test_without_torch_small_kernels_run_where_they_can_be_compiled",
    "run X: it ended with code N": "unit/demo/test_figures.py::test_a_program_that_fails_gives_its_last_words",
    "408": "unit/daemon/test_api.py::test_half_a_request_is_answered_in_the_end",
}  # fmt: skip
"""message -> the tests that make it, below tests/"""

NOT_HERE: dict[str, str] = {
    "N event(s) of the kernel module were lost":
        "the kernel's buffer of 4 MiB has to overflow: it takes the loaded module and more events than a guest makes",
    "older than the kernel module: its objects are not all known one by one":
        "it takes the module loaded under a program of a real driver; guests do that, and no unit test",
    "no GPU is used: playing in a virtual machine": "it takes a guest; `make demo` of CI plays it",
    "nvalloc ended with code N": "it takes a fault of the kernel module in a guest",
    "ask for 3G under a limit of 2G: it was ...": "it takes a fault of the kernel module in a guest",
    "start X: it is not ready and WHY": "the demo's patience with a GPU program is minutes, and it takes a GPU",
}
"""message -> why it cannot be made to happen here"""
