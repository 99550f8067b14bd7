// SPDX-License-Identifier: GPL-2.0-only
#include <linux/atomic.h>
#include <linux/ktime.h>
#include <linux/srcu.h>
#include <linux/workqueue.h>
#include <net/genetlink.h>

#include "events.h"
#include "process.h"
#include "rm/tree.h"
#include "trace.h"

#define EVENT_SIZE 512	/* more than any event needs */
/* How often it is asked whether somebody listens: not every kernel tells a family who joins and leaves. */
#define LISTENERS_MS 100

/* In the order of the family's groups. */
enum group {
	EVENTS,
	ACTIVITY,
	GROUPS
};

static atomic64_t sequence[GROUPS], lost;
static bool enabled;
/* Written before `enabled`, and never back. */
static const struct genl_family *family;
static void (*listeners_changed)(void);
/* Held from seeing the family enabled until the event is sent. */
DEFINE_STATIC_SRCU(senders);

struct event {
	struct sk_buff *skb;
	void *header;
	enum group group;
	gfp_t gfp;
};

/* false: nobody listens, or no memory. Either way the event has its number, so that listeners see a gap. */
static bool begin_at(struct event *event, enum group group, u8 cmd, u64 when, gfp_t gfp)
{
	u64 seq = atomic64_inc_return(&sequence[group]);

	if (!smp_load_acquire(&enabled) || !genl_has_listeners(family, &init_net, group))
		return false;
	event->group = group;
	event->gfp = gfp;
	event->skb = genlmsg_new(EVENT_SIZE, gfp);
	if (!event->skb)
		goto lost;
	event->header = genlmsg_put(event->skb, 0, 0, family, 0, cmd);
	if (event->header &&
	    !nla_put_u64_64bit(event->skb, DETSHARE_A_EVENT_SEQ, seq, DETSHARE_A_EVENT_PAD) &&
	    !nla_put_u64_64bit(event->skb, DETSHARE_A_EVENT_TIME, when, DETSHARE_A_EVENT_PAD))
		return true;
	nlmsg_free(event->skb);
lost:
	atomic64_inc(&lost);
	return false;
}

static bool begin(struct event *event, u8 cmd)
{
	return begin_at(event, EVENTS, cmd, ktime_get_ns(), GFP_KERNEL);
}

static void end(struct event *event, int err)
{
	int token;

	if (err) {
		nlmsg_free(event->skb);
		atomic64_inc(&lost);
		return;
	}
	genlmsg_end(event->skb, event->header);
	token = srcu_read_lock(&senders);
	/* a listener whose queue is full learns it from its own socket */
	if (smp_load_acquire(&enabled))
		genlmsg_multicast(family, event->skb, 0, event->group, event->gfp);
	else
		nlmsg_free(event->skb);
	srcu_read_unlock(&senders, token);
}

static int put_u64(struct event *event, int attribute, u64 value)
{
	return nla_put_u64_64bit(event->skb, attribute, value, DETSHARE_A_EVENT_PAD);
}

static int put_vctx(struct event *event, const struct ds_event_vctx *vctx, bool comm)
{
	char name[TASK_COMM_LEN];
	int err;

	err = put_u64(event, DETSHARE_A_EVENT_VCTX_ID, vctx->id) ?:
	      nla_put_u32(event->skb, DETSHARE_A_EVENT_PID, ds_process_nr(vctx->process)) ?:
	      nla_put_u32(event->skb, DETSHARE_A_EVENT_CLIENT, vctx->client);
	if (!err && vctx->gpu != RM_GPU_NONE)
		err = nla_put_u32(event->skb, DETSHARE_A_EVENT_GPU, vctx->gpu);
	if (!err && comm) {
		ds_process_comm(vctx->process, name);
		err = nla_put_string(event->skb, DETSHARE_A_EVENT_COMM, name);
	}
	return err;
}

void ds_event_vctx(u8 cmd, const struct ds_event_vctx *vctx)
{
	struct event event;

	if (begin(&event, cmd))
		end(&event, put_vctx(&event, vctx, true));
}

void ds_event_tsg(u8 cmd, const struct ds_event_vctx *vctx, u32 handle, u32 engine)
{
	struct event event;

	if (begin(&event, cmd))
		end(&event, put_vctx(&event, vctx, false) ?:
			    nla_put_u32(event.skb, DETSHARE_A_EVENT_HANDLE, handle) ?:
			    nla_put_u32(event.skb, DETSHARE_A_EVENT_ENGINE, engine));
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

void ds_event_refused(const struct ds_event_vctx *vctx, const struct ds_refusal *refusal)
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

static int put_subject(struct event *event, const struct ds_event_subject *subject)
{
	int err = nla_put_u32(event->skb, DETSHARE_A_EVENT_KIND, subject->kind);

	if (err)
		return err;
	switch (subject->kind) {
	case DETSHARE_KIND_PID:
		return nla_put_u32(event->skb, DETSHARE_A_EVENT_PID, subject->pid);
	case DETSHARE_KIND_CGROUP:
		return put_u64(event, DETSHARE_A_EVENT_CGROUP_ID, subject->cgroup);
	case DETSHARE_KIND_TENANT:
		return nla_put_string(event->skb, DETSHARE_A_EVENT_TENANT, subject->tenant);
	}
	return 0;
}

void ds_event_limit(const struct ds_event_subject *subject, u32 gpu, u64 used, u64 limit)
{
	struct event event;
	int err;

	if (!begin(&event, DETSHARE_CMD_LIMIT_CHANGED))
		return;
	err = put_subject(&event, subject) ?: put_u64(&event, DETSHARE_A_EVENT_USED, used);
	if (!err && limit)
		err = put_u64(&event, DETSHARE_A_EVENT_LIMIT, limit);
	if (!err && gpu != DS_ALL_GPUS)
		err = nla_put_u32(event.skb, DETSHARE_A_EVENT_GPU, gpu);
	end(&event, err);
}

void ds_event_driver(u8 cmd, const char *version)
{
	struct event event;

	if (begin(&event, cmd))
		end(&event, nla_put_string(event.skb, DETSHARE_A_EVENT_DRIVER_VERSION, version));
}

/* ---- who runs when ------------------------------------------------------------ */

static bool begin_now(struct event *event, enum group group, u8 cmd, u64 when)
{
	return begin_at(event, group, cmd, when, GFP_ATOMIC | __GFP_NOWARN);
}

static int put_entity(struct event *event, const struct ds_event_entity *entity)
{
	return put_u64(event, DETSHARE_A_EVENT_VCTX_ID, entity->vctx) ?:
	       nla_put_u32(event->skb, DETSHARE_A_EVENT_PID, entity->pid) ?:
	       nla_put_u32(event->skb, DETSHARE_A_EVENT_GPU, entity->gpu) ?:
	       nla_put_u32(event->skb, DETSHARE_A_EVENT_CLIENT, entity->client);
}

void ds_event_kick(const struct ds_event_entity *entity, u64 when, u64 idle_ns, pid_t by)
{
	struct event event;

	trace_detshare_kick(entity, when, idle_ns, by);
	if (begin_now(&event, ACTIVITY, DETSHARE_CMD_KICK, when))
		end(&event, put_entity(&event, entity) ?: put_u64(&event, DETSHARE_A_EVENT_IDLE_NS, idle_ns) ?:
			    nla_put_u32(event.skb, DETSHARE_A_EVENT_BY, by));
}

void ds_event_quiet(const struct ds_event_entity *entity, u64 when, u64 idle_ns)
{
	struct event event;

	trace_detshare_quiet(entity, when, idle_ns);
	if (begin_now(&event, ACTIVITY, DETSHARE_CMD_QUIET, when))
		end(&event, put_entity(&event, entity) ?: put_u64(&event, DETSHARE_A_EVENT_IDLE_NS, idle_ns));
}

void ds_event_hold(u8 cmd, const struct ds_event_entity *entity, u64 when, u32 reasons)
{
	struct event event;

	trace_detshare_hold(cmd, entity, when, reasons);
	if (begin_now(&event, EVENTS, cmd, when))
		end(&event, put_entity(&event, entity) ?: nla_put_u32(event.skb, DETSHARE_A_EVENT_REASONS, reasons));
}

void ds_event_lease_ended(const struct ds_event_subject *subject, u64 when)
{
	struct event event;

	trace_detshare_lease_ended(subject, when);
	if (begin_now(&event, EVENTS, DETSHARE_CMD_LEASE_ENDED, when))
		end(&event, put_subject(&event, subject));
}

static int put_denial(struct event *event, const struct ds_denial *denial, u32 gpu, u32 client)
{
	int err = nla_put_u32(event->skb, DETSHARE_A_EVENT_PID, denial->pid) ?:
		  nla_put_string(event->skb, DETSHARE_A_EVENT_COMM, denial->comm) ?:
		  nla_put_u32(event->skb, DETSHARE_A_EVENT_CLIENT, client) ?:
		  nla_put_u32(event->skb, DETSHARE_A_EVENT_COMMAND, denial->command) ?:
		  nla_put_u32(event->skb, DETSHARE_A_EVENT_DENIAL, denial->reason) ?:
		  nla_put_u32(event->skb, DETSHARE_A_EVENT_STATUS, denial->status) ?:
		  put_u64(event, DETSHARE_A_EVENT_COUNT, denial->count);

	if (!err && denial->vctx)
		err = put_u64(event, DETSHARE_A_EVENT_VCTX_ID, denial->vctx);
	if (!err && gpu != RM_GPU_NONE)
		err = nla_put_u32(event->skb, DETSHARE_A_EVENT_GPU, gpu);
	return err;
}

void ds_event_denied(const struct ds_denial *denial, u32 gpu, u32 client)
{
	struct event event;

	trace_detshare_denied(denial);
	if (begin_now(&event, EVENTS, DETSHARE_CMD_DENIED, denial->last))
		end(&event, put_denial(&event, denial, gpu, client));
}

bool ds_event_activity_wanted(void)
{
	return smp_load_acquire(&enabled) && genl_has_listeners(family, &init_net, ACTIVITY);
}

static void look_for_listeners(struct work_struct *work);
static DECLARE_DELAYED_WORK(listeners, look_for_listeners);

/* Who joins `activity` turns on what it takes to see launches, who leaves last turns it off. */
static void look_for_listeners(struct work_struct *work)
{
	static bool wanted;
	bool was = wanted;

	wanted = ds_event_activity_wanted();
	if (wanted != was)
		listeners_changed();
	schedule_delayed_work(&listeners, msecs_to_jiffies(LISTENERS_MS));
}

u64 ds_events_lost(void)
{
	return atomic64_read(&lost);
}

void ds_events_enable(const struct genl_family *to, void (*changed)(void))
{
	family = to;
	listeners_changed = changed;
	smp_store_release(&enabled, true);
	schedule_delayed_work(&listeners, 0);
}

void ds_events_disable(void)
{
	WRITE_ONCE(enabled, false);
	cancel_delayed_work_sync(&listeners);
	synchronize_srcu(&senders);
}
