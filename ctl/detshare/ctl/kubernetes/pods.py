# SPDX-License-Identifier: Apache-2.0
"""The cgroup of a pod, which kubelet makes before it prepares the pod's claims.

Names are those of kubelet's two cgroup drivers (kubernetes/kubernetes, pkg/kubelet/cm): "podUID" below kubepods, with
systemd "kubepods-burstable-podUID.slice" and _ for - in the UID. Assumed: kubelet's own root, where it has one, has
"kube" in its name, as that of kubeadm and kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["cgroup_of"]

_DEEPEST: Final = 5
"""folders above a pod's: kubelet's own root of two, kubepods, the quality of service, and one to spare"""


def cgroup_of(root: Path, uid: str) -> str | None:
    """A pod's path in the version 2 hierarchy that is mounted at `root`; None: it has none, or none yet."""
    endings = (f"pod{uid}", f"pod{uid.replace('-', '_')}.slice")
    for folder in _folders(root, _DEEPEST):
        if folder.name.endswith(endings):
            return f"/{folder.relative_to(root)}"
    return None


def _folders(above: Path, depth: int) -> Iterator[Path]:
    """Folders of pods: at the top only what is kubelet's is looked through, and nothing below a pod."""
    try:
        inner = list(above.iterdir())
    except OSError:
        return
    for each in inner:
        if depth == _DEEPEST and "kube" not in each.name:
            continue
        if "pod" in each.name.replace("kubepods", ""):
            yield each
        elif depth and each.is_dir():
            yield from _folders(each, depth - 1)
