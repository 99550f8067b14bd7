// SPDX-License-Identifier: GPL-2.0-only
#include <linux/capability.h>
#include <linux/delay.h>
#include <linux/hash.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>

#include "bucket.h"
#include "calls.h"
#include "denials.h"
#include "driver.h"
#include "filter.h"
#include "lease.h"
#include "rm/verdict.h"
#include "run.h"
#include "sched.h"
#include "subject.h"

/* How often a caller that must wait looks whether he may go on. */
#define WAIT_MS 5
/* Major number of /dev/nvidia*, given to NVIDIA for good. */
#define NVIDIA_MAJOR 195

static_assert((int)RM_DENIAL_ORDER == (int)DETSHARE_DENIAL_ORDER);
static_assert((int)RM_DENIAL_FOREIGN == (int)DETSHARE_DENIAL_FOREIGN);
static_assert((int)RM_DENIAL_RAW == (int)DETSHARE_DENIAL_RAW);
static_assert((int)RM_DENIAL_QUERY == (int)DETSHARE_DENIAL_QUERY);
static_assert((int)RM_DENIAL_DOORBELL == (int)DETSHARE_DENIAL_DOORBELL);

static bool active = true;
module_param_named(filter, active, bool, 0444);
MODULE_PARM_DESC(filter, "0: programs may undo what is ordered for them and reach others; for tests of the filter only");

static bool filtering(void)
{
	return active && ds_enforcing();
}

/* ---- objects that hand everything to the firmware ------------------------------- */

#define RAW_BITS 6

struct raw {
	struct hlist_node link;
	struct rcu_head rcu;
	u32 client, object;
};

static struct hlist_head raws[1 << RAW_BITS];
static DEFINE_SPINLOCK(raws_lock);

static struct hlist_head *bucket_of(u32 client, u32 object)
{
	return &raws[hash_32(client ^ object, RAW_BITS)];
}

/* Under RCU or raws_lock. */
static struct raw *find_raw(u32 client, u32 object)
{
	struct raw *raw;

	hlist_for_each_entry_rcu(raw, bucket_of(client, object), link, lockdep_is_held(&raws_lock))
		if (raw->client == client && raw->object == object)
			return raw;
	return NULL;
}

static bool is_raw(u32 client, u32 object)
{
	bool found;

	rcu_read_lock();
	found = find_raw(client, object);
	rcu_read_unlock();
	return found;
}

int ds_filter_raw_new(u32 client, u32 object)
{
	struct raw *raw = kzalloc(sizeof(*raw), GFP_KERNEL_ACCOUNT);

	if (!raw)
		return -ENOMEM;
	raw->client = client;
	raw->object = object;
	spin_lock(&raws_lock);
	if (find_raw(client, object)) {
		kfree(raw);
		raw = NULL;
	} else {
		hlist_add_head_rcu(&raw->link, bucket_of(client, object));
	}
	spin_unlock(&raws_lock);
	return 0;
}

void ds_filter_raw_gone(u32 client, u32 object)
{
	struct raw *raw;

	spin_lock(&raws_lock);
	raw = find_raw(client, object);
	if (raw)
		hlist_del_rcu(&raw->link);
	spin_unlock(&raws_lock);
	if (raw)
		kfree_rcu(raw, rcu);
}

/* ---- guests in channel groups of others ------------------------------------------- */

struct guest {
	struct list_head link;
	u32 client, object;
	struct ds_process *host;	/* held */
};

static LIST_HEAD(guests);
static DEFINE_SPINLOCK(guests_lock);

bool ds_filter_steers(enum rm_kind kind)
{
	return kind == RM_KIND_TSG || kind == RM_KIND_CTXSHARE || kind == RM_KIND_CHANNEL;
}

int ds_filter_guest_new(u32 client, u32 object, struct ds_process *host)
{
	struct guest *guest = kzalloc(sizeof(*guest), GFP_KERNEL_ACCOUNT);

	if (!guest)
		return -ENOMEM;
	guest->client = client;
	guest->object = object;
	guest->host = ds_process_hold(host);
	spin_lock(&guests_lock);
	list_add_tail(&guest->link, &guests);
	spin_unlock(&guests_lock);
	return 0;
}

void ds_filter_guest_gone(u32 client, u32 object)
{
	struct guest *guest, *found = NULL;

	spin_lock(&guests_lock);
	list_for_each_entry(guest, &guests, link)
		if (guest->client == client && guest->object == object)
			found = guest;
	if (found)
		list_del(&found->link);
	spin_unlock(&guests_lock);
	if (found) {
		ds_process_put(found->host);
		kfree(found);
	}
}

/* The index-th host of a client, held; NULL: it has no so many. */
static struct ds_process *host_of(u32 client, unsigned int index)
{
	struct ds_process *host = NULL;
	struct guest *guest;

	spin_lock(&guests_lock);
	list_for_each_entry(guest, &guests, link) {
		if (guest->client == client && !index--) {
			host = ds_process_hold(guest->host);
			break;
		}
	}
	spin_unlock(&guests_lock);
	return host;
}

static bool has_bucket(struct ds_process *process)
{
	struct ds_bucket_info bucket;
	bool meant = false;
	unsigned int i;

	for (i = 0; !meant && ds_bucket_at(i, &bucket); i++) {
		meant = ds_subject_meant(&bucket.subject, process);
		ds_subject_put(&bucket.subject);
	}
	return meant;
}

/* Does anything stand for it that it could undo: an order, a hold, a bucket? */
static bool is_managed(struct ds_process *process)
{
	return ds_process_managed(process) || ds_holds_of(process) || has_bucket(process);
}

/* Is the client in a channel group of somebody who is managed? */
static bool is_managed_guest(u32 client)
{
	struct ds_process *host;
	bool managed = false;
	unsigned int i;

	for (i = 0; !managed && (host = host_of(client, i)); i++) {
		managed = is_managed(host);
		ds_process_put(host);
	}
	return managed;
}

/* ---- which controls ---------------------------------------------------------------- */

bool ds_filter_wants(const struct rm_abi *abi, const void *block)
{
	u32 client = rm_get32(block, abi->nvos54.hClient), object = rm_get32(block, abi->nvos54.hObject);

	return filtering() && rm_verdict_wanted(rm_get32(block, abi->nvos54.cmd), rm_get32(block, abi->nvos54.flags),
						is_raw(client, object));
}

bool ds_filter_stops(const void *block, u32 size)
{
	const struct rm_abi *abi = ds_abi();

	if (!abi || size != abi->nvos54.len || !ds_filter_wants(abi, block))
		return false;
	ds_denied_atomic(rm_get32(block, abi->nvos54.hClient), rm_get32(block, abi->nvos54.cmd), DETSHARE_DENIAL_RAW,
			 NV_ERR_INVALID_ARGUMENT, "changes a call while it is made");
	return true;
}

/* ---- who asks ------------------------------------------------------------------------ */

struct asking {
	struct rm_asker asker;
	struct ds_call *call;		/* NULL: there is none through which the driver could be asked */
	struct ds_process *process;	/* the caller, held; NULL: no memory */
	struct ds_process *owner;	/* whose client it is, held; NULL: of nobody that is known */
};

static struct ds_process *owner_of(u32 handle)
{
	struct ds_process *owner = NULL;
	struct ds_client *client;

	down_read(&ds_clients_lock);
	client = ds_client_find(handle);
	if (client)
		owner = ds_process_hold(client->process);
	up_read(&ds_clients_lock);
	return owner;
}

static bool owns(void *data, u32 handle)
{
	struct asking *asking = data;
	struct ds_process *owner = owner_of(handle);
	bool own;

	/* one that is older than this module is known by the driver alone */
	if (!owner)
		return asking->call && ds_call_owns(asking->call, handle);
	own = owner == asking->process || owner == asking->owner;
	ds_process_put(owner);
	return own;
}

static void begin(struct asking *asking, struct ds_call *call, u32 client)
{
	*asking = (struct asking){ .call = call, .process = ds_process_current(), .owner = owner_of(client) };
	asking->asker = (struct rm_asker){ .owns = owns, .data = asking };
	asking->asker.managed = !asking->process || is_managed(asking->process);
	if (!asking->asker.managed)
		asking->asker.trusted = ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
	if (asking->owner && !asking->asker.managed)
		asking->asker.managed = is_managed(asking->owner) || is_managed_guest(client);
}

static void end(struct asking *asking)
{
	ds_process_put(asking->process);
	ds_process_put(asking->owner);
}

static bool denies(const struct rm_ruling *ruling)
{
	return ruling->verdict == RM_REFUSE || ruling->verdict == RM_SWALLOW;
}

/* true: it is answered. */
static bool answer(struct ds_call *call, u32 command, const struct rm_ruling *ruling)
{
	if (!denies(ruling))
		return false;
	ds_denied(call->asked.client, command, (enum detshare_denial)ruling->reason, ruling->status, ruling->trick);
	ds_call_refuse(call, ruling->status);
	return true;
}

/* ---- controls -------------------------------------------------------------------------- */

static int find_paused(struct ds_run *run, void *data)
{
	const u32 *client = data;
	bool paused;

	if (run->client != *client)
		return 0;
	spin_lock_irq(&run->lane->lock);
	paused = !run->gone && (run->pause.wanted || run->pause.off);
	spin_unlock_irq(&run->lane->lock);
	return paused;
}

/* Is a run of this client off the run list, or about to be? */
static bool is_paused(u32 client)
{
	return ds_runs_each(find_paused, &client);
}

/* Scheduling channels might put them on that are off. false: the caller is being killed. */
static bool wait_while_paused(u32 client)
{
	while (is_paused(client)) {
		if (fatal_signal_pending(current))
			return false;
		schedule_timeout_killable(msecs_to_jiffies(WAIT_MS));
	}
	return true;
}

static void judge(struct ds_call *call, struct asking *asking, struct rm_ruling *ruling)
{
	struct ds_frame *frame = call->frame;
	struct rm_asked asked = {
		.client = call->asked.client,
		.cmd = call->asked.cmd,
		.flags = call->asked.flags,
		.raw = is_raw(call->asked.client, call->asked.object),
	};
	u32 size = rm_verdict_params(call->abi, asked.cmd, asked.flags, asked.raw);

	if (size && call->asked.params && size == call->asked.params_size) {
		if (ds_frame_read_params(frame, call->asked.params, size)) {
			*ruling = (struct rm_ruling){ .verdict = RM_REFUSE, .status = NV_ERR_NO_MEMORY };
			return;
		}
		asked.params = frame->unreadable ? NULL : frame->params;
		asked.params_size = size;
	}
	rm_verdict_control(call->abi, &asked, &asking->asker, ruling);
}

void ds_filter_control(struct ds_call *call)
{
	struct rm_ruling ruling;
	struct asking asking;

	begin(&asking, call, call->asked.client);
	judge(call, &asking, &ruling);
	end(&asking);
	if (ruling.verdict == RM_REFUSE && !ruling.trick)
		ds_call_refuse(call, ruling.status);
	else if (answer(call, call->asked.cmd, &ruling))
		return;
	else if (ruling.verdict == RM_WAIT && !wait_while_paused(call->asked.client))
		call->ret = -EINTR;
	else
		ds_call_driver(call);
}

/* ---- other calls --------------------------------------------------------------------------- */

bool ds_filter_idle(struct ds_call *call)
{
	u64 count = call->asked.length;
	struct rm_ruling ruling;
	struct asking asking;
	bool answered = true;

	if (!filtering() || !count || !call->asked.params)
		return false;
	begin(&asking, call, call->asked.client);
	if (asking.asker.trusted) {
		answered = false;
	} else if (count > RM_IDLE_MAX) {
		ds_call_refuse(call, NV_ERR_INVALID_ARGUMENT);
	} else if (ds_frame_read_params(call->frame, call->asked.params, count * sizeof(u32))) {
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
	} else {
		rm_verdict_idle(call->frame->params, count, &asking.asker, &ruling);
		answered = answer(call, call->frame->nr, &ruling);
	}
	end(&asking);
	return answered;
}

static enum rm_kind kind_of(struct ds_client *client, u32 handle)
{
	struct rm_object *object;
	enum rm_kind kind = RM_KIND_OTHER;

	if (!client)
		return kind;
	mutex_lock(&client->tree);
	object = rm_tree_find(&client->rm, handle);
	if (object)
		kind = object->kind;
	mutex_unlock(&client->tree);
	return kind;
}

bool ds_filter_gpu_map(struct ds_call *call, u32 memory)
{
	enum rm_kind kind = kind_of(call->client, memory);
	struct rm_ruling ruling;
	struct asking asking;

	if (!filtering() || (kind != RM_KIND_USERMODE && kind != RM_KIND_MEM_REGISTERS))
		return false;
	begin(&asking, call, call->asked.client);
	rm_verdict_gpu_map(kind, &asking.asker, &ruling);
	end(&asking);
	return answer(call, call->frame->nr, &ruling);
}

bool ds_filter_object(struct ds_call *call, enum rm_kind kind, u32 handle)
{
	struct rm_ruling ruling;
	struct asking asking;

	if (!filtering() || (kind != RM_KIND_MEM_REGISTERS && kind != RM_KIND_BINAPI))
		return false;
	begin(&asking, call, call->asked.client);
	rm_verdict_object(kind, handle, &asking.asker, &ruling);
	end(&asking);
	return answer(call, call->frame->nr, &ruling);
}

bool ds_filter_debugger(struct ds_call *call)
{
	const struct rm_abi *abi = call->abi;
	struct rm_ruling ruling = {
		.verdict = RM_REFUSE,
		.reason = RM_DENIAL_FOREIGN,
		.status = NV_ERR_INSUFFICIENT_PERMISSIONS,
		.trick = "debugs another's program",
	};
	struct ds_process *debugged;
	struct asking asking;
	bool denied = false;
	u32 app;

	if (!filtering() || call->frame->params_size != abi->debugger.len || !abi->debugger.len)
		return false;
	app = rm_get32(call->frame->params, abi->debugger.hAppClient);
	/* nobody's: the driver says so itself */
	if (!app)
		return false;
	begin(&asking, call, call->asked.client);
	debugged = owner_of(app);
	if (!asking.asker.trusted && (asking.asker.managed || (debugged && is_managed(debugged))))
		denied = !owns(&asking, app);
	ds_process_put(debugged);
	end(&asking);
	return denied && answer(call, call->frame->nr, &ruling);
}

bool ds_filter_map(struct ds_call *call)
{
	return ds_filter_object(call, kind_of(call->client, call->asked.object), call->asked.object);
}

u32 ds_filter_dup(u32 client, enum rm_kind kind, u32 command)
{
	struct rm_ruling ruling;
	struct asking asking;

	if (!filtering())
		return NV_OK;
	begin(&asking, NULL, client);
	rm_verdict_gpu_map(kind, &asking.asker, &ruling);
	end(&asking);
	if (!denies(&ruling))
		return NV_OK;
	ds_denied(client, command, (enum detshare_denial)ruling.reason, ruling.status, ruling.trick);
	return ruling.status;
}

/* A mapping of one of the driver's own device files: registers, or the memory of a GPU, which has better ways to itself. */
static bool is_of_driver(unsigned long address, u64 pages)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	bool found = false;

	if (!mm)
		return false;
	mmap_read_lock(mm);
	for (vma = find_vma(mm, address); vma && !found; vma = find_vma(mm, vma->vm_end)) {
		if (vma->vm_start > address && (vma->vm_start - address) >> PAGE_SHIFT >= pages)
			break;
		found = vma->vm_file && imajor(file_inode(vma->vm_file)) == NVIDIA_MAJOR;
	}
	mmap_read_unlock(mm);
	return found;
}

bool ds_filter_io_memory(unsigned long address, u64 pages)
{
	struct rm_ruling ruling;
	struct asking asking;

	if (!filtering() || !is_of_driver(address, pages))
		return true;
	begin(&asking, NULL, 0);
	rm_verdict_gpu_map(RM_KIND_USERMODE, &asking.asker, &ruling);
	end(&asking);
	if (!denies(&ruling))
		return true;
	ds_denied(0, NV_ESC_RM_ALLOC_MEMORY, (enum detshare_denial)ruling.reason, ruling.status,
		  "gives the GPU pages of the GPU");
	return false;
}

void ds_filter_exit(void)
{
	struct hlist_node *next;
	struct raw *raw;
	struct guest *guest, *after;
	unsigned int i;

	list_for_each_entry_safe(guest, after, &guests, link) {
		ds_process_put(guest->host);
		kfree(guest);
	}
	for (i = 0; i < ARRAY_SIZE(raws); i++)
		hlist_for_each_entry_safe(raw, next, &raws[i], link)
			kfree(raw);
	/* what kfree_rcu() was given needs no code of this module */
}
