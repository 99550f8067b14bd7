// SPDX-License-Identifier: GPL-2.0-only
#include <linux/notifier.h>
#include <linux/suspend.h>

#include "runq.h"
#include "power.h"

static int on_power(struct notifier_block *block, unsigned long event, void *unused)
{
	switch (event) {
	case PM_HIBERNATION_PREPARE:
	case PM_SUSPEND_PREPARE:
		/* processes are not frozen yet: who waits at a door could not be */
		ds_entities_let_go();
		break;
	case PM_POST_HIBERNATION:
	case PM_POST_SUSPEND:
		ds_entities_take_back();
		break;
	}
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = on_power };

int ds_power_init(void)
{
	return register_pm_notifier(&notifier);
}

void ds_power_exit(void)
{
	unregister_pm_notifier(&notifier);
}
