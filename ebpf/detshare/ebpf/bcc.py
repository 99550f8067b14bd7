# SPDX-License-Identifier: Apache-2.0
"""bcc, Debian's python3-bpfcc: compiles the sources on the spot against the running kernel's headers.

The package called bcc on PyPI is another thing. Ours belongs to the system's Python, so its folder is looked into where
this Python (of a virtual environment) does not see it.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from detshare.ebpf.bpf import Map, lockdown, refused
from detshare.ebpf.errors import EbpfError

_SYSTEM = Path("/usr/lib/python3/dist-packages")
_KINDS = {"tracepoint": "TRACEPOINT", "raw_tracepoint": "RAW_TRACEPOINT", "uprobe": "KPROBE", "kprobe": "KPROBE"}


@cache
def module() -> Any | None:
    """The module bcc; None where it is not installed. Importing it takes a tenth of a second."""
    for folder in (None, _SYSTEM):
        if folder is not None:
            if not (folder / "bcc").is_dir():
                continue
            sys.path.append(str(folder))
        try:
            found = importlib.import_module("bcc")
        except (ImportError, OSError):
            continue
        finally:
            if folder is not None:
                sys.path.remove(str(folder))
        if hasattr(found, "BPF"):
            return found
    return None


def headers() -> Path | None:
    """Headers of the running kernel; None where they are not installed."""
    folder = Path("/lib/modules") / os.uname().release / "build"
    return folder if (folder / "include").is_dir() else None


def _kinds(source: str) -> dict[str, str]:
    """Program -> bcc's name of its type, from the SEC() before each function; macros that make programs included."""
    import re

    found: dict[str, str] = {}
    for section, name in re.findall(r'^SEC\("([^"]+)"\)\s*\nint (\w+)\(', source, re.MULTILINE):
        found[name] = section.partition("/")[0]
    for macro, section, suffix in re.findall(
        r'#define (\w+)\([\w, ]+\) \\\n\s*SEC\("([^"]+)"[^\n]*\\\n\s*int \w+##(\w+)\(', source
    ):
        for given in re.findall(rf"^{macro}\((\w+)\b", source, re.MULTILINE):
            found[f"{given}{suffix}"] = section.partition("/")[0]
    return {name: _KINDS[kind] for name, kind in found.items() if kind in _KINDS}


class Compiled:
    """A source, compiled and loaded by bcc."""

    def __init__(self, source: Path, maps: Mapping[str, Map], left_out: Collection[str] = ()) -> None:
        """EbpfError with the compiler's or the verifier's last words."""
        bcc = module()
        asked = f"compile {source.name} with bcc"
        if bcc is None or headers() is None:
            raise EbpfError(
                asked,
                "python3-bpfcc is missing" if bcc is None else f"no headers of kernel {os.uname().release}",
                "as root: apt-get install python3-bpfcc linux-headers-$(uname -r), or use prebuilt objects (libbpf1)",
            )
        flags = ["-DDETSHARE_BCC", f"-I{source.parent}", "-Wno-macro-redefined"]
        flags += [f"-DFD_{name}={made.fd}" for name, made in maps.items()]
        text = source.read_text(encoding="utf-8")
        try:
            self._bpf = bcc.BPF(text=text.encode(), cflags=flags)
            self._programs = {
                name: self._bpf.load_func(name.encode(), getattr(bcc.BPF, kind)).fd
                for name, kind in _kinds(text).items()
                if name not in left_out
            }
        except OSError as error:
            raise refused(asked, error) from error
        except Exception as error:  # bcc raises no other for whatever its compiler says
            if lockdown():
                raise refused(asked, OSError(errno.EPERM, str(error))) from error
            raise EbpfError(asked, str(error), "use prebuilt objects: DETSHARE_EBPF=libbpf") from error

    def program(self, name: str) -> int:
        """Descriptor of a loaded program."""
        return int(self._programs[name])

    def close(self) -> None:
        self._bpf.cleanup()
