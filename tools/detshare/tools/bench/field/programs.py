# SPDX-License-Identifier: Apache-2.0
"""The programs of the suites, what they stand for, and where they differ from what was published."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from detshare.tools.bench.catalog import WORKLOADS
from detshare.tools.bench.mix import worker as mixes

__all__ = ["DISB", "PAPER", "PROGRAMS", "SERVING", "TALLY", "Arrival", "Objectives", "Program"]


@dataclass(frozen=True)
class Arrival:
    """When requests come, where the source of a program says it."""

    hz: float
    poisson: bool = False

    @property
    def period_ms(self) -> float:
        """Between two requests, on average."""
        return 1e3 / self.hz


@dataclass(frozen=True)
class Objectives:
    """Of a serving engine: time to the first token, and for each further one."""

    ttft_ms: float = 500.0
    tpot_ms: float = 100.0
    """a token of the engine takes 66 ms alone on an H100 (docs/results/NOTES.md)"""


@dataclass(frozen=True)
class Program:
    """One program; `name` is unique over all suites."""

    name: str
    script: str
    """below workloads/"""
    kind: str
    stands: str
    """for what, as its source names it"""
    differs: str = ""
    """from the source, in words"""
    arrival: Arrival | None = None
    high: bool = False
    """whether it goes before others where it is no mix's server, too"""
    slo: Objectives | None = None
    """of a serving engine"""

    @property
    def argv(self) -> list[str]:
        """The command that runs it; it takes orders (workloads/mix/orders.py)."""
        told = () if self.slo is None else ("--ttft-ms", f"{self.slo.ttft_ms:g}", "--tpot-ms", f"{self.slo.tpot_ms:g}")
        return [sys.executable, str(WORKLOADS / self.script), "--kind", self.kind, *told]


_RANDOM = "random weights"
TALLY = (
    Program("resnet50-infer", "field/infer.py", "resnet50", "ResNet50", f"{_RANDOM}, 1 image, CUDA graph"),
    Program("bert-infer", "field/infer.py", "bert", "BERT", f"{_RANDOM}, 1 x 128 tokens, CUDA graph"),
    Program("yolo-infer", "field/infer.py", "yolo", "YOLOv6m", "CSPDarknet-53 at 640 x 640 without a head"),
    Program("llama-infer", "field/infer.py", "llama", "Llama-2-7B", "random weights, a pass of 16 tokens"),
    Program("diffusion-infer", "field/infer.py", "diffusion", "Stable Diffusion", "its U-Net's widths, one step"),
    Program("gptneo-infer", "field/infer.py", "gptneo", "GPT-Neo", "1.3B, a pass of 16 tokens"),
    Program("resnet50-train", "field/train.py", "resnet50", "ResNet50", "64 images, random data"),
    Program("pointnet-train", "field/train.py", "pointnet", "PointNet", "32 clouds of 1024 points, random data"),
    Program("bert-train", "field/train.py", "bert", "BERT", "base, 16 x 128 tokens, random data"),
    Program("gpt2-train", "field/train.py", "gpt2", "GPT2-Large", "2 x 512 tokens, random data"),
    Program("pegasus-train", "field/train.py", "pegasus", "PEGASUS-X", "PEGASUS large, 4 x 256 to 64 tokens"),
    Program("whisper-train", "field/train.py", "whisper", "Whisper-v3", "1 clip of 30 s, random data"),
)
_OURS = (
    *(Program(name, "mix/server.py", name, "our mixes' server") for name in mixes.SERVERS),
    *(Program(name, "mix/background.py", name, "our mixes' background") for name in mixes.BACKGROUNDS),
)
_NETS = {
    "vgg": ("vgg19", "VGG", f"VGG-19; {_RANDOM}, CUDA graph"),
    "resnet": ("resnet152", "ResNet", f"ResNet-152; {_RANDOM}, CUDA graph"),
    "densenet": ("densenet201", "DenseNet", f"DenseNet-201; {_RANDOM}, CUDA graph"),
    "inception": ("inception", "InceptionV3", f"{_RANDOM}, CUDA graph"),
    "bert": ("bert", "Bert", f"BERT-base, 1 x 128 tokens; {_RANDOM}, CUDA graph"),
}
"""DISB's five models: it names no depths"""


def _disb(net: str, arrival: Arrival | None = None) -> Program:
    kind, stands, differs = _NETS[net]
    told = "closed" if arrival is None else f"{'poisson' if arrival.poisson else 'uniform'}-{arrival.hz:g}"
    return Program(f"{net}-{told}", "field/infer.py", kind, stands, differs, arrival, arrival is not None)


DISB = tuple(
    [_disb("vgg", Arrival(100)), _disb("vgg", Arrival(220))]
    + [_disb(net, Arrival(20, poisson)) for poisson in (False, True) for net in _NETS]
    + [_disb(net) for net in _NETS]
)
PAPER = (
    Program("glm-infer", "field/infer.py", "glm", "GLM-4-9B", f"{_RANDOM}, a pass of 16 tokens"),
    Program("deepfm-infer", "field/infer.py", "deepfm", "DeepFM", f"{_RANDOM}, 256 clicks, CUDA graph"),
    Program("rnn-train", "field/train.py", "rnn", "RNN", "LSTM, 2 x 1500, random data"),
    Program("rnn-train-2", "field/train.py", "rnn", "RNN, a second one", "LSTM, 2 x 1500, random data"),
    Program("deepfm-train", "field/train.py", "deepfm", "DeepFM", "26 fields of 100000 values, random data"),
    Program("glm-lora", "field/train.py", "glm-lora", "GLM-4-9B with LoRA", f"{_RANDOM}, rank 8, 1 x 256 tokens"),
)
_CUT = "Llama of 1.2 B, random weights; prompts cut at 2048 tokens, answers at 128; times stretched to 4 requests/s"
SERVING = tuple(
    Program(f"llama-{kind}", "field/serving.py", kind, stands, _CUT, Arrival(4), slo=Objectives())
    for kind, stands in (
        ("azure", "transformers' continuous batching under Azure's trace of 2023 (conversations)"),
        ("bursty", "the same under a synthetic, BurstGPT-like trace: Gamma arrivals, Zipf-like lengths"),
    )
)
PROGRAMS = {each.name: each for each in (*TALLY, *DISB, *SERVING, *PAPER, *_OURS)}
