# SPDX-License-Identifier: Apache-2.0
"""libbpf by ctypes: prebuilt CO-RE objects, adjusted to the running kernel while they are loaded."""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from detshare.ebpf.bpf import UPROBE_MULTI, Map, lockdown, refused
from detshare.ebpf.errors import EbpfError

_OLDEST = 1
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_said: list[str] = []
_POINTERS = (
    "bpf_object__open_file",
    "bpf_object__find_map_by_name",
    "bpf_object__find_program_by_name",
    "bpf_object__next_program",
    "bpf_program__name",
    "libbpf_set_print",
)


def _print(level: int, form: bytes, arguments: int) -> int:
    if level <= 1:
        text = ctypes.create_string_buffer(65536)
        ctypes.CDLL(None).vsnprintf(text, len(text), form, ctypes.c_void_p(arguments))
        _said.append(text.value.decode(errors="replace").rstrip())
    return 0


_printer = _PRINT(_print)


@cache
def library() -> ctypes.CDLL | None:
    """libbpf 1.x ($DETSHARE_LIBBPF, else the system's); None where there is none."""
    names = [os.environ.get("DETSHARE_LIBBPF"), f"libbpf.so.{_OLDEST}"]
    for name in filter(None, names):
        try:
            found = ctypes.CDLL(name, use_errno=True)
        except OSError:
            continue
        for function in _POINTERS:
            getattr(found, function).restype = ctypes.c_void_p
        found.bpf_map__type.restype = ctypes.c_int
        found.libbpf_set_print(_printer)
        return found
    return None


def version() -> str:
    """Such as "1.1"; empty where there is no libbpf."""
    found = library()
    return f"{found.libbpf_major_version()}.{found.libbpf_minor_version()}" if found is not None else ""


class Object:
    """A loaded CO-RE object; its programs live until it is closed and they are detached."""

    def __init__(
        self, path: Path, maps: Mapping[str, Map], left_out: Collection[str] = (), many: Collection[str] = ()
    ) -> None:
        """`left_out`: programs that are not loaded; `many`: those for attach.uprobes(). EbpfError."""
        found = library()
        if found is None:
            raise EbpfError(
                f"load {path.name}", "libbpf.so.1 is missing", "apt-get install libbpf1, or set DETSHARE_LIBBPF"
            )
        self._libbpf = found
        self._handle = ctypes.c_void_p(found.bpf_object__open_file(os.fsencode(path), None))
        asked = f"load {path.name}"
        if not self._handle:
            raise EbpfError(asked, os.strerror(ctypes.get_errno()), "build it anew: python -m detshare.ebpf.build")
        try:
            self._give(asked, maps)
            for name in left_out:
                found.bpf_program__set_autoload(self._program(name), False)
            for name in many:
                found.bpf_program__set_expected_attach_type(self._program(name), UPROBE_MULTI)
            _said.clear()
            status = found.bpf_object__load(self._handle)
            if status:
                raise self._failure(asked, -status)
        except EbpfError:
            self.close()
            raise

    def _give(self, asked: str, maps: Mapping[str, Map]) -> None:
        """Lets the object use our maps; their sizes must be those that its source was written for."""
        for name, made in maps.items():
            handle = ctypes.c_void_p(self._libbpf.bpf_object__find_map_by_name(self._handle, name.encode()))
            if not handle:
                raise EbpfError(asked, f"it has no map {name}", "build it anew: python -m detshare.ebpf.build")
            own = (
                self._libbpf.bpf_map__type(handle),
                self._libbpf.bpf_map__key_size(handle),
                self._libbpf.bpf_map__value_size(handle),
            )
            given = (int(made.spec.kind), made.spec.key, made.spec.value)
            if own != given:
                raise EbpfError(
                    asked, f"its map {name} is {own}, ours {given}", "build it anew: python -m detshare.ebpf.build"
                )
            self._libbpf.bpf_map__reuse_fd(handle, made.fd)

    def _program(self, name: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p(self._libbpf.bpf_object__find_program_by_name(self._handle, name.encode()))
        if not handle:
            raise KeyError(name)
        return handle

    def program(self, name: str) -> int:
        """Descriptor of a loaded program, the object's own."""
        return int(self._libbpf.bpf_program__fd(self._program(name)))

    def _failure(self, asked: str, number: int) -> EbpfError:
        said = [line for line in "\n".join(_said).splitlines() if line.strip()]
        text = next((line for line in reversed(said) if "BTF" in line and "failed" in line), "")
        verified = any("processed" in line for line in said)
        if lockdown() or (number in (errno.EPERM, errno.EACCES) and not verified):
            return refused(asked, OSError(number, os.strerror(number)))
        tail = "; ".join(line.removeprefix("libbpf: ") for line in said[-4:])
        return EbpfError(
            asked, text or f"{os.strerror(number)} ({tail})", "this kernel may be too old (5.10 or newer, with BTF)"
        )

    def close(self) -> None:
        if self._handle:
            self._libbpf.bpf_object__close(self._handle)
            self._handle = ctypes.c_void_p()
