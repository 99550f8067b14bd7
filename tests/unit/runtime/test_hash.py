# SPDX-License-Identifier: Apache-2.0
"""The digest of a grain: its reference in C, the kernel's PTX, and what both are to tell apart."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import ptx
import pytest
from builds import once
from programs import CLIENTS, FLAGS

from tests.patience import run

ROW = 4096
GRAIN = 512 * ROW
KEY = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
# whole grains: nothing but zeros, and 32-bit words that count from 0
VECTORS = {
    "zeros": "1f38e37fd3ba6f6cf8c2b475e8735828",
    "count": "19ad181867a262e095b40e938895eadb",
}


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def build(folder: Path) -> Path:
        out = folder / "hashes"
        checks = ["-O2", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        run(["gcc", *FLAGS, *checks, str(CLIENTS / "hashes.c"), "-o", str(out)], check=True)
        return out

    return once(tmp_path_factory, "hashes", build)


def reference(program: Path, content: bytes, key: tuple[int, ...] = KEY) -> str:
    words = [str(word) for word in key]
    done = run([str(program), "digest", *words], input=content, capture_output=True, check=True)
    text: str = done.stdout.decode().strip()
    return text


def _plain(content: bytes, key: tuple[int, ...]) -> str:
    """The definition in hash.h, a line for a line, as slow as it is plain."""

    def mix(s: list[int]) -> list[int]:
        a, b, c, d = s
        for _ in range(2):
            for bits in ((16, 12), (8, 7)):
                a = (a + b) & ptx.M32
                d = ((d ^ a) << bits[0] | (d ^ a) >> (32 - bits[0])) & ptx.M32
                c = (c + d) & ptx.M32
                b = ((b ^ c) << bits[1] | (b ^ c) >> (32 - bits[1])) & ptx.M32
        return [a, b, c, d]

    def xor(s: list[int], v: list[int]) -> list[int]:
        return [x ^ y for x, y in zip(s, v, strict=True)]

    v = [
        [int.from_bytes(content[i + j : i + j + 4], "little") for j in (0, 4, 8, 12)]
        for i in range(0, len(content), 16)
    ]
    s = [mix(xor(list(key), [t, 0, 0, 0])) for t in range(256)]
    for n, vector in enumerate(v):
        s[n % 256] = mix(xor(s[n % 256], vector))
    half = 128
    while half:
        s = [mix(xor(mix(s[t]), s[t + half])) for t in range(half)]
        half //= 2
    return "".join(f"{word:08x}" for word in s[0])


def test_a_mix_is_two_quarter_rounds_of_chacha() -> None:
    """RFC 8439, 2.1.1: the quarter round of its test vector, once more."""
    a, b, c, d = 0x11111111, 0x01020304, 0x9B8D6F43, 0x01234567
    for bits in ((16, 12), (8, 7)):
        a = (a + b) & ptx.M32
        d = ((d ^ a) << bits[0] | (d ^ a) >> (32 - bits[0])) & ptx.M32
        c = (c + d) & ptx.M32
        b = ((b ^ c) << bits[1] | (b ^ c) >> (32 - bits[1])) & ptx.M32
    assert (a, b, c, d) == (0xEA2A92F4, 0xCB1CF8CE, 0x4581472E, 0x5881C4BB)


def _contents() -> dict[str, bytes]:
    return {"zeros": bytes(GRAIN), "count": b"".join(n.to_bytes(4, "little") for n in range(GRAIN // 4))}


@pytest.mark.parametrize("name", VECTORS)
def test_the_reference_gives_the_test_vectors(hashes: Path, name: str) -> None:
    assert reference(hashes, _contents()[name]) == VECTORS[name]


@pytest.mark.parametrize("seed", range(3))
def test_the_reference_is_the_definition(hashes: Path, seed: int) -> None:
    dice = random.Random(seed)
    key = tuple(dice.getrandbits(32) for _ in range(4))
    content = dice.randbytes(4 * ROW * dice.randint(1, 3))
    assert reference(hashes, content, key) == _plain(content, key)


@pytest.mark.parametrize("seed", range(3))
def test_what_changed_has_another_digest(hashes: Path, seed: int) -> None:
    run([str(hashes), "flips", str(seed)], check=True)


@pytest.fixture(scope="module")
def kernel(hashes: Path) -> ptx.Program:
    return ptx.parse(run([str(hashes), "kernel"], capture_output=True, text=True, check=True).stdout)


def played(kernel: ptx.Program, contents: list[bytes], key: tuple[int, ...]) -> list[str]:
    """The kernel's digests, by its PTX."""
    count, rows = len(contents), len(contents[0]) // ROW
    bases = [0x7F0000000000 + n * 0x200000 for n in range(count)]
    table, out = 0x500000000000, 0x600000000000
    ranges = {base: bytearray(content) for base, content in zip(bases, contents, strict=True)}
    ranges[table] = bytearray(b"".join(base.to_bytes(8, "little") for base in bases))
    ranges[out] = bytearray(16 * count)
    values = {"grains": table, "digests": out, "rows": rows} | {f"key{n}": word for n, word in enumerate(key)}
    ptx.launch(kernel, count, values, ptx.Memory(ranges, {out}))
    words = [int.from_bytes(ranges[out][n : n + 4], "little") for n in range(0, 16 * count, 4)]
    return ["".join(f"{word:08x}" for word in words[n : n + 4]) for n in range(0, 4 * count, 4)]


def test_the_kernel_computes_what_the_reference_computes(hashes: Path, kernel: ptx.Program) -> None:
    dice = random.Random(5)
    for rows in (4, 8):
        contents = [dice.randbytes(rows * ROW), bytes(rows * ROW)]
        key = tuple(dice.getrandbits(32) for _ in range(4))
        assert played(kernel, contents, key) == [reference(hashes, content, key) for content in contents]


SPOILED = {
    "another rotation": ("%d, %d, 16", "%d, %d, 15"),
    "a barrier less": ("bar.sync 0;", ""),
    "a row left out": ("[%from+8192]", "[%from+4096]"),
    "not its lane": ("xor.b32 %a, %a, %t;", ""),
    "beyond the end": ("add.u64 %from, %from, 16384", "add.u64 %from, %from, 32768"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_kernel_that_differs_is_found_out(hashes: Path, name: str) -> None:
    text = run([str(hashes), "kernel"], capture_output=True, text=True, check=True).stdout
    was, now = SPOILED[name]
    assert was in text
    content = random.Random(6).randbytes(8 * ROW)
    try:
        got = played(ptx.parse(text.replace(was, now, 1)), [content], KEY)
    except ptx.Wrong:
        return
    assert got != [reference(hashes, content)]


def test_sizes_that_the_kernel_cannot_take_are_refused(hashes: Path) -> None:
    for size in (0, ROW, 4 * ROW + 1):
        done = subprocess.run([str(hashes), "digest", "1", "2", "3", "4"], input=bytes(size), check=False)
        assert done.returncode == 2
