/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Has an entity that shows no life any more still something to do? USERD tells what was fetched, not what is finished, so the driver is
 * asked whether the entity's channels are idle (FIFO_IDLE_CHANNELS as a question, rm/act.h), from a work item.
 *
 * "Busy" is believed of a driver that has called somebody idle, which no program can make it say of what runs. One that refuses from the
 * beginning is tried again with new channels only: what shows no life counts as idle there. One that takes its time is left alone for a while,
 * and may give no answer about a channel at all. Both a program can bring about, so who pays for GPU time counts as busy then, from its launch on.
 * Who shares channel groups with other processes (MPS) is asked about where it pays for GPU time: the answer is about all of them.
 */
#ifndef DETSHARE_BUSY_H
#define DETSHARE_BUSY_H

#include <linux/types.h>

struct ds_client;
struct ds_entity;

/* Asks, unless that is under way; the runq looks again when the answer is there. The runq's work item. */
void ds_busy_ask(struct ds_entity *entity);
/* Can the driver be asked on this GPU? */
bool ds_busy_can(u32 gpu);
/* It could, but is left alone for some seconds: its answers took too long. */
bool ds_busy_rests(u32 gpu);

/*
 * The driver has made this channel, or its first object: it has nothing to do yet; does it say so? Asked until it is known on each GPU whether it does.
 * ds_file.order held, tree not.
 */
void ds_busy_channel_new(struct ds_client *client, u32 handle);
/* The driver is gone. */
void ds_busy_forget(void);

/* runq.c's. */
void ds_busy_init_entity(struct ds_entity *entity);

#endif
