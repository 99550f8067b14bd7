# SPDX-License-Identifier: Apache-2.0
"""Numbers and messages of the family. Made from kmod/detshare.yaml by python -m detshare.tools.genl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyroute2.netlink import genlmsg

DETSHARE_FAMILY_NAME = "detshare"
DETSHARE_FAMILY_VERSION = 1
DETSHARE_NAME_MAX = 63
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
DETSHARE_WEIGHT_MAX = 1000
DETSHARE_RANK_MAX = 1000
DETSHARE_PERCENT_MAX = 100
DETSHARE_PERMILLE_MAX = 1000
DETSHARE_LEASE_MAX_MS = 3600000
DETSHARE_LEASE_MS = 10000
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
DETSHARE_MCGRP_EVENTS = "events"
DETSHARE_MCGRP_ACTIVITY = "activity"


class detshare_status_msg(genlmsg):
    """Set status."""

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
        ("DETSHARE_A_STATUS_FAIL_CLOSED", "uint8"),
        ("DETSHARE_A_STATUS_LAPSE", "asciiz"),
        ("DETSHARE_A_STATUS_CLOSED", "uint64"),
    )


class detshare_gpu_msg(genlmsg):
    """Set gpu."""

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
    """Set vctx."""

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
    """Set tsg."""

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
    """Set limit."""

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
    """Set tenant."""

    prefix = "DETSHARE_A_TENANT_"
    nla_map = (
        ("DETSHARE_A_TENANT_UNSPEC", "none"),
        ("DETSHARE_A_TENANT_PAD", "none"),
        ("DETSHARE_A_TENANT_NAME", "asciiz"),
        ("DETSHARE_A_TENANT_PID", "uint32"),
        ("DETSHARE_A_TENANT_USED", "uint64"),
    )


class detshare_sched_msg(genlmsg):
    """Set sched."""

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
    """Set class."""

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
    """Set bucket."""

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
    """Set hold."""

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
    """Set entity."""

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
    """Set denied."""

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
    """Set event."""

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


MESSAGES: Mapping[int, Any] = {
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
"""command -> what its messages say; each set of attributes has numbers of its own"""
