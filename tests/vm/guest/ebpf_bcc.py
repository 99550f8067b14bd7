# SPDX-License-Identifier: Apache-2.0
"""bcc where it is installed: it is chosen, and counts what the prebuilt objects count, beside them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Protocol, TypeVar

import pytest

from detshare.ebpf import loader
from detshare.ebpf.dirty import DirtyTracer
from detshare.ebpf.latency import LatencyTracer
from detshare.ebpf.launches import Kind, LaunchTracer
from detshare.ebpf.objects import ObjectTracer
from tests.tracee.tracee import LIBCUDA, Tracee
from tests.vm.guest.ebpf_tools import BIRTHS, abi, raw_program


class Tracer(Protocol):
    how: str

    def close(self) -> None: ...


T = TypeVar("T", bound=Tracer)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], T]], tuple[T, T]]:
    """The same observer twice: by the loader that is chosen here, and by libbpf."""

    def make(build: Callable[[], T]) -> tuple[T, T]:
        monkeypatch.delenv("DETSHARE_EBPF", raising=False)
        assert [choice.name for choice in loader.choices()] == ["bcc", "libbpf"]
        first = build()
        monkeypatch.setenv("DETSHARE_EBPF", "libbpf")
        second = build()
        assert (first.how, second.how) == ("bcc", "libbpf")
        return first, second

    return make


def test_10007_launches_by_both(both: Callable[..., tuple[LaunchTracer, LaunchTracer]]) -> None:
    first, second = both(lambda: LaunchTracer(libcuda=[str(LIBCUDA)]))
    with closing(first), closing(second):
        with Tracee() as tracee:
            tracee.say("alloc plain 65536")
            tracee.say("alloc plain 65536")
            tracee.say("launch 10007")
            tracee.say("copy 503")
        sums = [
            {(each.kind, each.stream): (each.calls, each.bytes) for each in tracer.counts() if each.pid == tracee.pid}
            for tracer in (first, second)
        ]
        assert sums[0] == sums[1]
        assert sum(calls for (kind, _), (calls, _) in sums[0].items() if kind is Kind.LAUNCH) == 10007
        assert not first.trouble()
        assert first.notes() == second.notes() == []


def test_101_births_and_deaths_by_both(both: Callable[..., tuple[ObjectTracer, ObjectTracer]]) -> None:
    first, second = both(lambda: ObjectTracer(abi()))
    with closing(first), closing(second):
        raw_program(BIRTHS).wait()
        told = [
            [(each.kind, each.born, each.pid, each.client) for each in tracer.drain()] for tracer in (first, second)
        ]
        assert told[0] == told[1]
        assert sum(kind == "process" and not born for kind, born, _, _ in told[0]) == 101
        assert first.notes() == second.notes() == []


@pytest.mark.parametrize("make", [LatencyTracer, lambda: DirtyTracer(libcuda=[str(LIBCUDA)])], ids=["latency", "dirty"])
def test_the_others_are_taken_by_it_too(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Tracer]) -> None:
    monkeypatch.setenv("DETSHARE_EBPF", "bcc")
    with closing(make()) as made:
        assert made.how == "bcc"
