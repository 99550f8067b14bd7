# SPDX-License-Identifier: Apache-2.0
"""What a serving engine did in an interval: time for each further token, throughput, goodput at its objectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from detshare.tools.bench.field.programs import Objectives
from detshare.tools.bench.mix.figures import Figure
from detshare.tools.bench.stats import percentile

__all__ = ["GOODPUT", "TPOT_MISSED", "figures"]

GOODPUT = "goodput"
"""its figure's name begins so"""
TPOT_MISSED = "TPOT objective missed"
STRICT = Objectives(tpot_ms=50.0)
"""what was asked before anything was measured; published beside the program's own"""


def figures(lines: Iterable[Mapping[str, Sequence[Any]]], begin: float, end: float, slo: Objectives) -> list[Figure]:
    """Of the requests that finished within [begin, end]; monotonic seconds. None where there is none.

    :param lines: its `finished` lines (workloads/field/serving.py).
    """
    keys = ("end", "ttft_us", "tpot_us", "tokens")
    every = [one for line in lines for one in zip(*(line[key] for key in keys), strict=True)]
    some = [one for one in every if begin <= one[0] <= end]
    if not some:
        return []
    good = [(each, _kept(some, each) / (end - begin)) for each in dict.fromkeys((slo, STRICT))]
    late_first = sum(ttft > slo.ttft_ms * 1e3 for _, ttft, _, _ in some)
    late_each = sum(tpot > slo.tpot_ms * 1e3 for _, _, tpot, _ in some)
    tpot = [one[2] / 1e3 for one in some if one[3] > 1]
    found = [
        Figure("requests finished", len(some), ""),
        Figure("output tokens", sum(one[3] for one in some) / (end - begin), "1/s"),
        *(
            Figure(f"{GOODPUT} (TTFT <= {each.ttft_ms:g} ms, TPOT <= {each.tpot_ms:g} ms)", rate, "1/s")
            for each, rate in good
        ),
        Figure("TTFT objective missed", 100.0 * late_first / len(some), "%"),
        Figure(TPOT_MISSED, 100.0 * late_each / len(some), "%"),
    ]
    ttft = [one[1] / 1e3 for one in some]
    found += [Figure(f"TTFT, p{percent}", percentile(ttft, percent), "ms") for percent in (50, 90, 99)]
    if tpot:
        for percent in (50, 90, 99):
            ids = ("LLM-004", "LLM-009") if percent == 99 else ()
            found.append(Figure(f"TPOT, p{percent}", percentile(tpot, percent), "ms", ids))
    return found


def _kept(some: Sequence[tuple[float, float, float, int]], slo: Objectives) -> int:
    return sum(ttft <= slo.ttft_ms * 1e3 and tpot <= slo.tpot_ms * 1e3 for _, ttft, tpot, _ in some)
