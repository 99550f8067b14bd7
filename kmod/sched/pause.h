/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hard pause: all channels of an entity are taken off the run list (FIFO_DISABLE_CHANNELS), what runs is taken off the
 * engine. The driver counts: off twice needs on twice. So each channel knows whether it is off by us (rm_object.priv), and at
 * most one of ours is outstanding. A call that failed leaves its channels unsure: they are turned on once more than may be
 * needed, which does no harm, and never left off. What is outstanding is tried again until it is done or the channel is gone.
 *
 * Refused for who shares channel groups with other processes (MPS): pausing one client's channels hung the other.
 */
#ifndef DETSHARE_PAUSE_H
#define DETSHARE_PAUSE_H

#include "entity.h"

/* Reasons to be paused change: DETSHARE_HOLD_*. Any context; carried out soon. */
void ds_pause_want(struct ds_entity *entity, u32 reason, bool paused);
/* Until what was wanted at this moment is done, or has failed. -EINTR: the caller is being killed; -ETIMEDOUT: so many jiffies are over. */
int ds_pause_wait(struct ds_entity *entity, unsigned long timeout);

/* The driver has made this channel: its maker waits here until it is off, if its entity is paused. ds_file.order held, tree not. */
void ds_pause_channel_new(struct ds_client *client, u32 handle);
/* It is dying. Under client->tree. */
void ds_pause_channel_gone(struct ds_client *client, struct rm_object *channel);
/*
 * A call of the process that could put its channels on or off was under way when it was paused: what is off goes off anew. No lock of this
 * module's.
 */
void ds_pause_doubt(const struct ds_process *process);

/* runq.c's. */
void ds_pause_init_entity(struct ds_entity *entity);
void ds_pause_drop_entity(struct ds_entity *entity);
/* Nobody wants it paused any more: until it is not. false: it is after so long, `patient` or not at all, and that is told. */
bool ds_pause_wait_resumed(struct ds_entity *entity, bool patient);
/* Nothing is tried again; nobody wants anything any more. */
void ds_pause_forget(struct ds_entity *entity);

#endif
