/* SPDX-License-Identifier: GPL-2.0-only */
/* What entities and runqs hold for files that work on them: for busy.h, for unseen.h, for rotation.h. */
#ifndef DETSHARE_STATE_H
#define DETSHARE_STATE_H

#include <linux/types.h>
#include <linux/workqueue.h>

#include "rm/gang.h"

enum ds_busy {
	DS_BUSY_UNKNOWN,	/* nobody could tell */
	DS_BUSY_NO,
	DS_BUSY_YES,
	DS_BUSY_UNSURE,		/* the driver was asked, and gave no answer; it can */
};

/* The last answer, for activity.c; guarded by runq->lock. */
struct ds_entity_busy {
	struct work_struct work;
	bool asking;
	enum ds_busy said;
	u64 begun_ns, asked_ns;		/* ktime: before the question; when the driver looked, about. 0: never asked */
	u32 chance;			/* drawn with the answer: nobody foresees the next question */
};

/* The runq's work item's own. */
struct ds_entity_unseen {
	u64 vouched_ns;		/* ktime at which it had nothing to do, 0: it was not idle yet */
	u64 next_ns;		/* when it is asked about next */
	u64 asking_ns;		/* since when an answer is awaited, 0: none is */
};

/* How much of a time the foreground left free, and whether it was busy when the driver was asked. */
struct ds_gaps {
	u64 began_ns;		/* this measurement, ktime; 0: none is under way */
	u64 quiet_ns;		/* since when the foreground is quiet, ktime; 0: it is not */
	u64 useful;		/* ns of gaps, as far as they are worth switches */
	u64 asked_ns;		/* the last answer that was counted */
	unsigned int asked, busy;
	bool few;		/* the last measurement found next to none */
	unsigned int wary;	/* measurements with gaps, in a row, until spot checks are enough */
	bool closed;		/* and the foreground busy: no turns */
};

/* Spot checks of the foreground (spots.h). */
struct ds_spots {
	bool suffice;		/* it is not looked at but by them */
	u64 asking_ns;		/* the moment whose answers are awaited, ktime; 0: none is */
	u64 next_ns;		/* the next one */
	unsigned int busy;	/* moments with work, in a row */
};

/* The runq's work item's own. */
struct ds_rotation {
	struct rm_rota rota;		/* of those on this GPU alone */
	struct rm_gang_word gang;	/* of the last scan */
	struct rm_rota_tenant *spare;	/* as many as rota.tenants */
	unsigned int room;
	struct ds_gaps gaps;
	s64 alone;		/* ns without a foreground that leaves no gaps, for which nobody has paid */
	struct ds_spots spots;
	s32 least;		/* level of those that have turns, the lowest */
	u64 rival_ns;		/* when a rival was seen last (rival.h), 0: never */
	u64 rival_asked_ns;	/* when the driver was asked for one last */
	bool rival;		/* there is one; others read it too */
};

#endif
