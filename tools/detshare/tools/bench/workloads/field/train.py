#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training of Tally's matrix or of the paper: a model from its configuration, random data on the GPU, bf16, AdamW."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as functional
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mix"))
from orders import Orders, beside, step  # type: ignore[import-not-found]

Wait = Callable[[], None]
Loss = Callable[[], torch.Tensor]


def bert() -> tuple[nn.Module, Loss, str]:
    """BERT-base, 16 x 128 tokens."""
    from transformers import BertConfig, BertForMaskedLM  # type: ignore[import-not-found]

    model = BertForMaskedLM(BertConfig())
    tokens = torch.randint(0, 30522, (16, 128))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss, "transformers BERT-base, 16 x 128 tokens"


def gpt2() -> tuple[nn.Module, Loss, str]:
    """GPT-2 large, 2 x 512 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=1280, n_layer=36, n_head=20))
    tokens = torch.randint(0, 50257, (2, 512))
    return model, lambda: model(input_ids=tokens, labels=tokens).loss, "transformers GPT-2 large, 2 x 512 tokens"


def pegasus() -> tuple[nn.Module, Loss, str]:
    """PEGASUS large, 4 texts of 256 tokens, summaries of 64."""
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    model = PegasusForConditionalGeneration(PegasusConfig(vocab_size=96103, d_model=1024))
    text, summary = torch.randint(3, 96103, (4, 256)), torch.randint(3, 96103, (4, 64))
    return model, lambda: model(input_ids=text, labels=summary).loss, "transformers PEGASUS, 4 x 256 to 64 tokens"


def whisper() -> tuple[nn.Module, Loss, str]:
    """Whisper large-v3, one clip of 30 s."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=51866,
        num_mel_bins=128,
        d_model=1280,
        encoder_layers=32,
        decoder_layers=32,
        encoder_attention_heads=20,
        decoder_attention_heads=20,
        encoder_ffn_dim=5120,
        decoder_ffn_dim=5120,
    )
    model = WhisperForConditionalGeneration(config)
    sound, words = torch.randn(1, 128, 3000), torch.randint(0, 51866, (1, 64))
    return model, lambda: model(input_features=sound, labels=words).loss, "transformers Whisper large-v3, 1 clip"


class PointNet(nn.Module):
    """Points through shared layers, the maximum over them, and a classifier; with both alignment networks."""

    def __init__(self, classes: int = 40) -> None:
        super().__init__()
        self.align3, self.align64 = self.aligned(3), self.aligned(64)
        self.low = nn.Sequential(*self.shared(3, 64), *self.shared(64, 64))
        self.high = nn.Sequential(*self.shared(64, 64), *self.shared(64, 128), *self.shared(128, 1024))
        self.head = nn.Sequential(
            nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, classes)
        )

    @staticmethod
    def shared(before: int, width: int) -> list[nn.Module]:
        return [nn.Conv1d(before, width, 1), nn.BatchNorm1d(width), nn.ReLU()]

    @classmethod
    def aligned(cls, width: int) -> nn.ModuleList:
        points = nn.Sequential(*cls.shared(width, 64), *cls.shared(64, 128), *cls.shared(128, 1024))
        return nn.ModuleList([points, nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, width * width))])

    @staticmethod
    def turned(x: torch.Tensor, align: nn.ModuleList) -> torch.Tensor:
        width = x.shape[1]
        matrix = align[1](align[0](x).amax(dim=-1)).view(-1, width, width)
        return torch.bmm(matrix, x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.low(self.turned(x, self.align3))
        return self.head(self.high(self.turned(x, self.align64)).amax(dim=-1))


def pointnet() -> tuple[nn.Module, Loss, str]:
    """32 clouds of 1024 points."""
    model = PointNet()
    clouds, labels = torch.randn(32, 3, 1024), torch.randint(0, 40, (32,))
    return model, lambda: functional.cross_entropy(model(clouds), labels), "PointNet of torch, 32 x 1024 points"


class Spoken(nn.Module):
    """Words, two LSTM layers of 1500, the next word: the shape of a language model with recurrence."""

    def __init__(self, words: int = 10000, width: int = 1500) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(words, width), nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(self.words(x))[0])


def rnn() -> tuple[nn.Module, Loss, str]:
    """20 texts of 35 words."""
    model = Spoken()
    text = torch.randint(0, 10000, (20, 36))
    return (
        model,
        lambda: functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()),
        "LSTM of torch, 2 x 1500, 20 x 35 words",
    )


def deepfm() -> tuple[nn.Module, Loss, str]:
    """4096 clicks of 26 fields."""
    model = beside("deepfm", "field").DeepFm()
    fields, clicked = torch.randint(0, model.SIZE, (4096, model.FIELDS)), torch.randint(0, 2, (4096,))
    return (
        model,
        lambda: functional.binary_cross_entropy_with_logits(model(fields).float(), clicked.float()),
        "DeepFM of torch, 4096 x 26 fields",
    )


class Lora(nn.Module):
    """A layer that stays as it is, and a product of rank 8 that learns (Hu et al., 2021)."""

    def __init__(self, layer: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.layer = layer
        self.down, self.up = (
            nn.Linear(layer.in_features, rank, bias=False),
            nn.Linear(rank, layer.out_features, bias=False),
        )
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.up(self.down(x))


def glm_lora() -> tuple[nn.Module, Loss, str]:
    """GLM-4-9B, 1 x 256 tokens; queries and values learn."""
    from transformers import GlmConfig, GlmForCausalLM

    model = GlmForCausalLM(GlmConfig()).requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj = Lora(layer.self_attn.q_proj)
        layer.self_attn.v_proj = Lora(layer.self_attn.v_proj)
    tokens = torch.randint(0, 150000, (1, 256))
    return model, lambda: model(input_ids=tokens, labels=tokens, use_cache=False).loss, "GLM-4-9B, LoRA, 1 x 256 tokens"


def resnet50() -> tuple[nn.Module, Loss, str]:
    """64 images."""
    from torchvision.models import resnet50 as make

    model = make().to(memory_format=torch.channels_last)
    images = torch.randn(64, 3, 224, 224).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,))
    return model, lambda: functional.cross_entropy(model(images), labels), "torchvision ResNet-50, 64 images"


KINDS: dict[str, Callable[[], tuple[nn.Module, Loss, str]]] = {
    "resnet50": resnet50,
    "pointnet": pointnet,
    "bert": bert,
    "gpt2": gpt2,
    "pegasus": pegasus,
    "whisper": whisper,
    "rnn": rnn,
    "deepfm": deepfm,
    "glm-lora": glm_lora,
}
WARM = 6


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=tuple(KINDS), required=True)
    args = parser.parse_args()
    orders, begun = Orders(), time.monotonic()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    torch.backends.cudnn.benchmark = False  # the same kernels in each run, whatever else uses the GPU at the start
    with torch.device("cuda"):
        model, loss, what = KINDS[args.kind]()
    model.train()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-5, fused=True)

    def launch() -> Wait:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()
        event = torch.cuda.Event(blocking=True)
        event.record()
        return lambda: event.synchronize()

    for _ in range(WARM):
        launch()()
    step(launch, orders, 2, what=what, instead="", started_s=round(time.monotonic() - begun, 1))


if __name__ == "__main__":
    main()
