# SPDX-License-Identifier: Apache-2.0
"""Generic netlink family `detshare`, in the manner of pyroute2's own family files.

Usage::

    with DetShare() as ds:
        for msg in ds.vctx_get(pid=4242):
            print(msg.get_attr('DETSHARE_A_VCTX_MEMORY_USED'))
        ds.limit_set(kind=DETSHARE_KIND_PID, pid=4242, limit=8 << 30)

Numbers and types are in uapi.py, which is made from kmod/detshare.yaml. Each command has its own attribute
set, so messages are read by command; what comes is a detshare.ctl.netlink.answer.Answer. A refusal is a NetlinkError
whose second argument is the kernel's extack text.
"""

from __future__ import annotations

from typing import Any

from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, genlmsg
from pyroute2.netlink.generic import AsyncGenericNetlinkSocket, GenericNetlinkSocket
from pyroute2.netlink.marshal import Marshal

from detshare.ctl.netlink import uapi
from detshare.ctl.netlink.answer import Answer
from detshare.ctl.netlink.uapi import *  # noqa: F403  who sends a request needs its numbers


class MarshalDetShare(Marshal):
    """Chooses what a message says by its command; errors and ends of dumps are pyroute2's."""

    cmd_map = uapi.MESSAGES
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
        await super().bind(uapi.DETSHARE_FAMILY_NAME, genlmsg, groups, pid, **kwarg)
        self.marshal.prid = self.prid

    async def request(self, cmd: int, msg_flags: int, **kwarg: Any) -> Any:
        """Send a command with the attributes in `kwarg` (None: left out); an iterator over the answers."""
        msg_class = MarshalDetShare.cmd_map[cmd]
        msg = msg_class()
        msg["cmd"] = cmd
        msg["version"] = uapi.DETSHARE_FAMILY_VERSION
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
        return self._do(uapi.DETSHARE_CMD_STATUS_GET)

    def gpu_get(self) -> tuple[Answer, ...]:
        """GPUs."""
        return self._dump(uapi.DETSHARE_CMD_GPU_GET)

    def vctx_get(self, pid: int | None = None) -> tuple[Answer, ...]:
        """Virtual contexts, all of them or those of one process."""
        return self._dump(uapi.DETSHARE_CMD_VCTX_GET, pid=pid)

    def tsg_get(self, pid: int | None = None) -> tuple[Answer, ...]:
        """Channel groups, all of them or those of one process."""
        return self._dump(uapi.DETSHARE_CMD_TSG_GET, pid=pid)

    def limit_get(self, **account: Any) -> tuple[Answer, ...]:
        """Limits; `account`: kind, pid, start_time, cgroup_id, tenant, gpu."""
        return self._dump(uapi.DETSHARE_CMD_LIMIT_GET, **account)

    def limit_set(self, limit: int, **account: Any) -> Answer:
        """Limit an account to `limit` bytes; the answer tells its use."""
        return self._do(uapi.DETSHARE_CMD_LIMIT_SET, **account, limit=limit)

    def limit_del(self, **account: Any) -> None:
        """Take a limit away."""
        self._ack(uapi.DETSHARE_CMD_LIMIT_DEL, **account)

    def tenant_get(self) -> tuple[Answer, ...]:
        """Named tenants."""
        return self._dump(uapi.DETSHARE_CMD_TENANT_GET)

    def tenant_set(self, name: str, pid: int | None = None) -> Answer:
        """Make a tenant; with `pid`, take that process in."""
        return self._do(uapi.DETSHARE_CMD_TENANT_SET, name=name, pid=pid)

    def tenant_del(self, name: str, pid: int | None = None) -> None:
        """Remove a tenant and its limits; with `pid`, let that process go only."""
        self._ack(uapi.DETSHARE_CMD_TENANT_DEL, name=name, pid=pid)

    def sched_get(self, **subject: Any) -> tuple[Answer, ...]:
        """Standing orders; `subject`: kind, pid, start_time, cgroup_id, tenant."""
        return self._dump(uapi.DETSHARE_CMD_SCHED_GET, **subject)

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
        return self._do(uapi.DETSHARE_CMD_SCHED_SET, **attrs)

    def sched_del(self, pid: int | None = None, **subject: Any) -> Answer:
        """Forget the order and put back what was there."""
        return self._do(uapi.DETSHARE_CMD_SCHED_DEL, pid=pid, **subject)

    def preempt(self, **subject: Any) -> Answer:
        """Take what runs off the engine, once."""
        return self._do(uapi.DETSHARE_CMD_PREEMPT, **subject)

    def class_get(self, name: str | None = None, gpu: int | None = None) -> tuple[Answer, ...]:
        """Rows of classes."""
        return self._dump(uapi.DETSHARE_CMD_CLASS_GET, name=name, gpu=gpu)

    def class_set(self, name: str, **row: Any) -> Answer:
        """Write a row, whole: gpu, weight, slice_us, level, floor_permille, turn_us, turn_rank."""
        return self._do(uapi.DETSHARE_CMD_CLASS_SET, name=name, **row)

    def class_del(self, name: str, gpu: int | None = None) -> None:
        """Take a row away."""
        self._ack(uapi.DETSHARE_CMD_CLASS_DEL, name=name, gpu=gpu)

    def bucket_get(self, **subject: Any) -> tuple[Answer, ...]:
        """Buckets of GPU time."""
        return self._dump(uapi.DETSHARE_CMD_BUCKET_GET, **subject)

    def bucket_set(self, rate_us: int | None, burst_us: int | None = None, **subject: Any) -> Answer:
        """Give a subject a bucket: microseconds of GPU time in each second, and the most that it holds."""
        return self._do(uapi.DETSHARE_CMD_BUCKET_SET, **subject, rate_us=rate_us, burst_us=burst_us)

    def bucket_del(self, **subject: Any) -> None:
        """Take a bucket away."""
        self._ack(uapi.DETSHARE_CMD_BUCKET_DEL, **subject)

    def hold_get(self, **subject: Any) -> tuple[Answer, ...]:
        """Holds in force."""
        return self._dump(uapi.DETSHARE_CMD_HOLD_GET, **subject)

    def hold_set(self, gate: bool, pause: bool, lease_ms: int | None = None, **subject: Any) -> Answer:
        """Hold a subject for the time of a lease, milliseconds."""
        return self._do(uapi.DETSHARE_CMD_HOLD_SET, **subject, gate=int(gate), pause=int(pause), lease_ms=lease_ms)

    def hold_del(self, **subject: Any) -> Answer:
        """Let a subject go."""
        return self._do(uapi.DETSHARE_CMD_HOLD_DEL, **subject)

    def entity_get(self, pid: int | None = None) -> tuple[Answer, ...]:
        """What each virtual context that can launch work is doing."""
        return self._dump(uapi.DETSHARE_CMD_ENTITY_GET, pid=pid)

    def denied_get(self, pid: int | None = None) -> tuple[Answer, ...]:
        """What the filter did not let through."""
        return self._dump(uapi.DETSHARE_CMD_DENIED_GET, pid=pid)
