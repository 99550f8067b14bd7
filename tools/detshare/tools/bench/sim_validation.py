# SPDX-License-Identifier: Apache-2.0
"""``detshare bench sim-validation``: what detshare-sim says against what an H100 did, row by row."""

from __future__ import annotations

import gzip
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import click

from detshare.ctl.core.classes import CLASSES, WEIGHT_UNIT_US
from detshare.ctl.sim import profile as profiles
from detshare.ctl.sim import speed
from detshare.ctl.sim.engine import Engine
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.report import estimate
from detshare.ctl.sim.tenants import Periodic, Saturate, Tenant, lognormal_sigma
from detshare.tools import results
from detshare.tools.bench.stats import percentile

__all__ = ["sim_validation"]

NAME: Final = "sim-validation"
SEEDS: Final = (1, 2, 3)
TRAINING_KERNEL_US: Final = 150.0
SIZES: Final = ("0.1 ms", "0.7 ms", "8 ms", "90 ms")
SMALL: Final = "kernel 50 us every 2 ms + kernels of 687 us"
PAIRS: Final = {
    "decode 100 ms + resnet": 100_000.0,
    "decode 10 ms + resnet": 10_000.0,
    "decode 3 ms + resnet": 3_000.0,
    "decode 10 ms + resnet of batch 64": 10_000.0,
    "encode 20 ms + gpt": 20_000.0,
    SMALL: 2_000.0,
}
WEIGHTS: Final = {
    "kernels 1:1": (1, 1),
    "kernels 1:3": (1, 3),
    "kernels 1:10": (1, 10),
    "kernels 1:2:3": (1, 2, 3),
    "kernels 1:1:1:1:1:1:1:1": (1,) * 8,
}
PERIODS: Final = {"a token every 10 ms": 10_000.0, "tokens back to back": 0.0, "a token every 100 ms": 100_000.0}


@dataclass(frozen=True)
class Compared:
    """One figure. ``taught``: the model's parameters were derived from this very row."""

    what: str
    figure: str
    unit: str
    model: float
    half: float | None
    """half of the 95 % confidence interval over seeds"""
    measured: float
    taught: bool

    @property
    def error(self) -> float | None:
        """Percent of what was measured; None where nothing was."""
        return 100.0 * (self.model / self.measured - 1.0) if self.measured else None


@dataclass(frozen=True)
class Lc:
    """The latency program of a comparison."""

    us: float
    period: float
    sigma: float

    def source(self, seed: int) -> Periodic:
        """Its requests."""
        # the seed moves its start against the others' slices and kernels
        return Periodic(self.us, self.period, sigma=self.sigma, seed=seed, start=seed * 977.0)


class Validation:
    """All comparisons with the results of one folder."""

    def __init__(self, folder: Path, profile: profiles.Profile) -> None:
        self._profile = profile
        self._rows = {
            name: profiles.Rows(folder / f"{name}.json") for name in ("temporal", "weights", "isolation", "pair")
        }
        self._gpu = replace(Gpu(), switch_us=profile.switch_us, young=profile.young, first_end=profile.first_end)

    def all(self) -> Iterator[Compared]:
        """Every comparison."""
        yield from self._temporal()
        yield from self._weights()
        yield from self._isolation()
        yield from self._pair()

    def _compare(
        self,
        result: str,
        key: str,
        lane: str,
        lc: Lc,
        lc_as: dict[str, object],
        be_us: float,
        be_as: dict[str, object],
        rates: tuple[str, float, str],
        latency: str = "LC",
    ) -> Iterator[Compared]:
        """p50, p99 and the background's rate; ``rates``: its row, its rate alone, its unit."""
        found: dict[str, list[float]] = {"p50": [], "p99": [], "BE": []}
        for seed in SEEDS:
            source = lc.source(seed)
            mine = Tenant("lc", source, klass="high", **lc_as)  # type: ignore[arg-type]
            other = Tenant("be", Saturate(be_us), klass="low", **be_as)  # type: ignore[arg-type]
            engine = Engine(self._gpu, lane, [mine, other], seed=seed)
            engine.run(max(4e6, 120 * lc.period, 60 * be_us))
            found["p50"].append(percentile(source.latencies, 50))
            found["p99"].append(percentile(source.latencies, 99))
            found["BE"].append(engine.rate(other) * rates[1])
        for figure, values in found.items():
            row, unit = (
                (rates[0], rates[2])
                if figure == "BE"
                else (f"{key}: {latency} {figure}".replace(": LC:  ", ": LC "), "us")
            )
            yield self._compared(result, row, figure, unit, values)

    def _compared(self, result: str, row: str, figure: str, unit: str, values: list[float]) -> Compared:
        found = estimate(values)
        assert found is not None
        measured = self._rows[result].look(row)
        taught = row in self._profile.used.get(result, ())
        return Compared(f"{result}: {row}", figure, unit, found.mean, found.half, measured, taught)

    def _temporal(self) -> Iterator[Compared]:
        look = self._rows["temporal"].look
        high, low = CLASSES["high"], CLASSES["low"]
        for pair, period in PAIRS.items():
            p50 = look(f"{pair}: alone: LC p50")
            lc = Lc(p50, period, lognormal_sigma(p50, look(f"{pair}: alone: LC p99")))
            alone = look(f"{pair}: BE alone")
            unit = {SMALL: "kernels/s", "encode 20 ms + gpt": "sequences/s"}.get(pair, "images/s")
            be_us = 1e6 / alone if pair == SMALL else TRAINING_KERNEL_US
            for scheme in ("default", "managed"):
                key = f"{pair}: {scheme}"
                mine, other = (
                    ({"slice_us": high.slice_us, "level": high.level}, {"slice_us": low.slice_us, "level": low.level})
                    if scheme == "managed"
                    else ({}, {})
                )
                yield from self._compare(
                    "temporal", key, "temporal", lc, dict(mine), be_us, dict(other), (f"{key}: BE", alone, unit)
                )

    def _weights(self) -> Iterator[Compared]:
        for name, weights in WEIGHTS.items():
            tenants = [
                Tenant(f"t{index}", Saturate(687.0), slice_us=float(WEIGHT_UNIT_US * weight))
                for index, weight in enumerate(weights)
            ]
            engine = Engine(self._gpu, "temporal", tenants)
            engine.run(4e6)
            together = sum(engine.rate(tenant) for tenant in tenants)
            yield self._compared("weights", f"{name}: shares together", "share", "of the GPU", [together])

    def _isolation(self) -> Iterator[Compared]:
        look = self._rows["isolation"].look
        p50 = look("LC alone p50")
        lc = Lc(p50, 2000.0, lognormal_sigma(p50, look("LC alone p99")))
        half = self._gpu.sms // 2
        schemes: dict[str, tuple[str, dict[str, object], dict[str, object]]] = {
            "time-slicing": ("temporal", {}, {}),
            "MPS": ("mps", {"blocks": 1}, {"blocks": self._gpu.slots}),
            "MPS 50 %": ("spatial", {"sms": half}, {"sms": half}),
            "reserve": ("spatial", {"sms": 32}, {"sms": self._gpu.sms - 32}),
        }
        for size in SIZES:
            alone = look(f"BE {size}: alone")
            for scheme, (lane, mine, other) in schemes.items():
                key = f"BE {size}: {scheme}"
                rates = (f"{key}: BE", alone, "kernels/s")
                yield from self._compare(
                    "isolation", f"{key}: LC", lane, lc, mine, 1e6 / alone, other, rates, latency=""
                )

    def _pair(self) -> Iterator[Compared]:
        look, taught = self._rows["pair"].look, self._profile.pair
        alone = look("BE alone")
        high, low = CLASSES["high"], CLASSES["low"]
        for name, period in PERIODS.items():
            us = look(f"{name}: alone: token p50")
            own = lognormal_sigma(us, look(f"{name}: alone: token p99"))
            schemes: dict[str, tuple[str, float, dict[str, object], dict[str, object]]] = {
                "time-slicing": ("temporal", own, {}, {}),
                "temporal": (
                    "temporal",
                    own,
                    {"slice_us": high.slice_us, "level": high.level},
                    {"slice_us": low.slice_us, "level": low.level},
                ),
                "sweep: hold": ("spatial", own, {}, {"reflex": 0}),
            }
            for scheme in ("MPS", "MPS 50 %"):
                beside = taught[scheme]
                schemes[scheme] = (
                    "mps", beside["sigma"], {"slowed": {"be": beside["lc"]}}, {"slowed": {"lc": 1 / beside["be"]}}
                )  # fmt: skip
            for sms in profiles.TIERS:
                beside = taught[f"{sms} SMs"]
                curve = ((float(sms), beside["be"]), (float(self._gpu.sms), 1.0))
                # Both slowdowns were measured together, so no further cut for SMs that both use.
                rest = self._gpu.sms - sms
                mine: dict[str, object] = {"slowed": {"be": beside["lc"]}, "sms": rest, "width": float(rest)}
                schemes[f"sweep: {sms} SMs"] = ("spatial", beside["sigma"], mine, {"reflex": sms, "curve": curve})
            for scheme, (lane, sigma, mine, other) in schemes.items():
                key = f"{name}: {scheme}"
                rates = (f"{key}: BE", alone, "images/s")
                yield from self._compare(
                    "pair", key, lane, Lc(us, period, sigma), mine, TRAINING_KERNEL_US, other, rates, latency="token"
                )


def rows(compared: list[Compared]) -> list[results.Row]:
    """Summaries first: errors of what the model was not taught; then each figure, the measured one as baseline."""
    made = [results.Row("figures that the model was not taught", sum(not each.taught for each in compared), "figures")]
    groups = sorted({each.what.split(":")[0] for each in compared})
    for group in (*groups, "all"):
        for figure in ("p50", "p99", "BE", "share"):
            errors = [
                abs(each.error)
                for each in compared
                if not each.taught
                and each.error is not None
                and each.figure == figure
                and group in ("all", each.what.split(":")[0])
            ]
            if errors:
                made.append(results.Row(f"{group}: {figure}: median error", statistics.median(errors), "%"))
                made.append(results.Row(f"{group}: {figure}: worst error", max(errors), "%"))
    for each in compared:
        mark = " (taught)" if each.taught else ""
        made.append(results.Row(f"{each.what}{mark}", each.model, each.unit, each.measured))
    return made


@click.command(NAME, epilog=f"Example: detshare bench {NAME}")
@click.option(
    "--measured",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of temporal, weights, isolation and pair.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparisons as JSON.")
def sim_validation(measured: Path, out: Path, as_json: bool) -> None:
    """Run detshare-sim on what was measured on an H100 and publish its errors; needs no GPU and no root.

    The model's parameters are derived anew from the same folder; rows that they come from are marked and are not part
    of the error.
    """
    try:
        compared = list(Validation(measured, profiles.build(measured)).all())
    except SimError as error:
        raise click.ClickException(f"bench {NAME}: {error}") from error
    raw = out / "raw" / f"{NAME}.jsonl.gz"
    raw.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(raw, "wt", encoding="utf-8") as stream:
        stream.write("".join(json.dumps({**asdict(each), "error": each.error}) + "\n" for each in compared))
    found = rows(compared)
    for case in speed.measure(time.process_time):
        rate = case.launches_per_s
        found.append(results.Row(f"speed: {case.what}", rate, "launches/s of CPU", target=">= 1000000"))
    result = results.Result(
        NAME, "model", f"detshare bench {NAME}", results.commit(), results.machine(), results.now(), tuple(found)
    )
    path = results.write(result, out)
    if as_json:
        click.echo(json.dumps([{**asdict(each), "error": each.error} for each in compared]))
        return
    for row in found:
        if row.baseline is None:
            click.echo(f"{row.what:56} {row.value:14.4g} {row.unit}")
    click.echo(f"wrote {path}")
