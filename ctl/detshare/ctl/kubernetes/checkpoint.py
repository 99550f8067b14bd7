# SPDX-License-Identifier: Apache-2.0
"""The claims that were prepared on this node, on disk: whole, or as before."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from detshare.ctl.core.errors import ControlError
from detshare.ctl.kubernetes.claims import Claim

__all__ = ["Checkpoint", "write_whole"]

VERSION: Final = 1


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one. OSError."""
    made = path.with_name(f".{path.name}.new")
    with open(made, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(made, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Checkpoint:
    """Claims by UID. ControlError where the file is there and cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._claims: dict[str, Claim] = {}
        try:
            found = json.loads(path.read_bytes())
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']}, not {VERSION}")
            self._claims = {uid: Claim.from_json(each) for uid, each in found["claims"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            following = (
                "move it away: kubelet prepares the claims of its pods again, and old limits end with their pods"
            )
            raise ControlError("read the checkpoint", f"{path}: {str(error)[:120]}", following) from error

    @property
    def claims(self) -> dict[str, Claim]:
        """A copy."""
        return dict(self._claims)

    def get(self, uid: str) -> Claim | None:
        return self._claims.get(uid)

    def put(self, claim: Claim) -> None:
        """On disk when this returns. OSError: nothing was changed."""
        self._write({**self._claims, claim.uid: claim})

    def drop(self, uid: str) -> None:
        """Idempotent. OSError: nothing was changed."""
        if uid in self._claims:
            self._write({key: each for key, each in self._claims.items() if key != uid})

    def _write(self, claims: dict[str, Claim]) -> None:
        whole = {"version": VERSION, "claims": {uid: each.to_json() for uid, each in claims.items()}}
        write_whole(self._path, json.dumps(whole).encode())
        self._claims = claims
