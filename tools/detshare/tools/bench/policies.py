# SPDX-License-Identifier: Apache-2.0
"""``detshare bench policies``: what the shipped policies do in detshare-sim; needs no GPU and no root."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from detshare.ctl.sim import arrivals, fleet, profile, services
from detshare.ctl.sim.arrivals import Trace
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import MODELS
from detshare.ctl.sim.report import estimate
from detshare.ctl.sim.scenario import window
from detshare.ctl.sim.study import Study
from detshare.tools import results
from detshare.tools.bench import policy_cases

__all__ = ["policies"]

NAME: Final = "policies"
SECONDS: Final = 60.0
TTFT_MS: Final = 1000.0
TPOT_MS: Final = 15.0
MODEL: Final = "analytic-8b"
SPEEDS: Final = {"code": (0.4, 0.6), "conv": (0.4, 0.6, 0.8)}
"""of the recorded traces: what one GPU can serve beside a training"""
SCHEMES: Final[dict[str, tuple[str, dict[str, str], float]]] = {
    "default": ("slo-aware", {}, 2048.0),
    "equal slices of 20 ms": ("static", {}, 20_000.0),
    "tpot-first": ("tpot-first", {"tpot_ms": f"{TPOT_MS:g}"}, 2048.0),
}
FIGURES: Final = {
    "TPOT violations %": ("%", "< 1 x baseline"),
    "TTFT violations %": ("%", None),
    "SLO violations %": ("%", None),
    "TPOT ms p50": ("ms", None),
    "TPOT ms p90": ("ms", "<= 1 x baseline"),
    "TPOT ms p99": ("ms", None),
    "TTFT ms p50": ("ms", None),
    "TTFT ms p90": ("ms", None),
    "TTFT ms p99": ("ms", None),
    "requests/s": ("requests/s", None),
    "training, of alone": ("of alone", None),
    "GPU busy %": ("%", None),
}
"""unit, and the target against the default"""


def loads(folder: Path | None) -> dict[str, Callable[[int], Trace]]:
    """By name: what makes the requests of a seed. Without a folder the recorded traces are left out."""
    found: dict[str, Callable[[int], Trace]] = {}
    if folder is not None:
        for name, speeds in SPEEDS.items():
            recorded = arrivals.load(folder / f"AzureLLMInferenceTrace_{name}.csv")
            for factor in speeds:
                found[f"Azure 2023 {name} x{factor:g}"] = _windows(recorded, factor)
    found["made up: gamma, 621 and 126 tokens"] = lambda seed: arrivals.gamma(4.0, SECONDS, seed, 621, 126)
    found["made up: bursts, 1000 and 200 tokens"] = lambda seed: arrivals.bursts(2.5, SECONDS, seed, 1000, 200)
    return found


def _windows(recorded: Trace, factor: float) -> Callable[[int], Trace]:
    def draw(seed: int) -> Trace:
        """A window in which nothing arrived (the code trace has pauses of half a minute) is drawn anew."""
        for again in range(100):
            try:
                return window(recorded, SECONDS, seed + 10_000 * again, factor)
            except SimError:
                continue
        raise SimError(f"trace {recorded.name}: a hundred windows of {SECONDS:g} s without a request")

    return draw


def study(folder: Path | None, seeds: range, gpu: Gpu, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """One record for each load, scheme and seed."""
    for load, trace in loads(folder).items():
        case = Study(MODELS[MODEL], trace, SECONDS, gpu, TTFT_MS, TPOT_MS)
        for scheme, (policy, params, slice_us) in SCHEMES.items():
            note(f"{load}: {scheme}")
            for seed in seeds:
                figures = case.run(policy, seed, params, slice_us)
                clean = {name: value if math.isfinite(value) else None for name, value in figures.items()}
                yield {"load": load, "scheme": scheme, "seed": seed, "figures": clean}


def compared(records: list[dict[str, Any]]) -> list[results.Row]:
    """Means over seeds, the default as baseline, and the mean difference of equal seeds with its 95 % interval."""
    found: dict[tuple[str, str], dict[int, Mapping[str, float | None]]] = {}
    for record in records:
        found.setdefault((record["load"], record["scheme"]), {})[record["seed"]] = record["figures"]
    rows = []
    for (load, scheme), by_seed in found.items():
        base = found[load, "default"]
        if scheme == "default":
            continue
        for figure, (unit, target) in FIGURES.items():
            pairs = [
                (float(mine), float(theirs))
                for seed, figures in by_seed.items()
                if (mine := figures[figure]) is not None and (theirs := base[seed][figure]) is not None
            ]
            if not pairs:
                continue
            value, baseline = (float(np.mean(side)) for side in zip(*pairs, strict=True))
            aim = target if scheme == "tpot-first" else None
            rows.append(results.Row(f"{load}: {scheme}: {figure}", value, unit, baseline, aim))
            difference = estimate([mine - theirs for mine, theirs in pairs])
            if difference is not None and difference.half is not None and "violations" in figure:
                what = f"{load}: {scheme}: {figure}: difference"
                rows.append(results.Row(f"{what}, lower end", difference.mean - difference.half, "points"))
                aim = "< 0" if scheme == "tpot-first" and figure.startswith("TPOT") else None
                rows.append(results.Row(f"{what}, upper end", difference.mean + difference.half, "points", None, aim))
    return rows


def summary(records: list[dict[str, Any]]) -> list[results.Row]:
    """Over all loads and seeds alike, tpot-first against the default."""
    rows = []
    for figure in ("TPOT violations %", "TTFT violations %", "SLO violations %"):
        means = [
            float(np.mean([each["figures"][figure] for each in records if each["scheme"] == scheme]))
            for scheme in ("tpot-first", "default")
        ]
        target = "< 1 x baseline" if figure.startswith("TPOT") else None
        rows.append(results.Row(f"all loads: tpot-first: {figure}", means[0], "%", means[1], target))
    refused = sum(record["figures"]["actions refused"] for record in records)
    rows.append(results.Row("all loads: actions that were refused", refused, "actions", None, "== 0"))
    for figure in ("calls: p99", "calls: longest"):
        worst = max(record["figures"][figure] for record in records)
        rows.append(results.Row(f"all loads: CPU time of a policy's {figure}", worst, "us", None, "<= 5000"))
    return rows


def fleets(seed: int, gpu: Gpu) -> list[results.Row]:
    """GPUs for made-up services, and whether tokens come in time on some of them."""
    rows = []
    for count in (1, 10, 100, 1000, 10_000, 65_000):
        made = services.made(count, seed)
        demands = services.demands(made, gpu)
        packed = fleet.pack(demands, gpu)
        what = f"fleet: {count} services, {len(demands)} replicas"
        rows.append(results.Row(f"{what}: GPUs", packed.gpus, "GPUs", len(demands), "<= 1 x baseline"))
        rows.append(results.Row(f"{what}: fewest possible", packed.bound, "GPUs"))
    made = services.made(1000, seed)
    demands = services.demands(made, gpu)
    packed = fleet.pack(demands, gpu)
    late = requests = 0
    random = np.random.default_rng(seed)
    for place in random.choice(packed.gpus, 8, replace=False):
        here = {demands[index].name for index, where in enumerate(packed.places) if where == place}
        mine, all_of = policy_cases.served(here, made, gpu, int(place))
        late, requests = late + mine, requests + all_of
    share = 100.0 * late / max(1, requests)
    rows.append(results.Row("fleet: 8 of its GPUs simulated: requests whose tokens are late", share, "%", None, "<= 5"))
    rows.append(results.Row("fleet: 8 of its GPUs simulated: requests", requests, "requests"))
    return rows


@click.command(NAME, epilog=f"Example: detshare bench {NAME} --traces AzurePublicDataset/data")
@click.option(
    "--traces",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with AzureLLMInferenceTrace_code.csv and _conv.csv; without it made-up requests only.",
)
@click.option("--seeds", type=click.IntRange(2, 1000), default=20, show_default=True, help="How many, from --seed on.")
@click.option("--seed", type=click.IntRange(min=0), default=101, show_default=True, help="The first.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/results"),
    show_default=True,
    help="Folder of the results.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def policies(traces: Path | None, seeds: int, seed: int, out: Path, as_json: bool) -> None:
    """Compare tpot-first with the default on traces, try each shipped policy's rule, and size fleets.

    All in detshare-sim, at the pace of a daemon: launches are told ten times a second, actions take 1 ms.
    """
    taught = profile.packaged()
    gpu = replace(Gpu(), switch_us=taught.switch_us, young=taught.young, first_end=taught.first_end)
    note = (lambda _: None) if as_json else (lambda text: click.echo(text, err=True))
    try:
        records = list(study(traces, range(seed, seed + seeds), gpu, note))
        rows = [*summary(records), *policy_cases.rows(gpu, seed), *fleets(seed, gpu), *compared(records)]
    except SimError as error:
        raise click.ClickException(f"bench {NAME}: {error}") from error
    raw = out / "raw" / f"{NAME}.jsonl.gz"
    raw.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(raw, "wt", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(each) + "\n" for each in records))
    words = f"detshare bench {NAME}{' --traces FOLDER' if traces else ''} --seeds {seeds} --seed {seed}"
    result = results.Result(NAME, "model", words, results.commit(), results.machine(), results.now(), tuple(rows))
    path = results.write(result, out)
    if as_json:
        click.echo(json.dumps([{"what": row.what, "value": row.value, "ok": row.ok} for row in rows]))
        return
    judged = [row for row in rows if row.ok is not None]
    for row in rows:
        if row.ok is False:
            click.echo(f"not met: {row.what}: {row.value:g} {row.unit}, baseline {row.baseline}, target {row.target}")
    click.echo(f"wrote {path}: {sum(bool(row.ok) for row in judged)} of {len(judged)} targets met, {len(rows)} rows")
