# SPDX-License-Identifier: Apache-2.0
"""DetShare for Python programs: `detshare.Client`, `with detshare.tenant(priority="low"):`, `detshare.Error`.

Nothing is loaded before it is asked for, so that `import detshare` costs a program nothing.
"""

from __future__ import annotations

import importlib
import os.path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detshare.ctl.core.errors import ControlError as Error
    from detshare.ctl.library.client import Client
    from detshare.ctl.library.tenant import tenant

__all__ = ["Client", "Error", "tenant"]
_TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
# Python's search path is not asked: a folder detshare/ that lies anywhere on it is no part of this package
_BESIDE = [os.path.join(_TOP, part, "detshare") for part in ("runtime", "ebpf", "tools")]
"""in a checkout: the folders of the other parts; in a wheel they are where this file is"""
__path__ += [folder for folder in _BESIDE if os.path.isdir(folder)]

_WHERE = {
    "Client": ("detshare.ctl.library.client", "Client"),
    "Error": ("detshare.ctl.core.errors", "ControlError"),
    "tenant": ("detshare.ctl.library.tenant", "tenant"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    found = globals()[name] = getattr(importlib.import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
