// SPDX-License-Identifier: GPL-2.0-only
#include <linux/atomic.h>
#include <linux/hash.h>
#include <linux/moduleparam.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "calls.h"
#include "stats.h"

#define OWN_BITS 12

static unsigned int calls_of_one = DS_CALLS_MAX / 16;
module_param(calls_of_one, uint, 0644);
MODULE_PARM_DESC(calls_of_one, "most calls of one process that are in the driver at once, of 4096 of all; more of them wait (default: 256)");

/* Calls inside the driver whose return must be seen: there is one probe instance for each. */
static atomic_t framed;
/* Those of one process; two processes may share a place. */
static atomic_t own[1 << OWN_BITS];
static DECLARE_WAIT_QUEUE_HEAD(framed_wait);

long ds_call_original(struct ds_call *call)
{
	return ds_hook_call(call->hook, (unsigned long)call->file, call->cmd, call->arg);
}

static atomic_t *own_calls(void)
{
	return &own[hash_ptr(current->signal, OWN_BITS)];
}

static bool take_place(atomic_t *mine)
{
	int most = clamp_t(unsigned int, READ_ONCE(calls_of_one), 1, DS_CALLS_MAX), now = atomic_read(mine);

	do {
		if (now >= most)
			return false;
	} while (!atomic_try_cmpxchg(mine, &now, now + 1));
	if (atomic_add_unless(&framed, 1, DS_CALLS_MAX))
		return true;
	atomic_dec(mine);
	return false;
}

static void leave_place(atomic_t *mine)
{
	atomic_dec(mine);
	atomic_dec(&framed);
	if (wq_has_sleeper(&framed_wait))
		wake_up(&framed_wait);
}

bool ds_call_framed(struct ds_call *call, struct ds_shadow_head *head)
{
	atomic_t *mine = own_calls();

	if (!take_place(mine) && wait_event_killable(framed_wait, take_place(mine))) {
		call->ret = -EINTR;
		return false;
	}
	ds_shadow_open(head);
	call->ret = ds_call_original(call);
	ds_shadow_close(head);
	leave_place(mine);
	return true;
}

bool ds_call_driver(struct ds_call *call)
{
	struct ds_shadow *shadow = call->shadow;

	if (!ds_call_framed(call, &shadow->head))
		return false;
	if (!shadow->returned)
		return false;
	rm_decode(call->abi, shadow->nr, shadow->block, shadow->size, &call->done);
	return !shadow->rm_status && !call->done.status;
}

bool ds_call_deferred(struct ds_call *call)
{
	struct ds_call deferred = *call;
	bool done;

	deferred.cmd = _IO(NV_IOCTL_MAGIC, DS_NO_ESCAPE);
	call->shadow->ours = true;
	done = ds_call_driver(&deferred);
	call->done = deferred.done;
	call->ret = deferred.ret;
	return done;
}

void ds_call_tell(struct ds_call *call)
{
	struct ds_shadow *shadow = call->shadow;
	struct rm_f32 at = { call->asked.off_status };

	if (!shadow->ours || !shadow->returned)
		return;
	if (shadow->answered && at.off != RM_ABSENT &&
	    copy_to_user((void __user *)shadow->user_params, shadow->params, shadow->params_size))
		rm_put32(shadow->block, at, NV_ERR_INVALID_ADDRESS);
	if (copy_to_user((void __user *)call->arg, shadow->block, shadow->size))
		call->ret = -EFAULT;
}

void ds_call_refuse(struct ds_call *call, u32 status)
{
	struct rm_f32 at = { call->asked.off_status };

	ds_count(refused);
	call->shadow->ours = false;
	if (at.off != RM_ABSENT)
		rm_put32(call->shadow->block, at, status);
	call->ret = copy_to_user((void __user *)call->arg, call->shadow->block, call->shadow->size) ?
			    -EFAULT : 0;
}

/*
 * A question of our own rides on a call without a block: block and parameters exist in the shadow only (shadow->ours).
 * Nothing of the caller's memory is read or written, which other threads of his may be using; the address only names
 * the parameters. false: the driver was not asked; else *ask->shadow has its answer.
 */
static bool put_question(const struct ds_call *call, struct ds_call *ask, u32 nr, u32 size, u32 params_size)
{
	struct ds_shadow *shadow = ds_shadow_alloc();

	if (!shadow)
		return false;
	shadow->ours = true;
	shadow->nr = nr;
	shadow->size = size;
	shadow->user_params = call->arg;
	shadow->params_size = params_size;
	shadow->params = shadow->own;
	memset(shadow->own, 0, params_size);
	memset(shadow->block, 0, size);
	*ask = *call;
	ask->cmd = _IO(NV_IOCTL_MAGIC, DS_NO_ESCAPE);
	ask->shadow = shadow;
	return true;
}

bool ds_call_owns(struct ds_call *call, u32 client)
{
	const struct rm_abi *abi = call->abi;
	struct ds_shadow *shadow;
	struct ds_call ask;
	bool owns;

	if (!put_question(call, &ask, NV_ESC_RM_SHARE, abi->nvos57.len, 0))
		return false;
	shadow = ask.shadow;
	/*
	 * Object 0, which no client has: nothing is shared. That it is missing is said to who may use the client only, and
	 * no answer is logged; a control that names no client would be.
	 */
	rm_put32(shadow->block, abi->nvos57.hClient, client);
	ds_call_driver(&ask);
	owns = shadow->returned && !shadow->rm_status && ask.done.status == NV_ERR_OBJECT_NOT_FOUND;
	ds_shadow_free(shadow);
	return owns;
}

bool ds_call_may_use(struct ds_call *call, u32 client)
{
	const struct rm_abi *abi = call->abi;
	struct ds_shadow *shadow;
	struct ds_call ask;
	bool may;

	if (!put_question(call, &ask, NV_ESC_RM_ALLOC, abi->nvos64.len, rm_alloc_params_size(abi, NV01_EVENT_OS_EVENT)))
		return false;
	shadow = ask.shadow;
	/*
	 * An event may be asked for on every file. It needs a parent, and none has the handle 0; but before the driver
	 * looks for a parent it looks whose the client is.
	 */
	rm_put32(shadow->block, abi->nvos64.hRoot, client);
	rm_put32(shadow->block, abi->nvos64.hObjectNew, client ^ 1);
	rm_put32(shadow->block, abi->nvos64.hClass, NV01_EVENT_OS_EVENT);
	rm_put64(shadow->block, abi->nvos64.pAllocParms, shadow->user_params);
	ds_call_driver(&ask);
	/* how the missing parent is called has changed with the branches */
	may = shadow->returned && !shadow->rm_status &&
	      (ask.done.status == NV_ERR_INVALID_OBJECT || ask.done.status == NV_ERR_OBJECT_NOT_FOUND);
	ds_shadow_free(shadow);
	return may;
}

bool ds_call_is_bound(struct ds_call *call)
{
	const struct rm_abi *abi = call->abi;
	struct ds_shadow *shadow;
	struct ds_call ask;
	bool bound;

	if (!put_question(call, &ask, NV_ESC_REGISTER_FD, abi->register_fd.len, 0))
		return false;
	shadow = ask.shadow;
	rm_put32(shadow->block, abi->register_fd.ctl_fd, -1);	/* no file: it stays as it is */
	ds_call_driver(&ask);
	bound = shadow->returned && shadow->rm_status == NV_ERR_INVALID_STATE;
	ds_shadow_free(shadow);
	return bound;
}
