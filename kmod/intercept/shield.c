// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kprobes.h>
#include <linux/moduleparam.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/nops.h>

#include "calls.h"
#include "control.h"
#include "driver.h"
#include "filter.h"
#include "hook.h"
#include "rm/abi.h"
#include "rm/decode.h"
#include "shield.h"
#include "transfer.h"

static bool binding = true;
module_param_named(shield, binding, bool, 0444);
MODULE_PARM_DESC(shield, "0: decide on the caller's memory, verify after the call and undo; for tests of the shield only");

bool ds_shield_binding(void)
{
	return binding;
}

struct instance {
	void *block;		/* the driver's */
	u32 size;
	struct ds_shadow *shadow;	/* NULL: a control, noticed here only */
	struct ds_control control;
};

/* Controls whose return is awaited. */
static atomic_t controls;

/* Arguments of rm_ioctl(sp, nv, nvfp, cmd, data, size), x86-64. */
static u32 *escape_of(struct pt_regs *regs)
{
	return (u32 *)&regs->cx;
}

/* A question of our own rides on a call without a block: the driver gets the shadow's, and works on that one. */
static bool enter_ours(struct instance *in, struct ds_shadow *shadow, struct pt_regs *regs)
{
	if (*escape_of(regs) != DS_NO_ESCAPE || in->size)
		return false;
	in->block = shadow->block;
	in->size = shadow->size;
	in->shadow = shadow;
	*escape_of(regs) = shadow->nr;
	regs->r8 = (unsigned long)in->block;
	regs->r9 = in->size;
	return true;
}
NOKPROBE_SYMBOL(enter_ours);

static int rm_ioctl_enter(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	struct instance *in = (struct instance *)ri->data;
	struct ds_shadow_head *head = ds_shadow_current();
	u32 nr = *escape_of(regs);

	in->block = (void *)regs->r8;
	in->size = (u32)regs->r9;
	in->shadow = NULL;
	if (!head && nr == NV_ESC_RM_CONTROL && ds_enforcing() && !ds_driver_stopping() &&
	    (ds_transfer_in(in->block, in->size) || ds_filter_stops(in->block, in->size))) {
		/* it became one after it was looked at: dispatch.c lets none of these pass without a shadow */
		regs->cx = DS_NO_ESCAPE;
		return 1;
	}
	if (!head) {
		if (nr != NV_ESC_RM_CONTROL || !ds_control_begin(&in->control, in->block, in->size))
			return 1;
		/* not at the cost of the instances that calls rely on: so many at once see the GPU as it is */
		if (!atomic_add_unless(&controls, 1, DS_SHIELD_CONTROLS_MAX))
			return 1;
		in->control.head.kind = DS_SHADOW_CONTROL;
		ds_shadow_open(&in->control.head);
		return 0;
	}
	if (head->kind == DS_SHADOW_CALL) {
		struct ds_shadow *shadow = container_of(head, struct ds_shadow, head);

		if (shadow->ours) {
			if (enter_ours(in, shadow, regs))
				return 0;
		} else if (shadow->nr == nr && shadow->size == in->size) {
			if (binding)
				memcpy(in->block, shadow->block, in->size);
			in->shadow = shadow;
			return 0;
		}
	}
	/* the caller swapped one call for another behind our back */
	regs->cx = DS_NO_ESCAPE;
	return 1;
}
NOKPROBE_SYMBOL(rm_ioctl_enter);

/*
 * The driver made what was asked for, then could not write its answer to the caller's memory. It keeps the object and
 * calls that an error; so does the caller hear it, while the shadow keeps what is true.
 */
static void tell_untold(const struct ds_shadow *shadow, void *block)
{
	struct rm_call call;

	if (rm_decode(ds_abi_outer(), shadow->nr, block, shadow->size, &call) ||
	    call.off_status == RM_ABSENT || call.status)
		return;
	rm_put32(block, (struct rm_f32){ call.off_status }, shadow->untold);
}
NOKPROBE_SYMBOL(tell_untold);

static int rm_ioctl_return(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	struct instance *in = (struct instance *)ri->data;

	if (in->shadow) {
		struct ds_shadow *shadow = in->shadow;

		shadow->rm_status = regs_return_value(regs);
		if (shadow->edit)
			shadow->edit(shadow, in->block);
		if (!shadow->ours)
			memcpy(shadow->block, in->block, in->size);
		shadow->returned = true;
		if (shadow->untold)
			tell_untold(shadow, in->block);
	} else {
		ds_shadow_close(&in->control.head);
		atomic_dec(&controls);
	}
	return 0;
}
NOKPROBE_SYMBOL(rm_ioctl_return);

static char probed[64];

static struct kretprobe probe = {
	.entry_handler = rm_ioctl_enter,
	.handler = rm_ioctl_return,
	.data_size = sizeof(struct instance),
};

int ds_shield_install(const char *module)
{
	int err;

	snprintf(probed, sizeof(probed), "%s:rm_ioctl", module);
	/* register_kretprobe() wants a fresh structure each time */
	probe.kp = (struct kprobe){ .symbol_name = probed };
	probe.maxactive = DS_CALLS_MAX + DS_SHIELD_CONTROLS_MAX + 2 * num_possible_cpus();
	err = register_kretprobe(&probe);
	if (err)
		probe.kp.addr = NULL;
	return err;
}

bool ds_shield_armed(void)
{
	static const u8 nop[] = { BYTES_NOP5 };
	const u8 *at = (const u8 *)READ_ONCE(probe.kp.addr);
	u8 now;

	if (!at || copy_from_kernel_nofault(&now, at, sizeof(now)))
		return false;
	/* what stands there while nobody probes: a function that ftrace knows begins with its NOP, of another the kernel kept the first byte */
	return now != (kprobe_ftrace(&probe.kp) ? nop[0] : probe.kp.opcode);
}

void ds_shield_remove(void)
{
	if (!probe.kp.addr)
		return;
	unregister_kretprobe(&probe);
	if (probe.nmissed)
		pr_warn("%d calls of the driver were not seen for lack of probe instances\n",
			probe.nmissed);
	probe.kp.addr = NULL;
}

bool ds_shield_wanted(struct ftrace_regs *fregs)
{
	return ds_shadow_current();
}

/* How [at, at + n) and the shadow's parameters overlap: false, not at all. */
static bool overlap(const struct ds_shadow *shadow, unsigned long at, u32 n, u32 *skip, u32 *offset,
		    u32 *length)
{
	unsigned long begin = max(at, shadow->user_params);
	unsigned long end = min(at + n, shadow->user_params + shadow->params_size);

	if (!shadow->params_size || begin >= end)
		return false;
	*skip = begin - at;
	*offset = begin - shadow->user_params;
	*length = end - begin;
	return true;
}

static u32 shadow_from_user(struct ds_shadow *shadow, void *to, const void *from, u32 n)
{
	u32 skip, offset, length, status;

	if (!overlap(shadow, (unsigned long)from, n, &skip, &offset, &length) ||
	    (!binding && !shadow->ours))
		return ds_driver_from_user(to, from, n);
	if (shadow->unreadable)
		return NV_ERR_INVALID_ADDRESS;
	if (length < n) {
		status = ds_driver_from_user(to, from, n);
		if (status)
			return status;
	}
	memcpy(to + skip, shadow->params + offset, length);
	return 0;
}

u32 ds_shield_from_user(void *to, const void *from, u32 n)
{
	struct ds_shadow_head *head = ds_shadow_current();
	u32 status;

	if (head && head->kind == DS_SHADOW_CALL) {
		status = shadow_from_user(container_of(head, struct ds_shadow, head), to, from, n);
	} else {
		status = ds_driver_from_user(to, from, n);
		if (!status && head && head->kind == DS_SHADOW_CONTROL)
			status = ds_control_read(container_of(head, struct ds_control, head),
						 (unsigned long)from, to, n);
	}
	ds_hook_leave();
	return status;
}

u32 ds_shield_to_user(void *to, const void *from, u32 n)
{
	struct ds_shadow_head *head = ds_shadow_current();
	struct ds_shadow *told = NULL;
	u32 skip, offset, length, status;
	void *instead = NULL;

	if (head && head->kind == DS_SHADOW_CALL) {
		struct ds_shadow *shadow = container_of(head, struct ds_shadow, head);

		if (overlap(shadow, (unsigned long)to, n, &skip, &offset, &length)) {
			memcpy(shadow->params + offset, from + skip, length);
			if (length == shadow->params_size)
				shadow->answered = true;
			if (shadow->ours) {
				ds_hook_leave();
				return 0;
			}
			told = shadow;
		}
	} else if (head && head->kind == DS_SHADOW_CONTROL) {
		instead = ds_control_answer(container_of(head, struct ds_control, head),
					    (unsigned long)to, from, n);
	}
	status = ds_driver_to_user(to, instead ?: from, n);
	kvfree(instead);
	if (status && told) {
		told->untold = status;
		status = 0;
	}
	ds_hook_leave();
	return status;
}
