#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of Tally's matrix, a client of DISB: one pass of a model with random weights a request, as one CUDA graph.

Where a model cannot be captured, each request runs kernel by kernel, and the ready line says why (`instead`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mix"))
from orders import Orders, beside, serve  # type: ignore[import-not-found]

Pass = Callable[[], torch.Tensor]
TOKENS = 16
"""of a pass of a decoder: its weights are read once for all of them, as for one token"""


def vision(name: str, pixels: int = 224) -> tuple[Pass, str]:
    """One image through a model of torchvision."""
    import torchvision

    more = {"init_weights": False} if name == "inception_v3" else {}
    model = getattr(torchvision.models, name)(weights=None, **more).to(memory_format=torch.channels_last).eval()
    image = torch.randn(1, 3, pixels, pixels).to(memory_format=torch.channels_last)
    return lambda: model(image), f"torchvision {name}, 1 image of {pixels} x {pixels}"


def bert() -> tuple[Pass, str]:
    """One text."""
    from transformers import BertConfig, BertModel  # type: ignore[import-not-found]

    model = BertModel(BertConfig()).eval()
    tokens = torch.randint(0, 30522, (1, 128))
    return lambda: model(input_ids=tokens).last_hidden_state, "transformers BERT-base, 1 x 128 tokens"


def yolo() -> tuple[Pass, str]:
    """One image of 640 x 640 through a detector's backbone."""
    import timm  # type: ignore[import-not-found]

    model = timm.create_model("cspdarknet53", pretrained=False).eval()
    image = torch.randn(1, 3, 640, 640)
    return lambda: model.forward_features(image), "timm CSPDarknet-53, 1 image of 640 x 640"


def llama() -> tuple[Pass, str]:
    """Tokens through Llama-2-7B."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig()).eval()
    tokens = torch.randint(0, 32000, (1, TOKENS))
    return lambda: model(input_ids=tokens, use_cache=False).logits, f"transformers Llama-2-7B, {TOKENS} tokens"


def gptneo() -> tuple[Pass, str]:
    """Tokens through GPT-Neo 1.3B."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    model = GPTNeoForCausalLM(GPTNeoConfig()).eval()
    tokens = torch.randint(0, 50257, (1, TOKENS))
    return lambda: model(input_ids=tokens, use_cache=False).logits, f"transformers GPT-Neo 1.3B, {TOKENS} tokens"


def glm() -> tuple[Pass, str]:
    """Tokens through GLM-4-9B."""
    from transformers import GlmConfig, GlmForCausalLM

    model = GlmForCausalLM(GlmConfig()).eval()
    tokens = torch.randint(0, 150000, (1, TOKENS))
    return lambda: model(input_ids=tokens, use_cache=False).logits, f"transformers GLM-4-9B, {TOKENS} tokens"


def deepfm() -> tuple[Pass, str]:
    """256 clicks."""
    model = beside("deepfm", "field").DeepFm().eval()
    fields = torch.randint(0, model.SIZE, (256, model.FIELDS))
    return lambda: model(fields), "DeepFM of torch, 256 x 26 fields"


class Mixed(nn.Module):
    """A residual pair of convolutions, then attention over the image and over 77 words."""

    def __init__(self, before: int, width: int, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.GroupNorm(32, before), nn.GroupNorm(32, width)
        self.conv1, self.conv2 = nn.Conv2d(before, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.skip = nn.Conv2d(before, width, 1)
        self.q, self.kv = nn.Linear(width, 2 * width), nn.Linear(768, 2 * width)
        self.own, self.out, self.up, self.down = (
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def attend(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        k, v = kv.chunk(2, dim=-1)
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        y = self.conv1(functional.silu(self.norm1(x)))
        x = self.skip(x) + self.conv2(functional.silu(self.norm2(y)))
        flat = x.flatten(2).transpose(1, 2)
        q1, q2 = self.q(flat).chunk(2, dim=-1)
        seen = torch.cat([self.attend(q1, self.own(flat)), self.attend(q2, self.kv(words))], dim=-1)
        flat = flat + self.out(seen)
        flat = flat + self.down(functional.gelu(self.up(flat)))
        return x + flat.transpose(1, 2).unflatten(-1, x.shape[2:])


class Denoiser(nn.Module):
    """A U-Net with the widths of Stable Diffusion 1.5 (320, 640, 1280, 1280), two blocks a level."""

    WIDTHS = (320, 640, 1280, 1280)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, self.WIDTHS[0], 3, padding=1)
        ins = (self.WIDTHS[0], *self.WIDTHS)
        self.fall = nn.ModuleList(
            nn.ModuleList([Mixed(ins[n], width), Mixed(width, width)]) for n, width in enumerate(self.WIDTHS)
        )
        self.rise = nn.ModuleList(
            nn.ModuleList([Mixed(width + (self.WIDTHS[n + 1] if n < 3 else width), width), Mixed(width, width)])
            for n, width in enumerate(self.WIDTHS)
        )
        self.last = nn.Conv2d(self.WIDTHS[0], 4, 3, padding=1)

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        x, kept = self.first(x), []
        for n, level in enumerate(self.fall):
            for block in level:
                x = block(x, words)
            kept.append(x)
            if n < 3:
                x = functional.avg_pool2d(x, 2)
        for n in reversed(range(4)):
            x = torch.cat([x, kept[n]], dim=1)
            for block in self.rise[n]:
                x = block(x, words)
            if n:
                x = functional.interpolate(x, scale_factor=2.0)
        return self.last(x)


def diffusion() -> tuple[Pass, str]:
    """One denoising step of 512 x 512 pixels."""
    model = Denoiser().eval()
    image, words = torch.randn(1, 4, 64, 64), torch.randn(1, 77, 768)
    return lambda: model(image, words), "a U-Net with the widths of Stable Diffusion 1.5, one step of 512 x 512"


KINDS: dict[str, Callable[[], tuple[Pass, str]]] = {
    "resnet50": lambda: vision("resnet50"),
    "resnet152": lambda: vision("resnet152"),
    "vgg19": lambda: vision("vgg19"),
    "densenet201": lambda: vision("densenet201"),
    "inception": lambda: vision("inception_v3", 299),
    "bert": bert,
    "yolo": yolo,
    "llama": llama,
    "diffusion": diffusion,
    "gptneo": gptneo,
    "glm": glm,
    "deepfm": deepfm,
}


def _bytes(values: torch.Tensor) -> bytes:
    return bytes(values.view(torch.uint8).tolist())


def captured(one: Pass) -> tuple[Callable[[], None], Callable[[], bytes], str]:
    """A request that replays the pass as a graph, or one that runs it; the first values that it gave; and why."""
    try:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                one()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = one()
        host = torch.empty(answer.flatten()[:64].shape, dtype=answer.dtype, device="cpu").pin_memory()

        def replay() -> None:
            graph.replay()
            host.copy_(answer.flatten()[:64], non_blocking=True)
            torch.cuda.synchronize()

        return replay, lambda: _bytes(host), ""
    except RuntimeError as error:
        torch.cuda.synchronize()

        kept: list[torch.Tensor] = []

        def run() -> None:
            kept[:] = [one()]
            torch.cuda.synchronize()

        return run, lambda: _bytes(kept[0].flatten()[:64].cpu()), f"not captured: {str(error)[:160]}"


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=tuple(KINDS), required=True)
    args = parser.parse_args()
    orders, begun = Orders(), time.monotonic()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    about: dict[str, Any] = {}
    with torch.inference_mode(), torch.device("cuda"):
        one, about["what"] = KINDS[args.kind]()
        request, answer, about["instead"] = captured(one)
        for _ in range(20):
            request()

    def served() -> None:
        with torch.inference_mode():
            request()

    serve(served, orders, answer=answer, started_s=round(time.monotonic() - begun, 1), **about)


if __name__ == "__main__":
    main()
