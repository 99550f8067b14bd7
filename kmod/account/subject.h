/* SPDX-License-Identifier: GPL-2.0-only */
/* Who is meant by a limit, an order, a hold, a bucket. */
#ifndef DETSHARE_SUBJECT_H
#define DETSHARE_SUBJECT_H

#include <linux/types.h>

#include "detshare_uapi.h"

struct cgroup;
struct ds_process;
struct ds_tenant;

struct ds_subject {
	enum detshare_kind kind;
	struct ds_process *process;	/* of a pid */
	u64 cgroup;			/* its number */
	struct cgroup *folder;		/* of a cgroup, if the subject is held; else NULL */
	struct ds_tenant *tenant;
};

/*
 * Makes a copy one that can be kept: its process, cgroup or tenant stays, as a name at least, until it is put. -ENOENT: there is no
 * such cgroup. The caller holds what it names, or ds_limits_lock for a tenant.
 */
int ds_subject_hold(struct ds_subject *subject);
/* A zeroed object of `size` bytes that begins with such a copy. ERR_PTR: -ENOMEM, -ENOENT. */
void *ds_subject_make(const struct ds_subject *subject, size_t size);
/* One more, of one that is held. Any context. */
void ds_subject_copy(const struct ds_subject *subject);
void ds_subject_put(struct ds_subject *subject);

bool ds_subject_same(const struct ds_subject *a, const struct ds_subject *b);

struct ds_event_subject;
/* What events say of it. The caller holds what it names, or ds_limits_lock for a tenant. Any context. */
void ds_subject_event(const struct ds_subject *subject, struct ds_event_subject *event);

/* Of one that is held. Any context but hard interrupts: */

/* Its process is gone (process.h), its cgroup or tenant was removed: nobody is meant any more. */
bool ds_subject_gone(const struct ds_subject *subject);
/* Does the process belong to it at this moment, or did it when it ended? */
bool ds_subject_meant(const struct ds_subject *subject, const struct ds_process *process);

#endif
