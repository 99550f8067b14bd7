# SPDX-License-Identifier: Apache-2.0
"""Claims of this node's pods: prepared, resized, given up. The gRPC side of it is in plugin.py.

What is asked twice is done twice with the same end: kubelet asks again after each failure, and after its own restart.
The order is limits, then the specification that lets a container in, then the checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Final

from detshare.ctl.core.errors import ControlError
from detshare.ctl.kubernetes import cdi, claims, pods
from detshare.ctl.kubernetes.api import GROUP, Api, ApiError
from detshare.ctl.kubernetes.checkpoint import Checkpoint
from detshare.ctl.kubernetes.claims import Claim, Settings
from detshare.ctl.kubernetes.node import Node, State

__all__ = ["Driver", "Prepared"]

log = logging.getLogger("detshare.kubernetes")

_UID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
"""of a claim: it becomes a file's name"""

Prepared = list[tuple[claims.Allotment, str]]
"""each device of a claim with its CDI name"""


class Driver:
    """`cgroups`: where the version 2 hierarchy is mounted."""

    def __init__(
        self,
        api: Api,
        node: Node,
        checkpoint: Checkpoint,
        specifications: cdi.Specifications,
        cgroups: Path,
    ) -> None:
        self._api = api
        self._node = node
        self._checkpoint = checkpoint
        self._specifications = specifications
        self._cgroups = cgroups
        self._one = asyncio.Lock()
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._told: dict[str, str] = {}
        self._given: dict[str, Settings] = {}
        """cgroup -> what this process gave to it"""

    async def start(self) -> None:
        """Take up what an earlier process prepared; the next passes bring its tenants back."""
        prepared = self._checkpoint.claims
        for uid in await asyncio.to_thread(self._specifications.keep, set(prepared)):
            log.info("claim %s was not prepared to its end: its specification is removed", uid)
        for claim in prepared.values():
            self._follow(claim)

    async def stop(self) -> None:
        """Tenants stay as they are."""
        for task in self._watches.values():
            task.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)

    # -- what kubelet asks ----------------------------------------------------------------------------------------

    async def prepare(self, namespace: str, name: str, uid: str) -> Prepared:
        """A claim's devices, when its pods are tenants. ControlError, ValueError, OSError."""
        _check_uid(uid)
        async with self._one:
            claim = await self._read(namespace, name, uid)
            state = await asyncio.to_thread(self._node.state)
            missing = await self._settle(claim, state)
            if len(missing) == len(claim.pods):
                whose = f"pod {claim.pods[0]}" if claim.pods else "any pod"
                following = "kubelet makes one before it asks; is --cgroups-per-qos on, and is this its hierarchy?"
                raise ControlError(
                    f"prepare {claim.text}", f"there is no cgroup of {whose} in {self._cgroups}", following
                )
            minors = {each.device: self._minor(state, each.device) for each in claim.allotments}
            await asyncio.to_thread(self._specifications.write, claim, minors)
            await asyncio.to_thread(self._checkpoint.put, claim)
            self._follow(claim)
            log.info("%s is prepared: class %s", claim.text, claim.settings.klass)
            return [(each, cdi.qualified(claim.uid, each.device)) for each in claim.allotments]

    async def unprepare(self, uid: str) -> None:
        """A claim is in use no more. Limits end with the cgroups of its pods: a daemon that is away stops nothing."""
        _check_uid(uid)
        async with self._one:
            claim = self._checkpoint.get(uid)
            if claim is not None:
                if (task := self._watches.pop(uid, None)) is not None:
                    task.cancel()
                try:
                    await self._leave(claim)
                except ControlError as error:
                    log.warning("%s: its limits end with its pods: %s", claim.text, error.stopped)
            await asyncio.to_thread(self._specifications.remove, uid)
            await asyncio.to_thread(self._checkpoint.drop, uid)
            self._told.pop(uid, None)

    # -- keeping it so --------------------------------------------------------------------------------------------

    async def keep(self, state: State) -> None:
        """One pass: pods that came later, and tenants that the module has no more, become as their claims say."""
        async with self._one:
            for claim in self._checkpoint.claims.values():
                try:
                    await self._settle(claim, state)
                    self._told.pop(claim.uid, None)
                except (ControlError, ValueError) as error:
                    self._complain(claim, error)

    async def _change(self, claim: Claim) -> None:
        """A claim that is prepared was changed: its pods, its annotations."""
        async with self._one:
            before = self._checkpoint.get(claim.uid)
            if before is None or before == claim:
                return
            # first, for no event tells it again: where the daemon is away, a later pass does the rest
            await asyncio.to_thread(self._checkpoint.put, claim)
            state = await asyncio.to_thread(self._node.state)
            await self._settle(claim, state)
            log.info("%s was changed: %s", claim.text, claim.settings)

    async def _settle(self, claim: Claim, state: State) -> list[str]:
        """Bring the pods of a claim to what their claims say; those that have no cgroup."""
        missing = []
        for pod in claim.pods:
            wanted = self._of_pod(pod, claim)
            cgroup = await asyncio.to_thread(pods.cgroup_of, self._cgroups, pod)
            if cgroup is None:
                missing.append(pod)
            elif self._given.get(cgroup) != wanted or not state.stands(cgroup, wanted):
                await asyncio.to_thread(self._node.give, cgroup, wanted, state)
                self._given[cgroup] = wanted
        return missing

    def _of_pod(self, pod: str, claim: Claim) -> Settings:
        """What all claims of a pod give it; a claim of several pods is divided among them."""
        own = {**self._checkpoint.claims, claim.uid: claim}
        return claims.together(each.settings.divided(len(each.pods)) for each in own.values() if pod in each.pods)

    async def _leave(self, claim: Claim) -> None:
        others = [each for uid, each in self._checkpoint.claims.items() if uid != claim.uid]
        state = await asyncio.to_thread(self._node.state)
        for pod in claim.pods:
            cgroup = await asyncio.to_thread(pods.cgroup_of, self._cgroups, pod)
            if cgroup is None:
                continue
            self._given.pop(cgroup, None)
            if not any(pod in each.pods for each in others):
                await asyncio.to_thread(self._node.take_back, cgroup, claim.settings.memory, state)

    # -- following ------------------------------------------------------------------------------------------------

    async def _read(self, namespace: str, name: str, uid: str) -> Claim:
        found = await self._api.get(f"{GROUP}/namespaces/{namespace}/resourceclaims/{name}")
        if found["metadata"]["uid"] != uid:
            stopped = f"the claim of that name has UID {found['metadata']['uid']}, not {uid}"
            raise ControlError(
                f"prepare claim {namespace}/{name}", stopped, "its pod is of an earlier claim: delete it"
            )
        return claims.read(found)

    def _follow(self, claim: Claim) -> None:
        if claim.uid not in self._watches:
            self._watches[claim.uid] = asyncio.create_task(self._watch(claim))

    async def _watch(self, claim: Claim) -> None:
        """Until it is cancelled: changes of a claim, whatever the API server does meanwhile."""
        folder = f"{GROUP}/namespaces/{claim.namespace}/resourceclaims"
        pause = _SHORTEST_S
        while True:
            try:
                found = await self._api.get(f"{folder}/{claim.name}")
                await self._changed(claim, found)
                version = found["metadata"]["resourceVersion"]
                async for event in self._api.watch(folder, version, fieldSelector=f"metadata.name={claim.name}"):
                    if event["type"] == "MODIFIED":
                        await self._changed(claim, event["object"])
                pause = _SHORTEST_S
            except ApiError as error:
                log.debug("%s", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_S)

    async def _changed(self, claim: Claim, found: dict[str, object]) -> None:
        try:
            now = claims.read(found)
            if now.uid == claim.uid:
                await self._change(now)
                self._told.pop(claim.uid, None)
        except (ControlError, ValueError, OSError) as error:
            self._complain(claim, error)

    # -- the rest -------------------------------------------------------------------------------------------------

    def _minor(self, state: State, device: str) -> int:
        minor = state.minor(device)
        if minor is None:
            raise ControlError(f"prepare {device}", "this node has no such GPU now", "see: detshare-ctl doctor")
        return minor

    def _complain(self, claim: Claim, error: Exception) -> None:
        """Once, until it is another error."""
        text = str(error).replace("\n", "; ")
        if self._told.get(claim.uid) != text:
            self._told[claim.uid] = text
            log.error("%s stays as it was: %s", claim.text, text)


_SHORTEST_S: Final = 0.2
_LONGEST_S: Final = 30.0


def _check_uid(uid: str) -> None:
    if not _UID.fullmatch(uid):
        raise ValueError(f"{ascii(uid)[:80]} is no UID of a claim")
