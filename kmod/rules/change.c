// SPDX-License-Identifier: GPL-2.0-only
#include "change.h"

static const struct ds_rules_follower *all;

void ds_rules_on_change(const struct ds_rules_follower *follower)
{
	all = follower;
}

void ds_rules_changed(void)
{
	all->now();
}

void ds_rules_changed_soon(void)
{
	all->soon();
}

void ds_rules_process(struct ds_process *process)
{
	all->process(process);
}
