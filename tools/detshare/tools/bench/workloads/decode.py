#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Llama-like decode: one CUDA graph per token, one token every ``--period-ms`` or, if that is longer, as it can.

Plain torch: RMS norm, rotary positions, scaled_dot_product_attention over a static ring of keys and values, SwiGLU.
The weights are random and come from a CPU generator with a fixed seed. With ``--digest`` the program runs a fixed
number of tokens from fixed inputs again and again, feeds each output forward, and prints the SHA-256 of all output
bits, and of those of each sequence of the batch. With several periods SIGUSR1 goes on to the next one, and a
``period`` line says so.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import time

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from workload import Asked, Workload, emit, options  # type: ignore[import-not-found]

BF16 = torch.bfloat16


class Weights:
    """Random matrices cut out of one bank of numbers made on the CPU: quick, and the same on every run."""

    def __init__(self, numbers: int = 1 << 24) -> None:
        cpu = torch.Generator().manual_seed(20261120)
        self.bank = torch.randn(numbers, generator=cpu).cuda()
        self.taken = 0

    def take(self, rows: int, columns: int) -> torch.Tensor:
        """A bf16 matrix with variance 1 / columns, another one on each call."""
        self.taken += 1
        need = rows * columns
        moved = self.bank.roll(self.taken * 1_000_003)
        flat = moved.repeat(-(-need // moved.numel()))[:need]
        return (flat.view(rows, columns) * columns**-0.5).to(BF16)


class Layer:
    """One decoder layer with its own ring of keys and values."""

    def __init__(self, args: argparse.Namespace, weights: Weights) -> None:
        self.heads = args.heads
        self.size = args.hidden // args.heads
        self.qkv = weights.take(3 * args.hidden, args.hidden)
        self.out = weights.take(args.hidden, args.hidden)
        self.gate_up = weights.take(2 * args.ffn, args.hidden)
        self.down = weights.take(args.hidden, args.ffn)
        self.norm = torch.ones(args.hidden, dtype=BF16, device="cuda")
        shape = (args.batch, args.heads, args.context, self.size)
        rows = args.batch * args.heads * args.context
        self.keys = weights.take(rows, self.size).view(shape).clone()
        self.values = weights.take(rows, self.size).view(shape).clone()

    def __call__(self, x: torch.Tensor, slot: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, hidden = x.shape
        y = functional.rms_norm(x, (hidden,), self.norm)
        qkv = functional.linear(y, self.qkv).view(batch, 3, self.heads, self.size)
        turned = qkv[:, :2]
        left, right = turned.chunk(2, dim=-1)
        turned = turned * cos + torch.cat((-right, left), dim=-1) * sin
        self.keys.index_copy_(2, slot, turned[:, 1].unsqueeze(2))
        self.values.index_copy_(2, slot, qkv[:, 2].unsqueeze(2))
        seen = functional.scaled_dot_product_attention(turned[:, 0].unsqueeze(2), self.keys, self.values)
        x = x + functional.linear(seen.reshape(batch, hidden), self.out)
        y = functional.rms_norm(x, (hidden,), self.norm)
        gate, up = functional.linear(y, self.gate_up).chunk(2, dim=-1)
        return x + functional.linear(functional.silu(gate) * up, self.down)


class Decoder:
    """The whole model with static inputs, so that one CUDA graph is one token for the whole batch."""

    def __init__(self, args: argparse.Namespace) -> None:
        weights = Weights()
        self.embed = weights.take(args.vocab, args.hidden) * args.hidden**0.5
        self.layers = [Layer(args, weights) for _ in range(args.layers)]
        self.head = weights.take(args.vocab, args.hidden)
        self.norm = torch.ones(args.hidden, dtype=BF16, device="cuda")
        size = args.hidden // args.heads
        angle = torch.outer(torch.arange(args.context), 10000.0 ** (-torch.arange(0, size, 2) / size))
        self.cos = torch.cat((angle.cos(), angle.cos()), dim=-1).to(BF16).cuda()
        self.sin = torch.cat((angle.sin(), angle.sin()), dim=-1).to(BF16).cuda()
        self.context = args.context
        self.first = (torch.arange(args.batch) * 997 % args.vocab).cuda()
        self.token = self.first.clone()
        self.slot = torch.zeros(1, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long).pin_memory()
        self.sampled = torch.zeros(args.batch, dtype=torch.long).pin_memory()
        self.logits = self._forward()
        self._capture()

    def _forward(self) -> torch.Tensor:
        x = self.embed[self.token]
        cos, sin = self.cos[self.slot], self.sin[self.slot]
        for layer in self.layers:
            x = layer(x, self.slot, cos, sin)
        x = functional.rms_norm(x, (x.shape[-1],), self.norm)
        logits = functional.linear(x, self.head)
        self.token.copy_(logits.argmax(dim=-1))
        return logits

    def _capture(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._forward()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.logits = self._forward()

    def step(self) -> None:
        """One token as a server does it: positions to the GPU, the graph, the sampled tokens back, wait."""
        self.slot.copy_(self.position, non_blocking=True)
        self.graph.replay()
        self.sampled.copy_(self.token, non_blocking=True)
        torch.cuda.synchronize()
        self.position.add_(1).remainder_(self.context)

    def restart(self) -> None:
        """Back to the first token; the slots that the last run wrote are written again in the same order."""
        self.token.copy_(self.first)
        self.position.zero_()


def digests(model: Decoder, work: Workload, tokens: int, period: float) -> str:
    """Run ``tokens`` tokens again and again; print SHA-256 of all logits and of each sequence's; the last of all."""
    layers = [(layer.keys.clone(), layer.values.clone()) for layer in model.layers]
    work.ready(tokens=tokens)
    last = ""
    while work.running:
        model.restart()
        for layer, (keys, values) in zip(model.layers, layers, strict=True):
            layer.keys.copy_(keys)
            layer.values.copy_(values)
        sha, each = hashlib.sha256(), [hashlib.sha256() for _ in range(len(model.first))]
        for _ in range(tokens):
            begin = time.perf_counter_ns()
            model.step()
            work.done(time.perf_counter_ns() - begin, items=1)
            logits = model.logits.view(torch.int16).cpu().numpy()
            sha.update(logits.tobytes())
            for mine, row in zip(each, logits, strict=True):
                mine.update(row.tobytes())
            work.pace(period)
        last = sha.hexdigest()
        sequences = [mine.hexdigest() for mine in each]
        emit("digest", t=round(time.monotonic(), 6), sha256=last, sequences=sequences)
    return last


def main() -> None:
    """The program."""
    parser = options(__doc__ or "")
    parser.add_argument(
        "--period-ms", type=float, nargs="+", default=[10.0], help="a token is due so often; 0: back to back"
    )
    parser.add_argument("--digest", action="store_true", help="print SHA-256 of the outputs of fixed inputs")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per digest")
    for name, value in (("layers", 24), ("hidden", 2048), ("heads", 16), ("ffn", 5632), ("vocab", 32000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024)
    args = parser.parse_args()
    work = Workload(args.seconds, args.window)
    with contextlib.ExitStack() as stack:
        if args.digest:
            # What adds its parts in another order from run to run, alone too, proves nothing.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.inference_mode())
        model = Decoder(args)
        for _ in range(50):
            model.step()
        if args.digest:
            work.summary(sha256=digests(model, work, args.tokens, args.period_ms[0] / 1000.0))
            return
        asked, turn = Asked(), 0
        work.ready(period_ms=args.period_ms[0])
        while work.running:
            if asked.taken():
                turn = (turn + 1) % len(args.period_ms)
                emit("period", t=round(time.monotonic(), 6), period_ms=args.period_ms[turn])
            begin = time.perf_counter_ns()
            model.step()
            work.done(time.perf_counter_ns() - begin, items=args.batch)
            work.pace(args.period_ms[turn] / 1000.0)
    work.summary()


if __name__ == "__main__":
    main()
