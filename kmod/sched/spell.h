/* SPDX-License-Identifier: GPL-2.0-only */
/* What an entity holds of its work for usage.h. */
#ifndef DETSHARE_SPELL_H
#define DETSHARE_SPELL_H

#include <linux/types.h>

#define DS_SPELLS_MOST 8

struct ds_spell {
	u64 from, to;	/* ktime */
};

/* Of one entity; the runq's work item's own. */
struct ds_usage {
	u64 seen_ns;		/* ktime up to which its spells are complete; 0: nothing was seen yet */
	u64 charged;		/* ns of GPU time, by the last ds_usage_charge() */
	/* its turns, as they were when it was seen last */
	unsigned int tsgs;
	u64 slice_us;
	s32 level;
	/* in which it was at work; in order, none charged in whole */
	unsigned int count;
	struct ds_spell spells[DS_SPELLS_MOST];
};

#endif
