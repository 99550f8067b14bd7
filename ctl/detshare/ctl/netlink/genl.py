# SPDX-License-Identifier: Apache-2.0
"""Generic netlink family `detshare`, in the manner of pyroute2's own family files.

Usage::

    with DetShare() as ds:
        for msg in ds.vctx_get(pid=4242):
            print(msg.get_attr('DETSHARE_A_VCTX_MEMORY_USED'))
        ds.limit_set(kind=DETSHARE_KIND_PID, pid=4242, limit=8 << 30)

Numbers and types are those of kmod/detshare.yaml; tests/unit/netlink checks that. Each command has its own attribute
set, so messages are read by command; what comes is a detshare.ctl.netlink.answer.Answer. A refusal is a NetlinkError
whose second argument is the kernel's extack text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, genlmsg
from pyroute2.netlink.generic import AsyncGenericNetlinkSocket, GenericNetlinkSocket
from pyroute2.netlink.marshal import Marshal

from detshare.ctl.netlink.answer import Answer
from detshare.ctl.netlink.messages import (
    detshare_bucket_msg,
    detshare_class_msg,
    detshare_denied_msg,
    detshare_entity_msg,
    detshare_event_msg,
    detshare_gpu_msg,
    detshare_hold_msg,
    detshare_limit_msg,
    detshare_sched_msg,
    detshare_status_msg,
    detshare_tenant_msg,
    detshare_tsg_msg,
    detshare_vctx_msg,
)

DETSHARE_GENL_NAME = "detshare"
DETSHARE_GENL_VERSION = 1
DETSHARE_MCGRP_EVENTS = "events"
DETSHARE_MCGRP_ACTIVITY = "activity"
DETSHARE_NAME_MAX = 63
DETSHARE_WEIGHT_MAX = 1000
DETSHARE_RANK_MAX = 1000
DETSHARE_PERCENT_MAX = 100
DETSHARE_PERMILLE_MAX = 1000
DETSHARE_LEASE_MAX_MS = 3600000
DETSHARE_LEASE_MS = 10000

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
DETSHARE_CMD_CLASS_GET = 22
DETSHARE_CMD_CLASS_SET = 23
DETSHARE_CMD_CLASS_DEL = 24
DETSHARE_CMD_BUCKET_GET = 25
DETSHARE_CMD_BUCKET_SET = 26
DETSHARE_CMD_BUCKET_DEL = 27
DETSHARE_CMD_HOLD_GET = 28
DETSHARE_CMD_HOLD_SET = 29
DETSHARE_CMD_HOLD_DEL = 30
DETSHARE_CMD_PREEMPT = 31
DETSHARE_CMD_ENTITY_GET = 32
DETSHARE_CMD_DENIED_GET = 33
DETSHARE_CMD_KICK = 34
DETSHARE_CMD_QUIET = 35
DETSHARE_CMD_GATED = 36
DETSHARE_CMD_OPENED = 37
DETSHARE_CMD_PAUSED = 38
DETSHARE_CMD_RESUMED = 39
DETSHARE_CMD_LEASE_ENDED = 40
DETSHARE_CMD_DENIED = 41

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

DETSHARE_HOLD_ORDER = 1
DETSHARE_HOLD_BUCKET = 2
DETSHARE_HOLD_TURN = 4
DETSHARE_TURN_MODE_NONE = 0
DETSHARE_TURN_MODE_TURNS = 1
DETSHARE_TURN_MODE_WINDOWS = 2

DETSHARE_ENTITY_STATE_IDLE = 0
DETSHARE_ENTITY_STATE_ACTIVE = 1
DETSHARE_ENTITY_STATE_GATED = 2
DETSHARE_ENTITY_STATE_PAUSED = 3

DETSHARE_DENIAL_ORDER = 0
DETSHARE_DENIAL_FOREIGN = 1
DETSHARE_DENIAL_RAW = 2
DETSHARE_DENIAL_QUERY = 3
DETSHARE_DENIAL_DOORBELL = 4

DETSHARE_ABILITY_UNKNOWN = 0
DETSHARE_ABILITY_ABSENT = 1
DETSHARE_ABILITY_PRESENT = 2


class MarshalDetShare(Marshal):
    """Chooses what a message says by its command; errors and ends of dumps are pyroute2's."""

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
        DETSHARE_CMD_CLASS_GET: detshare_class_msg,
        DETSHARE_CMD_CLASS_SET: detshare_class_msg,
        DETSHARE_CMD_CLASS_DEL: detshare_class_msg,
        DETSHARE_CMD_BUCKET_GET: detshare_bucket_msg,
        DETSHARE_CMD_BUCKET_SET: detshare_bucket_msg,
        DETSHARE_CMD_BUCKET_DEL: detshare_bucket_msg,
        DETSHARE_CMD_HOLD_GET: detshare_hold_msg,
        DETSHARE_CMD_HOLD_SET: detshare_hold_msg,
        DETSHARE_CMD_HOLD_DEL: detshare_hold_msg,
        DETSHARE_CMD_PREEMPT: detshare_sched_msg,
        DETSHARE_CMD_ENTITY_GET: detshare_entity_msg,
        DETSHARE_CMD_DENIED_GET: detshare_denied_msg,
        DETSHARE_CMD_KICK: detshare_event_msg,
        DETSHARE_CMD_QUIET: detshare_event_msg,
        DETSHARE_CMD_GATED: detshare_event_msg,
        DETSHARE_CMD_OPENED: detshare_event_msg,
        DETSHARE_CMD_PAUSED: detshare_event_msg,
        DETSHARE_CMD_RESUMED: detshare_event_msg,
        DETSHARE_CMD_LEASE_ENDED: detshare_event_msg,
        DETSHARE_CMD_DENIED: detshare_event_msg,
    }
    prid: int | None = None
    """the family's number, once it is known"""

    def parse_one_message(
        self, key: int, flags: int, sequence_number: int, data: bytes, offset: int, length: int
    ) -> Any:
        """Answer for a message of the family; Malformed where it is none."""
        if key != self.prid:
            return super().parse_one_message(key, flags, sequence_number, data, offset, length)
        return Answer(data, offset, self.cmd_map)


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

    async def answers(self, cmd: int, msg_flags: int, **kwarg: Any) -> tuple[Answer, ...]:
        """The same, all of them at once."""
        return tuple([msg async for msg in await self.request(cmd, msg_flags, **kwarg)])


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

    def _dump(self, cmd: int, **kwarg: Any) -> tuple[Answer, ...]:
        # in one go: pyroute2's own way runs its loop once for each message
        answers: tuple[Answer, ...] = self._run_with_cleanup(
            self.asyncore.answers, cmd, NLM_F_REQUEST | NLM_F_DUMP, **kwarg
        )
        return answers

    def _do(self, cmd: int, **kwarg: Any) -> Answer:
        """A command that has an answer. No ACK is asked for: it would come after the answer and stay unread."""
        answer: Answer
        (answer,) = self._run_with_cleanup(self.asyncore.answers, cmd, NLM_F_REQUEST, **kwarg)
        return answer

    def _ack(self, cmd: int, **kwarg: Any) -> None:
        """A command without an answer."""
        self._run_with_cleanup(self.asyncore.answers, cmd, NLM_F_REQUEST | NLM_F_ACK, **kwarg)

    def status_get(self) -> Any:
        """What is in force."""
        return self._do(DETSHARE_CMD_STATUS_GET)

    def gpu_get(self) -> tuple[Answer, ...]:
        """GPUs."""
        return self._dump(DETSHARE_CMD_GPU_GET)

    def vctx_get(self, pid: int | None = None) -> tuple[Answer, ...]:
        """Virtual contexts, all of them or those of one process."""
        return self._dump(DETSHARE_CMD_VCTX_GET, pid=pid)

    def tsg_get(self, pid: int | None = None) -> tuple[Answer, ...]:
        """Channel groups, all of them or those of one process."""
        return self._dump(DETSHARE_CMD_TSG_GET, pid=pid)

    def limit_get(self, **account: Any) -> tuple[Answer, ...]:
        """Limits; `account`: kind, pid, start_time, cgroup_id, tenant, gpu."""
        return self._dump(DETSHARE_CMD_LIMIT_GET, **account)

    def limit_set(self, limit: int, **account: Any) -> Answer:
        """Limit an account to `limit` bytes; the answer tells its use."""
        return self._do(DETSHARE_CMD_LIMIT_SET, **account, limit=limit)

    def limit_del(self, **account: Any) -> None:
        """Take a limit away."""
        self._ack(DETSHARE_CMD_LIMIT_DEL, **account)

    def tenant_get(self) -> tuple[Answer, ...]:
        """Named tenants."""
        return self._dump(DETSHARE_CMD_TENANT_GET)

    def tenant_set(self, name: str, pid: int | None = None) -> Answer:
        """Make a tenant; with `pid`, take that process in."""
        return self._do(DETSHARE_CMD_TENANT_SET, name=name, pid=pid)

    def tenant_del(self, name: str, pid: int | None = None) -> None:
        """Remove a tenant and its limits; with `pid`, let that process go only."""
        self._ack(DETSHARE_CMD_TENANT_DEL, name=name, pid=pid)

    def sched_get(self, **subject: Any) -> tuple[Answer, ...]:
        """Standing orders; `subject`: kind, pid, start_time, cgroup_id, tenant."""
        return self._dump(DETSHARE_CMD_SCHED_GET, **subject)

    def sched_set(
        self,
        pid: int | None = None,
        klass: str | None = None,
        slice_us: int | None = None,
        level: int | None = None,
        **more: Any,
    ) -> Answer:
        """Order a process, or with kind a cgroup_id or a tenant; `more`: weight, tpc_percent. None leaves it."""
        attrs = {"pid": pid, "class": klass, "slice_us": slice_us, "level": level, **more}
        return self._do(DETSHARE_CMD_SCHED_SET, **attrs)

    def sched_del(self, pid: int | None = None, **subject: Any) -> Answer:
        """Forget the order and put back what was there."""
        return self._do(DETSHARE_CMD_SCHED_DEL, pid=pid, **subject)

    def preempt(self, **subject: Any) -> Answer:
        """Take what runs off the engine, once."""
        return self._do(DETSHARE_CMD_PREEMPT, **subject)

    def class_get(self, name: str | None = None, gpu: int | None = None) -> tuple[Answer, ...]:
        """Rows of classes."""
        return self._dump(DETSHARE_CMD_CLASS_GET, name=name, gpu=gpu)

    def class_set(self, name: str, **row: Any) -> Answer:
        """Write a row, whole: gpu, weight, slice_us, level, floor_permille, turn_us, turn_rank."""
        return self._do(DETSHARE_CMD_CLASS_SET, name=name, **row)

    def class_del(self, name: str, gpu: int | None = None) -> None:
        """Take a row away."""
        self._ack(DETSHARE_CMD_CLASS_DEL, name=name, gpu=gpu)

    def bucket_get(self, **subject: Any) -> tuple[Answer, ...]:
        """Buckets of GPU time."""
        return self._dump(DETSHARE_CMD_BUCKET_GET, **subject)

    def bucket_set(self, rate_us: int | None, burst_us: int | None = None, **subject: Any) -> Answer:
        """Give a subject a bucket: microseconds of GPU time in each second, and the most that it holds."""
        return self._do(DETSHARE_CMD_BUCKET_SET, **subject, rate_us=rate_us, burst_us=burst_us)

    def bucket_del(self, **subject: Any) -> None:
        """Take a bucket away."""
        self._ack(DETSHARE_CMD_BUCKET_DEL, **subject)

    def hold_get(self, **subject: Any) -> tuple[Answer, ...]:
        """Holds in force."""
        return self._dump(DETSHARE_CMD_HOLD_GET, **subject)

    def hold_set(self, gate: bool, pause: bool, lease_ms: int | None = None, **subject: Any) -> Answer:
        """Hold a subject for the time of a lease, milliseconds."""
        return self._do(DETSHARE_CMD_HOLD_SET, **subject, gate=int(gate), pause=int(pause), lease_ms=lease_ms)

    def hold_del(self, **subject: Any) -> Answer:
        """Let a subject go."""
        return self._do(DETSHARE_CMD_HOLD_DEL, **subject)

    def entity_get(self, pid: int | None = None) -> tuple[Answer, ...]:
        """What each virtual context that can launch work is doing."""
        return self._dump(DETSHARE_CMD_ENTITY_GET, pid=pid)

    def denied_get(self, pid: int | None = None) -> tuple[Answer, ...]:
        """What the filter did not let through."""
        return self._dump(DETSHARE_CMD_DENIED_GET, pid=pid)
