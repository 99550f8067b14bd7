# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detshare.ctl.sim import fleet
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.fleet import Demand
from detshare.ctl.sim.gpu import Gpu

GPU = Gpu()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 132), st.floats(0, 80)), min_size=1, max_size=60))
def test_no_gpu_is_overfull_and_every_tenant_has_a_place(sizes: list[tuple[int, float]]) -> None:
    demands = [Demand(f"t{index}", sms, memory) for index, (sms, memory) in enumerate(sizes)]
    packed = fleet.pack(demands, GPU)
    assert len(packed.places) == len(demands)
    assert packed.bound <= packed.gpus <= len(demands)
    assert set(packed.places) == set(range(packed.gpus))
    for place in range(packed.gpus):
        here = [demand for demand, where in zip(demands, packed.places, strict=True) if where == place]
        assert sum(demand.sms for demand in here) <= GPU.sms + 1e-6
        assert sum(demand.memory_gib for demand in here) <= GPU.memory_gib + 1e-6


def test_ten_thousand_gpus_and_not_one_more() -> None:
    whole = [Demand(f"t{index}", 132, 1) for index in range(10_000)]
    assert fleet.pack(whole, GPU).gpus == 10_000
    with pytest.raises(SimError, match="need at least 10001 GPUs; 10000 are allowed"):
        fleet.pack([*whole, Demand("more", 132, 1)], GPU)
    halves = fleet.pack([Demand(f"t{index}", 66, 40) for index in range(2000)], GPU)
    assert halves.gpus == halves.bound == 1000


def test_a_tenant_larger_than_a_gpu_is_named() -> None:
    with pytest.raises(SimError, match="tenant big needs 133 SMs and 1 GiB"):
        fleet.pack([Demand("small", 1, 1), Demand("big", 133, 1)], GPU)
    with pytest.raises(SimError, match="do not fit on 2 GPUs"):
        fleet.pack([Demand(name, 80, 1) for name in "abc"], GPU, 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name,sms\n", r":1: no column 'memory_gib'"),
        ("name,sms,memory_gib\n", "names no tenant"),
        ("name,sms,memory_gib\na,1,2\nb,x,2\n", ":3: sms is 'x'"),
        ("name,sms,memory_gib\na,0,2\n", ":2: sms must be above 0"),
        ("name,sms,memory_gib\na\n", ":2: sms is None"),
    ],
)
def test_a_malformed_list_names_file_line_and_reason(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "tenants.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SimError, match=says):
        fleet.read(path)
