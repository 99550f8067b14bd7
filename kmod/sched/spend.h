/* SPDX-License-Identifier: GPL-2.0-only */
/* What entities take out of buckets (bucket.h). */
#ifndef DETSHARE_SPEND_H
#define DETSHARE_SPEND_H

#include "bucket.h"

struct ds_runq;
struct ds_entity;

/* Counts what was used since the runq looked last, says which entities are spent. When to look again, ktime in ns; KTIME_MAX: no need to. */
u64 ds_bucket_turn(struct ds_runq *runq, u64 now);

/* Takes GPU time that the entity used beside what ds_bucket_turn() counts, ns. With the runq's members. */
void ds_bucket_pay(struct ds_entity *entity, u64 ns);

/*
 * The index-th bucket, counted up to when the first one was asked for; false: there are no so many. *info's subject is to be put. Sleeps, as
 * ds_runqs_settle().
 */
bool ds_bucket_at(unsigned int index, struct ds_bucket_info *info);

#endif
