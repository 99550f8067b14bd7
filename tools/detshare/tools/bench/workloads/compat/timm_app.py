#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""timm: training of a ResNet-18 with AdamW."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import timm  # type: ignore[import-not-found]
import torch
import torch.nn.functional as functional
from case import ROUNDS, case  # type: ignore[import-not-found]


def pieces() -> Iterator[bytes]:
    """The loss of each step, and all weights at the end."""
    torch.manual_seed(31)
    model = timm.create_model("resnet18", pretrained=False, num_classes=100).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    images, labels = torch.randn(16, 3, 64, 64).cuda(), torch.randint(0, 100, (16,)).cuda()
    for _ in range(ROUNDS):
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        yield bytes(loss.detach().cpu().numpy().tobytes())
    for weight in model.parameters():
        yield bytes(weight.detach().cpu().numpy().tobytes())


if __name__ == "__main__":
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    case(pieces())
