# SPDX-License-Identifier: Apache-2.0
"""``detshare-sim``: the command line. Exit codes: 2 it cannot be meant, 1 it was not done."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from detshare.ctl.core import streams
from detshare.ctl.core.errors import ControlError
from detshare.ctl.core.options import Finite
from detshare.ctl.policy import registry
from detshare.ctl.sim import arrivals, fleet, profile, report, services, speed
from detshare.ctl.sim.errors import SimError
from detshare.ctl.sim.gpu import Gpu
from detshare.ctl.sim.llm import MODELS
from detshare.ctl.sim.policies import AT_ONCE, DAEMON, load_policy
from detshare.ctl.sim.scenario import SCHEMES, Scenario, window

__all__ = ["cli", "main"]

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
MADE: dict[str, Callable[..., arrivals.Trace]] = {
    "poisson": arrivals.poisson,
    "bursts": arrivals.bursts,
    "diurnal": arrivals.diurnal,
    "gamma": arrivals.gamma,
}


GIB = Finite(min=0, max=1024)
PACE_HELP = "The policy hears and acts at once, or as slowly as a daemon: ten times a second, 1 ms late."


def _params(words: tuple[str, ...], spec: str | None) -> dict[str, str]:
    """key=value of a policy; UsageError where it is none."""
    if words and spec is None:
        raise click.UsageError("--param is for a policy; name one with --policy")
    for word in words:
        if "=" not in word:
            raise click.UsageError(f"--param {word}: write key=value")
    return dict(word.split("=", 1) for word in words)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Simulate GPUs that are shared: no GPU is needed, and nothing of this machine is changed.

    \b
    Example:
      detshare-sim run --arrivals bursts --rate 3 --scheme time-slicing --scheme temporal
    """
    streams.any_encoding()


@cli.command("run", epilog="Example: detshare-sim run --trace AzureLLMInferenceTrace_code.csv --scheme temporal --json")
@click.option("--trace", "path", type=FILE, help="CSV of Azure (2023) or BurstGPT; a seed takes a part of it.")
@click.option("--speed", type=Finite(min=1e-6), default=1.0, show_default=True, help="Of the trace.")
@click.option("--arrivals", "kind", type=click.Choice(list(MADE)), help="Made-up requests.")
@click.option("--rate", type=Finite(min=0, min_open=True), default=2.0, show_default=True, help="Requests/s.")
@click.option(
    "--prompt", type=Finite(min=1), default=1000, show_default=True, help="Mean tokens of a prompt."
)
@click.option(
    "--answer", type=Finite(min=1), default=200, show_default=True, help="Mean tokens of an answer."
)
@click.option(
    "--model", type=click.Choice(list(MODELS)), default="measured-1.4b", show_default=True, help="Of language."
)
@click.option("--kv-tokens", type=click.IntRange(min=1), help="Tokens that the KV cache holds.")
@click.option("--interleave", is_flag=True, help="Prefill and decode take turns, instead of prefill first.")
@click.option("--scheme", "schemes", type=click.Choice(list(SCHEMES)), multiple=True, help="Several may be compared.")
@click.option("--policy", "policy_spec", metavar="NAME|FILE[:CLASS]", help="As detshare-ctl policy set takes it.")
@click.option("--param", "params", multiple=True, metavar="KEY=VALUE", help="Of the policy; may be repeated.")
@click.option("--pace", type=click.Choice(["at-once", "daemon"]), default="at-once", show_default=True, help=PACE_HELP)
@click.option("--seconds", type=Finite(0.1, 1e6), default=60.0, show_default=True, help="Simulated.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many, from --seed on.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="The first.")
@click.option(
    "--ttft-ms", type=Finite(min=0), default=500, show_default=True, help="Limit of the first token."
)
@click.option("--tpot-ms", type=Finite(min=0), default=50, show_default=True, help="Limit of the mean token.")
@click.option("--server-gib", type=GIB, default=0.0, help="GPU memory of the server; 0: not looked at.")
@click.option("--training-gib", type=GIB, default=0.0, help="Of the training. More than 80 together: they take turns.")
@click.option("--profile", "profile_path", type=FILE, help="Instead of the packaged one of an H100.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def run(path: Path | None, kind: str | None, schemes: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """A language model server beside a training on one GPU: TTFT, TPOT, violations, throughput.

    Figures are means over seeds with 95 % confidence intervals.
    """
    if (path is None) == (kind is None):
        raise click.UsageError("name either --trace FILE or --arrivals poisson|bursts|diurnal")
    seconds, seed = options["seconds"], options["seed"]
    model = MODELS[options["model"]]
    if options["kv_tokens"]:
        model = replace(model, kv_tokens=options["kv_tokens"])
    if path is not None:
        recorded = arrivals.load(path)

        def requests(number: int) -> arrivals.Trace:
            return window(recorded, seconds, number, options["speed"])
    else:

        def requests(number: int) -> arrivals.Trace:
            return MADE[kind or ""](options["rate"], seconds, number, options["prompt"], options["answer"])

    spec = options["policy_spec"]
    params = _params(options["params"], spec)
    if spec and not registry.is_file(spec):
        try:
            registry.load(spec, params)
        except ControlError as error:
            raise click.UsageError(str(error)) from error
    scenario = Scenario(
        model,
        requests,
        seconds,
        profile.load(options["profile_path"]) if options["profile_path"] else profile.packaged(),
        options["ttft_ms"],
        options["tpot_ms"],
        not options["interleave"],
        (lambda: load_policy(spec, params)) if spec else None,
        DAEMON if options["pace"] == "daemon" else AT_ONCE,
        (options["server_gib"], options["training_gib"]),
    )
    seeds = range(seed, seed + options["seeds"])
    columns = {
        scheme: report.estimates([scenario.run(scheme, number) for number in seeds])
        for scheme in schemes or ("alone", "time-slicing", "temporal")
    }
    if as_json:
        click.echo(json.dumps({"seeds": list(seeds), "schemes": report.as_json(columns)}, indent=1))
    else:
        click.echo(report.table(columns))
        click.echo(f"{len(seeds)} seeds from {seed}, {seconds:g} s each; +-: 95 % confidence; proof level: model")


@cli.command("fleet", epilog="Example: detshare-sim fleet --made-services 5000 --seed 1")
@click.option("--tenants", "path", type=FILE, help="CSV with the columns name, sms, memory_gib.")
@click.option("--made", type=click.IntRange(1, 1_000_000), help="So many made-up tenants instead.")
@click.option("--services", "load_path", type=FILE, help=f"CSV with the columns {', '.join(services.COLUMNS)}.")
@click.option("--made-services", type=click.IntRange(1, 1_000_000), help="So many made-up services instead.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the made-up ones.")
@click.option(
    "--gpus", type=click.IntRange(1, fleet.MOST_GPUS), default=fleet.MOST_GPUS, show_default=True, help="Most."
)
@click.option("--sms", type=click.IntRange(1, 1024), default=132, show_default=True, help="Of a GPU.")
@click.option("--memory-gib", type=Finite(min=1), default=80.0, show_default=True, help="Of a GPU.")
@click.option("--json", "as_json", is_flag=True, help="For programs; with the place of each tenant.")
def packed(
    path: Path | None,
    made: int | None,
    load_path: Path | None,
    made_services: int | None,
    seed: int,
    gpus: int,
    sms: int,
    memory_gib: float,
    as_json: bool,
) -> None:
    """How many GPUs tenants need when they share them by SMs and memory, and each on its own.

    Tenants are named with what they need, or as services of language models with their load: then each gets as many
    replicas, and each of these as much of a GPU's time and memory, as its tokens need to come in time.
    """
    if sum(each is not None for each in (path, made, load_path, made_services)) != 1:
        raise click.UsageError("name one of --tenants FILE, --made COUNT, --services FILE, --made-services COUNT")
    gpu = Gpu(sms=sms, memory_gib=memory_gib)
    if load_path is not None or made_services is not None:
        loads = services.read(load_path) if load_path is not None else services.made(made_services or 0, seed)
        demands = services.demands(loads, gpu)
    else:
        demands = fleet.read(path) if path is not None else fleet.made(made or 0, seed, gpu)
    result = fleet.pack(demands, gpu, gpus)
    summary = {"tenants": len(demands), "gpus": result.gpus, "at_least": result.bound, "one_each": len(demands)}
    if as_json:
        places = [{"name": each.name, "gpu": place} for each, place in zip(demands, result.places, strict=True)]
        click.echo(json.dumps({**summary, "places": places}))
    else:
        click.echo(f"{len(demands)} tenants: {result.gpus} GPUs shared (no packing needs fewer than {result.bound})")


@cli.command("profile", epilog="Example: detshare-sim profile docs/results -o profile.json")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File; else it is printed.")
def profiled(folder: Path, output: Path | None) -> None:
    """Derive the model's parameters from the results of `detshare bench` (weights, isolation, pair)."""
    text = json.dumps(profile.build(folder).to_json(), indent=1) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SimError(f"{output}: cannot be written: {error.strerror}") from error
    click.echo(f"wrote {output}")


@cli.command("speed", epilog="Example: detshare-sim speed --json")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def fast(as_json: bool) -> None:
    """How many kernel launches a second of CPU time are simulated here, in three cases."""
    found = [asdict(each) for each in speed.measure(time.process_time)]
    if as_json:
        click.echo(json.dumps(found))
        return
    for each in found:
        click.echo(
            f"{each['what']:52} {each['launches_per_s']:14,.0f} launches/s  {each['events_per_s']:10,.0f} events/s"
        )


def main() -> None:
    """The console script."""
    streams.hold()
    try:
        with streams.answering():
            cli.main(standalone_mode=True)
    except (ControlError, SimError) as error:
        click.echo(f"detshare-sim: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
