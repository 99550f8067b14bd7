# SPDX-License-Identifier: Apache-2.0
"""The daemon of the experiment: detshared with backend kmod over answers as bytes. Run by the experiment only."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from detshare.ctl.backends.module.backend import KmodBackend
from detshare.ctl.core import config
from detshare.ctl.daemon import daemon, detshared, logs
from detshare.ctl.netlink import genl
from detshare.ctl.netlink.link import Link
from detshare.ctl.oneshot import Built
from detshare.tools.bench.scale.kernel import Answers, MadeDriver


def main(run_dir: Path, count: int, descriptor: int) -> int:
    """Serve until SIGTERM; the exit code."""
    Answers.count = count
    Answers.events = socket.socket(fileno=descriptor)

    def build(name: str, where: Path) -> Built:
        return Built(KmodBackend(Link(), MadeDriver(count), where), why="bench scale")

    for module, name, made in ((genl, "DetShare", Answers), (daemon, "build_backend", build)):
        setattr(module, name, made)
    logs.begin("warning", "text")
    # called model, so that neither root nor this machine's lock is needed
    return detshared.run(run_dir, config.Config(daemon=config.Daemon(backend="model")))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
