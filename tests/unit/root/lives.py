# SPDX-License-Identifier: Apache-2.0
"""Seeded dice over a daemon's life on the model: programs come, fork, exec and go while they are asked
about, numbers of processes are used again, the driver and the disk refuse, and the daemon is killed anywhere.

One seed is one life. By hand, from the repository's root, as many as wanted:
`PYTHONPATH=. python tests/unit/root/lives.py FIRST LAST`.
"""

from __future__ import annotations

import errno
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from detshare.ctl.backends.desired import Desired, DesiredState
from detshare.ctl.backends.model import scenario
from detshare.ctl.backends.model.driver import H100, Call, ModelDriver
from detshare.ctl.backends.model.gpu import DEFAULT_LEVEL, DEFAULT_SLICE_US, ModelTsg
from detshare.ctl.backends.model.objects import Kind
from detshare.ctl.backends.model.process import ModelProcess
from detshare.ctl.backends.model.workload import Background
from detshare.ctl.backends.root.backend import RootBackend
from detshare.ctl.backends.root.guardian import recover
from detshare.ctl.backends.root.journal import Journal
from detshare.ctl.backends.root.turns.engine import Turns
from detshare.ctl.core.backend import BadRequest
from detshare.ctl.core.driver import DriverError, ProcessId
from detshare.ctl.core.snapshot import Level, Outcome
from detshare.ctl.rm.client import RmError
from tests.seeds import by_hand
from tests.unit.model import programs
from tests.unit.root.conftest import Clock

LOOK_S = 0.25
QUIET_S = 32.0
"""after trouble: each program is read, asked and set again within it"""
CONTAINERS = ("", "", "", "c0ffee" + "0" * 58, "abcdef" + "1" * 58)
STATUSES = ("NV_ERR_BUSY_RETRY", "NV_ERR_GENERIC", "NV_ERR_INVALID_STATE", "NV_ERR_TIMEOUT",
            "NV_ERR_INSUFFICIENT_PERMISSIONS", "NV_ERR_NO_MEMORY", "NV_ERR_GPU_IS_LOST")  # fmt: skip
EVENTS = ("born", "born", "killed", "reused", "forked", "exec", "context", "gone", "client", "sliced", "asked", "asked",
          "asked", "asked", "pause", "pause", "resume", "release", "preempt", "crash", "restart", "rule")  # fmt: skip
EXPECTED = (BadRequest, RmError, DriverError, OSError)


class Killed(BaseException):
    """The daemon is: nothing that it does from here on has an effect."""


class Life:
    """One life. `broken` says in words what was not kept."""

    def __init__(self, run_dir: Path, patch: pytest.MonkeyPatch, seed: int, *, tell: bool = False) -> None:
        self.random, self.seed, self.tell = random.Random(seed), seed, tell
        self.run_dir, self.clock = run_dir, Clock(tick=1e-3)
        gpus = [H100, programs.second_gpu()] if self.random.random() < 0.3 else [H100]
        self.driver = ModelDriver(gpus=gpus)
        self.living: list[ModelProcess] = []
        self.dead_pids: list[int] = []
        self.broken: list[str] = []
        self.own: dict[int, set[int]] = {}
        """slices that programs gave their TSGs themselves"""
        self.kept: dict[ProcessId, Desired] = {}
        """what was asked for and promised"""
        self.paused: set[ProcessId] = set()
        self.doubtful: set[ProcessId] = set()
        """of which a verb failed halfway"""
        self.killed = self.full = False
        self.strike: Callable[[Call], None] | None = None
        self.left = 0
        self.driver.before_control = self._before
        for owner, name in ((Journal, "_append"), (DesiredState, "_save"), (Journal, "_compact"), (Journal, "clear")):
            patch.setattr(owner, name, self._disk(getattr(owner, name)))
        self.rotates = self.random.random() < 0.5
        patch.setattr(Turns, "start", lambda turns: None)  # its turns are taken between looks
        patch.setattr(Turns, "running", property(lambda turns: not turns._closing))
        self.backend = self._begin()

    # -- trouble

    def _disk(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def gated(owner: object, *args: object) -> Any:
            if self.killed:
                raise Killed
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(owner, *args)

        return gated

    def _before(self, call: Call) -> None:
        if self.killed:
            raise Killed
        self.driver.inject = {}
        if self.strike is not None:
            self.left -= 1
            if self.left <= 0:
                strike, self.strike = self.strike, None
                strike(call)

    def _refuse(self, call: Call) -> None:
        self.driver.inject = {call.name: self.driver.abi.status(self.random.choice(STATUSES))}

    def trouble(self) -> None:
        """Something that happens at one of the next calls of the driver."""
        self.left = self.random.randint(1, self.random.choice((3, 15, 60)))
        what = self.random.choice(("refuse", "refuse", "kill", "reuse", "die", "raise", "full", "gone"))
        self.say(f"in {self.left} calls: {what}")

        def strike(call: Call) -> None:
            self.say(f"now {what} at {call.name} of {call.process.pid}")
            victim = next((p for p in self.living if p.id == call.process), None)
            if what == "refuse":
                self._refuse(call)
            elif what == "die":
                self.killed = True
                raise Killed
            elif what == "raise":
                raise OSError(self.random.choice((errno.EMFILE, errno.EINTR, errno.ENODEV)), "the driver says so")
            elif what == "full":
                self.full = True
            elif victim is not None and what == "gone":
                self._free(victim)
            elif victim is not None:
                self.kill(victim)
                if what == "reuse":
                    self._born(victim.id.pid)

        self.strike = strike

    # -- what programs do

    def say(self, text: str) -> None:
        if self.tell:
            print(f"{self.clock.now:9.2f} {text}")

    def breaks(self, text: str) -> None:
        self.broken.append(f"{self.clock.now:.2f} {text}")
        self.say(f"BROKEN {text}")

    def _born(self, pid: int | None = None) -> ModelProcess:
        gpu = self.random.randrange(len(self.driver.gpu_models))
        which = self.random.choice(("cuda",) * 5 + ("two", "only", "nvml", "far", "mps", "multi"))
        name = f"python3 {self.random.choice(('train', 'infer'))}.py {self.seed}"
        server = next((p for p in self.living if p.comm.startswith("nvidia-cuda-mps")), None)
        if pid is not None or which == "cuda":
            made = scenario.cuda_process(self.driver, name, gpu=gpu, pid=pid)
        elif which == "two":
            made = scenario.two_contexts(self.driver, name, gpu=gpu)
        elif which == "only":
            made = scenario.opened_only(self.driver, name)
        elif which == "nvml":
            made = programs.nvml_process(self.driver)
        elif which == "far":
            made = scenario.cuda_process(self.driver, name, gpu=gpu, base=self.random.randrange(1 << 24, 1 << 30))
        elif which == "multi":
            made = programs.multi_gpu(self.driver, name)
        elif server is None:
            made = programs.mps_server(self.driver)
        else:
            made = programs.mps_client(self.driver, server, f"{name} of mps")
        made.container = self.random.choice(CONTAINERS)
        if made.container and self.random.random() < 0.5:
            made.pid_namespace += 7
        if self.rotates and which in ("cuda", "two", "far", "multi"):
            work = Background((5000, 30_000), utilization=self.random.choice((0.3, 1.0)), seed=made.id.pid)
            with suppress(ValueError):  # on another GPU
                self.driver.machine.start_work(made, self.driver.gpu_models[gpu], work)
        self.living.append(made)
        self.say(f"born {made.id.pid} {which} {made.container[:6]}")
        return made

    def kill(self, process: ModelProcess) -> None:
        if process.comm.startswith("nvidia-cuda-mps"):  # its clients end with it
            for client in [p for p in self.living if p.command.endswith("of mps")]:
                self.kill(client)
        if process in self.living:
            self.living.remove(process)
            self.dead_pids.append(process.id.pid)
            self.driver.machine.kill(process)

    def _free(self, process: ModelProcess) -> None:
        """It destroys a context, by its client or object by object; a server whose clients live does not."""
        if process.comm.startswith("nvidia-cuda-mps"):
            return
        for file in process.fds.values():
            for client in self.driver.rm.clients_of(file) if file.is_control else ():
                devices = [h for h, n in client.objects.items() if n.kind is Kind.DEVICE]
                victim = client.handle if self.random.random() < 0.5 or not devices else devices[0]
                self.driver.rm.free(file, client.handle, victim)
                return

    def _slice(self, process: ModelProcess) -> None:
        for tsg in self._tsgs(process):
            us = self.random.choice((500, 2048, 5000))
            self.own.setdefault(id(tsg), set()).add(us)
            tsg.gpu.set_slice(tsg, us)

    def _tsgs(self, process: ModelProcess) -> list[ModelTsg]:
        """Of clients that it made itself."""
        return [n.tsg for f in process.fds.values() if f.is_control for c in self.driver.rm.clients_of(f)
                if c.pid == process.id.pid for n in c.objects.values() if n.kind is Kind.TSG and n.tsg]  # fmt: skip

    # -- what the daemon is asked

    def _begin(self) -> RootBackend:
        self.say("daemon begins")
        self.paused.clear()
        return RootBackend(self.driver, self.run_dir, name="model", clock=self.clock, rotates=self.rotates)

    def who(self) -> str:
        roll = self.random.random()
        if roll < 0.1:
            return self.random.choice(CONTAINERS[3:])[: self.random.choice((12, 64))]
        if roll < 0.2:
            return self.random.choice(("*train*", "infer", "*"))
        if roll < 0.25 and self.dead_pids:
            return str(self.random.choice(self.dead_pids))
        return str(self.random.choice(self.living).id.pid) if self.living else "999"

    def ask(self, verb: str) -> None:
        who = self.who()
        call: Callable[[], Outcome]
        if verb == "asked":
            klass = self.random.choice(("high", "normal", "low", "idle"))
            weight, us = self.random.randint(1, 1000), self.random.randint(200, 100_000)
            level = self.random.choice((None, *Level))
            tenant, floor = self.random.choice(("", "", "red")), self.random.choice((None, 0.0, 0.3))
            desired, call = self.random.choice((
                (Desired(klass, None, tenant, floor=floor),
                 lambda: self.backend.set_priority(who, klass, None, floor, tenant)),
                (Desired(weight=weight), lambda: self.backend.set_weight(who, weight)),
                (Desired(slice_us=us, level=level), lambda: self.backend.set_slice(who, us, level)),
            ))  # fmt: skip
            verb = desired.text
        else:
            desired, call = Desired(), lambda: getattr(self.backend, verb)(who)
        by_pid = {p.id.pid: p.id for p in self.living}
        outcome = call()
        self.say(f"{verb} of {who}: {outcome}")
        done = [by_pid[c.pid] for c in outcome.changed if c.pid in by_pid]
        failed = {by_pid[s.pid] for s in outcome.skipped if s.pid in by_pid}
        self.doubtful |= failed
        for process in failed:
            self.kept.pop(process, None)
        for process in set(done) & {p.id for p in self.living}:
            if desired.steers:
                self.kept[process] = desired
                self.doubtful.discard(process)
            elif verb == "release":
                self.kept.pop(process, None)
        if verb == "pause":
            self.paused |= set(done)
        elif verb in ("resume", "release"):
            self.paused -= set(done)

    def happen(self) -> None:
        what = self.random.choice(EVENTS)
        process = self.random.choice(self.living) if self.living else self._born()
        self.say(f"{what} {process.id.pid}")
        if what == "born":
            if len(self.living) < 8:
                self._born()
        elif what == "killed":
            self.kill(process)
        elif what == "reused":
            self.kill(process)
            self._born(process.id.pid)
        elif what == "forked":
            self.living.append(self.driver.machine.fork(process))
        elif what == "exec":
            if not process.comm.startswith("nvidia-cuda-mps"):
                self.driver.machine.exec(process, "python3 train.py other")
        elif what == "context":
            scenario.make_context(self.driver, process, gpu=self.random.randrange(len(self.driver.gpu_models)))
        elif what == "gone":
            self._free(process)
        elif what == "client":
            scenario.nvml_client(self.driver, process)
        elif what == "sliced":
            self._slice(process)
        elif what == "rule":
            self.backend.stand(self.random.choice(({}, {"*train*": "low"}, {"*": "normal"})))
        elif what == "crash":
            self.killed = True
            raise Killed
        elif what == "restart":
            self.backend.close()
            self.full, self.strike, self.driver.inject = False, None, {}
            if Journal(self.run_dir, "model").processes():  # it ended amid trouble: then the guardian does the rest
                recover(self.run_dir, self.driver)
            self.restored("after an end")
            self.backend = self._begin()
        else:
            self.ask(what)

    def safely(self, do: Callable[[], object]) -> None:
        """As the daemon's worker would."""
        try:
            do()
        except Killed:
            self._die()
        except EXPECTED as error:
            self.say(f"raised {error!r}")
            self.doubtful |= {p.id for p in self.living}
            self.kept.clear()
        if self.driver.borrowed:
            self.breaks(f"{self.driver.borrowed} descriptors are on loan")
            self.driver.borrowed = 0

    def _die(self) -> None:
        self.say("daemon is killed")
        self.killed = self.full = False
        self.driver.inject, self.strike = {}, None
        if self.random.random() < 0.3:
            with (self.run_dir / "journal-model.jsonl").open("ab") as stream:
                stream.write(b'{"record":"slice","pid":17,"sta')
        if self.random.random() < 0.5:
            if problems := recover(self.run_dir, self.driver):
                self.breaks(f"the guardian could not: {problems}")
            self.restored("by the guardian")
        if self.random.random() < 0.3:
            self.left = self.random.randint(1, 20)
            self.strike = self._refuse
        self.backend = self._begin()
        self.strike, self.driver.inject = None, {}
        self.doubtful.clear()

    def look(self) -> None:
        turns = self.backend._turns
        for _ in range(5 if turns is not None and turns._members else 0):
            assert turns is not None
            turns._turn()
            self.driver.machine.advance(LOOK_S / 5)
        self.clock.sleep(LOOK_S)
        if self.backend.stirs():
            self.backend.look()
        self.backend.drain_events()

    # -- what is promised

    def restored(self, when: str) -> None:
        for tsg in (t for gpu in self.driver.gpu_models for t in gpu.tsgs):
            found = DEFAULT_SLICE_US["compute" if tsg.runlist == 0 else "copy"]
            if any(channel.disabled for channel in tsg.channels):
                self.breaks(f"{when} {tsg.pid} is off")
            if tsg.level != DEFAULT_LEVEL:
                self.breaks(f"{when} {tsg.pid} has level {tsg.level}")
            if tsg.slice_us not in self.own.get(id(tsg), set()) | {found}:
                self.breaks(f"{when} {tsg.pid} has a slice of {tsg.slice_us} us")
        if left := Journal(self.run_dir, "model").processes():
            self.breaks(f"{when} the journal still has {left}")

    def quiet(self) -> None:
        """No trouble for a while; then everything is as it was asked for."""
        self.full, self.strike, self.driver.inject = False, None, {}
        for _ in range(int(QUIET_S / LOOK_S)):
            self.safely(self.look)
        seen = {p.id: p for p in self.backend.look().programs}
        problems = [e for e in self.backend.drain_events() if e.kind == "error"]
        if problems:
            self.breaks(f"errors in peace: {problems}")
        for process in self.living:
            self._judge(process, seen.get(process.id))
        self._bounded()

    def _judge(self, process: ModelProcess, program: Any) -> None:
        mps = program is not None and program.state.value.startswith("mps")
        tsgs = self._tsgs(process)
        off = [any(c.disabled for c in t.channels) for t in tsgs if t.channels]
        if self.backend._turns is not None and process.id in self.backend._turns._hand.waiting:
            off = []
        if process.id in self.paused and process.id not in self.doubtful and off and not all(off) and not mps:
            self.breaks(f"{process.id.pid} is not paused")
        if process.id not in self.paused and process.id not in self.doubtful and any(off):
            self.breaks(f"{process.id.pid} is off and nobody paused it")
        if process.id not in self.backend._journal.paused and any(off):
            self.breaks(f"{process.id.pid} is off and unknown to be")
        kept, has = self.kept.get(process.id), self.backend._desired.get(process.id)
        lost = kept is not None and (kept.klass, kept.weight, kept.slice_us) != (has.klass, has.weight, has.slice_us)
        if lost and process.id not in self.doubtful and not mps:
            self.breaks(f"{process.id.pid} has lost {kept}: {has.text}")
        if program is not None and not mps and has.steers:
            for tsg in (t for t in tsgs if t.runlist == 0):
                plan = self.backend._plan(process.id, tsg.gpu.info.uuid)
                if tsg.engine == 1 and plan and plan.slice_us is not None and tsg.slice_us != plan.slice_us:
                    self.breaks(f"{process.id.pid} has {tsg.slice_us} us of {plan}; {has.text}; {program.notes}")
                if tsg.engine == 1 and plan and tsg.level != int(plan.level):
                    self.breaks(f"{process.id.pid} has level {tsg.level} of {plan}; {has.text}; {program.notes}")

    def _bounded(self) -> None:
        """Nothing is kept of who is no more."""
        alive = {p.id for p in self.living}
        act, desired = self.backend._act, self.backend._desired
        tables: dict[str, set[ProcessId]] = {
            "levels": {k[0] for k in act._levels}, "slices": {k[0] for k in act._slices},
            "journal": set(self.backend._journal.processes()), "desired": set(desired.processes()),
            "adopter": set(self.backend._adopter._known if self.backend._adopter else ()),
            "told": set(self.backend._told),
        }  # fmt: skip
        for name, table in tables.items():
            if table - alive:
                self.breaks(f"{name} still has {table - alive}")

    def live(self) -> list[str]:
        for _ in range(self.random.randint(1, 4)):
            self._born()
        for _ in range(self.random.randint(4, 14)):
            if self.random.random() < 0.35:
                self.trouble()
            self.safely(self.happen)
            for _ in range(self.random.choice((0, 1, 1, 2, 8, 50))):
                self.safely(self.look)
            if self.random.random() < 0.1:
                self.quiet()
        self.quiet()
        self.backend.close()
        self.restored("at the end")
        return self.broken


def live(seed: int, *, tell: bool = False) -> list[str]:
    """What one daemon's life did not keep."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        return Life(Path(folder), patch, seed, tell=tell).live()


if __name__ == "__main__":
    by_hand(live)
