# SPDX-License-Identifier: Apache-2.0
"""What backends raise where a verb cannot be done, as errors with a next step."""

from __future__ import annotations

from typing import Final

from detshare.ctl.abi.versions import UnknownBranch
from detshare.ctl.core.backend import BadRequest, NeedsModule, NoSpatialLane
from detshare.ctl.core.driver import DriverAbsent, DriverError, NotAllowed, ProcessGone
from detshare.ctl.core.errors import ControlError
from detshare.ctl.rm.client import RmError

LOAD_MODULE: Final = (
    "load it (modprobe detshare, or insmod detshare.ko: docs/use/module.md), restart detshared, "
    "then: detshare-ctl doctor"
)

EXPECTED: Final = (BadRequest, DriverError, RmError, UnknownBranch, OSError)
"""what a backend may raise"""


def explain(error: Exception, asked: str) -> ControlError:
    """What a backend raised, as an error with a next step."""
    if isinstance(error, ControlError):
        return error
    if isinstance(error, BadRequest):
        return ControlError(asked, str(error), "correct it; see detshare-ctl --help", usage=True)
    if isinstance(error, NeedsModule):
        return ControlError(asked, str(error), LOAD_MODULE)
    if isinstance(error, NoSpatialLane):
        return ControlError(asked, str(error), "start detshared; where it runs, see: detshare-ctl doctor")
    if isinstance(error, NotAllowed):
        return ControlError(asked, str(error), "run it as root (with CAP_SYS_PTRACE), then: detshare-ctl doctor")
    if isinstance(error, DriverAbsent):
        return ControlError(asked, str(error), "load the NVIDIA driver (nvidia-smi must answer), then try again")
    if isinstance(error, ProcessGone):
        return ControlError(asked, str(error), "see which programs are there: detshare-ctl ps")
    if isinstance(error, DriverError | RmError | UnknownBranch | OSError):
        return ControlError(asked, str(error), "see what is wrong with this machine: detshare-ctl doctor")
    stopped = f"an error in DetShare itself ({type(error).__name__}: {error})"
    return ControlError(asked, stopped, "report it with the output of: detshare-ctl doctor --json")
