// SPDX-License-Identifier: GPL-2.0-only
#include <linux/atomic.h>
#include <linux/ktime.h>
#include <linux/rwsem.h>
#include <net/genetlink.h>

#include "client.h"
#include "events.h"
#include "netlink.h"
#include "tenant.h"

#define EVENT_SIZE 512	/* more than any event needs */
#define GROUP 0

static atomic64_t sequence, lost;
static bool enabled;
/* Held for reading from seeing the family enabled until the event is sent. Taken last. */
static DECLARE_RWSEM(senders);

struct event {
	struct sk_buff *skb;
	void *header;
};

/* false: nobody listens, or no memory. Either way the event has its number, so that listeners see a gap. */
static bool begin(struct event *event, u8 cmd)
{
	u64 seq = atomic64_inc_return(&sequence);

	if (!READ_ONCE(enabled) || !genl_has_listeners(&ds_family, &init_net, GROUP))
		return false;
	down_read(&senders);
	if (!enabled)
		goto leave;
	event->skb = genlmsg_new(EVENT_SIZE, GFP_KERNEL);
	if (!event->skb)
		goto lost;
	event->header = genlmsg_put(event->skb, 0, 0, &ds_family, 0, cmd);
	if (!event->header ||
	    nla_put_u64_64bit(event->skb, DETSHARE_A_EVENT_SEQ, seq, DETSHARE_A_EVENT_PAD) ||
	    nla_put_u64_64bit(event->skb, DETSHARE_A_EVENT_TIME, ktime_get_ns(), DETSHARE_A_EVENT_PAD)) {
		nlmsg_free(event->skb);
		goto lost;
	}
	return true;
lost:
	atomic64_inc(&lost);
leave:
	up_read(&senders);
	return false;
}

static void end(struct event *event, int err)
{
	if (err) {
		nlmsg_free(event->skb);
		atomic64_inc(&lost);
	} else {
		genlmsg_end(event->skb, event->header);
		/* a listener whose queue is full learns it from its own socket */
		genlmsg_multicast(&ds_family, event->skb, 0, GROUP, GFP_KERNEL);
	}
	up_read(&senders);
}

static int put_u64(struct event *event, int attribute, u64 value)
{
	return nla_put_u64_64bit(event->skb, attribute, value, DETSHARE_A_EVENT_PAD);
}

static int put_vctx(struct event *event, const struct ds_vctx *vctx, bool comm)
{
	const struct ds_client *client = vctx->client;
	char name[TASK_COMM_LEN];
	int err;

	err = put_u64(event, DETSHARE_A_EVENT_VCTX_ID, vctx->id) ?:
	      nla_put_u32(event->skb, DETSHARE_A_EVENT_PID, ds_process_nr(client->process)) ?:
	      nla_put_u32(event->skb, DETSHARE_A_EVENT_CLIENT, client->rm.handle);
	if (!err && vctx->gpu != RM_GPU_NONE)
		err = nla_put_u32(event->skb, DETSHARE_A_EVENT_GPU, vctx->gpu);
	if (!err && comm) {
		ds_process_comm(client->process, name);
		err = nla_put_string(event->skb, DETSHARE_A_EVENT_COMM, name);
	}
	return err;
}

void ds_event_vctx(u8 cmd, const struct ds_vctx *vctx)
{
	struct event event;

	if (begin(&event, cmd))
		end(&event, put_vctx(&event, vctx, true));
}

void ds_event_tsg(u8 cmd, const struct ds_client *client, const struct rm_object *tsg)
{
	struct ds_vctx *vctx = ds_vctx_find((struct ds_client *)client, tsg->gpu);
	struct event event;

	if (vctx && begin(&event, cmd))
		end(&event, put_vctx(&event, vctx, false) ?:
			    nla_put_u32(event.skb, DETSHARE_A_EVENT_HANDLE, tsg->handle) ?:
			    nla_put_u32(event.skb, DETSHARE_A_EVENT_ENGINE, tsg->engine));
}

static int put_refusal(struct event *event, const struct ds_refusal *refusal)
{
	int err = nla_put_u32(event->skb, DETSHARE_A_EVENT_KIND, refusal->kind) ?:
		  put_u64(event, DETSHARE_A_EVENT_ASKED, refusal->asked) ?:
		  put_u64(event, DETSHARE_A_EVENT_USED, refusal->used) ?:
		  put_u64(event, DETSHARE_A_EVENT_LIMIT, refusal->limit);

	if (!err && refusal->kind == DETSHARE_KIND_CGROUP)
		err = put_u64(event, DETSHARE_A_EVENT_CGROUP_ID, refusal->cgroup);
	if (!err && refusal->kind == DETSHARE_KIND_TENANT)
		err = nla_put_string(event->skb, DETSHARE_A_EVENT_TENANT, refusal->tenant);
	return err;
}

void ds_event_refused(const struct ds_vctx *vctx, const struct ds_refusal *refusal)
{
	struct event event;

	if (begin(&event, DETSHARE_CMD_REFUSED))
		end(&event, put_vctx(&event, vctx, true) ?: put_refusal(&event, refusal));
}

void ds_event_refused_process(struct ds_process *process, u32 gpu, const struct ds_refusal *refusal)
{
	char comm[TASK_COMM_LEN];
	struct event event;

	if (!begin(&event, DETSHARE_CMD_REFUSED))
		return;
	ds_process_comm(process, comm);
	end(&event, nla_put_u32(event.skb, DETSHARE_A_EVENT_PID, ds_process_nr(process)) ?:
		    nla_put_string(event.skb, DETSHARE_A_EVENT_COMM, comm) ?:
		    nla_put_u32(event.skb, DETSHARE_A_EVENT_GPU, gpu) ?:
		    put_refusal(&event, refusal));
}

void ds_event_limit(const struct ds_limit_info *info)
{
	const struct ds_subject *subject = &info->subject;
	struct event event;
	int err;

	if (!begin(&event, DETSHARE_CMD_LIMIT_CHANGED))
		return;
	err = nla_put_u32(event.skb, DETSHARE_A_EVENT_KIND, subject->kind) ?:
	      put_u64(&event, DETSHARE_A_EVENT_USED, info->used);
	if (!err && info->limit)
		err = put_u64(&event, DETSHARE_A_EVENT_LIMIT, info->limit);
	if (!err && info->gpu != DS_ALL_GPUS)
		err = nla_put_u32(event.skb, DETSHARE_A_EVENT_GPU, info->gpu);
	if (!err && subject->kind == DETSHARE_KIND_PID)
		err = nla_put_u32(event.skb, DETSHARE_A_EVENT_PID, ds_process_nr(subject->process));
	if (!err && subject->kind == DETSHARE_KIND_CGROUP)
		err = put_u64(&event, DETSHARE_A_EVENT_CGROUP_ID, subject->cgroup);
	if (!err && subject->kind == DETSHARE_KIND_TENANT)
		err = nla_put_string(event.skb, DETSHARE_A_EVENT_TENANT, subject->tenant->name);
	end(&event, err);
}

void ds_event_driver(u8 cmd, const char *version)
{
	struct event event;

	if (begin(&event, cmd))
		end(&event, nla_put_string(event.skb, DETSHARE_A_EVENT_DRIVER_VERSION, version));
}

u64 ds_events_lost(void)
{
	return atomic64_read(&lost);
}

void ds_events_enable(bool on)
{
	down_write(&senders);
	WRITE_ONCE(enabled, on);
	up_write(&senders);
}
