/* SPDX-License-Identifier: GPL-2.0-only */
/* What a run holds for files that work on it: for busy.h, for unseen.h. */
#ifndef DETSHARE_STATE_H
#define DETSHARE_STATE_H

#include <linux/types.h>
#include <linux/workqueue.h>

enum ds_busy {
	DS_BUSY_UNKNOWN,	/* nobody could tell */
	DS_BUSY_NO,
	DS_BUSY_YES,
};

/* The last answer, for activity.c; guarded by lane->lock. */
struct ds_run_busy {
	struct work_struct work;
	bool asking;
	enum ds_busy said;
	u64 begun_ns, asked_ns;		/* ktime: before the question; when the driver looked, about. 0: never asked */
	u32 chance;			/* drawn with the answer: nobody foresees the next question */
};

/* The lane's work item's own. */
struct ds_run_unseen {
	u64 vouched_ns;		/* ktime at which it had nothing to do, 0: it was not idle yet */
	u64 next_ns;		/* when it is asked about next */
	u64 asking_ns;		/* since when an answer is awaited, 0: none is */
};

#endif
