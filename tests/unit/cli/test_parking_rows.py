# SPDX-License-Identifier: Apache-2.0
"""What `show` says of a program whose memory is partly here and partly there."""

from __future__ import annotations

import pytest

from detshare.ctl.cli.details import parking_rows

MIB = 1 << 20


@pytest.mark.parametrize(
    ("state", "parked", "said"),
    [
        ("waiting", 24, "40.0M of it is on the GPU, until the arena or the GPU has room for the rest"),
        ("parked", 60, "4.0M of it is on the GPU, until the arena or the GPU has room for the rest"),
        ("parked", 64, None),
        ("waiting", 0, None),
        ("returning", 24, None),
    ],
)
def test_a_program_in_mid_exchange_says_how_much_is_where(state: str, parked: int, said: str | None) -> None:
    parking = {
        "state": state,
        "parkable_bytes": 64 * MIB,
        "parked_bytes": parked * MIB,
        "stays_bytes": 0,
        "arena_bytes": parked * MIB,
        "after": None,
        "parks": 0,
    }
    assert dict(parking_rows({"pid": 7, "parking": parking})).get("in parts") == said
