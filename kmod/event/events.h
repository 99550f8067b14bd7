/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the multicast groups are told. None fails: what cannot be sent is counted as lost. Nothing is sent while the family is
 * not registered. Those about clients, memory and the driver may sleep; those about who runs when are for any context but
 * hard interrupts and NMI, and fire their tracepoint too.
 */
#ifndef DETSHARE_EVENTS_H
#define DETSHARE_EVENTS_H

#include <linux/types.h>

#include "detshare_uapi.h"

struct ds_client;
struct ds_denial;
struct ds_limit_info;
struct ds_process;
struct ds_refusal;
struct ds_subject;
struct ds_vctx;
struct rm_object;

void ds_event_vctx(u8 cmd, const struct ds_vctx *vctx);
/* Under client->tree. */
void ds_event_tsg(u8 cmd, const struct ds_client *client, const struct rm_object *tsg);
void ds_event_refused(const struct ds_vctx *vctx, const struct ds_refusal *refusal);
/* The same for what belongs to a process and to none of its vCtxs. */
void ds_event_refused_process(struct ds_process *process, u32 gpu, const struct ds_refusal *refusal);
/* info->limit 0: taken away. Under ds_limits_lock. */
void ds_event_limit(const struct ds_limit_info *info);
void ds_event_driver(u8 cmd, const char *version);

/* ---- who runs when; any context ----------------------------------------------- */

/* Whose event it is. */
struct ds_event_run {
	u64 vctx;
	u32 pid;	/* in the initial pid namespace */
	u32 gpu, client;
};

/*
 * `when` is the time of the fact, ktime_get_ns(). kick and quiet go to the group `activity`, and cost next to nothing while nobody
 * listens there.
 */
void ds_event_kick(const struct ds_event_run *run, u64 when, u64 idle_ns, pid_t by);
void ds_event_quiet(const struct ds_event_run *run, u64 when, u64 idle_ns);
/* cmd: DETSHARE_CMD_GATED, _OPENED, _PAUSED, _RESUMED. reasons: enum detshare_hold, what holds it from now on. */
void ds_event_hold(u8 cmd, const struct ds_event_run *run, u64 when, u32 reasons);
/* The subject's process is held, or its tenant exists, until this returns. */
void ds_event_lease_ended(const struct ds_subject *subject, u64 when);

/* denial->last is when. gpu: RM_GPU_NONE if there is none. */
void ds_event_denied(const struct ds_denial *denial, u32 gpu, u32 client);

/* Does anybody listen to `activity`? Whenever that changes, lanes look again within 0.1 s. */
bool ds_event_activity_wanted(void);

u64 ds_events_lost(void);
/* netlink.c: the family is registered, or will be no more: then no event is on its way when this returns. */
void ds_events_enable(bool on);

#endif
