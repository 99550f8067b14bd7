/* SPDX-License-Identifier: GPL-2.0-only */
/* What runs take out of buckets (bucket.h). */
#ifndef DETSHARE_SPEND_H
#define DETSHARE_SPEND_H

#include "bucket.h"

struct ds_lane;
struct ds_run;

/* Counts what was used since the lane looked last, says which runs are spent. When to look again, ktime in ns; KTIME_MAX: no need to. */
u64 ds_bucket_turn(struct ds_lane *lane, u64 now);

/* Takes GPU time that the run used beside what ds_bucket_turn() counts, ns. With the lane's members. */
void ds_bucket_pay(struct ds_run *run, u64 ns);

/* The index-th bucket, counted up to now; false: there are no so many. *info's subject is to be put. Sleeps, as ds_lanes_settle(). */
bool ds_bucket_at(unsigned int index, struct ds_bucket_info *info);

#endif
