# SPDX-License-Identifier: Apache-2.0
"""What this machine can show: the real thing or the model, and which programs to run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pynvml

from detshare.tools.demo.errors import DemoError

WORKLOADS = Path(__file__).resolve().parent.parent / "bench" / "workloads"
_ASK = (
    "import importlib.util as u, json\n"
    "def has(n):\n"
    "    try: return u.find_spec(n) is not None\n"
    "    except ImportError: return False\n"
    "print(json.dumps([n for n in ('torch', 'torchvision', 'cuda.bindings') if has(n)]))"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """`gpu`: steer real programs; otherwise the model. `why` is a sentence for the person."""

    gpu: bool
    why: str


@dataclass(frozen=True, slots=True)
class Pair:
    """The two programs: command lines, and what one unit of their work is called."""

    latency: list[str]
    background: list[str]
    latency_name: str
    background_name: str
    unit: str


def gpus_by_nvml() -> list[str]:
    """Names of the GPUs that NVML shows; [] where it cannot say."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
        return [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def choose(
    control: Path = Path("/dev/nvidiactl"),
    gpus: Callable[[], list[str]] = gpus_by_nvml,
    uid: int | None = None,
) -> Choice:
    """Decide by the driver's device node, NVML and root."""
    if not control.exists():
        return Choice(False, f"no GPU here ({control} does not exist)")
    found = gpus()
    if not found:
        return Choice(False, f"no GPU here ({control} exists, but NVML finds no GPU)")
    if (os.geteuid() if uid is None else uid) != 0:
        return Choice(False, f"{found[0]} is here, but steering other programs needs root (sudo make demo)")
    return Choice(True, f"{found[0]}, real programs")


def modules(python: str) -> set[str]:
    """Which of torch, torchvision and cuda.bindings an interpreter has, without importing them."""
    try:
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False, timeout=20)
        return set(json.loads(done.stdout)) if done.returncode == 0 else set()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return set()


def interpreters(asked: str | None) -> list[str]:
    """The interpreter that was asked for, else ours and those that a shell would find."""
    if asked is not None:
        return [asked]
    beside = [shutil.which(name) for name in ("python3", "python")]
    usual = ["/usr/bin/python3", "/usr/local/bin/python3", "/opt/conda/bin/python3"]
    found = [
        sys.executable,
        *(path for path in beside if path),
        *(path for path in usual if Path(path).exists()),
    ]
    return list(dict.fromkeys(found))


def pair(
    asked: str | None = None,
    seconds: float = 100.0,
    look: Callable[[str], set[str]] = modules,
    folder: Path = WORKLOADS,
) -> Pair:
    """PyTorch programs if an interpreter has it, else small CUDA kernels. DemoError where neither can be.

    :param seconds: after so long the programs end by themselves, whatever became of the demo.
    """
    having = {python: look(python) for python in interpreters(asked)}
    common = ["--window", "0.5", "--seconds", f"{seconds:g}"]
    for python, has in having.items():
        if "torch" in has:
            model = "resnet" if "torchvision" in has else "gpt"
            return Pair(
                [python, str(folder / "decode.py"), *common, "--period-ms", "10"],
                [python, str(folder / "train.py"), *common, "--model", model],
                "Llama-like decode, a token every 10 ms",
                "ResNet-50 training" if model == "resnet" else "GPT training",
                "images/s" if model == "resnet" else "sequences/s",
            )
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    compiling = [python for python, has in having.items() if "cuda.bindings" in has]
    if not compiling and nvcc is None:
        raise DemoError(
            "find programs to run on the GPU",
            f"none of {', '.join(having)} has torch or cuda-bindings, and there is no nvcc",
            "detshare demo --python PATH/TO/python3 (one with torch), or install nvcc or cuda-bindings",
        )
    kernels = [(compiling or list(having))[0], str(folder / "kernels.py")]
    return Pair(
        [*kernels, "periodic", *common, "--us", "50", "--period-ms", "2"],
        [*kernels, "saturate", *common],
        "kernels of 50 us, one every 2 ms",
        "kernels of 687 us that fill the GPU",
        "kernels/s",
    )
