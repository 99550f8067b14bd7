// SPDX-License-Identifier: GPL-2.0-only
/* DetShare: the kernel sees, accounts and limits every client of NVIDIA GPUs. */
#include <linux/module.h>

#include "boost.h"
#include "bucket.h"
#include "class.h"
#include "client.h"
#include "debugfs.h"
#include "denials.h"
#include "doorbell.h"
#include "driver.h"
#include "dups.h"
#include "entries.h"
#include "family.h"
#include "shadow.h"
#include "gpu.h"
#include "groups.h"
#include "sharer.h"
#include "runq.h"
#include "lease.h"
#include "limit.h"
#include "power.h"
#include "raw.h"
#include "rmcall.h"
#include "sched.h"
#include "tenant.h"
#include "userd.h"
#include "uvm.h"

#ifdef CONFIG_PREEMPT_RT
#error "detshare.ko cannot be built for a PREEMPT_RT kernel: its probes and tracepoints take spinlocks where such a kernel may not sleep"
#endif

/* Started from top to bottom, ended from bottom to top; each part relies on those above it only. */
static const struct part {
	int (*init)(void);
	void (*exit)(void);
} parts[] = {
	{ ds_boost_init, ds_boost_exit },	/* who starves in a call */
	{ ds_shadow_init, ds_shadow_exit },	/* the kernel's copies of calls */
	{ NULL, ds_limit_exit },		/* limits and accounts */
	{ ds_tenant_init, ds_tenant_exit },	/* named tenants */
	{ ds_raw_init, ds_raw_exit },		/* what the filter must know */
	{ NULL, ds_sharer_exit },
	{ NULL, ds_denials_exit },
	{ ds_runq_init, ds_runq_exit },		/* runqs */
	{ ds_groups_init, NULL },
	{ NULL, ds_client_exit },		/* files, clients, vCtxs */
	{ NULL, ds_uvm_exit },			/* managed memory */
	{ NULL, ds_dups_forget },		/* memory that lives on without a handle */
	{ ds_doorbell_init, ds_doorbell_exit },	/* doorbells */
	{ ds_userd_init, ds_userd_exit },	/* what channels say of themselves */
	{ ds_rmcall_init, ds_rmcall_exit },	/* questions to the driver */
	{ NULL, ds_entities_forget },		/* what was to be tried again */
	{ NULL, ds_sched_forget },
	{ ds_entries_init, ds_driver_exit },	/* hooks: from here on calls come in */
	{ NULL, ds_sched_exit },		/* standing orders */
	{ NULL, ds_entities_let_go },		/* who is held is let go before that */
	{ NULL, ds_class_exit },
	{ NULL, ds_bucket_exit },
	{ NULL, ds_lease_exit },
	{ ds_power_init, ds_power_exit },
	{ ds_netlink_init, ds_netlink_exit },	/* people */
	{ ds_debugfs_init, ds_debugfs_exit },
};

static void end_parts(const struct part *from)
{
	for (; from >= parts; from--)
		if (from->exit)
			from->exit();
}

static int __init detshare_init(void)
{
	const struct part *part;
	int err;

	for (part = parts; part < parts + ARRAY_SIZE(parts); part++) {
		err = part->init ? part->init() : 0;
		if (err) {
			end_parts(part - 1);
			return err;
		}
	}
	return 0;
}

static void __exit detshare_exit(void)
{
	end_parts(parts + ARRAY_SIZE(parts) - 1);
}

module_init(detshare_init);
module_exit(detshare_exit);

MODULE_DESCRIPTION("Shares NVIDIA GPUs: accounts and limits every client, steers its channel groups");
MODULE_VERSION("0.1.0");
MODULE_LICENSE("GPL");
