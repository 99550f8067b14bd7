// SPDX-License-Identifier: GPL-2.0-only
#include "lost.h"
#include "off.h"

/* false: by now it is another one, which was made after the driver was asked: none that is new is unsure. */
static bool drop(struct ds_entity *entity, u32 handle)
{
	struct ds_client *client = ds_entity_client_lock(entity);
	struct rm_object *channel;
	bool that;

	if (!client)
		return false;
	mutex_lock(&client->tree);
	channel = rm_tree_find(&client->rm, handle);
	that = channel && channel->kind == RM_KIND_CHANNEL && state_of(channel) == UNSURE;
	if (that)
		rm_tree_free(&client->rm, handle);
	mutex_unlock(&client->tree);
	ds_entity_client_unlock();
	return that;
}

bool ds_off_drop_lost(struct ds_entity *entity, const struct rm_channel *channels, unsigned int count)
{
	bool any = false;
	unsigned int i;

	for (i = 0; i < count; i++)
		if (ds_lost(channels[i].client, channels[i].channel, RM_KIND_CHANNEL))
			any |= drop(entity, channels[i].channel);
	return any;
}
