// SPDX-License-Identifier: GPL-2.0-only
#include <linux/cgroup.h>
#include <linux/err.h>
#include <linux/slab.h>

#include "events.h"
#include "process.h"
#include "subject.h"
#include "tenant.h"

int ds_subject_hold(struct ds_subject *subject)
{
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		ds_process_hold(subject->process);
		return 0;
	case DETSHARE_KIND_CGROUP:
		subject->folder = cgroup_get_from_id(subject->cgroup);
		if (!IS_ERR_OR_NULL(subject->folder))
			return 0;
		subject->folder = NULL;
		return -ENOENT;
	case DETSHARE_KIND_TENANT:
		ds_tenant_hold(subject->tenant);
		return 0;
	}
	return -EINVAL;
}

void *ds_subject_make(const struct ds_subject *subject, size_t size)
{
	struct ds_subject *made = kzalloc(size, GFP_KERNEL);
	int err;

	if (!made)
		return ERR_PTR(-ENOMEM);
	*made = *subject;
	err = ds_subject_hold(made);
	if (err) {
		kfree(made);
		return ERR_PTR(err);
	}
	return made;
}

void ds_subject_copy(const struct ds_subject *subject)
{
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		ds_process_hold(subject->process);
		break;
	case DETSHARE_KIND_CGROUP:
		cgroup_get(subject->folder);
		break;
	case DETSHARE_KIND_TENANT:
		ds_tenant_hold(subject->tenant);
		break;
	}
}

void ds_subject_put(struct ds_subject *subject)
{
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		ds_process_put(subject->process);
		break;
	case DETSHARE_KIND_CGROUP:
		if (subject->folder)
			cgroup_put(subject->folder);
		break;
	case DETSHARE_KIND_TENANT:
		ds_tenant_put(subject->tenant);
		break;
	}
}

void ds_subject_event(const struct ds_subject *subject, struct ds_event_subject *event)
{
	*event = (struct ds_event_subject){ .kind = subject->kind };
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		event->pid = ds_process_nr(subject->process);
		break;
	case DETSHARE_KIND_CGROUP:
		event->cgroup = subject->cgroup;
		break;
	case DETSHARE_KIND_TENANT:
		event->tenant = subject->tenant->name;
		break;
	}
}

bool ds_subject_same(const struct ds_subject *a, const struct ds_subject *b)
{
	if (a->kind != b->kind)
		return false;
	switch (a->kind) {
	case DETSHARE_KIND_PID:
		return a->process == b->process;
	case DETSHARE_KIND_CGROUP:
		return a->cgroup == b->cgroup;
	case DETSHARE_KIND_TENANT:
		return a->tenant == b->tenant;
	}
	return false;
}

bool ds_subject_gone(const struct ds_subject *subject)
{
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		return ds_process_gone(subject->process);
	case DETSHARE_KIND_CGROUP:
		return !(READ_ONCE(subject->folder->self.flags) & CSS_ONLINE);
	case DETSHARE_KIND_TENANT:
		return READ_ONCE(subject->tenant->gone);
	}
	return true;
}

bool ds_subject_meant(const struct ds_subject *subject, const struct ds_process *process)
{
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		return subject->process == process;
	case DETSHARE_KIND_CGROUP:
		return ds_process_within(process, subject->folder);
	case DETSHARE_KIND_TENANT:
		return ds_tenant_of(process) == subject->tenant;
	}
	return false;
}
