# SPDX-License-Identifier: Apache-2.0
"""What `make test` leaves to `make test-rest`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["after_first"]


def after_first(values: Iterable[Any]) -> list[Any]:
    """For parametrize: the first shows the part, all others show the same again."""
    first, *others = values
    return [first, *(pytest.param(each, marks=pytest.mark.rest) for each in others)]
