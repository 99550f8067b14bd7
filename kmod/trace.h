/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints detshare:*. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM detshare

#if !defined(DETSHARE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define DETSHARE_TRACE_H

#include <linux/tracepoint.h>

#include "client.h"
#include "limit.h"
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
	TP_PROTO(const struct ds_vctx *vctx, const struct ds_refusal *refusal),
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

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
