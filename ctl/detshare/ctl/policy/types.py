# SPDX-License-Identifier: Apache-2.0
"""What a policy sees and what it may ask for, whoever runs it: the simulator or a daemon.

A policy is a class with some of the hooks of `Policy`. Each hook gets a snapshot that it cannot change and returns
actions; an action on a tenant or a pool member that is not there, or beyond the GPU, is refused and counted, never half
done. What nobody measures here has the value that its field defaults to: a policy must work with those alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

__all__ = [
    "HOOKS",
    "KICKS",
    "MECHANISMS",
    "Action",
    "Bind",
    "ClassRow",
    "Gate",
    "Move",
    "PCtx",
    "Park",
    "Policy",
    "Preempt",
    "Reflex",
    "Shape",
    "Slice",
    "Snapshot",
    "TenantView",
]

HOOKS: Final = (
    "on_attach",
    "on_launch",
    "on_completion",
    "on_congestion",
    "on_memory_pressure",
    "on_tick",
    "on_detach",
)
KICKS: Final = ("never", "deadlines", "always")
MECHANISMS: Final = ("rows", "floors", "launches", "requests")
"""that may be missing: rows of classes, of these the floors, launches that are seen, requests whose times are known"""


@dataclass(frozen=True, slots=True)
class Shape:
    """How long kernels of one shape took, from a log2 histogram. Times in microseconds: upper ends of buckets; 0 where
    launches were counted from outside (eBPF), which times nothing."""

    name: str
    """of the kernel, or "graph"; "" where nobody knows"""
    blocks: int
    """of the grid"""
    threads: int
    """of a block"""
    count: int
    p50_us: float
    p90_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class PCtx:
    """A member of a GPU's pool: a set of SMs, ready to run tenants that are moved to it."""

    name: str
    sms: int
    exclusive: bool = False
    """at most one tenant, and its SMs belong to no other member"""
    bound: tuple[str, ...] = ()
    """names of the tenants on it"""


@dataclass(frozen=True, slots=True)
class TenantView:
    """One tenant at one moment. Times in microseconds."""

    name: str
    """in a daemon: the PID"""
    klass: str
    """high, normal or low; idle, or a class that somebody made, in a daemon; "" where nobody gave it one"""
    sms: int
    """SM quota now"""
    slice_us: float
    level: int
    """0 low, 1 medium, 2 high"""
    gate_open: bool
    active: bool
    """has work that is not finished"""
    queued: int
    """runs that wait or run"""
    in_flight_us: float
    """age of the oldest unfinished run, 0 without one"""
    kind: str
    """of the run at the head: "prefill", "decode", "kernels", "" without one or where nobody knows"""
    launches: int
    """kernels finished so far"""
    lane: str = ""
    """temporal or spatial, where tenants of one GPU differ; "": that of the snapshot"""
    pctx: str = ""
    """the pool member it is bound to"""
    standing_sms: int | None = None
    """SM quota while nobody of a higher class is active; None: all"""
    reflex_sms: int | None = None
    """SM quota while somebody is, 0: held; None: no reflex"""
    weight: float | None = None
    """part of the GPU in proportion to it; None: nobody gave it one"""
    deadline_us: float | None = None
    """a request that takes longer has missed its goal; None: no goal"""
    delay_p50_us: float | None = None
    delay_p99_us: float | None = None
    """from a launch to its turn, over the last second: in a daemon until all that its stream had before it was done,
    gates too; waiting for SMs is not in it. None: not measured"""
    held_share: float = 0.0
    """part of the last second in which its launches were held, 0 to 1"""
    launches_per_s: float = 0.0
    graph_launches: int = 0
    """of `launches` and `launches_per_s` none: graphs launched so far"""
    graph_launches_per_s: float = 0.0
    blocks: int = 0
    """grid of the launch at the head, else of the latest; in a daemon of the kernel that was timed last, some a second
    are, or of those that eBPF saw most in the last second; 0: not known"""
    used_us: float = 0.0
    """GPU time so far, estimated; of a program on several GPUs that of the one where it works most"""
    shapes: tuple[Shape, ...] = ()
    """what it launches most, by time on the GPU, from samples; by number where eBPF counted them; at most 16"""
    group: str = ""
    """named tenant, cgroup or container that it belongs to"""
    pid: int = 0
    command: str = ""
    floor: float | None = None
    """percent of time that it has at least while a higher class leaves nothing; None: not managed, or not known"""
    requests: int = 0
    """that ended in the window of the two times that follow; 0: nobody says how long they take"""
    request_p50_us: float = 0.0
    request_p99_us: float = 0.0
    request_window_us: float = 0.0
    request_age_us: float = 0.0
    """since the last one"""
    residence: str = ""
    """where its memory that can leave is: home, leaving, parked, coming or waiting; "": none of it can"""
    parkable_bytes: int = 0
    """of it, wherever it is"""
    wants_bytes: int = 0
    """GPU memory that it waits for: of an allocation, or to come back"""
    idle_us: float = 0.0
    """since its last launch; measured, as the next two, of those whose memory can leave"""
    home_us: float = 0.0
    """since its memory is on the GPU"""
    copy_us: float = 0.0
    """its last park and its last way back together; 0: there was none"""
    by_hand: tuple[str, ...] = ()
    """kinds of actions that a person has set by hand: "Slice", "Bind", ...; a policy's are refused until released"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One GPU at one moment."""

    now_us: float
    lane: str
    """temporal, spatial or mps"""
    sms: int
    tenants: tuple[TenantView, ...]
    gpu: str = ""
    """UUID"""
    hour: float = 0.0
    """of the day, local time, 0 to 24"""
    pool: tuple[PCtx, ...] = ()
    rows: bool = True
    """whole rows of classes can be written: detshare.ko is there, or this is the simulator"""
    floors: bool = True
    """of rows at least the floors: somebody rotates the background of this GPU"""

    def tenant(self, name: str) -> TenantView | None:
        """By name; None where it is not here."""
        return next((each for each in self.tenants if each.name == name), None)

    def member(self, name: str) -> PCtx | None:
        """A member of the pool by name; None where there is none."""
        return next((each for each in self.pool if each.name == name), None)

    def lane_of(self, tenant: TenantView) -> str:
        """The lane that one tenant is in."""
        return tenant.lane or self.lane


@dataclass(frozen=True, slots=True)
class Bind:
    """Give a tenant a quota of SMs; counts from its next kernel on (spatial lane)."""

    tenant: str
    sms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """Bind a tenant to a member of the pool; counts from its next kernel on (spatial lane)."""

    tenant: str
    pctx: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Slice:
    """Set a tenant's time slice and level (temporal lane)."""

    tenant: str
    slice_us: float
    level: int = 1
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """Open or close a tenant's gate: at the next kernel boundary (spatial lane), at once (temporal lane).

    A gate that a daemon's policy closes opens by itself after ten seconds unless it is closed again.
    """

    tenant: str
    open: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Preempt:
    """End the tenant's time slice now (temporal lane)."""

    tenant: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Park:
    """Copy a tenant's GPU memory to the host and let it go, after what it runs now.

    It comes back by itself with its next launch, but not before `room_for` has the memory that it waits for, for 30 s
    at most.
    """

    tenant: str
    room_for: str
    """a tenant of the same GPU"""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reflex:
    """While a tenant of a higher class is active: this quota of SMs, 0 to hold; None: no reflex (spatial lane)."""

    tenant: str
    busy_sms: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClassRow:
    """What a class means on this GPU; None: as it is. A daemon with detshare.ko writes it into the kernel."""

    klass: str
    weight: int | None = None
    slice_us: int | None = None
    level: int | None = None
    floor_permille: int | None = None
    """of the time, while others have all turns, or a foreground without gaps the GPU"""
    turn_us: int | None = None
    """its tenants have the GPU one at a time, so long at weight 1, and before those of lower classes; 0: at once"""
    reason: str = ""


Action = Bind | Move | Slice | Gate | Preempt | Park | Reflex | ClassRow


@dataclass(frozen=True)
class NoParams:
    """Of a policy that takes none."""


class Policy:
    """Hooks that do nothing.

    Parameters: a policy that takes any has a frozen dataclass `Params` in its class, with a default for each field
    (int, float, bool or str) and a `__post_init__` that raises ValueError where a value cannot be meant. An object of
    it is in `self.params`.
    """

    Params: ClassVar[type[Any]] = NoParams
    tick_us: float = 0.0
    """simulated or real time between two ticks, 0 for none; a daemon ticks at most a hundred times a second"""
    lacks: ClassVar[Mapping[str, str]] = {}
    """what is different where something is missing, for `policy show`: one of MECHANISMS -> a sentence"""
    kicks: ClassVar[str] = "never"
    """when on_launch and on_completion are to come within milliseconds for programs that detshare.ko sees, instead of
    with the next look: "always", while somebody has a deadline ("deadlines"), or "never". It costs each program a page
    fault for each burst of launches, so not without need. One of KICKS."""
    ticks: str = "always"
    """when it has something to do in on_tick, but for while something that it did stands: then it always ticks. One of
    KICKS."""
    looks: str = "always"
    """when it needs several looks a second though no program came, went or made a context; else it has one. One of
    KICKS."""

    def __init__(self, params: Any = None) -> None:
        self.params = self.Params() if params is None else params

    def on_attach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A tenant came."""
        return ()

    def on_launch(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """An idle tenant got work, or a server began another step. Never once per kernel."""
        return ()

    def on_completion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A run of a tenant ended."""
        return ()

    def on_congestion(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """The oldest run of a tenant has waited longer than its limit."""
        return ()

    def on_memory_pressure(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A tenant waits for GPU memory (`wants_bytes`); with each look for as long as it does. Where nothing is done
        it goes on waiting, and its allocation fails at the end of its time (`park.wait` of the configuration)."""
        return ()

    def on_tick(self, now: Snapshot) -> Iterable[Action]:
        """``tick_us`` passed."""
        return ()

    def on_detach(self, now: Snapshot, tenant: str) -> Iterable[Action]:
        """A tenant went."""
        return ()
