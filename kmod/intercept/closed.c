// SPDX-License-Identifier: GPL-2.0-only
#include <linux/fs.h>
#include <linux/moduleparam.h>
#include <linux/string.h>

#include "closed.h"
#include "compat.h"
#include "driver.h"
#include "filter.h"
#include "hook.h"
#include "limit.h"
#include "process.h"
#include "shield.h"
#include "stats.h"
#include "steered.h"

static bool fail_closed;
module_param(fail_closed, bool, 0444);
MODULE_PARM_DESC(fail_closed, "1: where limits and orders cannot be enforced, refuse all GPU calls of who has some (default: 0, let them pass unenforced)");

static bool told;

enum {
	FILE_IOCTL,
	FILE_IOCTL_COMPAT,	/* since 6.8, and in later releases of 6.1 and 6.6; before, it is the same function */
	FILE_MMAP,
};

static int file_ioctl(struct file *file, unsigned int cmd, unsigned long arg);
static int file_ioctl_compat(struct file *file, unsigned int cmd, unsigned long arg);
static int file_mmap(struct file *file, unsigned long prot, unsigned long flags);
static bool wanted(struct ftrace_regs *fregs);

static struct ds_hook hooks[] = {
	[FILE_IOCTL] = { "security_file_ioctl", file_ioctl, wanted, false },
	[FILE_IOCTL_COMPAT] = { "security_file_ioctl_compat", file_ioctl_compat, wanted, true },
	[FILE_MMAP] = { "security_mmap_file", file_mmap, wanted, false },
};

static struct ds_hook_set kernel_hooks = {
	.hooks = hooks,
	.count = ARRAY_SIZE(hooks),
};

static bool lapsed(void)
{
	return !ds_filter_active() || !ds_shield_binding() || !ds_shield_armed() || ds_driver_lacks();
}

/* Of nvidia.ko or one of those that build on it. */
static bool of_driver(const struct file *file)
{
	const struct module *owner = file ? file->f_op->owner : NULL;

	return owner && !strncmp(owner->name, "nvidia", strlen("nvidia"));
}

static bool wanted(struct ftrace_regs *fregs)
{
	return of_driver((const struct file *)ds_regs_argument(fregs, 0)) && lapsed();
}

static int tell_log(const char *lapse, void *data)
{
	pr_warn("GPU calls of process %d (%s), and of all others that are managed, are refused: %s\n", current->tgid, current->comm, lapse);
	return 1;
}

static bool refused(void)
{
	struct ds_process *process;
	bool managed;

	/* while the driver starts it cannot be asked who it is */
	ds_driver_identify();
	if (!lapsed())
		return false;
	process = ds_process_current();
	managed = !process || ds_process_steered(process) || ds_process_limited(process);
	ds_process_put(process);
	if (!managed)
		return false;
	ds_count(closed);
	if (!xchg(&told, true))
		ds_closed_each_lapse(tell_log, NULL);
	return true;
}

static int decide(const struct ds_hook *hook, struct file *file, unsigned long second, unsigned long third)
{
	int ret = refused() ? -EPERM : ds_hook_call(hook, (unsigned long)file, second, third);

	ds_hook_leave();
	return ret;
}

static int file_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return decide(&hooks[FILE_IOCTL], file, cmd, arg);
}

static int file_ioctl_compat(struct file *file, unsigned int cmd, unsigned long arg)
{
	return decide(&hooks[FILE_IOCTL_COMPAT], file, cmd, arg);
}

static int file_mmap(struct file *file, unsigned long prot, unsigned long flags)
{
	return decide(&hooks[FILE_MMAP], file, prot, flags);
}

bool ds_closed_asked(void)
{
	return fail_closed;
}

struct telling {
	int (*tell)(const char *lapse, void *data);
	void *data;
};

static int tell_missing(const char *hook, void *data)
{
	const struct telling *telling = data;
	char lapse[96];

	if (!strstr(hook, "(missing)"))
		return 0;
	snprintf(lapse, sizeof(lapse), "%s is not hooked", hook);
	return telling->tell(lapse, telling->data);
}

int ds_closed_each_lapse(int (*tell)(const char *lapse, void *data), void *data)
{
	struct telling telling = { tell, data };
	struct ds_driver_status driver;
	const char *lapse = NULL;
	char text[96];
	int err;

	ds_driver_status(&driver);
	if (driver.mode == DETSHARE_MODE_DOWN)
		return 0;
	if (!driver.version[0]) {
		lapse = "the driver has not said its version";
	} else if (driver.abi == DETSHARE_ABI_NONE) {
		snprintf(text, sizeof(text), "driver %s is of a branch that is not known", driver.version);
		lapse = text;
	} else if (!ds_abi()) {
		snprintf(text, sizeof(text), "driver %s was never tried (parameter untried_builds)", driver.version);
		lapse = text;
	} else if (driver.mode != DETSHARE_MODE_ENFORCE) {
		lapse = "the driver's entry, or its rm_ioctl, cannot be hooked";
	} else if (!ds_shield_armed()) {
		lapse = "the kernel has disarmed its kprobes (debugfs: kprobes/enabled)";
	} else if (!ds_shield_binding() || !ds_filter_active()) {
		lapse = "the module was loaded with shield=0 or filter=0";
	}
	err = lapse ? tell(lapse, data) : 0;
	if (!err && !driver.uvm_hooked)
		err = tell("nvidia-uvm is not hooked: managed memory is not counted", data);
	return err ?: ds_driver_each_hook(tell_missing, &telling);
}

int ds_closed_install(void)
{
	const char *missing;
	int err;

	if (!ds_shield_binding() || ds_filter_off())
		pr_warn("loaded with shield=0 or filter=0: programs can undo what is limited and ordered\n");
	err = fail_closed ? ds_hooks_install(&kernel_hooks, &missing) : 0;

	if (err)
		pr_err("fail_closed=1: the kernel's %s cannot be hooked (%d); the module is not loaded\n", missing ?: "functions", err);
	return err;
}

void ds_closed_remove(void)
{
	ds_hooks_remove(&kernel_hooks);
}
