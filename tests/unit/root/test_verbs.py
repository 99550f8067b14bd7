# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import ModelDriver
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.guardian import recover
from detshare.ctl.core import classes, jobs
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import ProcessId
from detshare.ctl.core.snapshot import Level, State
from detshare.ctl.core.verbs import request
from detshare.ctl.rm.client import RmClient, RmError
from tests.unit.model import programs
from tests.unit.root.conftest import Clock
from tests.unit.root.helpers import program, truth

FOUND = [(2048, 1, False)] + [(1024, 1, False)] * 3
STEPS = ["class", "weight", "slice", "pause", "resume", "release", "look", "crash", "born"]


@pytest.mark.parametrize("klass", ["high", "low", "idle"])
def test_a_class_sets_the_compute_tsg_and_release_puts_it_back(
    backend: RootBackend, driver: ModelDriver, klass: str
) -> None:
    process = scenario.cuda_process(driver)
    wanted = classes.CLASSES[klass]
    outcome = backend.set_priority(str(process.id.pid), klass)
    assert [t.before_us for c in outcome.changed for t in c.tsgs] == [2048]
    assert truth(driver, process) == [(wanted.slice_us, int(wanted.level), False), *FOUND[1:]]
    found = program(backend, process)
    assert (found.klass, found.compute[0].slice_us, found.compute[0].level) == (klass, wanted.slice_us, wanted.level)
    assert backend.release(str(process.id.pid)).changed
    assert truth(driver, process) == FOUND
    assert program(backend, process).compute[0].slice_us == 2048
    assert not backend.release(str(process.id.pid)).changed


def test_a_class_before_the_context_is_applied_when_it_comes(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    process = driver.machine.spawn("python3 serve.py")
    outcome = backend.set_priority(str(process.id.pid), "high")
    assert "will be applied" in outcome.changed[0].note
    scenario.make_context(driver, process)
    clock.sleep(0.25)
    backend.look()
    assert truth(driver, process)[0][:2] == (classes.CLASSES["high"].slice_us, 2)


def test_what_a_one_shot_command_could_not_apply_yet_a_later_daemon_applies(
    make: Callable[[], RootBackend], driver: ModelDriver
) -> None:
    process = driver.machine.spawn("python3 serve.py")
    once = make()
    once.set_priority(str(process.id.pid), "high")
    once.close(restore=False)
    daemon = make()
    scenario.make_context(driver, process)
    daemon.look()
    assert truth(driver, process)[0][:2] == (classes.CLASSES["high"].slice_us, 2)


def test_a_slice_that_the_program_sets_itself_is_overruled_and_given_back(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    process = scenario.cuda_process(driver)
    backend.set_priority(str(process.id.pid), "low")
    driver.gpu_models[0].set_slice(driver.gpu_models[0].tsgs[0], 3000)
    for _ in range(4):
        clock.sleep(0.25)
        backend.look()
    assert truth(driver, process)[0][0] == classes.CLASSES["low"].slice_us
    assert any(e.kind == "change" for e in backend.drain_events())
    backend.release(str(process.id.pid))
    assert truth(driver, process)[0][0] == 3000


def test_weights_are_slices_over_all_tsgs_of_a_tenant(backend: RootBackend, driver: ModelDriver) -> None:
    one, two = scenario.cuda_process(driver), scenario.two_contexts(driver)
    backend.set_weight(str(one.id.pid), 3)
    backend.set_weight(str(two.id.pid), 3)
    shares = [sum(t[0] for t in truth(driver, p) if t[0] != 1024) for p in (one, two)]
    assert shares == [3 * classes.WEIGHT_UNIT_US] * 2


def test_a_container_is_one_tenant(backend: RootBackend, driver: ModelDriver) -> None:
    members = [scenario.cuda_process(driver, f"worker {n}") for n in range(2)]
    for process in members:
        process.container = "c0ffee" + "0" * 58
    backend.set_weight("c0ffee000000", 4)
    backend.look()
    assert sum(truth(driver, p)[0][0] for p in members) == 4 * classes.WEIGHT_UNIT_US


def test_pause_switches_every_channel_off_and_resume_on(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.cuda_process(driver)
    assert backend.pause(str(process.id.pid)).changed
    assert all(off for _, _, off in truth(driver, process))
    assert program(backend, process).state is State.PAUSED
    assert backend.resume(str(process.id.pid)).changed
    assert truth(driver, process) == FOUND
    assert not backend.resume(str(process.id.pid)).changed


def test_a_context_made_while_paused_is_paused_too(backend: RootBackend, driver: ModelDriver, clock: Clock) -> None:
    process = scenario.cuda_process(driver)
    backend.pause(str(process.id.pid))
    scenario.make_context(driver, process)
    clock.sleep(0.5)
    backend.look()
    assert all(off for _, _, off in truth(driver, process))
    backend.resume(str(process.id.pid))
    assert not any(off for _, _, off in truth(driver, process))


def test_a_pause_that_is_refused_halfway_leaves_nothing_off(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.two_contexts(driver)
    backend.look()
    calls = []
    real = driver.rm.control

    def refuse_second(*args: object) -> int:
        calls.append(args)
        if args[3] == driver.abi.control("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS").number:
            off = bytes(args[4])[0]  # type: ignore[call-overload]
            if off and any(t[2] for t in truth(driver, process)):
                return driver.abi.status("NV_ERR_INVALID_CHANNEL")
        return real(*args)  # type: ignore[arg-type]

    driver.rm.control = refuse_second  # type: ignore[method-assign,assignment]
    outcome = backend.pause(str(process.id.pid))
    driver.rm.control = real  # type: ignore[method-assign]
    assert not outcome.changed
    assert "INVALID_CHANNEL" in outcome.skipped[0].reason
    assert not any(off for _, _, off in truth(driver, process))


def test_mps_is_never_paused_and_slices_act_on_the_server(backend: RootBackend, driver: ModelDriver) -> None:
    server = programs.mps_server(driver)
    client = programs.mps_client(driver, server)
    for process in (server, client):
        outcome = backend.pause(str(process.id.pid))
        assert not outcome.changed
        assert "hang" in outcome.skipped[0].reason
    outcome = backend.set_priority(str(client.id.pid), "low")
    assert outcome.changed[0].pid == server.id.pid
    assert truth(driver, server)[0][0] == classes.CLASSES["low"].slice_us
    assert not any(t.hung for t in driver.gpu_models[0].tsgs)
    backend.release(str(client.id.pid))
    assert truth(driver, server)[0][0] == 2048


def test_preempt_takes_the_compute_tsg_off_once(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.cuda_process(driver)
    backend.preempt(str(process.id.pid))
    assert [t.preempts for t in driver.gpu_models[0].tsgs] == [1, 0, 0, 0]
    assert truth(driver, process) == FOUND


def test_who_can_be_a_command_or_a_container(backend: RootBackend, driver: ModelDriver) -> None:
    serve, train = scenario.cuda_process(driver, "python3 serve.py"), scenario.cuda_process(driver, "python3 train.py")
    train.container = "ab" * 32
    assert [c.pid for c in backend.set_priority("serve", "high").changed] == [serve.id.pid]
    assert [c.pid for c in backend.set_priority("abababababab", "low").changed] == [train.id.pid]
    assert {c.pid for c in backend.set_priority("python3 *", "idle").changed} == {serve.id.pid, train.id.pid}
    nobody = backend.set_priority("nosuch", "high")
    assert not nobody.changed
    assert "detshare-ctl ps" in nobody.skipped[0].reason


@pytest.mark.parametrize("who", ["", " ", "0", "-1", "99999999", "x" * 5000])
def test_a_who_that_cannot_be_meant_is_refused(backend: RootBackend, who: str) -> None:
    with pytest.raises(BadRequest, match="PID"):
        backend.pause(who)


@pytest.mark.parametrize("weight", [0, -1, 1001, True, 1.5, "3"])
def test_a_weight_out_of_range_is_refused(backend: RootBackend, driver: ModelDriver, weight: int) -> None:
    process = scenario.cuda_process(driver)
    with pytest.raises(BadRequest, match=r"out of range|a whole number"):
        backend.do(request("set-weight", str(process.id.pid), weight=weight))
    assert truth(driver, process) == FOUND


def test_closing_puts_everything_back_and_a_new_daemon_takes_up_the_desired_state(
    make: Callable[[], RootBackend], driver: ModelDriver
) -> None:
    process = scenario.cuda_process(driver)
    first = make()
    first.set_priority(str(process.id.pid), "idle")
    first.pause(str(process.id.pid))
    first.close()
    assert truth(driver, process) == FOUND
    second = make()
    found = program(second, process)
    assert (found.klass, found.state) == ("idle", State.RUNNING)
    assert truth(driver, process)[0][0] == classes.CLASSES["idle"].slice_us
    second.close()
    assert truth(driver, process) == FOUND


def test_a_killed_daemon_is_undone_by_whoever_comes_first(
    make: Callable[[], RootBackend], driver: ModelDriver, tmp_path: Path
) -> None:
    process, gone = scenario.cuda_process(driver), scenario.cuda_process(driver)
    killed = make()
    for p in (process, gone):
        killed.set_priority(str(p.id.pid), "low")
        killed.pause(str(p.id.pid))
    driver.machine.kill(gone)
    assert recover(tmp_path, driver) == []
    assert truth(driver, process) == FOUND
    assert recover(tmp_path, driver) == []
    assert not (tmp_path / "journal-model.jsonl").exists()


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_history_ends_as_it_began(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    clock, driver = Clock(tick=1e-3), ModelDriver()
    run_dir = tmp_path_factory.mktemp("run")
    backend = RootBackend(driver, run_dir, name="model", clock=clock)
    living = [scenario.cuda_process(driver, f"p{n}") for n in range(3)]
    for _ in range(data.draw(st.integers(0, 8))):
        process = data.draw(st.sampled_from(living))
        who = str(process.id.pid)
        step = data.draw(st.sampled_from(STEPS))
        if step == "class":
            backend.set_priority(who, data.draw(st.sampled_from(sorted(classes.CLASSES))))
        elif step == "weight":
            backend.set_weight(who, data.draw(st.integers(1, 1000)))
        elif step == "slice":
            backend.set_slice(who, data.draw(st.integers(1, 10**8)), data.draw(st.sampled_from([None, *Level])))
        elif step in ("pause", "resume", "release"):
            getattr(backend, step)(who)
        elif step == "crash":  # kill -9: nothing is closed
            backend = RootBackend(driver, run_dir, name="model", clock=clock)
        elif step == "born":
            driver.machine.kill(living.pop(living.index(process)))
            living.append(scenario.cuda_process(driver, "new"))
        clock.sleep(data.draw(st.sampled_from([0.0, 0.3, 1.2])))
        backend.look()
    backend.close()
    assert [truth(driver, p) for p in living] == [FOUND] * 3
    assert driver.borrowed == 0


def test_a_whole_id_of_a_container_stands_for_the_programs_that_come(
    backend: RootBackend, driver: ModelDriver, clock: Clock
) -> None:
    assert not backend.set_priority("c0ffee" * 2, "low").changed
    (change,) = backend.set_priority("c0ffee" + "0" * 58, "low").changed
    assert "for programs to come" in change.note
    process = driver.machine.spawn("python3 train.py")
    process.container = "c0ffee" + "0" * 58
    scenario.make_context(driver, process)
    clock.sleep(0.25)
    backend.look()
    assert truth(driver, process)[0][:2] == (classes.CLASSES["low"].slice_us, int(classes.CLASSES["low"].level))
    backend.release("c0ffee" + "0" * 58)
    later = driver.machine.spawn("python3 train.py")
    later.container = process.container
    scenario.make_context(driver, later)
    clock.sleep(0.25)
    backend.look()
    assert truth(driver, later) == FOUND


def test_a_job_is_paused_and_goes_on_as_one(
    backend: RootBackend, driver: ModelDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = [scenario.cuda_process(driver, f"python3 ddp.py {rank}") for rank in range(2)]
    other = scenario.cuda_process(driver, "python3 train.py")
    known = {each.id.pid: "0::a:1" for each in ranks}
    monkeypatch.setattr(jobs, "of", lambda pid: known.get(pid, ""))
    who = f"job:{ranks[1].id.pid}"
    assert [change.pid for change in backend.pause(who).changed] == [each.id.pid for each in ranks]
    assert [change.pid for change in backend.resume(who).changed] == [each.id.pid for each in ranks]
    nobody = backend.pause(f"job:{other.id.pid}")
    assert not nobody.changed
    assert "WORLD_SIZE" in nobody.skipped[0].reason


@pytest.fixture
def job(driver: ModelDriver, monkeypatch: pytest.MonkeyPatch) -> list[ModelProcess]:
    """Two ranks."""
    ranks = [scenario.cuda_process(driver, f"python3 ddp.py {rank}") for rank in range(2)]
    monkeypatch.setattr(jobs, "of", lambda pid: "0::a:1" if pid in {each.id.pid for each in ranks} else "")
    return ranks


def switched(monkeypatch: pytest.MonkeyPatch, first: Callable[[int], object]) -> None:
    """Have `first` called with the client's handle before channels are switched off."""
    switch = RmClient.switch_channels

    def instead(self: RmClient, subdevice: int, channels: Sequence[int], *, run: bool) -> None:
        if not run:
            first(self.handle)
        switch(self, subdevice, channels, run=run)

    monkeypatch.setattr(RmClient, "switch_channels", instead)


def test_the_ranks_of_a_job_go_off_side_by_side(
    backend: RootBackend, job: list[ModelProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = threading.Barrier(2)
    switched(monkeypatch, lambda handle: meeting.wait(60))
    outcome = backend.pause(f"job:{job[0].id.pid}")
    assert len(outcome.changed) == 2
    assert all(change.tsgs for change in outcome.changed)
    assert outcome.seconds > 0
    assert {p.state for p in backend.look().programs} == {State.PAUSED}


def test_a_rank_that_cannot_be_paused_says_so_and_the_others_are_off(
    backend: RootBackend, job: list[ModelProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {tsg.client for tsg in program(backend, job[0]).tsgs}

    def refuse(handle: int) -> None:
        if handle in theirs:
            raise RmError("pausing", 0x56, "NV_ERR_NOT_SUPPORTED")

    switched(monkeypatch, refuse)
    outcome = backend.pause(f"job:{job[0].id.pid}")
    assert [change.pid for change in outcome.changed] == [job[1].id.pid]
    assert [skip.pid for skip in outcome.skipped] == [job[0].id.pid]
    assert job[0].id not in backend._journal.paused
    monkeypatch.undo()
    backend.resume(str(job[1].id.pid))
    assert not backend._journal.paused


def test_an_error_of_ours_leaves_no_rank_off(
    backend: RootBackend, job: list[ModelProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def fail(handle: int) -> None:
        seen.append(handle)
        if len(seen) == 2:
            raise ValueError("no error of the driver's")

    switched(monkeypatch, fail)
    kept: list[ProcessId] = []
    monkeypatch.setattr(backend, "_leave_turns", kept.append)
    monkeypatch.setattr(backend, "_admit", kept.remove)
    with pytest.raises(ValueError, match="no error"):
        backend.pause(f"job:{job[0].id.pid}")
    assert not kept, "who left its turns for it takes part again"
    assert not backend._journal.paused
    assert State.PAUSED not in {p.state for p in backend.look().programs}


def test_many_are_paused_one_after_the_other(
    backend: RootBackend, job: list[ModelProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread and duplicates of descriptors for each of a thousand would be more than a daemon may have."""
    monkeypatch.setattr("detshare.ctl.backends.root.backend.MOST", 1)
    threads: list[str] = []
    switched(monkeypatch, lambda handle: threads.append(threading.current_thread().name))
    assert len(backend.pause(f"job:{job[0].id.pid}").changed) == 2
    assert set(threads) == {threading.current_thread().name}


def test_what_was_given_with_a_class_can_be_given_again(backend: RootBackend, driver: ModelDriver) -> None:
    process = scenario.cuda_process(driver)
    who, pid = str(process.id.pid), process.id.pid
    backend.look()
    assert backend.kept(pid) == {}
    given = {"class": "low", "weight": 3, "floor": 0.5, "tenant": "lab"}
    backend.do(request("set-priority", who, **given))
    desired = backend._desired.get(process.id)
    assert backend.kept(pid) == {name: value for name, value in given.items() if name != "class"}
    backend.do(request("set-priority", who, **{"class": "low", **backend.kept(pid)}))
    assert backend._desired.get(process.id) == desired
    backend.set_weight(who, 3)
    assert backend.kept(pid) == {}


LOW = (classes.CLASSES["low"].slice_us, int(classes.CLASSES["low"].level))
SECONDS = 1.0
Launch = Callable[..., ModelProcess]


@pytest.fixture
def launch(driver: ModelDriver, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Starts a rank of the one job; `by` another process than its launcher."""
    launchers: dict[int, ProcessId] = {}
    usual = driver.machine.spawn("torchrun ddp.py")
    monkeypatch.setattr(jobs, "of", lambda pid: "0::a:1" if pid in launchers else "")
    monkeypatch.setattr(jobs, "launcher", launchers.get)

    def one(
        rank: int, by: ModelProcess = usual, make: Callable[..., ModelProcess] = scenario.cuda_process
    ) -> ModelProcess:
        made = make(driver, f"python3 ddp.py {rank}")
        launchers[made.id.pid] = by.id
        return made

    return one


def classes_of(backend: RootBackend, clock: Clock, *ranks: ModelProcess) -> list[str | None]:
    clock.sleep(SECONDS)
    backend.look()
    return [program(backend, each).klass for each in ranks]


def test_a_rank_that_comes_late_has_what_was_asked_for_its_job(
    backend: RootBackend, driver: ModelDriver, clock: Clock, launch: Launch
) -> None:
    """So has one in place of a rank that ended, also where all had and the daemon was killed meanwhile."""
    first = launch(0)
    backend.set_priority(f"job:{first.id.pid}", "low", weight=3)
    late, other = launch(1), scenario.cuda_process(driver, "python3 train.py")
    assert classes_of(backend, clock, first, late, other) == ["low", "low", None]
    assert program(backend, late).weight == 3
    assert truth(driver, late)[0][1] == LOW[1]
    for each in (first, late):
        driver.machine.kill(each)
    clock.sleep(SECONDS)
    backend.look()
    after = RootBackend(driver, backend._run_dir, name="model", clock=clock)  # kill -9: nothing is closed
    again = launch(0)
    assert classes_of(after, clock, again, other) == ["low", None]
    after.set_priority(str(again.id.pid), "high")
    assert classes_of(after, clock, again, launch(1)) == ["high", "low"]


def test_a_job_of_the_same_name_that_another_one_starts_is_another(
    backend: RootBackend, driver: ModelDriver, clock: Clock, launch: Launch
) -> None:
    first = launch(0)
    backend.set_priority(f"job:{first.id.pid}", "low")
    stranger = launch(0, by=driver.machine.spawn("torchrun other.py"))
    assert classes_of(backend, clock, first, stranger) == ["low", None]


def test_a_job_that_is_released_leaves_nothing_for_ranks_to_come(
    backend: RootBackend, clock: Clock, launch: Launch
) -> None:
    first = launch(0)
    who = f"job:{first.id.pid}"
    for forget in (who, "*"):
        backend.set_priority(who, "low")
        assert backend.release(forget).changed
        assert classes_of(backend, clock, first, launch(1)) == [None, None]
    assert not (backend._run_dir / "desired-model.json").exists()


def test_a_job_without_a_context_yet_may_be_asked_for(
    backend: RootBackend, driver: ModelDriver, clock: Clock, launch: Launch
) -> None:
    first = launch(0, make=lambda driver, command: driver.machine.spawn(command))
    who = f"job:{first.id.pid}"
    (change,) = backend.set_priority(who, "low").changed
    assert "no rank of" in change.note
    second = launch(1)
    assert classes_of(backend, clock, second) == ["low"]
    scenario.make_context(driver, first)
    assert classes_of(backend, clock, first) == ["low"]


def test_what_was_asked_for_a_job_ends_with_its_launcher(
    backend: RootBackend, driver: ModelDriver, clock: Clock, launch: Launch
) -> None:
    launcher = driver.machine.spawn("torchrun other.py")
    first = launch(0, by=launcher)
    backend.set_priority(f"job:{first.id.pid}", "low")
    for each in (first, launcher):
        driver.machine.kill(each)
    clock.sleep(SECONDS)
    backend.look()
    assert not (backend._run_dir / "desired-model.json").exists()
