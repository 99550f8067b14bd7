# SPDX-License-Identifier: Apache-2.0
"""detshare.Client: the daemon, for Python programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from detshare.ctl.client import Client as Wire
from detshare.ctl.library.results import Decision, Event, Look, Policy, Program, Result

__all__ = ["Client"]


class Client:
    """Talks to detshared. Errors are detshare.Error, with `asked`, `stopped` and `next`.

    `who` is a PID (a number will do), a container id, or a part of the command line.
    """

    def __init__(self, run_dir: Path | str | None = None) -> None:
        """`run_dir`: folder of the daemon's socket; by default DETSHARE_RUN_DIR or /run/detshare."""
        self._wire = Wire(run_dir)

    def alive(self) -> bool:
        """Whether a daemon answers."""
        return self._wire.alive()

    def look(self) -> Look:
        """The last look at the machine."""
        return Look.of(self._wire.programs())

    def programs(self) -> tuple[Program, ...]:
        """The programs that hold a GPU."""
        return self.look().programs

    def set_priority(
        self, who: str | int, priority: str, weight: int | None = None, floor: float | None = None
    ) -> Result:
        """Class high, normal, low, idle, or one that was made with `detshare-ctl set-class`.

        `weight`: part of the turns among background programs. `floor`: percent of the time that it has at least.
        """
        return self._do("set-priority", who, klass=priority, weight=weight, floor=floor)

    def set_weight(self, who: str | int, weight: int) -> Result:
        """1 to 1000; GPU time in proportion."""
        return self._do("set-weight", who, weight=weight)

    def set_slice(self, who: str | int, slice_us: int, level: str | None = None) -> Result:
        """Time slice in microseconds, and level low, medium or high."""
        return self._do("set-slice", who, slice_us=slice_us, level=level)

    def set_sm(self, who: str | int, percent: int) -> Result:
        """Share of the SMs, 1 to 100, in the spatial lane."""
        return self._do("set-sm", who, percent=percent)

    def set_memory(self, who: str | int, limit: str | int, gpu: int | None = None) -> Result:
        """Limit of GPU memory: "20G", bytes, or "max" for none. Needs detshare.ko."""
        return self._do("set-memory", who, limit=limit, gpu=gpu)

    def bind(self, who: str | int, pctx: str) -> Result:
        """Bind to a member of the GPU's pool, such as "25%"."""
        return self._do("bind", who, pctx=pctx)

    def hold(self, who: str | int, lease_s: int | None = None) -> Result:
        """Let no new launch begin, for `lease_s` seconds or until resume()."""
        return self._do("hold", who, lease=lease_s)

    def pause(self, who: str | int) -> Result:
        """Take it off the GPU until resume()."""
        return self._do("pause", who)

    def resume(self, who: str | int, lazy: bool = False) -> Result:
        """Let it run on, and bring parked memory back; `lazy`: while it runs."""
        return self._do("resume", who, lazy=lazy or None)

    def park(self, who: str | int, deep: bool = False) -> Result:
        """Copy its GPU memory into host memory, and let it go; a launch brings it back. `deep`: its context too."""
        return self._do("park", who, deep=deep or None)

    def migrate(self, who: str | int, gpu: str | int) -> Result:
        """Move it to another GPU of the same chip, by its number or the beginning of its UUID."""
        return self._do("migrate", who, gpu=str(gpu))

    def preempt(self, who: str | int) -> Result:
        """Take it off the GPU once; it goes on at its next turn."""
        return self._do("preempt", who)

    def release(self, who: str | int) -> Result:
        """Put it back as it was found."""
        return self._do("release", who)

    def policy(self) -> Policy:
        """The policy that decides."""
        return Policy.of(self._wire.policy()["policy"])

    def set_policy(self, name: str, *, on_gpu: str | int | None = None, **params: object) -> Policy:
        """Let another policy decide from now on: on one GPU, by its number or UUID, or on all without one of their own.

        The answer is the policy of all; `gpus` has those of single GPUs.
        """
        given = {key: str(value) for key, value in params.items()}
        return Policy.of(self._wire.policy_set(name, given, "" if on_gpu is None else on_gpu))

    def unset_policy(self, on_gpu: str | int) -> Policy:
        """A GPU has the policy of the others again."""
        return Policy.of(self._wire.policy_unset(on_gpu))

    def decisions(self, since_s: float = 600.0, most: int = 100) -> tuple[Decision, ...]:
        """The newest decisions, oldest first."""
        return tuple(Decision.of(each) for each in self._wire.decisions(since_s, most)["decisions"])

    def why(self, pid: int, since_s: float = 600.0) -> tuple[Decision, ...]:
        """What was decided about one program, oldest first."""
        return tuple(Decision.of(each) for each in self._wire.why(pid, since_s)["decisions"])

    def events(self, follow: bool = False) -> Iterator[Event]:
        """What the daemon saw, oldest first; with `follow`, without end."""
        return map(Event.of, self._wire.events(follow))

    def _do(self, verb: str, who: str | int, **args: object) -> Result:
        return Result.of(self._wire.verb(verb, str(who), **args))
