#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of a training job (DistributedDataParallel, NCCL), told to work and to rest as the other programs of a mix.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are in the environment, as torchrun has them, or words of the command
line, where nobody else is to know them. Ranks agree by gloo, before
each step, whether all of them were told to work: a rank that stopped alone would hold the others' GPUs.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections import deque
from typing import Any

from orders import LOOK, WINDOW, Orders, beside, emit  # type: ignore[import-not-found]

WAIT = datetime.timedelta(seconds=120)
DEPTH = 2
"""steps in flight at most"""


def model(rank: int) -> Any:
    """One step of a GPT-like model of some 220 million parameters, 16 x 512 tokens."""
    import torch
    import torch.nn.functional as functional
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    block, width, vocab = beside("train").Block, 1024, 32000
    torch.manual_seed(0)
    layers = [block(width, 16) for _ in range(12)]
    body = nn.Sequential(nn.Embedding(vocab, width), *layers, nn.LayerNorm(width), nn.Linear(width, vocab, bias=False))
    net = DistributedDataParallel(body.cuda(), device_ids=[rank])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, vocab, (16, 513), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = net(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    return step


def work(orders: Any, step: Any, group: Any) -> None:
    """Until told to end, or until another rank is gone."""
    import torch
    import torch.distributed as dist

    flight: deque[Any] = deque()
    flag = torch.zeros(1, dtype=torch.int32)
    going, total, times, said = False, 0, [], time.monotonic()
    unanswered: dict[str, Any] | None = None

    def finish() -> None:
        nonlocal total
        flight.popleft().synchronize()
        times.append(round(time.monotonic(), 6))
        total += 1

    while not orders.ended:
        order = orders.take(0.0 if going else LOOK / 10)
        if order is not None and order.get("do") in ("go", "stop"):
            going, unanswered = order["do"] == "go", order
        flag[0] = int(going)
        dist.all_reduce(flag, op=dist.ReduceOp.MIN, group=group)
        if flag[0]:
            step()
            event = torch.cuda.Event(blocking=True)
            event.record()
            flight.append(event)
        while flight and (len(flight) >= DEPTH or not flag[0]):
            finish()
        now = time.monotonic()
        if times and (now - said >= WINDOW or not flag[0]):
            emit("steps", at=times)
            times, said = [], now
        if unanswered is not None and (going or not flag[0]):
            event_name = "going" if going else "stopped"
            emit(event_name, id=unanswered.get("id"), t=round(now, 6), total=total)
            unanswered = None


def main() -> None:
    """The program."""
    import torch
    import torch.distributed as dist

    orders = Orders()
    begun = time.monotonic()
    os.environ.update(dict(word.split("=", 1) for word in sys.argv[1:]))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", timeout=WAIT, device_id=torch.device("cuda", rank))
    group = dist.new_group(backend="gloo", timeout=WAIT)
    step = model(rank)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    dist.barrier(group=group)
    took = round(time.monotonic() - begun, 1)
    what = f"DDP, rank {rank} of {world}, GPT of 12 layers, 16 x 512 tokens"
    emit("ready", pid=os.getpid(), t=round(time.monotonic(), 6), what=what, instead="", started_s=took)
    try:
        work(orders, step, group)
    except RuntimeError as error:  # the other rank is gone
        print(f"ddp.py: rank {rank}: {error}", file=sys.stderr)
    emit("summary", t=round(time.monotonic(), 6), count=0)
    sys.stdout.flush()
    os._exit(0)  # NCCL's teardown waits for ranks that may be gone


if __name__ == "__main__":
    main()
