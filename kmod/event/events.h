/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the multicast groups are told. None fails: what cannot be sent is counted as lost. Nothing is sent while the family is
 * not registered. Those about clients, memory and the driver may sleep; those about who runs when are for any context but
 * hard interrupts and NMI, and fire their tracepoint too.
 */
#ifndef DETSHARE_EVENTS_H
#define DETSHARE_EVENTS_H

#include <linux/sched.h>
#include <linux/types.h>

#include "detshare_uapi.h"

#define DS_ALL_GPUS ((u32)-1)

struct ds_process;
struct genl_family;

/* Whose event it is. The process is held by who tells. */
struct ds_event_vctx {
	u64 id;
	u32 gpu, client;
	struct ds_process *process;
};

/* Whom a limit or a hold means; what is not of this kind is 0. */
struct ds_event_subject {
	enum detshare_kind kind;
	u32 pid;
	u64 cgroup;
	const char *tenant;	/* valid while it is told */
};

/* Who refused a charge: a copy taken under the payer's lock, so that it outlives the limit. */
struct ds_refusal {
	enum detshare_kind kind;
	u64 cgroup;
	char tenant[DETSHARE_NAME_MAX + 1];
	u64 asked, used, limit;
};

/* A call that was not let through. */
struct ds_denial {
	u64 vctx;		/* 0: a call that is no vCtx's */
	pid_t pid;		/* who called, in the initial pid namespace */
	char comm[TASK_COMM_LEN];
	u32 command;		/* of a control; below 0x100 the number of an escape; DS_DENIED_UVM + number */
	enum detshare_denial reason;
	u32 status;		/* that the caller was given; 0: NV_OK, and nothing was done */
	u64 count;
	u64 last;		/* CLOCK_MONOTONIC, ns */
};

void ds_event_vctx(u8 cmd, const struct ds_event_vctx *vctx);
void ds_event_tsg(u8 cmd, const struct ds_event_vctx *vctx, u32 handle, u32 engine);
void ds_event_refused(const struct ds_event_vctx *vctx, const struct ds_refusal *refusal);
/* The same for what belongs to a process and to none of its vCtxs. */
void ds_event_refused_process(struct ds_process *process, u32 gpu, const struct ds_refusal *refusal);
/* gpu: DS_ALL_GPUS, each by itself. limit 0: taken away. */
void ds_event_limit(const struct ds_event_subject *subject, u32 gpu, u64 used, u64 limit);
void ds_event_driver(u8 cmd, const char *version);

/* ---- who runs when; any context ----------------------------------------------- */

/* Whose event it is. */
struct ds_event_entity {
	u64 vctx;
	u32 pid;	/* in the initial pid namespace */
	u32 gpu, client;
};

/*
 * `when` is the time of the fact, ktime_get_ns(). kick and quiet go to the group `activity`, and cost next to nothing while nobody
 * listens there.
 */
void ds_event_kick(const struct ds_event_entity *entity, u64 when, u64 idle_ns, pid_t by);
void ds_event_quiet(const struct ds_event_entity *entity, u64 when, u64 idle_ns);
/* cmd: DETSHARE_CMD_GATED, _OPENED, _PAUSED, _RESUMED. reasons: enum detshare_hold, what holds it from now on. */
void ds_event_hold(u8 cmd, const struct ds_event_entity *entity, u64 when, u32 reasons);
void ds_event_lease_ended(const struct ds_event_subject *subject, u64 when);

/* denial->last is when. gpu: RM_GPU_NONE if there is none. */
void ds_event_denied(const struct ds_denial *denial, u32 gpu, u32 client);

/* Does anybody listen to `activity`? Whenever that changes, `changed` below is called within 0.1 s. */
bool ds_event_activity_wanted(void);

u64 ds_events_lost(void);
/* The family is registered. `changed` sleeps, if it likes. */
void ds_events_enable(const struct genl_family *to, void (*changed)(void));
/* The family will be registered no more: no event is on its way when this returns. */
void ds_events_disable(void);

#endif
