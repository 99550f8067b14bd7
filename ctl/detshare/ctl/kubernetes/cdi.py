# SPDX-License-Identifier: Apache-2.0
"""A CDI specification for each claim: what a container of its pods gets, by the Container Device Interface."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from detshare.ctl.core.errors import ControlError
from detshare.ctl.kubernetes.checkpoint import write_whole
from detshare.ctl.kubernetes.claims import Claim
from detshare.ctl.kubernetes.parameters import DRIVER

__all__ = ["GPUS", "KIND", "Specifications", "named", "qualified"]

KIND: Final = f"{DRIVER}/claim"
GPUS: Final = "detshare.io/gpu"
"""the kind that `detshare-ctl cdi generate` writes"""
_VERSION: Final = "0.3.0"
"""the lowest that has all of ours; a name has to begin with a letter there"""
_SHARED: Final[Mapping[str, Any]] = {"deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]}
"""what CUDA opens besides the GPU's own node"""
_PREFIX: Final = f"{DRIVER}-claim-"


def qualified(uid: str, device: str) -> str:
    """The name under which a container runtime knows a device of a claim."""
    return f"{KIND}={_name(uid, device)}"


def _name(uid: str, device: str) -> str:
    return f"claim-{uid}-{device}"


def _of_gpus(folders: Sequence[Path]) -> dict[str, Any] | None:
    """The specification of this node's GPUs; a later folder goes first. ControlError where it cannot be read."""
    for path in (folder / f"{GPUS.replace('/', '-')}.json" for folder in reversed(folders)):
        try:
            found = json.loads(path.read_bytes())
            if isinstance(found, dict) and found["kind"] == GPUS and isinstance(found["cdiVersion"], str):
                return found
            raise ValueError("it is none of GPUs")
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError) as error:
            stopped = f"{path} is no CDI specification ({str(error)[:80]})"
            raise ControlError(
                "find what containers get", stopped, "write it anew: detshare-ctl cdi generate"
            ) from error
    return None


def named(folders: Sequence[Path]) -> set[str]:
    """Names of this node's devices. ControlError."""
    found = _of_gpus(folders) or {}
    return {each["name"] for each in found.get("devices", ()) if isinstance(each, dict) and "name" in each}


class Specifications:
    """The files of one folder; all `folders` are those of container runtimes, that one among them.

    A container gets the node of its GPU, and what every GPU needs besides: as `detshare-ctl cdi generate` found it, the
    driver's libraries too; where that was not run, two more nodes alone.
    """

    def __init__(self, folder: Path, folders: Sequence[Path]) -> None:
        self._folder = folder
        self._folders = folders

    def write(self, claim: Claim, minors: Mapping[str, int]) -> None:
        """Idempotent. `minors`: device -> number of its GPU. OSError, ControlError."""
        gpus = _of_gpus(self._folders) or {}
        edits = dict(gpus.get("containerEdits", _SHARED))
        edits["env"] = [*edits.get("env", ()), f"DETSHARE_CLAIM={claim.namespace}/{claim.name}"]
        devices = [
            {
                "name": _name(claim.uid, each),
                "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{minors[each]}"}]},
            }
            for each in dict.fromkeys(allotment.device for allotment in claim.allotments)
        ]
        version = gpus.get("cdiVersion", _VERSION)
        whole = {"cdiVersion": version, "kind": KIND, "devices": devices, "containerEdits": edits}
        write_whole(self._path(claim.uid), json.dumps(whole, indent=1).encode())

    def remove(self, uid: str) -> None:
        """Idempotent. OSError."""
        self._path(uid).unlink(missing_ok=True)

    def keep(self, uids: Collection[str]) -> list[str]:
        """Remove the files of all claims but these; whose were removed. OSError."""
        found = [
            path.name.removeprefix(_PREFIX).removesuffix(".json") for path in self._folder.glob(f"{_PREFIX}*.json")
        ]
        gone = [uid for uid in found if uid not in uids]
        for uid in gone:
            self.remove(uid)
        return gone

    def _path(self, uid: str) -> Path:
        return self._folder / f"{_PREFIX}{uid}.json"
