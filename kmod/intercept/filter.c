// SPDX-License-Identifier: GPL-2.0-only
#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/user_namespace.h>
#include <linux/wait.h>

#include "calls.h"
#include "contexts.h"
#include "denials.h"
#include "driver.h"
#include "filter.h"
#include "sharer.h"
#include "idle.h"
#include "limit.h"
#include "pause.h"
#include "raw.h"
#include "rm/verdict.h"
#include "entity.h"
#include "sched.h"
#include "steered.h"

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

bool ds_filter_active(void)
{
	return active && ds_enforcing();
}

bool ds_filter_off(void)
{
	return !active;
}

/* ---- which controls ---------------------------------------------------------------- */

bool ds_filter_wants(const struct rm_abi *abi, const void *block)
{
	u32 client = rm_get32(block, abi->nvos54.hClient), object = rm_get32(block, abi->nvos54.hObject);

	return ds_filter_active() && rm_verdict_wanted(rm_get32(block, abi->nvos54.cmd), rm_get32(block, abi->nvos54.flags),
						ds_raw_is(client, object));
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
	asking->asker.managed = !asking->process || ds_process_steered(asking->process);
	if (!asking->asker.managed)
		asking->asker.trusted = ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
	if (asking->owner && !asking->asker.managed)
		asking->asker.managed = ds_process_steered(asking->owner) || ds_sharer_any(client, ds_process_steered);
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

struct search {
	const struct asking *asking;
	struct ds_entity *found;	/* held */
};

static int find_paused(struct ds_entity *entity, void *data)
{
	struct search *search = data;

	if ((entity->process != search->asking->process && entity->process != search->asking->owner) || !ds_entity_paused(entity))
		return 0;
	search->found = ds_entity_hold(entity);
	return 1;
}

/*
 * Scheduling channels might put them on that are off, or about to be: until no entity of the caller's or the owner's is; a group may have a
 * duplicate in a client without one. false: the caller is being killed.
 */
static bool wait_while_paused(const struct asking *asking)
{
	struct search search = { .asking = asking };
	int err = 0;

	while (!err && ds_entities_each(find_paused, &search)) {
		err = wait_event_killable(search.found->pause.wait, !ds_entity_paused(search.found));
		ds_entity_put(search.found);
	}
	return !err;
}

static bool is_limited(struct ds_process *process)
{
	return process && ds_process_limited(process);
}

static void judge(struct ds_call *call, struct asking *asking, struct rm_ruling *ruling)
{
	struct ds_shadow *shadow = call->shadow;
	struct rm_asked asked = {
		.client = call->asked.client,
		.cmd = call->asked.cmd,
		.flags = call->asked.flags,
		.raw = ds_raw_is(call->asked.client, call->asked.object),
	};
	u32 size = rm_verdict_params(call->abi, asked.cmd, asked.flags, asked.raw);

	if (size && call->asked.params && size == call->asked.params_size) {
		if (ds_shadow_read_params(shadow, call->asked.params, size)) {
			*ruling = (struct rm_ruling){ .verdict = RM_REFUSE, .status = NV_ERR_NO_MEMORY };
			return;
		}
		if (!asking->asker.trusted && !shadow->unreadable)
			rm_verdict_shorten(call->abi, asked.cmd, asked.raw, shadow->params);
		asked.params = shadow->unreadable ? NULL : shadow->params;
		asked.params_size = size;
	}
	if (rm_verdict_keeps(asked.cmd, asked.raw))
		asking->asker.limited = is_limited(asking->process) || is_limited(asking->owner);
	rm_verdict_control(call->abi, &asked, &asking->asker, ruling);
}

/* All that stands for it is set anew. */
static bool doubt(struct ds_process *process)
{
	ds_pause_doubt(process);
	ds_sched_doubt(process);
	return false;
}

static bool doubt_pause(struct ds_process *process)
{
	ds_pause_doubt(process);
	return false;
}

/*
 * The driver has carried out what was let through. If somebody began to manage the program meanwhile, the call may have come after what was
 * ordered, and undone it: `again` sets that anew.
 */
static void look_back(u32 client, bool (*again)(struct ds_process *process))
{
	struct asking asking;

	begin(&asking, NULL, client);
	if (asking.asker.managed) {
		if (asking.process)
			again(asking.process);
		if (asking.owner && asking.owner != asking.process)
			again(asking.owner);
		ds_sharer_any(client, again);
	}
	end(&asking);
}

/* The driver does it; a wait for idle channels when it is the caller's turn. */
static void let_through(struct ds_call *call, const struct asking *asking, bool idles)
{
	struct ds_idle idle;

	idles = idles && !asking->asker.trusted && asking->process;
	if (idles && !ds_idle_begin(&idle, asking->process)) {
		call->ret = -EINTR;
		return;
	}
	ds_call_driver(call);
	if (idles)
		ds_idle_end(&idle);
}

void ds_filter_control(struct ds_call *call)
{
	struct rm_ruling ruling;
	struct asking asking;

	begin(&asking, call, call->asked.client);
	judge(call, &asking, &ruling);
	if (ruling.verdict == RM_REFUSE && !ruling.trick) {
		ds_call_refuse(call, ruling.status);
	} else if (answer(call, call->asked.cmd, &ruling)) {
		/* told */
	} else if (ruling.verdict == RM_WAIT && !wait_while_paused(&asking)) {
		call->ret = -EINTR;
	} else {
		let_through(call, &asking, rm_verdict_idles(call->asked.cmd, ds_raw_is(call->asked.client, call->asked.object)));
		/* a pause may have come while the driver scheduled what it is to stop; of the rest a managed program's call undoes nothing */
		if (!asking.asker.managed)
			look_back(call->asked.client, doubt);
		else if (ruling.verdict == RM_WAIT)
			look_back(call->asked.client, doubt_pause);
	}
	end(&asking);
}

/* ---- other calls --------------------------------------------------------------------------- */

/* The driver gets the shadow's block. */
static void shorten(struct ds_call *call)
{
	struct rm_f32 at = call->abi->nvos30.timeout;

	rm_put32(call->shadow->block, at, rm_verdict_idle_us(rm_get32(call->shadow->block, at)));
}

bool ds_filter_idle(struct ds_call *call)
{
	u64 count = call->asked.length;
	struct rm_ruling ruling;
	struct asking asking;
	bool answered = false, listed = count && call->asked.params;

	if (!ds_filter_active())
		return false;
	begin(&asking, call, call->asked.client);
	if (!asking.asker.trusted)
		shorten(call);
	if (asking.asker.trusted || !listed) {
		/* the driver says what is wrong with it */
	} else if (count > RM_IDLE_MAX) {
		ds_call_refuse(call, NV_ERR_INVALID_ARGUMENT);
		answered = true;
	} else if (ds_shadow_read_params(call->shadow, call->asked.params, count * sizeof(u32))) {
		ds_call_refuse(call, NV_ERR_NO_MEMORY);
		answered = true;
	} else {
		rm_verdict_idle(call->shadow->params, count, &asking.asker, &ruling);
		answered = answer(call, call->shadow->nr, &ruling);
	}
	if (!answered)
		let_through(call, &asking, true);
	end(&asking);
	return true;
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

	if (!ds_filter_active() || (kind != RM_KIND_USERMODE && kind != RM_KIND_MEM_REGISTERS))
		return false;
	begin(&asking, call, call->asked.client);
	rm_verdict_gpu_map(kind, &asking.asker, &ruling);
	end(&asking);
	return answer(call, call->shadow->nr, &ruling);
}

static bool judge_object(struct ds_call *call, enum rm_kind kind, bool named)
{
	struct rm_ruling ruling;
	struct asking asking;

	begin(&asking, call, call->asked.client);
	if (kind == RM_KIND_CHANNEL && ds_contexts_bounded())
		asking.asker.limited = is_limited(asking.process) || is_limited(asking.owner);
	rm_verdict_object(kind, named, &asking.asker, &ruling);
	end(&asking);
	return answer(call, call->shadow->nr, &ruling);
}

bool ds_filter_object(struct ds_call *call, enum rm_kind kind, u32 handle)
{
	return ds_filter_active() && (kind == RM_KIND_MEM_REGISTERS || kind == RM_KIND_BINAPI) && judge_object(call, kind, handle);
}

bool ds_filter_channel(struct ds_call *call, const struct rm_alloc *alloc)
{
	/* 0: what is made on it decides */
	bool computes = !alloc->engine ||
			(alloc->engine >= NV2080_ENGINE_TYPE_GR0 && alloc->engine <= NV2080_ENGINE_TYPE_GR7);

	return ds_filter_active() && computes && kind_of(call->client, call->asked.parent) == RM_KIND_DEVICE &&
	       judge_object(call, RM_KIND_CHANNEL, true);
}

/* Is it a channel below the device, in no channel group that has a handle? */
static bool is_bare(struct ds_client *client, u32 handle)
{
	struct rm_object *channel, *parent = NULL;
	bool bare;

	mutex_lock(&client->tree);
	channel = rm_tree_find(&client->rm, handle);
	if (channel && channel->kind == RM_KIND_CHANNEL)
		parent = rm_tree_parent(&client->rm, channel);
	bare = parent && parent->kind == RM_KIND_DEVICE;
	mutex_unlock(&client->tree);
	return bare;
}

bool ds_filter_engine_object(struct ds_call *call)
{
	/* with it a channel of a copy engine, which was let through, becomes one that ds_filter_channel() is there for */
	return ds_filter_active() && is_bare(call->client, call->asked.parent) && judge_object(call, RM_KIND_CHANNEL, true);
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

	if (!ds_filter_active() || call->shadow->params_size != abi->debugger.len || !abi->debugger.len)
		return false;
	app = rm_get32(call->shadow->params, abi->debugger.hAppClient);
	/* nobody's: the driver says so itself */
	if (!app)
		return false;
	begin(&asking, call, call->asked.client);
	debugged = owner_of(app);
	if (!asking.asker.trusted && (asking.asker.managed || (debugged && ds_process_steered(debugged))))
		denied = !owns(&asking, app);
	ds_process_put(debugged);
	end(&asking);
	return denied && answer(call, call->shadow->nr, &ruling);
}

bool ds_filter_map(struct ds_call *call)
{
	return ds_filter_object(call, kind_of(call->client, call->asked.object), call->asked.object);
}

u32 ds_filter_dup(u32 client, enum rm_kind kind, u32 command)
{
	struct rm_ruling ruling;
	struct asking asking;

	if (!ds_filter_active())
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

bool ds_filter_io_memory(unsigned long address, u64 pages, bool *none)
{
	struct rm_ruling ruling;
	struct asking asking;

	*none = ds_filter_active() && !is_of_driver(address, pages);
	if (!ds_filter_active() || *none)
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
