/* SPDX-License-Identifier: GPL-2.0-only */
/* pause.c's: what a channel's object (priv) says of it, under client->tree. */
#ifndef DETSHARE_OFF_H
#define DETSHARE_OFF_H

#include "entity.h"
#include "rm/act.h"

enum state {
	ON,
	OFF,		/* once, by us */
	UNSURE,		/* a call failed: it may be off by us */
	GOING,		/* a call is under way */
};

static inline enum state state_of(const struct rm_object *channel)
{
	return (unsigned long)channel->priv;
}

static inline void set_state(struct rm_object *channel, enum state state)
{
	channel->priv = (void *)(unsigned long)state;
}

/*
 * A call for these channels of the entity's client has failed, so they are unsure. The driver refuses all for one that it does not have:
 * such a one is taken out of the tree. false: it has each of them. No lock of this module's.
 */
bool ds_off_drop_lost(struct ds_entity *entity, const struct rm_channel *channels, unsigned int count);

#endif
