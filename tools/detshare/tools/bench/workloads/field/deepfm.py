# SPDX-License-Identifier: Apache-2.0
"""DeepFM (Guo et al., 2017): a factorization machine and a network over the same embeddings."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["DeepFm"]


class DeepFm(nn.Module):
    """26 fields of 100 000 values, embeddings of 16, three layers of 400: the shape of a model for Criteo's clicks."""

    FIELDS, SIZE, WIDTH = 26, 100_000, 16

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.pairs = (nn.Embedding(self.FIELDS * self.SIZE, width) for width in (1, self.WIDTH))
        self.deep = nn.Sequential(
            nn.Linear(self.FIELDS * self.WIDTH, 400),
            nn.ReLU(),
            nn.Linear(400, 400),
            nn.ReLU(),
            nn.Linear(400, 400),
            nn.ReLU(),
            nn.Linear(400, 1),
        )

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        """One logit for each of (batch, 26) values below SIZE."""
        at = fields + torch.arange(self.FIELDS, device=fields.device) * self.SIZE
        each = self.pairs(at)
        squares = each.sum(dim=1) ** 2 - (each**2).sum(dim=1)
        wide = self.linear(at).sum(dim=(1, 2)) + 0.5 * squares.sum(dim=1)
        return wide + self.deep(each.flatten(1)).squeeze(1)
