# SPDX-License-Identifier: Apache-2.0
"""weights: GPU time of programs that all want the whole GPU, by set-weight.

A tenant's part of the GPU is its rate beside the others over its rate alone: the work per kernel (or step) is the
same in both. Alone rates are measured in the same run, before and after, with the other programs' hosts stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from detshare.tools.bench import plot
from detshare.tools.bench.catalog import kernels, train
from detshare.tools.bench.process import Program
from detshare.tools.bench.session import Session
from detshare.tools.bench.stats import deviation, rate, shares, spread

STARVED = 1e6
"""the ratio that is written where the first of two tenants finished nothing in a slot"""


def alone_rates(session: Session, programs: Sequence[Program], seconds: float) -> list[float]:
    """Each program's rate while all others are held."""
    for program in programs:
        program.hold()
    found = []
    for program in programs:
        program.go_on()
        windows = session.slot(f"{program.name}: alone", seconds, program).windows[program.name]
        found.append(rate(windows))
        program.hold()
    for program in programs:
        program.go_on()
    return found


def parts(
    session: Session, what: str, programs: Sequence[Program], weights: Sequence[int], alone: Sequence[float]
) -> list[float]:
    """Set the weights and measure every tenant's part of the GPU."""
    for program, weight in zip(programs, weights, strict=True):
        session.steer.ctl("set-weight", str(program.pid), str(weight))
    slot = session.slot(what, session.options.seconds, *programs)
    return shares([rate(windows) if (windows := slot.windows[p.name]) else 0.0 for p in programs], alone)


def default_parts(session: Session, what: str, programs: Sequence[Program], alone: Sequence[float]) -> list[float]:
    """Every tenant's part of the GPU without weights."""
    for program in programs:
        session.steer.release(program.pid)
    slot = session.slot(what, session.options.seconds, *programs)
    return shares([rate(windows) if (windows := slot.windows[p.name]) else 0.0 for p in programs], alone)


def tenants(
    session: Session, kind: str, programs: Sequence[Program], cases: Sequence[Sequence[int]], target: str | None
) -> dict[str, dict[str, float]]:
    """All cases of weights for some programs, in rounds with the default between; rows and figures for the plot."""
    for program in programs:
        session.steer.adopted(program.pid)
    quick = max(1.0, session.options.seconds / 2)
    before = alone_rates(session, programs, quick)
    found: dict[tuple[int, ...], list[list[float]]] = {tuple(case): [] for case in cases}
    default: list[list[float]] = []
    for turn in range(session.options.rounds):
        default.append(default_parts(session, f"{kind}: default, round {turn}", programs, before))
        for case, measured in found.items():
            measured.append(parts(session, f"{kind}: weights {case}, round {turn}", programs, case, before))
    for program in programs:
        session.steer.release(program.pid)
    after = alone_rates(session, programs, quick)
    drift = max(abs(last / first - 1) for first, last in zip(before, after, strict=True))
    session.row(f"{kind}: alone rates, greatest change from begin to end", drift, "")
    sums = spread([sum(one) for one in default])
    session.spread_rows(f"{kind}: default: shares together", sums, "of the GPU")
    figures = {}
    for case, measured in found.items():
        name = f"{kind} {':'.join(map(str, case))}"
        if len(case) == 2:
            wanted = case[1] / case[0]
            ratios = [one[1] / one[0] if one[0] else STARVED for one in measured]
            session.spread_rows(f"{name}: GPU time of the second over the first", spread(ratios), "", wanted)
            what, off = "distance of that ratio from the weights' ratio", [abs(ratio / wanted - 1) for ratio in ratios]
        else:
            what, off = "greatest distance from a weight's share", [deviation(one, case) for one in measured]
        session.spread_rows(f"{name}: {what}", spread(off), "", target=target)
        for index, weight in enumerate(case if len(case) < 8 else ()):
            part = spread([one[index] / sum(one) for one in measured])
            session.row(
                f"{name}: part of tenant {index + 1} (weight {weight})",
                part.median,
                "of all shares",
                weight / sum(case),
            )
        # more than the whole GPU can only be an error of measurement; less is what context switches cost
        together = spread([sum(one) for one in measured])
        session.spread_rows(f"{name}: shares together", together, "of the GPU", target="<= 1.05")
        figures[name] = {
            f"{i + 1}: {weight}": spread([one[i] / sum(one) for one in measured]).median
            for i, weight in enumerate(case)
        }
    return figures


def run(session: Session) -> None:
    """The whole experiment."""
    iterations, us = session.calibrate(687)
    session.manage()
    session.row("one kernel of a saturating tenant, alone", us, "us")
    figures: dict[str, dict[str, float]] = {}
    command = kernels("saturate", "--us", 687, "--iterations", iterations)
    running = session.start_all({f"tenant {number}": command for number in range(1, 3)})
    figures |= tenants(session, "kernels", running, [(1, 1), (1, 3), (1, 10)], "<= 0.05")
    running += session.start_all({"tenant 3": command})
    figures |= tenants(session, "kernels", running, [(1, 2, 3)], "<= 0.05")
    running += session.start_all({f"tenant {number}": command for number in range(4, 9)})
    figures |= tenants(session, "kernels", running, [(1,) * 8], "<= 0.05")
    session.finish(*running)
    jobs = session.start_all({f"training {number}": train("gpt", "--batch", 16) for number in (1, 2)})
    figures |= tenants(session, "training", jobs, [(1, 3)], None)
    session.finish(*jobs)
    plot.bars(session.options.out / "weights.png", figures, "part of all shares (median over rounds)")
