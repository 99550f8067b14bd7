#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training as a background: ResNet-50 (bf16 autocast, channels_last) or a small GPT, data already on the GPU.

Items are images (resnet) or sequences (gpt). Two steps may be in flight; a step counts when the GPU has finished it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import nn
from workload import Workload, options  # type: ignore[import-not-found]

Step = Callable[[], torch.Tensor]
"""one step of the optimizer; gives the loss"""


def resnet(batch: int) -> Step:
    """One optimizer step of torchvision's ResNet-50 on 224 x 224 images."""
    from torchvision.models import resnet50

    model = resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def gpt(batch: int, width: int = 1024, layers: int = 12, length: int = 512, vocab: int = 32000) -> Step:
    """One AdamW step of a GPT-like model of some 200 million parameters."""
    body = nn.Sequential(
        nn.Embedding(vocab, width), *(Block(width, width // 64) for _ in range(layers)), nn.LayerNorm(width)
    ).cuda()
    head = nn.Linear(width, vocab, bias=False).cuda()
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-4, fused=True)
    tokens = torch.randint(0, vocab, (batch, length + 1), device="cuda")

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = head(body(tokens[:, :-1]))
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def main() -> None:
    """The program."""
    parser = options(__doc__ or "")
    parser.add_argument("--model", choices=("resnet", "gpt"), default="resnet")
    parser.add_argument("--batch", type=int, default=0, help="images or sequences a step (default 64 or 8)")
    parser.add_argument("--depth", type=int, default=2, help="steps in flight at most")
    parser.add_argument(
        "--no-benchmark",
        action="store_true",
        help="convolutions by heuristics: the same kernels in each run, whatever else uses the GPU at the start",
    )
    args = parser.parse_args()
    work = Workload(args.seconds, args.window)
    torch.backends.cudnn.benchmark = not args.no_benchmark
    torch.manual_seed(0)
    batch = args.batch or (64 if args.model == "resnet" else 8)
    step = resnet(batch) if args.model == "resnet" else gpt(batch)
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    work.ready(model=args.model, batch=batch)
    flight: deque[torch.cuda.Event] = deque()
    while work.running:
        step()
        event = torch.cuda.Event(blocking=True)
        event.record()
        flight.append(event)
        if len(flight) >= args.depth:
            flight.popleft().synchronize()
            work.done(items=batch)
    torch.cuda.synchronize()
    work.done(count=len(flight), items=batch * len(flight))
    work.summary()


if __name__ == "__main__":
    main()
