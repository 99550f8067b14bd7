# SPDX-License-Identifier: Apache-2.0
"""DetShare's policies as ways of their own, for servers that tell how long their requests take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detshare.tools.bench.field.programs import Objectives
from detshare.tools.bench.field.systems import Temporal
from detshare.tools.bench.mix.figures import Figure
from detshare.tools.bench.mix.stage import Wanted
from detshare.tools.bench.mix.worker import Worker
from detshare.tools.bench.session import Session

__all__ = ["Policed", "SloAware", "TpotFirst", "policed"]

USUAL = "slo-aware"
"""the daemon's own policy: without a stated time it does nothing"""


class Policed(Temporal):
    """A policy decides; it begins anew with each cell."""

    policy = ""

    def __init__(self) -> None:
        self._before: Mapping[str, int] = {}
        self._server: int | None = None

    def params(self, slo: Objectives) -> dict[str, str]:
        """Of the policy, for a server with these objectives."""
        del slo
        return {}

    def goal_ms(self, slo: Objectives) -> float | None:
        """What the daemon is told that the server's requests may take; None: nothing."""
        del slo
        return None

    def prepare(self, session: Session, server: Worker, slo: Objectives) -> None:
        steer = session.steer
        steer.policy(self.policy, self.params(slo))
        self._before = steer.policy_status()["counts"]
        if (goal := self.goal_ms(slo)) is not None:
            self._server = server.pid
            steer.deadline(server.pid, 1e3 * goal)

    def over(self, session: Session) -> tuple[list[Figure], list[str]]:
        steer = session.steer
        status = steer.policy_status()
        session.mark("policy", policy=self.policy, status=status)
        if self._server is not None:
            steer.deadline(self._server, None)
            self._server = None
        steer.policy(USUAL)
        return _told(self._before, status)


def _told(before: Mapping[str, int], status: Mapping[str, Any]) -> tuple[list[Figure], list[str]]:
    now = status["counts"]
    done, refused = (now[what] - before.get(what, 0) for what in ("actions", "refused"))
    figures = [Figure("actions of the policy", done, ""), Figure("refused actions of the policy", refused, "")]
    notes = [f"here: {each}" for each in status.get("remarks") or ()]
    if not done and not refused:
        notes.append(f"{status['name']} took no action")
    if status.get("failed"):
        notes.append(f"the policy failed: {status['failed']}")
    if refused and status.get("refused"):
        notes.append(f"refused: {status['refused'][-1]['text'][:300]}")
    return figures, notes


class SloAware(Policed):
    """The server is high and the background low, whose floor grows as long as the stated time is held."""

    name, policy = "DetShare slo-aware", "slo-aware"

    def goal_ms(self, slo: Objectives) -> float | None:
        """What the server reports is at most this where both objectives are kept (workloads/field/serving.py)."""
        return slo.ttft_ms

    def wanted(self, server: str, backgrounds: Sequence[str]) -> Mapping[str, Wanted] | None:
        low = Wanted("low", decides="policy")
        return {server: Wanted("high", decides="policy"), **dict.fromkeys(backgrounds, low)}


class TpotFirst(Policed):
    """Nobody has a class: the policy tells who decodes from what is launched, which eBPF counts."""

    name, policy, launches = "DetShare tpot-first", "tpot-first", True

    def params(self, slo: Objectives) -> dict[str, str]:
        return {"tpot_ms": f"{slo.tpot_ms:g}"}

    def wanted(self, server: str, backgrounds: Sequence[str]) -> Mapping[str, Wanted] | None:
        return dict.fromkeys((server, *backgrounds), Wanted("", decides="policy"))


def policed() -> tuple[Policed, ...]:
    """All of them."""
    return SloAware(), TpotFirst()
