/* SPDX-License-Identifier: Apache-2.0 */
#include "lifecycle.h"

DS_LIST(ds_lifecycles, struct ds_lifecycle);

#define EACH(what, ...)                                                 \
	do {                                                            \
		const struct ds_lifecycle *const *at;                   \
                                                                        \
		ds_list_each(at, ds_lifecycles)                         \
			if ((*at)->what)                                \
				(*at)->what(__VA_ARGS__);               \
	} while (0)

bool ds_life_context_new(struct ds_device *device)
{
	const struct ds_lifecycle *const *at;

	ds_list_each(at, ds_lifecycles)
		if ((*at)->context_new && !(*at)->context_new(device))
			return false;
	return true;
}

void ds_life_context_ready(struct ds_device *device)
{
	EACH(context_ready, device);
}

void ds_life_context_ends(struct ds_device *device)
{
	EACH(context_ends, device);
}

void ds_life_context_gone(struct ds_device *device)
{
	EACH(context_gone, device);
}

void ds_life_context_last(struct ds_device *device)
{
	EACH(context_last, device);
}

void ds_life_context_over(struct ds_device *device)
{
	EACH(context_over, device);
}

void ds_life_stream_gone(struct ds_stream *stream)
{
	EACH(stream_gone, stream);
}

void ds_life_child(void)
{
	EACH(child);
}
