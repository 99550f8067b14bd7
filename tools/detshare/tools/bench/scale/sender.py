# SPDX-License-Identifier: Apache-2.0
"""Sends the module's events at a rate, one netlink message each, as multicast does. Run by the experiment only.

Nine in ten thousand are such that people are told of them; the rest is turns that pass.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import Final

from detshare.ctl.netlink import genl
from detshare.tools.bench.scale.kernel import FIRST_PID, encoded

_KINDS: Final = (
    genl.DETSHARE_CMD_GATED,
    genl.DETSHARE_CMD_OPENED,
    genl.DETSHARE_CMD_PAUSED,
    genl.DETSHARE_CMD_RESUMED,
)
USERSOCK: Final = 2
"""netlink between processes, so that sockets and buffers are those that the module's events come through"""
_SEQ_AT: Final = 24
"""where the first attribute's value begins: the event's number"""


def main(port: int, count: int, rate: int, seconds: float) -> None:
    """One JSON line at the end: how many, in how long."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, USERSOCK)
    to = (port, 0)
    many = []
    for number in range(count):
        for cmd in _KINDS:
            more = {"reasons": genl.DETSHARE_HOLD_TURN} if cmd in _KINDS[::2] else {}
            vctx = {"vctx_id": number + 1, "pid": FIRST_PID + number, "client": 0xC1D00000 + number, "gpu": 0}
            many.append(encoded(cmd, seq=0, time=0, **vctx, **more))
    rare = encoded(genl.DETSHARE_CMD_REFUSED, seq=0, time=0, pid=FIRST_PID, comm="program0", kind=0, asked=1 << 30)
    assert many[0][_SEQ_AT - 4 : _SEQ_AT - 2] == b"\x0c\x00"
    sent = 0
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + seconds:
        for _ in range(min(int((now - begun) * rate) - sent, rate // 100)):
            sent += 1
            data = rare if sent % 1100 == 0 else many[sent % len(many)]
            sock.sendto(data[:_SEQ_AT] + sent.to_bytes(8, sys.byteorder) + data[_SEQ_AT + 8 :], to)
        time.sleep(0.001)
    print(json.dumps({"sent": sent, "seconds": time.monotonic() - begun}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
