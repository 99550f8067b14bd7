# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detshare.ctl.core import sizes
from detshare.ctl.core.backend import BadRequest


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4G", 4 << 30), ("512M", 512 << 20), ("1.5g", 3 << 29), ("4GiB", 4 << 30), ("7kb", 7 << 10), ("1T", 1 << 40),
        ("1", 1), (" 65536 ", 65536), (str(1 << 63), 1 << 63), ("max", None), ("MAX", None),
    ],
)  # fmt: skip
def test_sizes(text: str, size: int | None) -> None:
    assert sizes.parse(text) == size


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no size"), ("G", "no size"), ("-1", "no size"), ("4 G 2", "no size"), ("1e9", "no size"),
        ("0x10", "no size"), ("0", "max"), ("0G", "max"), ("1.5", "whole"), (str((1 << 63) + 1), "out of range"),
        (str((1 << 64) - 1), "out of range"), ("99999999999999999999T", "out of range"), ("4G\n4G", "no size"),
    ],
)  # fmt: skip
def test_what_is_no_size_says_what_would_be_one(text: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        sizes.parse(text)


@given(st.integers(1, 1 << 63))
def test_a_number_of_bytes_is_itself(size: int) -> None:
    assert sizes.parse(str(size)) == size


@given(st.text(max_size=30))
def test_any_text_is_a_size_or_a_bad_request(text: str) -> None:
    try:
        size = sizes.parse(text)
    except BadRequest:
        return
    assert size is None or 1 <= size <= 1 << 63


@pytest.mark.parametrize(
    ("size", "text"), [(None, "?"), (0, "0B"), (1023, "1023B"), (1024, "1K"), (3 << 29, "1.5G"), (5000 << 30, "5000G")]
)
def test_text(size: int | None, text: str) -> None:
    assert sizes.text(size) == text
