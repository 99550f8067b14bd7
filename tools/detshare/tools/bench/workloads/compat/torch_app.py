#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch, by its last word: eager (training), compile (the same compiled), graphs (replayed), threads (four, a stream
each), ipc (two processes, one tensor of both)."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
import torch.nn.functional as functional
from case import ROUNDS, case  # type: ignore[import-not-found]
from torch import nn


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor."""
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes())


def seeded(*shape: int) -> torch.Tensor:
    """Numbers made on the CPU."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).cuda()


def model() -> nn.Sequential:
    """A small network with the same weights each time."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512)).cuda()


def training(compiled: bool) -> Iterator[bytes]:
    """Losses and, at the end, all weights."""
    net = model()
    step = torch.compile(net) if compiled else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = seeded(256, 512), seeded(256, 512).flip(0)
    for _ in range(ROUNDS):
        optimizer.zero_grad(set_to_none=True)
        loss = functional.mse_loss(step(x), y)
        loss.backward()
        optimizer.step()
        yield bits(loss)
    for weight in net.parameters():
        yield bits(weight)


def graphs() -> Iterator[bytes]:
    """A captured network, replayed on its own output."""
    net, x = model(), seeded(256, 512)
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x.copy_(functional.layer_norm(net(x) + x, (512,)))
        for _ in range(ROUNDS):
            graph.replay()
            yield bits(x)


def threads() -> Iterator[bytes]:
    """Four threads with a stream each; every piece has what all four computed."""
    parts: list[torch.Tensor] = [seeded(512, 512) * (n + 1) / 512 for n in range(4)]
    torch.cuda.synchronize()

    def work(n: int) -> None:
        with torch.cuda.stream(streams[n]):
            for _ in range(20):
                parts[n] = torch.tanh(parts[n] @ parts[n].t())
            streams[n].synchronize()

    streams = [torch.cuda.Stream(priority=-(n % 2)) for n in range(4)]
    for _ in range(ROUNDS):
        workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        yield b"".join(map(bits, parts))


def partner(pipe: Any) -> None:
    """The other process of `ipc`: changes the tensor of both, and a larger one of its own."""
    ours, own = pipe.recv(), seeded(2048, 2048)
    while pipe.recv():
        own = torch.tanh(own + ours.repeat(2, 2))
        ours.mul_(0.5).add_(own[:1024, :1024])
        torch.cuda.synchronize()
        pipe.send(bits(own[0]))
    del ours  # what is named by another process goes before that one's


def shared(pipe: Any) -> Iterator[bytes]:
    """Both processes change one tensor in turn."""
    ours, own = seeded(1024, 1024), seeded(2048, 2048).flip(0)
    torch.cuda.synchronize()
    pipe.send(ours)
    for _ in range(ROUNDS):
        pipe.send(True)
        found = pipe.recv()
        own = torch.cos(own * ours.repeat(2, 2))
        ours.add_(own[1024:, 1024:])
        torch.cuda.synchronize()
        yield found + bits(ours)


def ipc() -> None:
    """Two processes; the other one ends after this one was told to."""
    context = torch.multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    child = context.Process(target=partner, args=(other,), daemon=True)
    child.start()
    case(shared(pipe), [os.getpid(), int(child.pid or 0)])
    pipe.send(False)
    child.join()


def main() -> None:
    """The program."""
    kind = sys.argv.pop()
    if kind == "ipc":
        ipc()
        return
    torch.use_deterministic_algorithms(True)
    kinds = {"eager": lambda: training(False), "compile": lambda: training(True), "graphs": graphs, "threads": threads}
    case(kinds[kind]())


if __name__ == "__main__":
    main()
