/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the multicast group `events` is told. All may sleep, none fails: what cannot be sent is
 * counted as lost. Nothing is sent while the family is not registered.
 */
#ifndef DETSHARE_EVENTS_H
#define DETSHARE_EVENTS_H

#include <linux/types.h>

struct ds_client;
struct ds_limit_info;
struct ds_process;
struct ds_refusal;
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

u64 ds_events_lost(void);
/* netlink.c: the family is registered, or will be no more: then no event is on its way when this returns. */
void ds_events_enable(bool on);

#endif
