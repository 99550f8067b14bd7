# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core.backend import BadRequest
from detshare.runtime.admission import Request
from detshare.runtime.profiles import BUCKETS, Lane, Profile, Profiles, choose, key


def at(bucket: int, count: int) -> tuple[int, ...]:
    return tuple(count if n == bucket else 0 for n in range(BUCKETS))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["/opt/app/serve", "1", "/var/log"], "serve"),
        (["/usr/bin/python", "-m", "vllm.serve"], "python -m vllm.serve"),
        (["python", "-c", "import torch"], "python -c 3c6eb1f4"),
        (["bash"], "bash"),
    ],
)
def test_runs_of_one_command_have_one_name(command: list[str], name: str) -> None:
    found = key(command)
    assert found == name or (name.startswith("python -c") and found.startswith("python -c "))


def test_how_it_was_set_is_a_part_of_it_but_for_numbers_and_paths_and_is_not_kept_as_typed() -> None:
    plain = ["python", "/srv/serve.py"]
    some = key([*plain, "--model=gpt2", "--lr=1e-4", "--port", "8001", "--data", "/srv/x"])
    assert some == key([*plain, "--model=gpt2", "--lr=0.5", "--port", "8002", "--data", "/srv/other"])
    assert some != key([*plain, "--model=bert", "--lr=1e-4", "--port", "8001", "--data", "/srv/x"])
    assert key([*plain, "--token", "hunter2"]).startswith("python serve.py: ")
    assert "hunter2" not in key([*plain, "--token", "hunter2"])


def test_models_behind_one_script_are_told_apart_and_a_new_one_is_as_all_of_them(tmp_path: Path) -> None:
    known = Profiles(tmp_path / "p.json")
    known.add("python serve.py: --model short", Profile(kernels=at(15, 100)))
    known.add("python serve.py: --model long", Profile(kernels=at(24, 10)))
    lanes = [choose("x", known.get(f"python serve.py: --model {model}"))[0] for model in ("short", "long", "new")]
    assert lanes == [Lane.SPATIAL, Lane.TEMPORAL, Lane.TEMPORAL]
    assert known.get("python other.py: --model short") is None


def test_two_snippets_are_two_commands() -> None:
    assert key(["python", "-c", "a"]) != key(["python", "-c", "b"])


def test_short_kernels_go_to_the_spatial_lane_and_long_ones_do_not() -> None:
    assert choose("x", Profile(kernels=at(15, 1000)))[0] == Lane.SPATIAL
    assert choose("x", Profile(kernels=at(22, 1000)))[0] == Lane.TEMPORAL
    # many short kernels that take little of the time do not make a program one of short work
    mixed = Profile(kernels=tuple(a + b for a, b in zip(at(14, 1000), at(24, 100), strict=True)))
    assert choose("x", mixed)[0] == Lane.TEMPORAL
    # a graph counts as one piece, and is short below a millisecond: on an H200 the spatial lane was better for 0.84 ms
    assert choose("x", Profile(kernels=at(14, 10), graphs=at(19, 1000)))[0] == Lane.SPATIAL
    assert choose("x", Profile(kernels=at(19, 1000)))[0] == Lane.TEMPORAL
    assert choose("x", Profile(kernels=at(14, 100), graphs=at(21, 1000)))[0] == Lane.TEMPORAL


def test_long_kernels_that_leave_sms_idle_go_to_the_spatial_lane() -> None:
    def long(filled: float, graphs: int = 0) -> Profile:
        kernels, time = at(22, 1000), 1000 * 6_000_000
        return Profile(kernels, at(22, graphs), time, int(time * filled))

    lane, why = choose("x", long(0.25))
    assert lane == Lane.SPATIAL
    assert "left 75% of the SMs idle" in why
    assert choose("x", long(0.5))[0] == Lane.SPATIAL
    assert choose("x", long(0.51))[0] == Lane.TEMPORAL
    # how many SMs a graph reaches is not known: it counts as all
    assert choose("x", long(0.25, graphs=1000))[0] == Lane.TEMPORAL
    # of an older library, which counted no time
    assert choose("x", Profile(kernels=at(22, 1000)))[0] == Lane.TEMPORAL


@pytest.mark.parametrize("profile", [None, Profile(), Profile(kernels=at(15, 7))])
def test_the_unknown_is_temporal(profile: Profile | None) -> None:
    lane, why = choose("x", profile)
    assert lane == Lane.TEMPORAL
    assert "too little is known" in why


def test_profiles_add_up_and_are_kept(tmp_path: Path) -> None:
    first = Profiles(tmp_path / "p.json")
    first.add("x", Profile(kernels=at(3, 5), timed_ns=10, filled_ns=5))
    first.add("x", Profile(kernels=at(3, 2), graphs=at(4, 1), timed_ns=3, filled_ns=3))
    first.add("empty", Profile())
    again = Profiles(tmp_path / "p.json")
    assert again.get("x") == Profile(at(3, 7), at(4, 1), 13, 8)
    assert again.get("empty") is None
    assert (tmp_path / "p.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("junk", ["", "{", "[]", '{"x": 1}', '{"x": {"kernels": [1], "graphs": []}}', "[" * 100_000])
def test_a_file_of_junk_is_forgotten(tmp_path: Path, junk: str) -> None:
    (tmp_path / "p.json").write_text(junk)
    assert Profiles(tmp_path / "p.json").get("x") is None


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps({"x": {"kernels": at(3, 5), "graphs": at(4, 1)}}))
    assert Profiles(tmp_path / "p.json").get("x") == Profile(at(3, 5), at(4, 1))


def test_a_request_survives_its_packet() -> None:
    asked = Request(("python", "x.py"), "auto", "high", 25, 1 << 30, "red")
    assert Request.parse(asked.pack()) == asked
    assert len(Request(("x" * 100_000,) * 9, "auto", None, None, None, "").pack()) < 16384


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
JSON = st.recursive(LEAVES, lambda each: st.lists(each, max_size=3), max_leaves=5)


@given(st.dictionaries(st.sampled_from(["run", "lane", "class", "sm", "memory", "tenant", "x"]), JSON, max_size=6))
def test_what_is_no_request_is_refused_and_nothing_else_raised(body: dict[str, object]) -> None:
    try:
        made = Request.parse(json.dumps(body).encode())
    except BadRequest:
        return
    assert made.command
    assert made.lane in ("auto", "spatial", "temporal")
    assert made.percent is None or 1 <= made.percent <= 100
