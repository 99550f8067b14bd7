# SPDX-License-Identifier: Apache-2.0
"""What packaging/vendored.txt names, fetched by pip and unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from detshare.tools.release.errors import ReleaseError

__all__ = ["bring"]

_FOLDERS: Final = {"setuptools": "build", "_distutils_hack": "build", "pyroute2": "python", "pynvml.py": "python"}
"""what of the packages is used -> where it goes; all else in them is left out"""


def bring(lists: Path, into: Path, wheels: Path) -> None:
    """Fills into/python (imported by the product) and into/build (by its build). `wheels`: where they are kept.

    ReleaseError where one cannot be had, or is not what its hash says.
    """
    wheels.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary", ":all:", "--find-links", str(wheels), "--dest", str(wheels)]
    environment = {**os.environ, "PIP_NO_INPUT": "1"}
    words = [*command, "--requirement", str(lists)]
    # first from what is here: a release that was made once can be made again without a network
    for offline in (True, False):
        done = subprocess.run(
            [*words, *(["--no-index"] if offline else [])], capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode == 0:
            break
    else:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise ReleaseError(
            f"fetch what {lists.name} names",
            "; ".join(said[-2:]) or done.stderr.strip(),
            "check the network and pip's index (pip config list)",
        )
    pinned = [line.split("==") for line in lists.read_text().splitlines() if not line.startswith("#")]
    for name, rest in pinned:
        prefix = f"{name.replace('-', '_')}-{rest.split()[0]}-"
        wheel = next(path for path in sorted(wheels.glob("*.whl")) if path.name.startswith(prefix))
        _unpack(wheel, into)


def _unpack(wheel: Path, into: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            folder = _FOLDERS.get(info.filename.split("/")[0])
            # launchers for another system are programs without source
            if folder is None or info.is_dir() or info.filename.endswith(".exe"):
                continue
            target = into / folder / info.filename
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as data, target.open("wb") as out:
                shutil.copyfileobj(data, out)
