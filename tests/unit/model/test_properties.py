# SPDX-License-Identifier: Apache-2.0
"""Whatever is done to the programs: shares add up to at most the GPU, no kernel is lost, paused never runs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.gpu import ModelTsg
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.workload import Background, Latency, Workload
from tests.unit.model import programs

pick = st.integers(0, 10)


class Verbs(RuleBasedStateMachine):
    """Random births, deaths, forks and controls, with time passing in between."""

    @initialize(switch=st.sampled_from([0.0, 75.0, 250.0]))
    def boot(self, switch: float) -> None:
        self.driver = ModelDriver(switch_us=switch)
        self.gpu = self.driver.gpu_models[0]
        self.programs: list[tuple[ModelProcess, ModelTsg, Workload]] = []
        self.elapsed = 0.0
        self.used = 0

    def chosen(self, index: int) -> tuple[ModelProcess, ModelTsg, Workload]:
        return self.programs[index % len(self.programs)]

    @precondition(lambda self: len(self.programs) < 5)
    @rule(kind=st.sampled_from(["latency", "busy", "partly", "endless"]), seed=st.integers(0, 99))
    def born(self, kind: str, seed: int) -> None:
        workload: Workload
        match kind:
            case "latency":
                workload = Latency(500, 3000, seed=seed)
            case "busy":
                workload = Background((50, 900), seed=seed)
            case "partly":
                workload = Background((50, 300), utilization=0.7, depth=4, seed=seed)
            case _:
                workload = programs.Endless()
        process = scenario.cuda_process(self.driver)
        self.driver.machine.start_work(process, self.gpu, workload)
        tsg = next(tsg for tsg in self.gpu.tsgs[::-1] if tsg.runlist == 0)
        self.programs.append((process, tsg, workload))

    @precondition(lambda self: self.programs)
    @rule(index=pick)
    def dies(self, index: int) -> None:
        chosen = self.chosen(index)
        self.driver.machine.kill(chosen[0])
        self.used += chosen[2].busy
        self.programs.remove(chosen)

    @precondition(lambda self: self.programs)
    @rule(index=pick, slice_us=st.sampled_from([0, 1, 50, 2048, 20_000, 1_000_000, 1 << 40]))
    def slice(self, index: int, slice_us: int) -> None:
        self.gpu.set_slice(self.chosen(index)[1], slice_us)

    @precondition(lambda self: self.programs)
    @rule(index=pick, level=st.integers(0, 2))
    def level(self, index: int, level: int) -> None:
        self.gpu.set_level(self.chosen(index)[1], level)

    @precondition(lambda self: self.programs)
    @rule(index=pick, enable=st.booleans())
    def pause_or_resume(self, index: int, enable: bool) -> None:
        self.gpu.switch_channels(self.chosen(index)[1].channels, enable)

    @precondition(lambda self: self.programs)
    @rule(index=pick)
    def preempt(self, index: int) -> None:
        self.gpu.preempt(self.chosen(index)[1])

    @rule(milliseconds=st.sampled_from([0.0, 0.01, 0.3, 1.0, 3.7, 30.0]))
    def wait(self, milliseconds: float) -> None:
        before = [(workload.busy, workload.submitted) for _, _, workload in self.programs]
        paused = [tsg.paused for _, tsg, _ in self.programs]
        start, busy = self.gpu.timeline.now, self.gpu.timeline.busy
        switching = self.gpu.timeline.switching
        self.driver.machine.advance(milliseconds / 1000)
        passed = self.gpu.timeline.now - start
        grown = 0
        for (was_busy, _), was_paused, (_, _, workload) in zip(before, paused, self.programs, strict=True):
            assert workload.busy >= was_busy
            assert not was_paused or workload.busy == was_busy
            grown += workload.busy - was_busy
        assert grown == self.gpu.timeline.busy - busy
        assert grown + self.gpu.timeline.switching - switching <= passed
        # work conserving: someone who could run all the time leaves no gap (an endless kernel, not paused)
        if any(isinstance(w, programs.Endless) and not t.paused for _, t, w in self.programs):
            assert grown + self.gpu.timeline.switching - switching == passed

    @invariant()
    def shares_fit(self) -> None:
        if hasattr(self, "gpu"):
            now = self.gpu.timeline.now
            assert sum(workload.share(now) for _, _, workload in self.programs) <= 1 + 1e-9
            assert sum(w.busy for _, _, w in self.programs) + self.used == self.gpu.timeline.busy

    @invariant()
    def no_kernel_is_lost(self) -> None:
        for _, _, workload in getattr(self, "programs", []):
            assert workload.submitted == workload.completed + len(workload.queue)
            assert len(workload.finished) == min(workload.completed, 20_000)
            assert all(0 < kernel.left <= kernel.work for kernel in workload.queue)

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            for process in list(self.driver.machine.processes.values()):
                self.driver.machine.kill(process)
            assert self.driver.counts().objects == 0
            assert self.gpu.tsgs == []


TestVerbs = Verbs.TestCase
TestVerbs.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
