# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from detshare.ctl.cli import details, tables
from detshare.ctl.core import words
from detshare.ctl.core.gputime import Mode, Pattern, Place, Schedule, Standing
from detshare.ctl.core.snapshot import Program, State, plain
from detshare.ctl.policy.decisions import why
from detshare.ctl.top.rows import rows
from tests.unit.gputime.gpu_times import GPU, SCHEDULE, STALLED, TIME, program, snapshot

NUMBERS = {GPU: "0"}


def test_a_history_is_a_line_of_blocks() -> None:
    assert words.spark([0.0, 0.01, 0.5, 1.0], 4) == " ▁▅█"
    assert words.spark([0.0, 0.01, 0.5, 1.0], 4, ascii_only=True) == " _=#"
    assert words.spark([0.0, 0.0, 1.0, 0.0], 2) == " ▅"
    assert words.spark([1.0, 0.0, 0.0, 1.0, 1.0], 2) == "▅▆"
    assert words.spark([1.0, 1.0, 0.5], 10, whole=20) == "█▇"
    assert words.spark([], 10) == words.spark([1.0], 0) == ""


@given(st.lists(st.floats(0, 1, allow_subnormal=False), max_size=60), st.integers(1, 60))
def test_a_line_is_no_wider_than_asked_and_ends_with_the_newest(values: list[float], width: int) -> None:
    line = words.spark(values, width)
    assert len(line) <= min(width, len(values))
    newest = values[-math.ceil(len(values) / width) :]
    assert (line[-1:] == " ") == bool(values and not any(newest))


@pytest.mark.parametrize(
    ("standings", "text"),
    [
        ([Standing.HOLDS], "holds"),
        ([Standing.WAITS], "in 140ms"),
        ([Standing.RESTS, Standing.WAITS], "in 140ms"),
        ([Standing.WAITS, Standing.WINDOW], "window"),
        ([], ""),
    ],
)
def test_a_turn_in_a_word(standings: list[Standing], text: str) -> None:
    places = tuple(Place(GPU, "x", each, 0.14 if each is Standing.WAITS else None) for each in standings)
    assert words.turn(program(7, places=places).to_json()) == text


def test_who_is_without_progress_is_warned_of() -> None:
    stuck = program(7, gpu_time=(TIME, STALLED)).to_json()
    (line,) = words.warning(stuck, NUMBERS)
    assert line == "it has work on GPU 0 and made no progress for 3.2s: detshare-ctl why 7"
    assert words.warning(program(8).to_json(), NUMBERS) == []
    assert words.warning({**stuck, "class": None, "weight": None}, NUMBERS) == []  # not ours
    assert words.warning({**stuck, "state": "paused"}, NUMBERS) == []
    assert words.warning(program(7, gpu_time=(replace(STALLED, stalled_s=0.9),)).to_json(), NUMBERS) == []


def test_a_floor_is_said_of_the_background_only() -> None:
    rest = "of the time, while a higher class leaves nothing"
    assert words.floor(program(7, floor=0.02).to_json(), NUMBERS) == [f"2.0% {rest}"]
    assert words.floor(program(7, floor=0.0).to_json(), NUMBERS) == [f"0.0% {rest}"]
    assert words.floor(program(7, floor=0.0, klass="high").to_json(), NUMBERS) == []
    assert words.floor(program(7, floor=None).to_json(), NUMBERS) == []


def test_floors_of_gpus_are_said_where_they_differ() -> None:
    two = program(7, floor=0.0, floors={GPU: 0.1, "GPU-9": 0.0}).to_json()
    numbers = {GPU: "0", "GPU-9": "1"}
    rest = "of the time, while a higher class leaves nothing"
    assert words.floor(two, numbers) == [f"GPU 0: 10.0% {rest}", f"GPU 1: 0.0% {rest}"]
    assert words.floor({**two, "class": "high"}, numbers) == words.floor(two, numbers)  # it has one, asked for by hand
    assert words.floor({**two, "floors": {GPU: "ten"}}, {}) == [f"0.0% {rest}"]


def test_a_rotation_in_a_line() -> None:
    assert words.schedule(plain(SCHEDULE)) == (
        "turns, train has its turn for 40ms, then eval, foreground in bursts (gaps of 18.3 ms), slice 50 us"
    )
    windows = Schedule(GPU, Mode.WINDOWS, Pattern.FULL, holder="train", gap_us=120.0, slice_us=2000, floor=0.02)
    assert words.schedule(plain(windows)) == (
        "windows, train has its turn, foreground without useful gaps (gaps of 120 us), slice 2 ms, floor 2.0%"
    )
    assert words.schedule(plain(Schedule(GPU, Mode.FREE, Pattern.NONE))) == "no rotation, no foreground"
    alone = Schedule(GPU, Mode.FREE, Pattern.BURSTS, holder="train", slice_us=50)
    assert words.schedule(plain(alone)) == (
        "no rotation, train alone in the background, foreground in bursts, slice 50 us"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(["gpu_time", "places", "class", "state", "command", "pid", "floor", "floors"]),
    st.sampled_from(sorted({*plain(TIME), *plain(SCHEDULE), "standing", "next_s", "tenant"})),
    JSON,
    JSON,
)
def test_any_json_has_words(field: str, inner: str, value: object, below: object) -> None:
    whole = program(7, Standing.WAITS, gpu_time=(STALLED,)).to_json()
    changed = [{**each, inner: below} for each in (*whole["gpu_time"], *whole["places"])]
    for shown in ({**whole, field: value}, {**whole, "gpu_time": changed, "places": changed}):
        said = [words.turn(shown), *words.places(shown, NUMBERS), *words.gpu_times(shown, NUMBERS)]
        said += words.floor(shown, NUMBERS)
        said += [words.spark(words.history(shown), 10), words.schedule({**plain(SCHEDULE), inner: below})]
        assert all(isinstance(each, str) for each in said + words.warning(shown, NUMBERS))


def printed(*what: object, width: int = 120) -> str:
    console = Console(width=width, highlight=False, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for each in what:
        console.print(each)
    return console.export_text()


def test_ps_tells_shares_lately_and_turns() -> None:
    answer = snapshot(program(7, Standing.HOLDS), program(8, Standing.WAITS, gpu_time=(STALLED,))).to_json()
    head, first, second = printed(tables.programs(answer, 120)).splitlines()
    assert head.split()[5:] == ["MEM", "SHARE", "LATELY", "TURN", "STATE", "COMMAND"]
    assert "30%" in first  # of the log, not NVML's 90 %
    assert words.spark(TIME.history, 10) in first
    assert "holds" in first
    assert "0%" in second
    assert "in 140ms" in second
    assert printed(*tables.rotations(answer)).startswith("GPU 0: turns, train has its turn")


def test_gpus_have_the_numbers_by_which_commands_take_them() -> None:
    """Those of their device nodes, also where the first one is not there."""
    seen = snapshot(program(7, Standing.HOLDS))
    seen = replace(seen, gpus=(replace(seen.gpus[0], minor=3),))
    answer = seen.to_json()
    _, row = printed(tables.programs(answer, 120)).splitlines()
    assert row.split()[1] == "3"
    assert printed(*tables.rotations(answer)).startswith("GPU 3: ")
    console = Console(width=160, highlight=False, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    details.show(console, answer, answer["programs"][0])
    text = console.export_text()
    assert "3 (NVIDIA H200)" in text
    assert "GPU 3: turns, train has its turn" in text
    assert any(line.startswith("GPU 3: ") for line in why._turns(seen.programs[0], seen))


def test_ps_has_no_such_columns_where_nobody_knows() -> None:
    answer = snapshot(program(7, gpu_time=()), schedules=()).to_json()
    text = printed(tables.programs(answer, 120))
    assert "LATELY" not in text
    assert "TURN" not in text
    assert "90%" in text  # NVML's
    assert tables.rotations(answer) == []


def test_show_tells_all_of_it() -> None:
    answer = snapshot(program(7, Standing.WAITS, gpu_time=(STALLED,), floor=0.02)).to_json()
    console = Console(width=160, highlight=False, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    details.show(console, answer, answer["programs"][0])
    text = console.export_text()
    for wanted in (
        "GPU 0: 0.0% of the last 5.0s (0.0% useful), 50 runs a second of 1.73 ms, 18.3 ms between them",
        "GPU 0: waits for its turn; its next begins in 140ms",
        "2.0% of the time",
        "train has its turn for 40ms, then eval",
        "because gaps of 18.3 ms are 61 switches long",
        "made no progress for 3.2s",
    ):
        assert wanted in text, wanted


SERVER = program(6, state=State.MPS_SERVER)
CLIENT = program(7, state=State.MPS_CLIENT, gpu_time=(), gpu_share=0.0)


@pytest.mark.parametrize("share", [0.0, None])
def test_a_client_that_works_has_its_share_in_that_of_its_mps_server(share: float | None) -> None:
    answer = snapshot(SERVER, replace(CLIENT, gpu_share=share)).to_json()
    console = Console(width=120, record=True)
    with console.capture() as shown:
        console.print(tables.programs(answer, 120))
    _, server, client = shown.get().splitlines()
    assert (server.split()[6], client.split()[6]) == ("30%", "mps")
    with console.capture() as shown:
        details.show(console, answer, answer["programs"][1])
    assert "gpu share    in that of MPS server 6, with those of its other clients" in shown.get()
    assert [row.cells["SHARE"] for row in rows(answer)] == ["30%", "mps"]


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (SERVER, program(7)),
        (SERVER, replace(CLIENT, state=State.RUNNING)),
        (SERVER, replace(CLIENT, gpu_share=0.25)),
        (SERVER, replace(CLIENT, gpus=("GPU-another",))),
        (replace(SERVER, gpu_time=()), CLIENT),
        (replace(SERVER, state=State.RUNNING), CLIENT),
    ],
    ids=["in the log", "no client", "known to NVML", "on another GPU", "server at rest", "no server"],
)
def test_who_has_a_share_of_its_own_has_it_shown(server: Program, client: Program) -> None:
    assert "mps" not in [row.cells["SHARE"] for row in rows(snapshot(server, client).to_json())]


def test_a_program_of_the_spatial_lane_is_a_client_too() -> None:
    answer = snapshot(SERVER, replace(CLIENT, state=State.SPATIAL)).to_json()
    answer["programs"][1]["spatial"] = {"sms": 132}
    assert words.servers(answer["programs"][1], answer["programs"]) == ["6"]


def test_policies_of_all_and_of_single_gpus_are_one_line() -> None:
    all_ = {"name": "strict", "failed": ""}
    assert words.policies(all_) == {"name": "strict", "failed": ""}
    own = [
        {"gpu": 1, "uuid": "GPU-1", "name": "fair", "failed": "it slept"},
        {"gpu": None, "uuid": "7", "name": "mine"},
    ]
    assert words.policies({**all_, "gpus": own}) == {
        "name": "strict, GPU 1: fair, GPU 7: mine",
        "failed": "GPU 1: it slept",
    }
