# SPDX-License-Identifier: Apache-2.0
"""A ResourceClaim of resource.k8s.io/v1 as this node has to serve it: devices, settings, pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from detshare.ctl.kubernetes import quantity
from detshare.ctl.kubernetes.parameters import DRIVER, Parameters, annotated, decode, overlaid, within

__all__ = ["MEMORY", "SHARE", "Allotment", "Claim", "Settings", "read", "together"]

MEMORY: Final = "memory"
"""capacity of a device: bytes"""
SHARE: Final = "share"
"""capacity of a device: hundredths of its time"""


@dataclass(frozen=True, slots=True)
class Allotment:
    """A device that the scheduler gave to a request of the claim."""

    request: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What a tenant gets."""

    klass: str = "normal"
    weight: int | None = None
    """part of the time of its class; None: that of anybody else, as with class high, which goes first"""
    floor: int | None = None
    """thousandths; None: as its class"""
    memory: Mapping[str, int] = field(default_factory=dict, hash=False)
    """device -> bytes; without an entry there is no limit"""

    def divided(self, tenants: int) -> Settings:
        """The part of each of several tenants."""
        return replace(
            self,
            weight=None if self.weight is None else max(self.weight // tenants, 1),
            floor=None if self.floor is None else self.floor // tenants,
            memory={device: max(size // tenants, 1) for device, size in self.memory.items()},
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """An allocated claim, as far as it is ours."""

    uid: str
    namespace: str
    name: str
    allotments: tuple[Allotment, ...]
    settings: Settings
    pods: tuple[str, ...]
    """UIDs of the pods that it is reserved for"""

    @property
    def text(self) -> str:
        """For people: "claim default/a"."""
        return f"claim {self.namespace}/{self.name}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """TypeError, ValueError, KeyError where it is none."""
        whole = dict(data)
        whole["allotments"] = tuple(Allotment(**each) for each in whole["allotments"])
        whole["settings"] = Settings(**whole["settings"])
        whole["pods"] = tuple(whole["pods"])
        return cls(**whole)


def read(found: Mapping[str, Any]) -> Claim:
    """The Claim of an object that the API server gave. ValueError where it cannot be served, with the reason."""
    about, status = found["metadata"], found.get("status") or {}
    devices = (status.get("allocation") or {}).get("devices") or {}
    results = [each for each in devices.get("results") or () if each["driver"] == DRIVER]
    if not results:
        raise ValueError("no device of ours is allocated to it: the scheduler allocates before a pod is bound")
    if any(each.get("adminAccess") for each in results):
        raise ValueError("adminAccess is not given: it would be a tenant without limits")
    configs = [each for each in devices.get("config") or () if (each.get("opaque") or {}).get("driver") == DRIVER]
    resized = annotated(about.get("annotations") or {})
    parts = [_settings(each, configs, resized) for each in results]
    return Claim(
        about["uid"],
        about["namespace"],
        about["name"],
        tuple(Allotment(each["request"], each["pool"], each["device"]) for each in results),
        together(parts),
        tuple(each["uid"] for each in status.get("reservedFor") or () if _is_pod(each)),
    )


def _is_pod(consumer: Mapping[str, Any]) -> bool:
    return consumer["resource"] == "pods" and not consumer.get("apiGroup")


def _settings(result: Mapping[str, Any], configs: Sequence[Mapping[str, Any]], resized: Parameters) -> Settings:
    """Of one device: what its device class says, and below that what the claim and its annotations ask for."""
    consumed = {name: quantity.parse(value) for name, value in (result.get("consumedCapacity") or {}).items()}
    share = consumed.get(SHARE)
    given = Parameters(weight=share, memory=consumed.get(MEMORY))
    given = overlaid(given, _said(configs, "FromClass", result["request"]))
    asked = overlaid(_said(configs, "FromClaim", result["request"]), resized)
    most = given.floor if given.floor is not None or share is None else 10 * share
    got = within(replace(given, floor=most), asked)
    floor = asked.floor if asked.floor is not None else given.floor
    klass = got.klass or "normal"
    if floor is not None and klass != "low":
        raise ValueError(f"a floor goes with class low: class {klass} has {'its own' if klass == 'idle' else 'none'}")
    if klass == "high" and asked.weight is not None:
        raise ValueError("class high has no weight: it goes first, whatever others have")
    weight = None if klass == "high" else got.weight
    return Settings(klass, weight, floor, {} if got.memory is None else {result["device"]: got.memory})


def _said(configs: Sequence[Mapping[str, Any]], source: str, request: str) -> Parameters:
    """What configurations of a source say for a request, the later ones in place of the earlier."""
    said = Parameters()
    for each in configs:
        requests = each.get("requests") or ()
        # "gpu/large" is the alternative "large" of request "gpu"
        if each["source"] == source and (not requests or {request, request.split("/")[0]} & set(requests)):
            where = "device class" if source == "FromClass" else "claim"
            said = overlaid(said, decode(each["opaque"].get("parameters"), where))
    return said


def together(parts: Iterable[Settings]) -> Settings:
    """What a pod gets that has several devices, or several claims: their memory, and one place among others.

    ValueError where they want different places: a pod is one tenant.
    """
    first, *others = parts
    memory = dict(first.memory)
    weight = first.weight
    for each in others:
        if (each.klass, each.floor) != (first.klass, first.floor):
            raise ValueError("its devices want different classes or floors: a pod is one tenant and has one")
        weight = min((w for w in (weight, each.weight) if w is not None), default=None)
        for device, size in each.memory.items():
            memory[device] = memory.get(device, 0) + size
    return replace(first, weight=weight, memory=memory)
