/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints detshare:*. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM detshare

#if !defined(DETSHARE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define DETSHARE_TRACE_H

#include <linux/tracepoint.h>

#include "events.h"
#include "rm/decode.h"

/* A call that is being decided on; err: the driver will refuse its form. */
TRACE_EVENT(detshare_call,
	TP_PROTO(const struct rm_call *call, int err),
	TP_ARGS(call, err),
	TP_STRUCT__entry(
		__field(u32, nr)
		__field(u32, client)
		__field(u32, parent)
		__field(u32, object)
		__field(u32, class)
		__field(int, err)
	),
	TP_fast_assign(
		__entry->nr = call->nr;
		__entry->client = call->client;
		__entry->parent = call->parent;
		__entry->object = call->object;
		__entry->class = call->class;
		__entry->err = err;
	),
	TP_printk("nr=%#x client=%#x parent=%#x object=%#x class=%#x err=%d", __entry->nr,
		  __entry->client, __entry->parent, __entry->object, __entry->class, __entry->err)
);

TRACE_EVENT(detshare_refused,
	TP_PROTO(const struct ds_event_vctx *vctx, const struct ds_refusal *refusal),
	TP_ARGS(vctx, refusal),
	TP_STRUCT__entry(
		__field(u64, vctx)
		__field(u32, gpu)
		__field(u32, kind)
		__field(u64, asked)
		__field(u64, used)
		__field(u64, limit)
	),
	TP_fast_assign(
		__entry->vctx = vctx->id;
		__entry->gpu = vctx->gpu;
		__entry->kind = refusal->kind;
		__entry->asked = refusal->asked;
		__entry->used = refusal->used;
		__entry->limit = refusal->limit;
	),
	TP_printk("vctx=%llu gpu=%u kind=%u asked=%llu used=%llu limit=%llu", __entry->vctx,
		  __entry->gpu, __entry->kind, __entry->asked, __entry->used, __entry->limit)
);

/* What all events of an entity have. when: time of the fact, CLOCK_MONOTONIC ns. */
#define DS_ENTITY_FIELDS \
	__field(u64, vctx) \
	__field(u64, when) \
	__field(u32, pid) \
	__field(u32, gpu)
#define DS_ENTITY_ASSIGN \
	__entry->vctx = entity->vctx; \
	__entry->when = when; \
	__entry->pid = entity->pid; \
	__entry->gpu = entity->gpu

TRACE_EVENT(detshare_kick,
	TP_PROTO(const struct ds_event_entity *entity, u64 when, u64 idle_ns, pid_t by),
	TP_ARGS(entity, when, idle_ns, by),
	TP_STRUCT__entry(
		DS_ENTITY_FIELDS
		__field(u64, idle_ns)
		__field(pid_t, by)
	),
	TP_fast_assign(
		DS_ENTITY_ASSIGN;
		__entry->idle_ns = idle_ns;
		__entry->by = by;
	),
	TP_printk("vctx=%llu pid=%u gpu=%u when=%llu idle_ns=%llu by=%d", __entry->vctx, __entry->pid,
		  __entry->gpu, __entry->when, __entry->idle_ns, __entry->by)
);

TRACE_EVENT(detshare_quiet,
	TP_PROTO(const struct ds_event_entity *entity, u64 when, u64 idle_ns),
	TP_ARGS(entity, when, idle_ns),
	TP_STRUCT__entry(
		DS_ENTITY_FIELDS
		__field(u64, idle_ns)
	),
	TP_fast_assign(
		DS_ENTITY_ASSIGN;
		__entry->idle_ns = idle_ns;
	),
	TP_printk("vctx=%llu pid=%u gpu=%u when=%llu idle_ns=%llu", __entry->vctx, __entry->pid,
		  __entry->gpu, __entry->when, __entry->idle_ns)
);

TRACE_EVENT(detshare_hold,
	TP_PROTO(u8 cmd, const struct ds_event_entity *entity, u64 when, u32 reasons),
	TP_ARGS(cmd, entity, when, reasons),
	TP_STRUCT__entry(
		DS_ENTITY_FIELDS
		__field(u32, reasons)
		__field(u8, cmd)
	),
	TP_fast_assign(
		DS_ENTITY_ASSIGN;
		__entry->reasons = reasons;
		__entry->cmd = cmd;
	),
	TP_printk("%s vctx=%llu pid=%u gpu=%u when=%llu reasons=%#x",
		  __print_symbolic(__entry->cmd, { DETSHARE_CMD_GATED, "gated" }, { DETSHARE_CMD_OPENED, "opened" },
				   { DETSHARE_CMD_PAUSED, "paused" }, { DETSHARE_CMD_RESUMED, "resumed" }),
		  __entry->vctx, __entry->pid, __entry->gpu, __entry->when, __entry->reasons)
);

TRACE_EVENT(detshare_lease_ended,
	TP_PROTO(const struct ds_event_subject *subject, u64 when),
	TP_ARGS(subject, when),
	TP_STRUCT__entry(
		__field(u64, when)
		__field(u64, cgroup)
		__field(u32, kind)
		__field(u32, pid)
	),
	TP_fast_assign(
		__entry->when = when;
		__entry->cgroup = subject->cgroup;
		__entry->kind = subject->kind;
		__entry->pid = subject->pid;
	),
	TP_printk("kind=%u pid=%u cgroup=%llu when=%llu", __entry->kind, __entry->pid, __entry->cgroup, __entry->when)
);

TRACE_EVENT(detshare_denied,
	TP_PROTO(const struct ds_denial *denial),
	TP_ARGS(denial),
	TP_STRUCT__entry(
		__field(u64, vctx)
		__field(u64, when)
		__field(u64, count)
		__field(u32, pid)
		__field(u32, command)
		__field(u32, reason)
		__field(u32, status)
	),
	TP_fast_assign(
		__entry->vctx = denial->vctx;
		__entry->when = denial->last;
		__entry->count = denial->count;
		__entry->pid = denial->pid;
		__entry->command = denial->command;
		__entry->reason = denial->reason;
		__entry->status = denial->status;
	),
	TP_printk("vctx=%llu pid=%u command=%#x reason=%u status=%#x count=%llu when=%llu", __entry->vctx,
		  __entry->pid, __entry->command, __entry->reason, __entry->status, __entry->count, __entry->when)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
