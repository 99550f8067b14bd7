# SPDX-License-Identifier: Apache-2.0
"""Stands for nvidia-cuda-mps-control in tests: the same options and commands, and a server process that can be killed.

Installed by conftest.py under the real name. What a test sets lies beside the pipe directory: `clients` (PIDs that
get_client_list gives), `fail` (the control daemon does not start), `mute` (it does not answer), `status`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
SOCKET = PIPE / "control"


def setting(name: str) -> str:
    try:
        return (PIPE.parent / name).read_text().strip()
    except OSError:
        return ""


def server() -> int:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        while True:
            time.sleep(60)
    return pid


def living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def daemon() -> int:
    if fault := setting("fail"):
        print(fault, file=sys.stderr)
        return 1
    if SOCKET.exists():
        print("An instance of this daemon is already running", file=sys.stderr)
        return 1
    if os.fork():
        return 0
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # servers that are killed leave no zombies
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(SOCKET))
    listener.listen()
    (PIPE / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    serving = server()
    while True:
        connection, _ = listener.accept()
        words = connection.recv(1000).decode().split()
        if not living(serving):
            serving = server()
        match words:
            case ["get_server_list"]:
                answer = f"{serving}\n"
            case ["get_client_list", pid] if pid == str(serving):
                answer = "\n".join(p for p in setting("clients").split() if living(int(p))) + "\n"
            case ["get_server_status", _]:
                answer = setting("status") or "ACTIVE"
            case ["quit", *_]:
                os.kill(serving, signal.SIGTERM)
                connection.close()
                os._exit(0)
            case _:
                answer = "Unrecognized command\n"
        connection.sendall(answer.encode())
        connection.close()


def ask() -> int:
    if setting("mute"):
        time.sleep(60)
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(SOCKET))
            link.sendall(sys.stdin.read().encode())
            while data := link.recv(1000):
                print(data.decode(), end="")
    except OSError:
        print(f"Cannot find MPS control daemon process in {PIPE}")
        return 1
    return 0


sys.exit(daemon() if "-d" in sys.argv else ask())
