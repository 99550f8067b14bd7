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
    "no daemon answers on PATH, and detshare.ko is not loaded; it starts without":
        "unit/cdi/test_hook.py::test_without_daemon_and_module_a_container_starts_unless_told_otherwise",
    "... it does not start (--required)":
        "unit/cdi/test_hook.py::test_without_daemon_and_module_a_container_starts_unless_told_otherwise",
    "there is no program PATH, its hook NAME":
        "unit/cdi/test_spec.py::test_check_tells_what_a_container_would_not_start_for",
    "it has no cgroup of its own: no part of PATH bears its id":
        "unit/cdi/test_hook.py::test_a_cgroup_that_is_not_the_containers_alone_is_never_limited",
    "backend NAME knows containers by ids of 64 hexadecimal digits alone":
        "unit/cdi/test_hook.py::test_a_name_that_is_no_id_takes_the_module",
    "a container needs /dev/nvidiactl, /dev/nvidia-uvm and a GPU such as /dev/nvidia0; there are: ...":
        "unit/cdi/test_spec.py::test_devices_are_known_by_their_numbers_and_libraries_by_the_drivers_version",
    "device NAME: there is no device PATH":
        "unit/cdi/test_spec.py::test_check_tells_what_a_container_would_not_start_for",
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
    "no NVIDIA driver is loaded; waiting for it":
        "unit/daemon/test_process.py::test_a_daemon_that_waits_for_a_driver_says_so_and_ends_when_it_is_told_to",
    "it is served on the daemon's socket only: page.listen of the configuration is not set":
        "unit/page/test_command.py::test_where_the_page_has_no_address_it_says_what_to_do",
    "that address was used before, or is older than 5 minutes":
        "unit/page/test_routes.py::test_an_address_is_good_once",
    "the page needs a token, and there is none that is good still":
        "unit/page/test_routes.py::test_without_a_token_there_are_the_files_and_nothing_else",
    "401": "unit/page/test_routes.py::test_without_a_token_there_are_the_files_and_nothing_else",
    "... is no name of this page": "unit/page/test_routes.py::test_another_sites_requests_change_and_tell_nothing",
    "another site asks for it": "unit/page/test_routes.py::test_another_sites_requests_change_and_tell_nothing",
    "the page may only be looked at": "unit/page/test_routes.py::test_as_it_comes_the_page_only_looks",
    "Read-only: page.changes ... is not set":
        "unit/page/test_browser_access.py::test_as_it_comes_the_page_can_be_looked_at_only",
    "page.listen: ... cannot be listened on": "unit/page/test_routes.py::test_a_port_that_is_taken_is_told",
    "page.listen: ... is not this machine's loopback, and there is no TLS":
        "unit/page/test_routes.py::test_what_cannot_be_served_is_told",
    "the daemon does not answer ... since ...; trying again":
        "unit/page/test_browser.py::test_the_page_outlives_its_daemon",
    "this program is parked and wants to go on: its call waits until the GPU has room for its memory":
        "unit/spatial/test_parking.py::test_a_full_gpu_lets_it_wait",
    "park: refused, nothing is lost: WHY": "unit/spatial/test_parking.py::test_a_full_arena_refuses_and_loses_nothing",
    "is not parked: WHY": "unit/spatial/test_parking.py::test_a_full_arena_refuses_and_loses_nothing",
    "memory: N bytes do not fit now: the call waits for room, N s at most":
        "unit/spatial/test_room.py::test_a_wait_has_its_end_unless_the_memory_was_promised",
    "memory: N bytes found no room within N s: the call fails as on a full GPU":
        "unit/spatial/test_room.py::test_a_wait_has_its_end_unless_the_memory_was_promised",
    "is not parked, nothing is lost: WHY":
        "unit/spatial/test_checkpoints.py::test_who_was_locked_is_let_go_when_the_driver_refuses",
    "stays in the driver's checkpoint, nothing is lost: WHY":
        "unit/spatial/test_checkpoints.py::test_without_room_it_stays_where_it_is",
    "park: GPU N cannot tell what changed (WHY): everything is copied":
        "unit/runtime/test_park_changes.py::test_where_changes_cannot_be_found_everything_is_copied",
    "park: GPU N computes another digest than the reference: everything is copied":
        "unit/runtime/test_park_changes.py::test_a_gpu_with_wrong_digests_is_found_out_at_once",
    "GPU N: memory that can be parked is refused (ERROR): what is allocated stays":
        "unit/runtime/test_park.py::test_a_driver_without_virtual_memory_serves_as_ever",
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
