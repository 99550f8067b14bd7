# SPDX-License-Identifier: Apache-2.0
"""containerd and runc of Debian 13 in a guest, asked through CRI as kubelet asks. Real runtime, kubelet double."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from detshare.tools.vm import initramfs
from tests.debian import guest
from tests.debian.roots import Root, skip_without
from tests.unit.builds import once
from tests.vm.conftest import Completed
from tests.vm.test_kmod import clients

sys.path.insert(0, str(Path(__file__).parents[1] / "unit/kubernetes"))

from cri import IMAGE

__all__ = ["clients"]  # a fixture

pytestmark = pytest.mark.thorough

ENGINE = ("containerd", "runc")
OCI = "application/vnd.oci.image"


def _tar(files: dict[str, bytes | str]) -> bytes:
    """Of programs, or links where the value is text."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if isinstance(data, str):
                info.type, info.linkname = tarfile.SYMTYPE, data
                archive.addfile(info)
            else:
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def image(clients: Path) -> bytes:
    """An OCI archive: a shell, and programs for the simulated driver; all of them static."""
    programs = {f"bin/{name}": clients / name for name in ("nvalloc", "nvlatency")} | {
        "bin/busybox": initramfs.busybox()
    }
    layer = _tar(
        {name: path.read_bytes() for name, path in programs.items()}
        | {f"bin/{name}": "busybox" for name in ("sh", "sleep", "printf", "echo")}
    )
    blobs: dict[str, bytes | str] = {}

    def blob(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"{OCI}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layers = [blob(layer, "layer.v1.tar")]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/sleep", "100000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layers[0]["digest"]]},
    }
    made = blob(json.dumps(config).encode(), "config.v1+json")
    whole = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": made, "layers": layers}
    manifest = blob(json.dumps(whole).encode(), "manifest.v1+json")
    named = {**manifest, "annotations": {"io.containerd.image.name": IMAGE}}
    index = json.dumps({"schemaVersion": 2, "manifests": [named]}).encode()
    return _tar({**blobs, "index.json": index, "oci-layout": b'{"imageLayoutVersion": "1.0.0"}'})


@pytest.fixture(scope="session")
def disk(clients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with the runtime, and the image for it."""
    skip_without("mmdebstrap", "unshare", "mke2fs")

    def build(folder: Path) -> Path:
        root = Root("13", folder / "root", ENGINE)
        (root.folder / "srv/pod.tar").write_bytes(image(clients))
        made = guest.disk(root, folder / "disk")
        shutil.rmtree(root.folder)
        return made

    return once(tmp_path_factory, "containerd", build)


def test_pods_through_cri(
    guest_pytest: Callable[..., Completed],
    clients: Path,
    disk: Path,
    record_property: Callable[[str, object], None],
) -> None:
    done = guest_pytest(
        "tests/vm/guest/ctl_containerd.py",
        driver="sim",
        load=True,
        timeout=1200,
        disk=disk,
        mounts=[clients],
        env={"DETSHARE_NVCLIENT": str(clients)},
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    record_property("tests in the guest that pass (real runtime, kubelet double)", int(passed[1]))
