# SPDX-License-Identifier: Apache-2.0
"""The suites: who runs beside whom, or which probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from detshare.tools.bench.field.probes.calls import Calls, Contexts
from detshare.tools.bench.field.probes.kill import Fault, Kill
from detshare.tools.bench.field.probes.limit import Limit
from detshare.tools.bench.field.probes.neighbour import Bits, Equals, Neighbour
from detshare.tools.bench.field.probes.traffic import Managed, Traffic
from detshare.tools.bench.field.probes.trial import Probe
from detshare.tools.bench.field.programs import PROGRAMS, SERVING, TALLY
from detshare.tools.bench.mix import worker as mixes

__all__ = ["SUITES", "Mix", "Suite", "taking_part"]


@dataclass(frozen=True)
class Mix:
    """Who runs at the same time. `server`: whose latency counts first; "": only the work of all counts."""

    server: str
    backgrounds: tuple[str, ...]
    label: str = ""

    @property
    def name(self) -> str:
        """As results call it; `taking_part` reads it."""
        who = " + ".join(each for each in (self.server, *self.backgrounds) if each)
        return f"{self.label} = {who}" if self.label else who


def taking_part(mix: str) -> list[str]:
    """The programs of a mix by its name, the server first."""
    return mix.rpartition(" = ")[2].split(" + ")


@dataclass(frozen=True)
class Suite:
    """Each server beside each set of backgrounds, or the `given` mixes. `load`: share of the time that the requests of
    a server take alone, unless its program has arrivals of its own."""

    name: str
    source: str
    servers: tuple[str, ...] = ()
    backgrounds: tuple[tuple[str, ...], ...] = ()
    load: float = 0.5
    poisson: bool = True
    given: tuple[Mix, ...] = ()
    probes: tuple[Probe, ...] = ()

    @property
    def mixes(self) -> tuple[Mix, ...]:
        """All of them."""
        return self.given or tuple(Mix(server, backs) for server in self.servers for backs in self.backgrounds)

    @property
    def serves(self) -> bool:
        """Whether its servers are serving engines, for which policies are ways of their own."""
        return any(PROGRAMS[name].slo is not None for name in self.servers)

    def probe(self, name: str) -> Probe | None:
        """The probe of that name."""
        return next((each for each in self.probes if each.name == name), None)


def _cross(name: str, source: str, programs: Sequence[str], infer: Sequence[str]) -> Suite:
    return Suite(name, source, tuple(infer), tuple((each,) for each in programs if each not in infer))


def _disb() -> tuple[Mix, ...]:
    """DISB's five workloads: real-time clients have the rates that it states, the others are closed loops."""
    nets = ("vgg", "resnet", "densenet", "inception", "bert")
    closed = tuple(f"{net}-closed" for net in ("resnet", "vgg", "densenet", "inception", "bert"))
    uniform, poisson = ([f"{net}-{how}-20" for net in nets] for how in ("uniform", "poisson"))
    return (
        Mix("vgg-uniform-100", closed[:1], "A"),
        Mix("vgg-uniform-220", closed[:1], "B"),
        Mix("vgg-uniform-100", closed, "C"),
        Mix(uniform[0], (*uniform[1:], *closed), "D"),
        Mix(poisson[0], (*poisson[1:], *closed), "E"),
    )


_PAPER = (
    *(Mix("", pair, "trainings") for pair in (("rnn-train", "rnn-train-2"), ("resnet50-train", "bert-train"))),
    *(Mix("", pair, "trainings") for pair in (("deepfm-train", "bert-train"), ("glm-lora", "resnet50-train"))),
    *(Mix("resnet50-infer", (back,), "inference") for back in ("rnn-train", "bert-train", "glm-lora")),
    *(Mix("bert-infer", (back,), "inference") for back in ("resnet50-train", "deepfm-train")),
    Mix("deepfm-infer", ("resnet50-train",), "inference"),
    Mix("glm-infer", ("resnet50-train",), "inference"),
)
_TALLY = tuple(each.name for each in TALLY)
SUITES = {
    each.name: each
    for each in (
        _cross(
            "field-tally",
            "Tally (ASPLOS 2025), 6 inference x 6 training; requests at half of what the server can do, Poisson",
            _TALLY,
            tuple(each.name for each in TALLY if each.script.endswith("infer.py")),
        ),
        Suite(
            "field-mix",
            "a server beside three backgrounds, as the mixes of this project; Poisson",
            mixes.SERVERS,
            (("vit", "gpt2", "fft"), ("gpt2", "fft", "resnet"), ("vit", "resnet", "jax")),
            load=0.1,
        ),
        Suite(
            "field-disb",
            "DISB (REEF, OSDI 2022), workloads A to E: real-time clients uniform or Poisson, the others closed loops",
            given=_disb(),
        ),
        Suite(
            "field-paper",
            "the models of the paper (arXiv 2603.15042): trainings side by side, and inference beside one; the pairs "
            "behind the letters of its figures are not known to us",
            given=_PAPER,
        ),
        Suite(
            "field-serving",
            "an unmodified serving engine under two traces beside a training; the server's latency is its TTFT",
            tuple(each.name for each in SERVING),
            (("gpt2-train",), ("bert-train",), ("resnet50-train",)),
            poisson=False,
        ),
        Suite(
            "field-gvb",
            "what GPU-Virt-Bench (Bud Ecosystem, 3e896b5) asks of a way to share, corrected, under its ids",
            probes=(
                *(Calls(), Contexts(), Limit(), Neighbour(), Equals(), Bits(), Traffic(), Managed()),
                *(Kill(), Fault()),
            ),
        ),
    )
}
