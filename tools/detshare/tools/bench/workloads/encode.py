#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""BERT-large-like encoder inference: batches of 16 texts of 128 to 384 tokens, a CUDA graph per length."""

from __future__ import annotations

import random
import time

import torch
import torch.nn.functional as functional
from torch import nn
from workload import Workload, options  # type: ignore[import-not-found]


class Block(nn.Module):
    """A post-norm encoder block, as BERT has them."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(q, k, v)
        x = self.norm1(x + self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Request:
    """Texts of one length: token ids in pinned memory, the captured model, one vector per text back on the host."""

    def __init__(self, model: nn.Module, batch: int, length: int) -> None:
        self.host = torch.randint(0, 30522, (batch, length)).pin_memory()
        self.tokens = self.host.cuda()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(self.tokens)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.vectors = model(self.tokens)[:, 0]
        self.answer = torch.empty(self.vectors.shape, dtype=self.vectors.dtype).pin_memory()

    def run(self) -> None:
        """Ids to the GPU, the graph, the vectors back, wait."""
        self.tokens.copy_(self.host, non_blocking=True)
        self.graph.replay()
        self.answer.copy_(self.vectors, non_blocking=True)
        torch.cuda.synchronize()


def main() -> None:
    """The program."""
    parser = options(__doc__ or "")
    parser.add_argument("--period-ms", type=float, default=10.0, help="a request is due so often; 0: back to back")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    work = Workload(args.seconds, args.window)
    torch.manual_seed(0)
    blocks = (Block(args.width, args.width // 64) for _ in range(args.layers))
    model = nn.Sequential(nn.Embedding(30522, args.width), *blocks).cuda().to(torch.bfloat16).eval()
    choose = random.Random(0)
    with torch.inference_mode():
        requests = {n: Request(model, args.batch, n) for n in (128, 192, 256, 320, 384)}
        for request in list(requests.values()) * 5:
            request.run()
        work.ready(period_ms=args.period_ms)
        while work.running:
            request = requests[choose.choice((128, 192, 256, 320, 384))]
            begin = time.perf_counter_ns()
            request.run()
            work.done(time.perf_counter_ns() - begin, items=args.batch)
            work.pace(args.period_ms / 1000.0)
    work.summary()


if __name__ == "__main__":
    main()
