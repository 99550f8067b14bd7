# SPDX-License-Identifier: Apache-2.0
"""Generic netlink family `detshare`, in the manner of pyroute2's own family files.

Usage::

    with DetShare() as ds:
        for msg in ds.vctx_get(pid=4242):
            print(msg.get_attr('DETSHARE_A_VCTX_MEMORY_USED'))
        ds.limit_set(kind=DETSHARE_KIND_PID, pid=4242, limit=8 << 30)

Numbers and types are those of kmod/detshare.yaml; tests/unit/netlink checks that. Each command has its own attribute
set, so messages are decoded by command. A refusal is a NetlinkError whose second argument is the kernel's extack text.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, genlmsg
from pyroute2.netlink.generic import AsyncGenericNetlinkSocket, GenericNetlinkSocket
from pyroute2.netlink.marshal import Marshal

DETSHARE_GENL_NAME = "detshare"
DETSHARE_GENL_VERSION = 1
DETSHARE_MCGRP_EVENTS = "events"
DETSHARE_NAME_MAX = 63

DETSHARE_CMD_STATUS_GET = 1
DETSHARE_CMD_GPU_GET = 2
DETSHARE_CMD_VCTX_GET = 3
DETSHARE_CMD_TSG_GET = 4
DETSHARE_CMD_LIMIT_GET = 5
DETSHARE_CMD_LIMIT_SET = 6
DETSHARE_CMD_LIMIT_DEL = 7
DETSHARE_CMD_TENANT_GET = 8
DETSHARE_CMD_TENANT_SET = 9
DETSHARE_CMD_TENANT_DEL = 10
DETSHARE_CMD_SCHED_GET = 11
DETSHARE_CMD_SCHED_SET = 12
DETSHARE_CMD_SCHED_DEL = 13
DETSHARE_CMD_VCTX_NEW = 14
DETSHARE_CMD_VCTX_GONE = 15
DETSHARE_CMD_TSG_NEW = 16
DETSHARE_CMD_TSG_GONE = 17
DETSHARE_CMD_REFUSED = 18
DETSHARE_CMD_LIMIT_CHANGED = 19
DETSHARE_CMD_DRIVER_UP = 20
DETSHARE_CMD_DRIVER_DOWN = 21

DETSHARE_KIND_PID = 0
DETSHARE_KIND_CGROUP = 1
DETSHARE_KIND_TENANT = 2

DETSHARE_LEVEL_LOW = 0
DETSHARE_LEVEL_MEDIUM = 1
DETSHARE_LEVEL_HIGH = 2

DETSHARE_ABI_NONE = 0
DETSHARE_ABI_BRANCH = 1
DETSHARE_ABI_EXACT = 2

DETSHARE_MODE_DOWN = 0
DETSHARE_MODE_OBSERVE = 1
DETSHARE_MODE_ENFORCE = 2


class detshare_status_msg(genlmsg):
    """What is in force."""

    prefix = "DETSHARE_A_STATUS_"
    nla_map = (
        ("DETSHARE_A_STATUS_UNSPEC", "none"),
        ("DETSHARE_A_STATUS_PAD", "none"),
        ("DETSHARE_A_STATUS_MODULE_VERSION", "asciiz"),
        ("DETSHARE_A_STATUS_DRIVER_VERSION", "asciiz"),
        ("DETSHARE_A_STATUS_ABI", "uint32"),
        ("DETSHARE_A_STATUS_MODE", "uint32"),
        ("DETSHARE_A_STATUS_SHIELD", "uint8"),
        ("DETSHARE_A_STATUS_HOOK", "asciiz"),
        ("DETSHARE_A_STATUS_GPUS", "uint32"),
        ("DETSHARE_A_STATUS_VCTXS", "uint32"),
        ("DETSHARE_A_STATUS_OBJECTS", "uint64"),
        ("DETSHARE_A_STATUS_CALLS", "uint64"),
        ("DETSHARE_A_STATUS_REFUSED", "uint64"),
        ("DETSHARE_A_STATUS_EVENTS_LOST", "uint64"),
        ("DETSHARE_A_STATUS_INFLIGHT", "uint32"),
    )


class detshare_gpu_msg(genlmsg):
    """A GPU that programs have used since the driver came up."""

    prefix = "DETSHARE_A_GPU_"
    nla_map = (
        ("DETSHARE_A_GPU_UNSPEC", "none"),
        ("DETSHARE_A_GPU_PAD", "none"),
        ("DETSHARE_A_GPU_GPU", "uint32"),
        ("DETSHARE_A_GPU_UUID", "asciiz"),
        ("DETSHARE_A_GPU_MINOR", "uint32"),
        ("DETSHARE_A_GPU_TOTAL", "uint64"),
        ("DETSHARE_A_GPU_USED", "uint64"),
        ("DETSHARE_A_GPU_VCTXS", "uint32"),
    )


class detshare_vctx_msg(genlmsg):
    """A virtual context: one per client file, RM client and GPU."""

    prefix = "DETSHARE_A_VCTX_"
    nla_map = (
        ("DETSHARE_A_VCTX_UNSPEC", "none"),
        ("DETSHARE_A_VCTX_PAD", "none"),
        ("DETSHARE_A_VCTX_VCTX_ID", "uint64"),
        ("DETSHARE_A_VCTX_PID", "uint32"),
        ("DETSHARE_A_VCTX_START_TIME", "uint64"),
        ("DETSHARE_A_VCTX_COMM", "asciiz"),
        ("DETSHARE_A_VCTX_CGROUP_ID", "uint64"),
        ("DETSHARE_A_VCTX_TENANT", "asciiz"),
        ("DETSHARE_A_VCTX_GPU", "uint32"),
        ("DETSHARE_A_VCTX_CLIENT", "uint32"),
        ("DETSHARE_A_VCTX_PARTIAL", "uint8"),
        ("DETSHARE_A_VCTX_MEMORY_USED", "uint64"),
        ("DETSHARE_A_VCTX_MANAGED", "uint64"),
        ("DETSHARE_A_VCTX_TSGS", "uint32"),
        ("DETSHARE_A_VCTX_CHANNELS", "uint32"),
        ("DETSHARE_A_VCTX_CTXSHARES", "uint32"),
        ("DETSHARE_A_VCTX_USERMODES", "uint32"),
        ("DETSHARE_A_VCTX_OBJECTS", "uint32"),
        ("DETSHARE_A_VCTX_REFUSED", "uint64"),
        ("DETSHARE_A_VCTX_CLASS", "asciiz"),
        ("DETSHARE_A_VCTX_MPS", "uint8"),
    )


class detshare_tsg_msg(genlmsg):
    """A channel group."""

    prefix = "DETSHARE_A_TSG_"
    nla_map = (
        ("DETSHARE_A_TSG_UNSPEC", "none"),
        ("DETSHARE_A_TSG_PAD", "none"),
        ("DETSHARE_A_TSG_VCTX_ID", "uint64"),
        ("DETSHARE_A_TSG_PID", "uint32"),
        ("DETSHARE_A_TSG_CLIENT", "uint32"),
        ("DETSHARE_A_TSG_HANDLE", "uint32"),
        ("DETSHARE_A_TSG_GPU", "uint32"),
        ("DETSHARE_A_TSG_ENGINE", "uint32"),
        ("DETSHARE_A_TSG_COMPUTE", "uint8"),
        ("DETSHARE_A_TSG_CHANNELS", "uint32"),
        ("DETSHARE_A_TSG_SLICE_US", "uint64"),
        ("DETSHARE_A_TSG_LEVEL", "uint32"),
        ("DETSHARE_A_TSG_SLICE_BEFORE_US", "uint64"),
        ("DETSHARE_A_TSG_MANAGED", "uint8"),
    )


class detshare_limit_msg(genlmsg):
    """A memory limit with what is charged to it."""

    prefix = "DETSHARE_A_LIMIT_"
    nla_map = (
        ("DETSHARE_A_LIMIT_UNSPEC", "none"),
        ("DETSHARE_A_LIMIT_PAD", "none"),
        ("DETSHARE_A_LIMIT_KIND", "uint32"),
        ("DETSHARE_A_LIMIT_PID", "uint32"),
        ("DETSHARE_A_LIMIT_CGROUP_ID", "uint64"),
        ("DETSHARE_A_LIMIT_TENANT", "asciiz"),
        ("DETSHARE_A_LIMIT_GPU", "uint32"),
        ("DETSHARE_A_LIMIT_LIMIT", "uint64"),
        ("DETSHARE_A_LIMIT_USED", "uint64"),
        ("DETSHARE_A_LIMIT_PEAK", "uint64"),
        ("DETSHARE_A_LIMIT_REFUSED", "uint64"),
    )


class detshare_tenant_msg(genlmsg):
    """A named tenant; PID once for each of its processes."""

    prefix = "DETSHARE_A_TENANT_"
    nla_map = (
        ("DETSHARE_A_TENANT_UNSPEC", "none"),
        ("DETSHARE_A_TENANT_PAD", "none"),
        ("DETSHARE_A_TENANT_NAME", "asciiz"),
        ("DETSHARE_A_TENANT_PID", "uint32"),
        ("DETSHARE_A_TENANT_USED", "uint64"),
    )


class detshare_sched_msg(genlmsg):
    """A standing order for the compute channel groups of a process."""

    prefix = "DETSHARE_A_SCHED_"
    nla_map = (
        ("DETSHARE_A_SCHED_UNSPEC", "none"),
        ("DETSHARE_A_SCHED_PAD", "none"),
        ("DETSHARE_A_SCHED_PID", "uint32"),
        ("DETSHARE_A_SCHED_CLASS", "asciiz"),
        ("DETSHARE_A_SCHED_SLICE_US", "uint64"),
        ("DETSHARE_A_SCHED_LEVEL", "uint32"),
        ("DETSHARE_A_SCHED_TSGS_SET", "uint32"),
        ("DETSHARE_A_SCHED_TSGS_FAILED", "uint32"),
        ("DETSHARE_A_SCHED_STATUS", "uint32"),
    )


class detshare_event_msg(genlmsg):
    """What the kernel tells the multicast group `events`."""

    prefix = "DETSHARE_A_EVENT_"
    nla_map = (
        ("DETSHARE_A_EVENT_UNSPEC", "none"),
        ("DETSHARE_A_EVENT_PAD", "none"),
        ("DETSHARE_A_EVENT_SEQ", "uint64"),
        ("DETSHARE_A_EVENT_TIME", "uint64"),
        ("DETSHARE_A_EVENT_VCTX_ID", "uint64"),
        ("DETSHARE_A_EVENT_PID", "uint32"),
        ("DETSHARE_A_EVENT_COMM", "asciiz"),
        ("DETSHARE_A_EVENT_GPU", "uint32"),
        ("DETSHARE_A_EVENT_CLIENT", "uint32"),
        ("DETSHARE_A_EVENT_HANDLE", "uint32"),
        ("DETSHARE_A_EVENT_ENGINE", "uint32"),
        ("DETSHARE_A_EVENT_KIND", "uint32"),
        ("DETSHARE_A_EVENT_CGROUP_ID", "uint64"),
        ("DETSHARE_A_EVENT_TENANT", "asciiz"),
        ("DETSHARE_A_EVENT_ASKED", "uint64"),
        ("DETSHARE_A_EVENT_USED", "uint64"),
        ("DETSHARE_A_EVENT_LIMIT", "uint64"),
        ("DETSHARE_A_EVENT_DRIVER_VERSION", "asciiz"),
    )


class MarshalDetShare(Marshal):
    """Chooses the class of a message by its command: that is the first byte after the netlink header."""

    cmd_map: Mapping[int, Any] = {
        DETSHARE_CMD_STATUS_GET: detshare_status_msg,
        DETSHARE_CMD_GPU_GET: detshare_gpu_msg,
        DETSHARE_CMD_VCTX_GET: detshare_vctx_msg,
        DETSHARE_CMD_TSG_GET: detshare_tsg_msg,
        DETSHARE_CMD_LIMIT_GET: detshare_limit_msg,
        DETSHARE_CMD_LIMIT_SET: detshare_limit_msg,
        DETSHARE_CMD_LIMIT_DEL: detshare_limit_msg,
        DETSHARE_CMD_TENANT_GET: detshare_tenant_msg,
        DETSHARE_CMD_TENANT_SET: detshare_tenant_msg,
        DETSHARE_CMD_TENANT_DEL: detshare_tenant_msg,
        DETSHARE_CMD_SCHED_GET: detshare_sched_msg,
        DETSHARE_CMD_SCHED_SET: detshare_sched_msg,
        DETSHARE_CMD_SCHED_DEL: detshare_sched_msg,
        DETSHARE_CMD_VCTX_NEW: detshare_event_msg,
        DETSHARE_CMD_VCTX_GONE: detshare_event_msg,
        DETSHARE_CMD_TSG_NEW: detshare_event_msg,
        DETSHARE_CMD_TSG_GONE: detshare_event_msg,
        DETSHARE_CMD_REFUSED: detshare_event_msg,
        DETSHARE_CMD_LIMIT_CHANGED: detshare_event_msg,
        DETSHARE_CMD_DRIVER_UP: detshare_event_msg,
        DETSHARE_CMD_DRIVER_DOWN: detshare_event_msg,
    }
    prid: int | None = None
    """the family's number, once it is known"""

    def parse_one_message(
        self, key: int, flags: int, sequence_number: int, data: bytes, offset: int, length: int
    ) -> Any:
        if key != self.prid:
            return super().parse_one_message(key, flags, sequence_number, data, offset, length)
        (cmd,) = struct.unpack_from("B", data, offset + 16)
        self.msg_map[key] = self.cmd_map.get(cmd, genlmsg)
        try:
            return super().parse_one_message(key, flags, sequence_number, data, offset, length)
        finally:
            self.msg_map[key] = genlmsg  # the class of requests that come back inside errors


class AsyncDetShare(AsyncGenericNetlinkSocket):
    """The family on an asyncio loop."""

    marshal_class = MarshalDetShare

    async def bind(self, groups: int = 0, pid: int | None = None, **kwarg: Any) -> None:
        await super().bind(DETSHARE_GENL_NAME, genlmsg, groups, pid, **kwarg)
        self.marshal.prid = self.prid

    async def request(self, cmd: int, msg_flags: int, **kwarg: Any) -> Any:
        """Send a command with the attributes in `kwarg` (None: left out); an iterator over the answers."""
        msg_class = MarshalDetShare.cmd_map[cmd]
        msg = msg_class()
        msg["cmd"] = cmd
        msg["version"] = DETSHARE_GENL_VERSION
        msg["attrs"] = [(msg_class.name2nla(key), value) for key, value in kwarg.items() if value is not None]
        return await self.nlm_request(msg, msg_type=self.prid, msg_flags=msg_flags)


class DetShare(GenericNetlinkSocket):
    """The family, synchronously. Bound by the constructor: NetlinkError with ENOENT where the module is not loaded."""

    async_class = AsyncDetShare

    def __init__(self, **kwarg: Any) -> None:
        super().__init__(ext_ack=True, strict_check=True, **kwarg)
        try:
            self.bind()
        except BaseException:
            self.close()
            raise

    def bind(self, groups: int = 0, pid: int | None = None, **kwarg: Any) -> None:
        self._run_with_cleanup(self.asyncore.bind, groups, pid, **kwarg)

    def _dump(self, cmd: int, **kwarg: Any) -> tuple[Any, ...]:
        return tuple(self._run_sync_cleanup(self.asyncore.request, cmd, NLM_F_REQUEST | NLM_F_DUMP, **kwarg))

    def _do(self, cmd: int, **kwarg: Any) -> Any:
        """A command that has an answer. No ACK is asked for: it would come after the answer and stay unread."""
        (msg,) = self._run_sync_cleanup(self.asyncore.request, cmd, NLM_F_REQUEST, **kwarg)
        return msg

    def _ack(self, cmd: int, **kwarg: Any) -> None:
        """A command without an answer."""
        self._run_sync_cleanup(self.asyncore.request, cmd, NLM_F_REQUEST | NLM_F_ACK, **kwarg)

    def status_get(self) -> Any:
        """What is in force."""
        return self._do(DETSHARE_CMD_STATUS_GET)

    def gpu_get(self) -> tuple[Any, ...]:
        """GPUs."""
        return self._dump(DETSHARE_CMD_GPU_GET)

    def vctx_get(self, pid: int | None = None) -> tuple[Any, ...]:
        """Virtual contexts, all of them or those of one process."""
        return self._dump(DETSHARE_CMD_VCTX_GET, pid=pid)

    def tsg_get(self, pid: int | None = None) -> tuple[Any, ...]:
        """Channel groups, all of them or those of one process."""
        return self._dump(DETSHARE_CMD_TSG_GET, pid=pid)

    def limit_get(self, **account: Any) -> tuple[Any, ...]:
        """Limits; `account`: kind, pid, cgroup_id, tenant, gpu."""
        return self._dump(DETSHARE_CMD_LIMIT_GET, **account)

    def limit_set(self, limit: int, **account: Any) -> Any:
        """Limit an account to `limit` bytes; the answer tells its use."""
        return self._do(DETSHARE_CMD_LIMIT_SET, **account, limit=limit)

    def limit_del(self, **account: Any) -> None:
        """Take a limit away."""
        self._ack(DETSHARE_CMD_LIMIT_DEL, **account)

    def tenant_get(self) -> tuple[Any, ...]:
        """Named tenants."""
        return self._dump(DETSHARE_CMD_TENANT_GET)

    def tenant_set(self, name: str, pid: int | None = None) -> Any:
        """Make a tenant; with `pid`, take that process in."""
        return self._do(DETSHARE_CMD_TENANT_SET, name=name, pid=pid)

    def tenant_del(self, name: str, pid: int | None = None) -> None:
        """Remove a tenant and its limits; with `pid`, let that process go only."""
        self._ack(DETSHARE_CMD_TENANT_DEL, name=name, pid=pid)

    def sched_get(self, pid: int | None = None) -> tuple[Any, ...]:
        """Standing orders."""
        return self._dump(DETSHARE_CMD_SCHED_GET, pid=pid)

    def sched_set(self, pid: int, klass: str, slice_us: int | None, level: int | None) -> Any:
        """Give a process' compute channel groups, and those to come, a slice and a level; None leaves it."""
        attrs = {"pid": pid, "class": klass, "slice_us": slice_us, "level": level}
        return self._do(DETSHARE_CMD_SCHED_SET, **attrs)

    def sched_del(self, pid: int) -> Any:
        """Forget the order and put back what was there."""
        return self._do(DETSHARE_CMD_SCHED_DEL, pid=pid)
