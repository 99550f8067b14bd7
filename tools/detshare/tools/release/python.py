# SPDX-License-Identifier: Apache-2.0
"""The wheel and the source archive of a staged tree: the same bytes from the same tree."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from detshare.tools.release.errors import ReleaseError

__all__ = ["sdist", "wheel"]

_CODE = "import sys; from setuptools import build_meta as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"


def wheel(tree: Path, out: Path, epoch: int) -> Path:
    """A wheel with the product, for this kind of machine. ReleaseError."""
    return _built("wheel", tree, out, epoch)


def sdist(tree: Path, out: Path, epoch: int) -> Path:
    """What such a wheel can be built from. ReleaseError."""
    made = _built("sdist", tree, out, epoch)
    _same(made, epoch)
    return made


def _built(what: str, tree: Path, out: Path, epoch: int) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    # objects of a package lie there, made with its flags
    shutil.rmtree(tree / "build", ignore_errors=True)
    build = tree / "vendored" / "build"
    # an older `packaging` of this machine must not be found before setuptools' own
    path = f"{build}:{build / 'setuptools' / '_vendor'}"
    environment = {**os.environ, "PYTHONPATH": path, "SOURCE_DATE_EPOCH": str(epoch)}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "CFLAGS": f"-O2 -g -ffile-prefix-map={tree}=."}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CODE, what, str(out)],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        umask=0o022,
    )
    if done.returncode:
        raise ReleaseError(f"build the {what}", done.stderr.strip() or done.stdout.strip(), "see the lines above")
    return out / done.stdout.split()[-1]


def _same(archive: Path, epoch: int) -> None:
    """Writes it again without who made it and when."""
    with tarfile.open(archive) as old:
        kept = [(info, old.extractfile(info)) for info in sorted(old.getmembers(), key=lambda each: each.name)]
        stage = archive.with_suffix(".new")
        with (
            stage.open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for info, data in kept:
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                info.mtime = epoch
                info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
                info.pax_headers = {}
                new.addfile(info, data)
    stage.rename(archive)
