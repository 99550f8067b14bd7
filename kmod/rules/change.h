/* SPDX-License-Identifier: GPL-2.0-only */
/* Who follows when a rule has changed. */
#ifndef DETSHARE_CHANGE_H
#define DETSHARE_CHANGE_H

struct ds_process;

struct ds_rules_follower {
	/* Everybody follows: gates before this returns, slices soon after. Sleeps. */
	void (*now)(void);
	/* Everybody follows, soon. */
	void (*soon)(void);
	/* Another rule may hold for the process: it follows, soon. Process context. */
	void (*process)(struct ds_process *process);
};

/* Before the first rule, and for as long as the module is. */
void ds_rules_on_change(const struct ds_rules_follower *follower);

void ds_rules_changed(void);
void ds_rules_changed_soon(void);
void ds_rules_process(struct ds_process *process);

#endif
