/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Launches that nobody saw. Any doorbell of a GPU rings any of its channels, so a program can be set to work by a doorbell of another's. Who
 * pays for GPU time and counts as idle is therefore asked about all the same (busy.h), at random moments some 100 ms apart. If it is busy it
 * pays for all the time since it was idle for certain, and is looked at as anybody from then on. On average that is what such launches used,
 * however short they are. So is who has turns, each second or so: one with work that counts as idle would never be taken off for the turn of
 * another, and both would only switch.
 */
#ifndef DETSHARE_UNSEEN_H
#define DETSHARE_UNSEEN_H

#include <linux/types.h>

struct ds_scan;
struct ds_entity;

/* The entity counts as idle, nothing holds it. Says when to look again. */
void ds_unseen_sample(struct ds_scan *scan, struct ds_entity *entity);

#endif
