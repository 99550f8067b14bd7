/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The driver: when it comes and goes, which version it is, and the hooks on it.
 *
 * nvidia.ko and nvidia-uvm.ko may be loaded before or after this module and unloaded again. They
 * are never pinned but for the time of a kernel call (ds_driver_pin()).
 */
#ifndef DETSHARE_DRIVER_H
#define DETSHARE_DRIVER_H

#include <linux/mm_types.h>
#include <linux/types.h>

#include "detshare_uapi.h"
#include "rm/abi.h"

#define DS_DRIVER_VERSION_MAX 32

struct ds_hook;
struct ds_hook_set;

/* The driver's tables; NULL: no driver, or not a known one. Once set it stays while the driver does. */
const struct rm_abi *ds_abi(void);
/* The same, or some version's: of use for the outer structures that are equal in all versions. Never NULL. */
const struct rm_abi *ds_abi_outer(void);
/* Can it be seen which file the driver takes for a descriptor? */
bool ds_driver_sees_files(void);
/* Is it a mapping of a file of nvidia.ko? */
bool ds_driver_backs(const struct vm_area_struct *vma);
/* Are limits in force: the driver is known and every hook point is there? */
bool ds_enforcing(void);
/* The hooks are going or gone, the probe inside the driver is not yet: calls come there that nobody has looked at. */
bool ds_driver_stopping(void);

struct ds_driver_status {
	enum detshare_mode mode;
	enum detshare_abi abi;
	bool shield;
	bool uvm_hooked;			/* or not loaded */
	char version[DS_DRIVER_VERSION_MAX];	/* "": none is loaded */
};

void ds_driver_status(struct ds_driver_status *status);
/* Is a hook missing whose lack is felt? */
bool ds_driver_lacks(void);
/* Calls `tell` for each installed hook, and with "(missing)" for each whose lack is felt, until that returns non-zero, and returns that. */
int ds_driver_each_hook(int (*tell)(const char *name, void *data), void *data);

/*
 * Finds out the version if it is not known yet: while the driver starts, it cannot be asked. Called on the way into
 * the first calls; sleeps.
 */
void ds_driver_identify(void);

/* May there be clients that were made before the hooks were there? */
bool ds_driver_older_clients(void);

/* Keeps nvidia.ko for the time of a call. NULL: it is not there, or going. */
struct module *ds_driver_pin(void);
/* What was pinned, for this module may have forgotten it meanwhile. */
void ds_driver_unpin(struct module *module);

/* Fills in the kernel's interface to RM (nvidia_get_rm_ops) for this version. -ENODEV. The caller has pinned. */
struct ds_rm_ops;
int ds_driver_rm_ops(struct ds_rm_ops *ops);

/* The originals, from replacements only. */
u32 ds_driver_from_user(void *to, const void *from, u32 n);
u32 ds_driver_to_user(void *to, const void *from, u32 n);

/* What is above this: the hooks, and who is told. Each function is called with what it always finds locked: nothing, or the driver's lock. */
struct ds_driver_parts {
	struct ds_hook_set *nvidia, *uvm;
	/* Of nvidia's: faults of its mappings, copies from and to its callers, files that descriptors name. */
	const struct ds_hook *fault, *from_user, *to_user, *get_file;
	bool (*has_entry)(void);		/* is an entry for ioctls among the hooks installed? Each is missing in some driver */
	/* The probe inside the driver. -ENOENT: this driver lacks what it goes on. */
	int (*shield)(const char *module);
	void (*unshield)(void);
	bool (*shield_binds)(void);
	/* The driver has gone with all that it had, hooks and probe before it. Locked. */
	void (*nvidia_gone)(void);
	void (*uvm_gone)(void);
	/* The module goes, its hooks are still there: nobody may be left waiting inside one. Not locked. */
	void (*ending)(void);
};

/* `parts` stays. */
int ds_driver_init(const struct ds_driver_parts *parts);
void ds_driver_exit(void);

#endif
