// SPDX-License-Identifier: GPL-2.0-only
#include <linux/fs.h>
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "driver.h"
#include "events.h"
#include "shadow.h"
#include "hook.h"
#include "rmcall.h"

/* Builds beside which this module was loaded and tried, see docs/how/kernel-module.md. */
static const char *const tried[] = { "535.261.03", "550.163.01", "580.142", "580.159.04" };

static bool untried_builds;
module_param(untried_builds, bool, 0444);
MODULE_PARM_DESC(untried_builds, "1: enforce on builds of a known driver branch that were never tried, too (default: 0, they are observed)");

static struct driver {
	struct mutex lock;	/* coming, going and identifying */
	struct module *module;	/* nvidia.ko while it is hooked, or could be; guarded by lock */
	struct module *uvm;
	bool older_clients;
	bool shielded;
	bool stopping;
	unsigned long get_rm_ops;
	char version[DS_DRIVER_VERSION_MAX];	/* "": not known yet */
	enum rm_abi_match match;
	const struct rm_abi *abi;	/* read without the lock */
} driver = {
	.lock = __MUTEX_INITIALIZER(driver.lock),
};

/* Set before anything below is called. */
static const struct ds_driver_parts *parts;

/* ---- what is known of it ------------------------------------------------ */

const struct rm_abi *ds_abi(void)
{
	return smp_load_acquire(&driver.abi);
}

const struct rm_abi *ds_abi_outer(void)
{
	return ds_abi() ?: rm_abi_at(0);
}

bool ds_enforcing(void)
{
	return ds_abi() && READ_ONCE(driver.shielded);
}

bool ds_driver_stopping(void)
{
	return READ_ONCE(driver.stopping);
}

static enum detshare_abi abi_match(void)
{
	switch (driver.match) {
	case RM_ABI_EXACT:
		return DETSHARE_ABI_EXACT;
	case RM_ABI_BRANCH:
		return DETSHARE_ABI_BRANCH;
	default:
		return DETSHARE_ABI_NONE;
	}
}

void ds_driver_status(struct ds_driver_status *status)
{
	mutex_lock(&driver.lock);
	*status = (struct ds_driver_status){
		.mode = !driver.module	 ? DETSHARE_MODE_DOWN :
			ds_enforcing() ? DETSHARE_MODE_ENFORCE :
					   DETSHARE_MODE_OBSERVE,
		.abi = abi_match(),
		.shield = driver.shielded && parts->shield_binds(),
		.uvm_hooked = !driver.uvm || parts->uvm->installed,
	};
	strscpy(status->version, driver.version, sizeof(status->version));
	mutex_unlock(&driver.lock);
}

static int each_hook(const struct ds_hook_set *set, int (*tell)(const char *name, void *data),
		     void *data)
{
	unsigned int i;
	char name[64];
	int err;

	for (i = 0; set->installed && i < set->count; i++) {
		if (!set->hooks[i].address && !set->hooks[i].loss)
			continue;
		snprintf(name, sizeof(name), "%s:%s%s", set->module, set->hooks[i].symbol,
			 set->hooks[i].address ? "" : " (missing)");
		err = tell(name, data);
		if (err)
			return err;
	}
	return 0;
}

bool ds_driver_lacks(void)
{
	return parts->nvidia->lacks || parts->uvm->lacks || (READ_ONCE(driver.uvm) && !parts->uvm->installed);
}

int ds_driver_each_hook(int (*tell)(const char *name, void *data), void *data)
{
	int err;

	mutex_lock(&driver.lock);
	err = each_hook(parts->nvidia, tell, data);
	if (!err && driver.shielded)
		err = tell("nvidia:rm_ioctl", data);
	if (!err)
		err = each_hook(parts->uvm, tell, data);
	mutex_unlock(&driver.lock);
	return err;
}

bool ds_driver_backs(const struct vm_area_struct *vma)
{
	return vma->vm_ops && vma->vm_ops->fault && ds_hook_is(parts->fault, vma->vm_ops->fault);
}

bool ds_driver_sees_files(void)
{
	return parts->get_file->address;
}

u32 ds_driver_from_user(void *to, const void *from, u32 n)
{
	return ds_hook_call(parts->from_user, (unsigned long)to, (unsigned long)from, n);
}

u32 ds_driver_to_user(void *to, const void *from, u32 n)
{
	return ds_hook_call(parts->to_user, (unsigned long)to, (unsigned long)from, n);
}

static bool is_tried(const char *version)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tried); i++)
		if (!strcmp(tried[i], version))
			return true;
	return false;
}

static void tell_what_is_in_force(void)
{
	if (!driver.abi && driver.match != RM_ABI_NONE)
		pr_warn("driver %s was never tried: programs are shown, but nothing is limited and nothing is changed (untried_builds=1: try it)\n",
			driver.version);
	else if (!driver.abi)
		pr_warn("driver %s is of a branch that is not known: programs are shown, but nothing is limited and nothing is changed\n",
			driver.version);
	else if (!driver.shielded)
		pr_warn("driver %s lacks a hook point: programs are shown, but nothing is limited\n",
			driver.version);
	else
		pr_info("driver %s: limits are in force (structures of %s)\n", driver.version,
			driver.abi->version);
}

static void identify_locked(void)
{
	const struct rm_abi *abi;

	if (driver.version[0] || !driver.module || !driver.get_rm_ops)
		return;
	if (ds_rm_version(driver.get_rm_ops, driver.version, sizeof(driver.version)))
		return;
	abi = rm_abi_lookup(driver.version, &driver.match);
	if (!untried_builds && !is_tried(driver.version))
		abi = NULL;
	smp_store_release(&driver.abi, abi);
	tell_what_is_in_force();
	ds_event_driver(DETSHARE_CMD_DRIVER_UP, driver.version);
}

void ds_driver_identify(void)
{
	if (likely(READ_ONCE(driver.version[0])))
		return;
	mutex_lock(&driver.lock);
	identify_locked();
	mutex_unlock(&driver.lock);
}

bool ds_driver_older_clients(void)
{
	return READ_ONCE(driver.older_clients);
}

struct module *ds_driver_pin(void)
{
	struct module *module;

	mutex_lock(&driver.lock);
	module = driver.module && try_module_get(driver.module) ? driver.module : NULL;
	mutex_unlock(&driver.lock);
	return module;
}

void ds_driver_unpin(struct module *module)
{
	module_put(module);
}

int ds_driver_rm_ops(struct ds_rm_ops *ops)
{
	if (!driver.get_rm_ops || !driver.version[0])
		return -ENODEV;
	return ds_rm_get_ops(driver.get_rm_ops, driver.version, ops);
}

/* ---- coming and going --------------------------------------------------- */

/* The module is held. */
static void nvidia_up(struct module *module)
{
	const char *missing;
	int err;

	driver.module = module;
	driver.get_rm_ops = ds_symbol("nvidia", "nvidia_get_rm_ops");
	/* the probe first: a call that is decided on must not reach the driver without it */
	err = parts->shield("nvidia");
	if (err)
		pr_warn("the driver's rm_ioctl cannot be probed (%d)\n", err);
	else
		driver.shielded = true;
	err = ds_hooks_install(parts->nvidia, &missing);
	if (!err && !parts->has_entry()) {
		ds_hooks_remove(parts->nvidia);
		missing = "nvidia_unlocked_ioctl";
		err = -ENOENT;
	}
	if (err) {
		pr_err("the driver's %s cannot be hooked (%d): nothing is seen and nothing is limited\n",
		       missing ?: "functions", err);
		parts->unshield();
		driver.shielded = false;
	}
	driver.older_clients = module->state == MODULE_STATE_LIVE;
	if (driver.older_clients)
		identify_locked();
}

static void nvidia_down(void)
{
	if (!driver.module)
		return;
	ds_hooks_remove(parts->nvidia);
	parts->unshield();
	driver.shielded = false;
	ds_event_driver(DETSHARE_CMD_DRIVER_DOWN, driver.version);
	driver.module = NULL;
	driver.get_rm_ops = 0;
	driver.version[0] = '\0';
	driver.match = RM_ABI_NONE;
	smp_store_release(&driver.abi, NULL);
	parts->nvidia_gone();
}

static void uvm_up(struct module *module)
{
	const char *missing;
	int err;

	driver.uvm = module;
	err = ds_hooks_install(parts->uvm, &missing);
	if (err)
		pr_warn("nvidia-uvm's %s cannot be hooked (%d): managed memory is not counted\n",
			missing ?: "functions", err);
}

static void uvm_down(void)
{
	ds_hooks_remove(parts->uvm);
	parts->uvm_gone();
	driver.uvm = NULL;
}

static int on_module(struct notifier_block *block, unsigned long state, void *data)
{
	struct module *module = data;
	bool is_nvidia = !strcmp(module->name, "nvidia");

	if (!is_nvidia && strcmp(module->name, "nvidia_uvm"))
		return NOTIFY_DONE;
	mutex_lock(&driver.lock);
	if (driver.stopping)
		goto unlock;
	switch (state) {
	case MODULE_STATE_COMING:
		if (is_nvidia && !driver.module)
			nvidia_up(module);
		else if (!is_nvidia && !driver.uvm)
			uvm_up(module);
		break;
	case MODULE_STATE_LIVE:
		if (is_nvidia)
			identify_locked();
		break;
	case MODULE_STATE_GOING:
		if (is_nvidia)
			nvidia_down();
		else
			uvm_down();
		break;
	}
unlock:
	mutex_unlock(&driver.lock);
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = on_module };

/*
 * The loaded module of that name, held, or NULL. Its folder in sysfs names it: the kernel exports no other way, and
 * the folder cannot vanish while it is held.
 */
static struct module *find_loaded(const char *name)
{
	struct kobject *folder = kset_find_obj(THIS_MODULE->mkobj.kobj.kset, name);
	struct module *module = NULL;

	if (!folder)
		return NULL;
	module = container_of(folder, struct module_kobject, kobj)->mod;
	if (module && !try_module_get(module))
		module = NULL;
	kobject_put(folder);
	return module;
}

static void adopt_loaded(const char *name, struct module *known, void (*up)(struct module *module))
{
	struct module *module = find_loaded(name);

	if (!module)
		return;
	if (!known)
		up(module);
	module_put(module);
}

static void tell_waiting(long inside, unsigned int seconds)
{
	char comm[TASK_COMM_LEN];
	pid_t pid = ds_shadow_some_pid(comm);

	if (pid)
		pr_warn("unloading waits since %u s for %ld calls inside the driver, one of them of process %d (%s); it goes on when they return or their processes are killed\n",
			seconds, inside, pid, comm);
	else
		pr_warn("unloading waits since %u s for %ld calls inside the driver\n", seconds,
			inside);
}

int ds_driver_init(const struct ds_driver_parts *given)
{
	int err;

	parts = given;
	err = register_module_notifier(&notifier);
	if (err)
		return err;
	mutex_lock(&driver.lock);
	adopt_loaded("nvidia", driver.module, nvidia_up);
	adopt_loaded("nvidia_uvm", driver.uvm, uvm_up);
	mutex_unlock(&driver.lock);
	return 0;
}

void ds_driver_exit(void)
{
	parts->ending();
	mutex_lock(&driver.lock);
	WRITE_ONCE(driver.stopping, true);
	ds_hooks_remove(parts->uvm);
	ds_hooks_remove(parts->nvidia);
	mutex_unlock(&driver.lock);
	/* calls that are inside still need the probe to have been there: it goes when they have gone */
	ds_hook_drain(tell_waiting);
	mutex_lock(&driver.lock);
	parts->unshield();
	driver.module = NULL;
	driver.uvm = NULL;
	mutex_unlock(&driver.lock);
	unregister_module_notifier(&notifier);
}
