# SPDX-License-Identifier: Apache-2.0
"""Feeds recorded ioctls to the core as the module does: decode, charge, take the driver's word, keep the tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from recording import UVM, Ioctl
from rmshell import KINDS, NO_GPU, OPS, Core, Refused, counts, items

ROOTS = {0x0, 0x1, 0x41}
ACCOUNT = 0


@dataclass
class Replay:
    """What one process did. GPU 0 is the only one; account 0 pays for everything, without a limit."""

    core: Core
    clients: list[int] = field(default_factory=list)
    peak: Counter[str] = field(default_factory=Counter)
    peak_objects: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    foreign_dups: list[tuple[int, int, int]] = field(default_factory=list)
    freed: int = 0

    def run(self, calls: Iterable[Ioctl]) -> None:
        """All of them, and after each the most objects of each kind that lived at once."""
        self.core("abi", "580.159.04")
        self.core("account", ACCOUNT, 1 << 62)
        for call in calls:
            if call.path != UVM:
                self.escape(call)
            self.look()

    def look(self) -> None:
        total: Counter[str] = Counter()
        for client in self.clients:
            total.update(counts(self.core("dump", client)["counts"]))
        for kind, number in total.items():
            self.peak[kind] = max(self.peak[kind], number)
        self.peak_objects = max(self.peak_objects, sum(total.values()))

    def escape(self, call: Ioctl) -> None:
        assert len(call.before) == call.size
        try:
            asked = self.core.numbers("decode", call.nr, call.before)
            answered = self.core.numbers("decode", call.nr, call.after)
        except Refused:
            self.calls["not followed"] += 1
            return
        op = OPS[asked["op"]]
        self.calls[op] += 1
        if answered["status"]:
            self.refused += 1
        elif op == "alloc":
            self.alloc(call, asked, answered)
        elif op == "alloc_memory":
            parameters = self.core("alloc-memory", call.before)
            assert parameters["vidmem"] == "0"
            self.insert(asked["client"], answered["object"], asked["parent"], asked["class"], parameters, 0)
        elif op == "free":
            self.free(asked["client"], asked["object"])
        elif op == "dup":
            self.dup(asked, answered)

    def alloc(self, call: Ioctl, asked: dict[str, int], answered: dict[str, int]) -> None:
        if asked["class"] in ROOTS:
            self.core("client", answered["object"])
            for gpu in (0, NO_GPU):
                self.core("join", answered["object"], gpu, ACCOUNT)
            self.clients.append(answered["object"])
            return
        length = self.core.numbers("class", asked["class"])["size"] if asked["params"] else 0
        parameters = self.core("alloc", asked["class"], call.params_before[:length])
        charged = int(parameters["request"])
        actual = 0
        if charged:
            blocks = (call.params_before[:length], call.params_after[:length])
            actual = self.core.numbers("answer-bytes", asked["class"], *blocks)["bytes"]
            self.core("charge", asked["client"], 0, charged)
            self.core("settle", asked["client"], 0, charged, actual)
        self.insert(asked["client"], answered["object"], asked["parent"], asked["class"], parameters, actual)

    def insert(
        self, client: int, handle: int, parent: int, class_: int, parameters: dict[str, str], bytes_: int
    ) -> None:
        self.core("reserve", client)
        gpu = 0 if KINDS[int(parameters["kind"])] == "device" else 255
        engine = parameters["engine"]
        answer = self.core("insert", client, handle, parent, class_, gpu, bytes_, engine, *items(parameters["deps"]))
        assert answer["died"] == "", "a handle was given twice"

    def dup(self, asked: dict[str, int], answered: dict[str, int]) -> None:
        assert asked["src_client"] not in self.clients
        self.foreign_dups.append((answered["object"], asked["src_client"], asked["src_object"]))
        # whose object it is nobody recorded: the module asks the driver; class 0 stands for it here
        self.core("reserve", asked["client"])
        self.core("insert", asked["client"], answered["object"], asked["parent"], 0, 255, 0, 0)

    def free(self, client: int, handle: int) -> None:
        count = self.core.numbers("free", client, handle)["count"]
        self.freed += count
        if handle == client:
            assert count >= 1
            self.core("destroy", client)
            self.clients.remove(client)

    def close(self) -> None:
        """The files are closed: every client goes."""
        for client in self.clients:
            self.core("destroy", client)
        self.clients = []
