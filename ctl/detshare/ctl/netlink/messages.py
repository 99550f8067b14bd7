# SPDX-License-Identifier: Apache-2.0
"""Messages of the generic netlink family `detshare`: one class for each attribute set of kmod/detshare.yaml."""

from __future__ import annotations

from pyroute2.netlink import genlmsg


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
        ("DETSHARE_A_STATUS_DENIED", "uint64"),
        ("DETSHARE_A_STATUS_HOLDS", "uint32"),
        ("DETSHARE_A_STATUS_WAITING", "uint32"),
        ("DETSHARE_A_STATUS_MECHANISM", "asciiz"),
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
        ("DETSHARE_A_GPU_CEILING", "uint32"),
        ("DETSHARE_A_GPU_CEILING_STATUS", "uint32"),
        ("DETSHARE_A_GPU_TURN_MODE", "uint32"),
        ("DETSHARE_A_GPU_TURN_VCTX", "uint64"),
        ("DETSHARE_A_GPU_TURN_PID", "uint32"),
        ("DETSHARE_A_GPU_TURN_LEFT_MS", "uint64"),
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
        ("DETSHARE_A_LIMIT_START_TIME", "uint64"),
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
    """A standing order for compute channel groups, or what came of one."""

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
        ("DETSHARE_A_SCHED_KIND", "uint32"),
        ("DETSHARE_A_SCHED_CGROUP_ID", "uint64"),
        ("DETSHARE_A_SCHED_TENANT", "asciiz"),
        ("DETSHARE_A_SCHED_WEIGHT", "uint32"),
        ("DETSHARE_A_SCHED_TPC_PERCENT", "uint32"),
        ("DETSHARE_A_SCHED_TPC_STATUS", "uint32"),
        ("DETSHARE_A_SCHED_PROCESSES", "uint32"),
        ("DETSHARE_A_SCHED_START_TIME", "uint64"),
    )


class detshare_class_msg(genlmsg):
    """The row of a class: what its processes get, and their turns."""

    prefix = "DETSHARE_A_CLASS_"
    nla_map = (
        ("DETSHARE_A_CLASS_UNSPEC", "none"),
        ("DETSHARE_A_CLASS_PAD", "none"),
        ("DETSHARE_A_CLASS_GPU", "uint32"),
        ("DETSHARE_A_CLASS_NAME", "asciiz"),
        ("DETSHARE_A_CLASS_WEIGHT", "uint32"),
        ("DETSHARE_A_CLASS_SLICE_US", "uint64"),
        ("DETSHARE_A_CLASS_LEVEL", "uint32"),
        ("DETSHARE_A_CLASS_FLOOR_PERMILLE", "uint32"),
        ("DETSHARE_A_CLASS_ENTITIES", "uint32"),
        ("DETSHARE_A_CLASS_TURN_US", "uint64"),
        ("DETSHARE_A_CLASS_TURN_RANK", "uint32"),
    )


class detshare_bucket_msg(genlmsg):
    """A bucket of GPU time."""

    prefix = "DETSHARE_A_BUCKET_"
    nla_map = (
        ("DETSHARE_A_BUCKET_UNSPEC", "none"),
        ("DETSHARE_A_BUCKET_PAD", "none"),
        ("DETSHARE_A_BUCKET_KIND", "uint32"),
        ("DETSHARE_A_BUCKET_PID", "uint32"),
        ("DETSHARE_A_BUCKET_CGROUP_ID", "uint64"),
        ("DETSHARE_A_BUCKET_TENANT", "asciiz"),
        ("DETSHARE_A_BUCKET_RATE_US", "uint64"),
        ("DETSHARE_A_BUCKET_BURST_US", "uint64"),
        ("DETSHARE_A_BUCKET_LEVEL_US", "uint64"),
        ("DETSHARE_A_BUCKET_USED_US", "uint64"),
        ("DETSHARE_A_BUCKET_EMPTIED", "uint64"),
        ("DETSHARE_A_BUCKET_EMPTY", "uint8"),
        ("DETSHARE_A_BUCKET_START_TIME", "uint64"),
    )


class detshare_hold_msg(genlmsg):
    """A hold by order, or what came of one."""

    prefix = "DETSHARE_A_HOLD_"
    nla_map = (
        ("DETSHARE_A_HOLD_UNSPEC", "none"),
        ("DETSHARE_A_HOLD_PAD", "none"),
        ("DETSHARE_A_HOLD_KIND", "uint32"),
        ("DETSHARE_A_HOLD_PID", "uint32"),
        ("DETSHARE_A_HOLD_CGROUP_ID", "uint64"),
        ("DETSHARE_A_HOLD_TENANT", "asciiz"),
        ("DETSHARE_A_HOLD_GATE", "uint8"),
        ("DETSHARE_A_HOLD_PAUSE", "uint8"),
        ("DETSHARE_A_HOLD_LEASE_MS", "uint32"),
        ("DETSHARE_A_HOLD_VCTXS", "uint32"),
        ("DETSHARE_A_HOLD_GATED", "uint32"),
        ("DETSHARE_A_HOLD_PAUSED", "uint32"),
        ("DETSHARE_A_HOLD_FAILED", "uint32"),
        ("DETSHARE_A_HOLD_STATUS", "uint32"),
        ("DETSHARE_A_HOLD_WHY", "asciiz"),
        ("DETSHARE_A_HOLD_GATE_NS", "uint64"),
        ("DETSHARE_A_HOLD_PAUSE_NS", "uint64"),
        ("DETSHARE_A_HOLD_START_TIME", "uint64"),
    )


class detshare_entity_msg(genlmsg):
    """What a virtual context that can launch work is doing."""

    prefix = "DETSHARE_A_ENTITY_"
    nla_map = (
        ("DETSHARE_A_ENTITY_UNSPEC", "none"),
        ("DETSHARE_A_ENTITY_PAD", "none"),
        ("DETSHARE_A_ENTITY_VCTX_ID", "uint64"),
        ("DETSHARE_A_ENTITY_PID", "uint32"),
        ("DETSHARE_A_ENTITY_GPU", "uint32"),
        ("DETSHARE_A_ENTITY_CLIENT", "uint32"),
        ("DETSHARE_A_ENTITY_CLASS", "asciiz"),
        ("DETSHARE_A_ENTITY_WEIGHT", "uint32"),
        ("DETSHARE_A_ENTITY_STATE", "uint32"),
        ("DETSHARE_A_ENTITY_REASONS", "uint32"),
        ("DETSHARE_A_ENTITY_LAST_KICK", "uint64"),
        ("DETSHARE_A_ENTITY_IDLE_NS", "uint64"),
        ("DETSHARE_A_ENTITY_KICKS", "uint64"),
        ("DETSHARE_A_ENTITY_FAULTS", "uint64"),
        ("DETSHARE_A_ENTITY_WAITS", "uint64"),
        ("DETSHARE_A_ENTITY_WAIT_NS", "uint64"),
        ("DETSHARE_A_ENTITY_WAITING", "uint32"),
        ("DETSHARE_A_ENTITY_DOORS", "uint32"),
        ("DETSHARE_A_ENTITY_DOORS_UNKNOWN", "uint32"),
        ("DETSHARE_A_ENTITY_USED_US", "uint64"),
        ("DETSHARE_A_ENTITY_TSGS", "uint32"),
        ("DETSHARE_A_ENTITY_CHANNELS_OFF", "uint32"),
        ("DETSHARE_A_ENTITY_HELD_SINCE", "uint64"),
        ("DETSHARE_A_ENTITY_TPC_PERCENT", "uint32"),
        ("DETSHARE_A_ENTITY_DENIED", "uint64"),
    )


class detshare_denied_msg(genlmsg):
    """What the filter did not let through."""

    prefix = "DETSHARE_A_DENIED_"
    nla_map = (
        ("DETSHARE_A_DENIED_UNSPEC", "none"),
        ("DETSHARE_A_DENIED_PAD", "none"),
        ("DETSHARE_A_DENIED_VCTX_ID", "uint64"),
        ("DETSHARE_A_DENIED_PID", "uint32"),
        ("DETSHARE_A_DENIED_COMM", "asciiz"),
        ("DETSHARE_A_DENIED_COMMAND", "uint32"),
        ("DETSHARE_A_DENIED_REASON", "uint32"),
        ("DETSHARE_A_DENIED_STATUS", "uint32"),
        ("DETSHARE_A_DENIED_COUNT", "uint64"),
        ("DETSHARE_A_DENIED_LAST", "uint64"),
    )


class detshare_event_msg(genlmsg):
    """What the kernel tells the multicast groups."""

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
        ("DETSHARE_A_EVENT_IDLE_NS", "uint64"),
        ("DETSHARE_A_EVENT_BY", "uint32"),
        ("DETSHARE_A_EVENT_REASONS", "uint32"),
        ("DETSHARE_A_EVENT_COMMAND", "uint32"),
        ("DETSHARE_A_EVENT_DENIAL", "uint32"),
        ("DETSHARE_A_EVENT_STATUS", "uint32"),
        ("DETSHARE_A_EVENT_COUNT", "uint64"),
    )
