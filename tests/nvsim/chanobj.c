// SPDX-License-Identifier: GPL-2.0-only
/* Channels: a GPFIFO in a TSG, in a VA space, with a page of USERD. */
#include <linux/err.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "methods.h"
#include "sim.h"

#define FLAG_RECORDED	(1u << 5)	/* what an H100's answer adds to the flags */

struct wanted {			/* what the parameters name, found and checked */
	struct sim_group *group;	/* one reference */
	struct sim_vas *vas;
	struct sim_object *vas_object, *ctxshare, *userd_object;
	struct sim_memory *userd;	/* one use */
	u64 userd_offset;
};

#define GET(f)	NV_GET(alloc->params, NV_CHANNEL_ALLOC_PARAMS, f)

static NV_STATUS find_space(struct sim_object *object, struct sim_alloc *alloc, struct wanted *w)
{
	struct sim_object *parent = object->parent;
	u32 hshare = GET(hContextShare), hvas = GET(hVASpace);

	if (hshare) {
		w->ctxshare = sim_object_find(object->client, hshare);
		if (!w->ctxshare)
			return NV_ERR_OBJECT_NOT_FOUND;
		if (w->ctxshare->kind != KIND_KernelCtxShareApi || w->ctxshare->parent != parent || hvas)
			return NV_ERR_INVALID_ARGUMENT;
		w->vas = w->ctxshare->space;
		return NV_OK;
	}
	if (parent->kind == KIND_KernelChannelGroupApi && parent->space && !hvas) {
		w->vas = parent->space;
		return NV_OK;
	}
	return sim_find_vas(object->client, sim_object_device(object), hvas, &w->vas, &w->vas_object);
}

static NV_STATUS find_group(struct sim_object *object, struct sim_alloc *alloc, struct wanted *w)
{
	struct sim_object *parent = object->parent;
	u32 engine = GET(engineType);
	NV_STATUS status;

	if (parent->kind == KIND_Device) {	/* a bare channel has a group of its own */
		w->group = sim_group_create(object, engine, &status);
		if (w->group)
			status = sim_group_wrap(object, w->group, w->vas, w->vas_object);
		if (status == NV_OK)
			NV_PUT(alloc->params, NV_CHANNEL_ALLOC_PARAMS, hPhysChannelGroup, object->wrapper->handle);
		return status;
	}
	if (engine && engine != parent->group->engine)
		return NV_ERR_INVALID_ARGUMENT;
	w->group = parent->group;
	kref_get(&w->group->ref);
	return NV_OK;
}

static NV_STATUS find_userd(struct sim_object *object, struct sim_alloc *alloc, struct wanted *w)
{
	u32 handle = NV_GETI(alloc->params, NV_CHANNEL_ALLOC_PARAMS, hUserdMemory, 0);
	u64 offset = NV_GETI(alloc->params, NV_CHANNEL_ALLOC_PARAMS, userdOffset, 0);

	if (!handle) {		/* RM makes one, which RM_MAP_MEMORY of the channel maps */
		w->userd = sim_memory_create(object->gpu, SIM_SYSMEM, PAGE_SIZE);
		if (!w->userd)
			return NV_ERR_NO_MEMORY;
		sim_memory_use(w->userd);
		sim_memory_put(w->userd);	/* use took a reference of its own */
		return NV_OK;
	}
	w->userd_object = sim_object_find(object->client, handle);
	if (!w->userd_object)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (w->userd_object->kind != KIND_VideoMemory && w->userd_object->kind != KIND_SystemMemory &&
	    w->userd_object->kind != KIND_OsDescMemory)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (offset % SIM_USERD_SIZE || offset >= w->userd_object->memory->size)
		return NV_ERR_INVALID_ARGUMENT;
	/* freed memory is the heap's again when the channel is gone (memdescFree) */
	w->userd = w->userd_object->memory;
	sim_memory_use(w->userd);
	w->userd_offset = offset;
	return NV_OK;
}

static NV_STATUS depend(struct sim_object *object, struct wanted *w)
{
	NV_STATUS status = sim_depend(object, w->vas_object);

	if (status == NV_OK)
		status = sim_depend(object, w->ctxshare);
	if (status == NV_OK && w->userd_object && w->userd_object->kind == KIND_OsDescMemory)
		status = sim_depend(object, w->userd_object);
	return status;
}

static NV_STATUS start_channel(struct sim_object *object, struct sim_alloc *alloc, struct wanted *w)
{
	struct sim_channel *channel = kzalloc(sizeof(*channel), GFP_KERNEL);
	struct sim_chan_where where;
	struct page *page;

	if (!channel)
		return NV_ERR_NO_MEMORY;
	channel->userd_page = w->userd_offset >> PAGE_SHIFT;
	page = sim_memory_page(w->userd, channel->userd_page, true);
	if (!page) {
		kfree(channel);
		return NV_ERR_NO_MEMORY;
	}
	channel->group = w->group;
	channel->vas = sim_vas_get(w->vas);
	channel->userd = w->userd;
	where = (struct sim_chan_where) {
		.userd_page = page, .userd_offset = offset_in_page(w->userd_offset),
		.client = object->client->handle, .handle = object->handle,
		.veid = w->ctxshare ? w->ctxshare->veid : 0,
	};
	channel->veid = where.veid;
	channel->chan = sim_chan_create(w->group->tsg, w->vas, GET(gpFifoOffset), GET(gpFifoEntries), &where);
	if (IS_ERR(channel->chan)) {
		NV_STATUS status = PTR_ERR(channel->chan) == -ENOSPC ? NV_ERR_INSUFFICIENT_RESOURCES : NV_ERR_NO_MEMORY;

		sim_vas_put(channel->vas);
		kfree(channel);
		return status;
	}
	object->channel = channel;
	NV_PUT(alloc->params, NV_CHANNEL_ALLOC_PARAMS, flags, GET(flags) | FLAG_RECORDED);
	NV_PUT(alloc->params, NV_CHANNEL_ALLOC_PARAMS, cid, sim_chan_chid(channel->chan));
	return NV_OK;
}

static NV_STATUS channel_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	struct wanted w = { };
	NV_STATUS status;
	u32 herror = GET(hObjectError);

	if (!is_power_of_2(GET(gpFifoEntries)))
		return NV_ERR_INVALID_ARGUMENT;
	if (herror && !sim_object_find(object->client, herror))
		return NV_ERR_OBJECT_NOT_FOUND;
	status = find_space(object, alloc, &w);
	if (status == NV_OK)
		status = find_group(object, alloc, &w);
	if (status == NV_OK)
		status = find_userd(object, alloc, &w);
	if (status == NV_OK)
		status = depend(object, &w);
	if (status == NV_OK)
		status = start_channel(object, alloc, &w);
	if (status != NV_OK) {
		sim_group_put(w.group);
		if (w.userd)
			sim_memory_unuse(w.userd);
	}
	return status;
}

static void channel_destroy(struct sim_object *object)
{
	struct sim_channel *channel = object->channel;

	sim_chan_destroy(channel->chan);
	sim_group_put(channel->group);
	sim_vas_put(channel->vas);
	sim_memory_unuse(channel->userd);
	kfree(channel);
}

const struct sim_ops sim_channel_ops = { .construct = channel_construct, .destroy = channel_destroy };
