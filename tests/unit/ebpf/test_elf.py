# SPDX-License-Identifier: Apache-2.0
"""Exported functions of libraries, as the dynamic linker finds them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from detshare.ebpf import elf
from detshare.ebpf.errors import EbpfError
from detshare.ebpf.launches import TABLE
from detshare.ebpf.probes import variants


def compiled(folder: Path, name: str, code: str, *flags: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(code)
    made = folder / name
    subprocess.run(["gcc", "-O1", "-o", made, source, *flags], check=True, capture_output=True)
    return made


def listed(path: Path) -> dict[str, int]:
    done = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return {fields[2]: int(fields[0], 16) for fields in lines if fields[1] == "T"}


def test_functions_are_those_that_nm_lists(libcuda: Path) -> None:
    library = elf.read(libcuda)
    assert library.functions == listed(libcuda)
    assert all(any(low <= at < low + size for low, size in library.code) for at in library.functions.values())


def test_a_stripped_library_without_sections_has_the_same(libcuda: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "libcuda.so.1"
    subprocess.run(["strip", "--strip-all", "-o", stripped, libcuda], check=True)
    data = bytearray(stripped.read_bytes())
    data[40:48] = bytes(8)  # e_shoff: no sections at all
    data[60:62] = bytes(2)  # e_shnum
    stripped.write_bytes(data)
    assert elf.read(stripped).functions == elf.read(libcuda).functions


@pytest.mark.parametrize("style", ["sysv", "gnu", "both"])
def test_both_kinds_of_hash_tables_are_read(tmp_path: Path, style: str) -> None:
    code = "".join(f"int function_{n}(void) {{ return {n}; }}\n" for n in range(301))
    made = compiled(tmp_path, "libmany.so", code, "-shared", "-fPIC", f"-Wl,--hash-style={style}")
    found = elf.read(made).functions
    assert {f"function_{n}" for n in range(301)} <= set(found)
    assert found == listed(made)


def test_a_static_program_is_refused_with_the_next_step(tmp_path: Path) -> None:
    made = compiled(tmp_path, "static", "int main(void) { return 0; }", "-static")
    with pytest.raises(EbpfError, match=r"no dynamic symbols.*--libcuda"):
        elf.read(made)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x01" + bytes(100), b"no library" * 100, bytes(4096)])
def test_what_is_no_library_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(data)
    with pytest.raises(EbpfError, match="read the functions of"):
        elf.read(path)


def test_a_truncated_library_is_refused(libcuda: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    whole = libcuda.read_bytes()
    for size in (64, 1000, 5000):
        path.write_bytes(whole[:size])
        with pytest.raises(EbpfError):
            elf.read(path)


def test_variants_of_a_function_are_told_apart() -> None:
    names = ["cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoDAsync_v2", "cuMemcpyHtoD_v2x"]
    assert variants("cuMemcpyHtoD", names) == [
        ("cuMemcpyHtoD", True, False),
        ("cuMemcpyHtoD_v2", False, False),
        ("cuMemcpyHtoD_v2_ptds", False, True),
    ]


def test_every_function_that_is_counted_exists(libcuda: Path) -> None:
    exported = elf.read(libcuda).functions
    assert [name for name in TABLE if not variants(name, exported)] == []
