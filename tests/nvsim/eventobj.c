// SPDX-License-Identifier: GPL-2.0-only
/*
 * NV_EVENT_BUFFER and its controls, for the log of context switches only: events of other kinds, the buffers that the
 * driver would make by itself, memory that is not NV01_MEMORY_DEVICELESS and notifications are not simulated.
 */
#include <linux/cred.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "control.h"
#include "engine_log.h"

#define READ_ONLY	(1u << 22)	/* NVOS32_ATTR2_PROTECTION_USER_READ_ONLY */
#define KEEP_OLDEST	1u
#define KEEP_NEWEST	2u
#define PAIR_SIZE	8		/* of the parameters of ENABLE_EVENTS and UPDATE_GET: two words */
#define BIND_BUFFER	0		/* in NV2080_CTRL_GR_FECS_BIND_EVTBUF_FOR_UID(_V2)_PARAMS */
#define BIND_ALL_USERS	16
#define BIND_REASON	20

struct sim_events {
	struct eventbuf buf;
	struct mutex lock;	/* guards buf */
	struct sim_memory *header, *records;
	struct {
		struct sim_log_reader reader;
		bool bound;
	} of_gpu[SIM_GPUS_MAX][2];	/* for one user, for all */
};

static void write_memory(struct eventbuf *buf, bool header, u64 at, const void *data, size_t n)
{
	struct sim_events *events = container_of(buf, struct sim_events, buf);

	/* pages that cannot be had are lost records; nothing is written outside */
	sim_memory_copy(header ? events->header : events->records, at, (void *)data, n, true);
}

/* Memory of the client that its user may read only; a kernel client's may be any. */
static NV_STATUS find_memory(struct sim_object *object, u32 handle, u64 size, bool kernel, struct sim_object **found)
{
	*found = sim_object_find(object->client, handle);
	if (!*found)
		return NV_ERR_OBJECT_NOT_FOUND;
	if ((*found)->kind != KIND_NoDeviceMemory)
		return NV_ERR_NOT_SUPPORTED;
	if ((!kernel && !((*found)->memory->attr2 & READ_ONLY)) || (*found)->memory->size < size)
		return NV_ERR_INVALID_ARGUMENT;
	return NV_OK;
}

#define GET(f)	NV_GET(alloc->params, NV_EVENT_BUFFER_ALLOC_PARAMETERS, f)

static NV_STATUS check_params(struct sim_object *object, const struct sim_alloc *alloc, u32 *bytes)
{
	struct sim_object *subdevice;

	if (!GET(hBufferHeader))
		return NV_ERR_NOT_SUPPORTED;
	if (!GET(hRecordBuffer) || !GET(vardataBufferSize) != !GET(hVardataBuffer))
		return NV_ERR_INVALID_ARGUMENT;
	if (!GET(recordSize) || !GET(recordCount) || check_mul_overflow((u32)GET(recordSize), (u32)GET(recordCount), bytes) ||
	    GET(recordsFreeThreshold) > GET(recordCount) || GET(vardataFreeThreshold) > GET(vardataBufferSize))
		return NV_ERR_INVALID_ARGUMENT;
	if (GET(hVardataBuffer))
		return NV_ERR_NOT_SUPPORTED;
	subdevice = sim_object_find(object->client, GET(hSubDevice));
	return GET(hSubDevice) && (!subdevice || subdevice->kind != KIND_Subdevice) ? NV_ERR_INVALID_OBJECT_HANDLE : NV_OK;
}

static NV_STATUS events_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	bool kernel = alloc->by->level == SIM_CALLER_KERNEL;
	struct sim_object *header, *records;
	struct sim_events *events;
	NV_STATUS status;
	u32 bytes;

	status = check_params(object, alloc, &bytes);
	if (status == NV_OK)
		status = find_memory(object, GET(hBufferHeader), EVENTBUF_HEADER_SIZE, kernel, &header);
	if (status == NV_OK)
		status = find_memory(object, GET(hRecordBuffer), bytes, kernel, &records);
	if (status == NV_OK)
		status = sim_depend(object, header);
	if (status == NV_OK)
		status = sim_depend(object, records);
	if (status != NV_OK)
		return status;
	events = kzalloc(sizeof(*events), GFP_KERNEL);
	if (!events)
		return NV_ERR_NO_MEMORY;
	events->header = sim_memory_get(header->memory);
	events->records = sim_memory_get(records->memory);
	mutex_init(&events->lock);
	events->buf.write = write_memory;
	eventbuf_init(&events->buf, GET(recordSize), GET(recordCount));
	object->events = events;
	return NV_OK;
}

static void events_destroy(struct sim_object *object)
{
	struct sim_events *events = object->events;

	for (unsigned int i = 0; i < sim_gpu_count; i++)
		for (unsigned int all = 0; all < 2; all++)
			if (events->of_gpu[i][all].bound)
				sim_log_leave(sim_gpus[i].engine, &events->of_gpu[i][all].reader);
	sim_memory_put(events->header);
	sim_memory_put(events->records);
	kfree(events);
}

const struct sim_ops sim_event_buffer_ops = { .construct = events_construct, .destroy = events_destroy };

/* ---- controls ---- */

static NV_STATUS bind(struct sim_ask *ask, unsigned int version)
{
	struct sim_object *buffer = sim_object_find(ask->object->client, sim_get(ask->params, BIND_BUFFER, 4));
	bool all_users = sim_get(ask->params, BIND_ALL_USERS, 1);
	struct sim_gpu *gpu = ask->object->gpu;
	struct sim_log_reader *reader;
	struct sim_events *events;

	if (!buffer)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (buffer->kind != KIND_EventBuffer)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	events = buffer->events;
	if (events->of_gpu[gpu->index][all_users].bound)
		return NV_OK;
	reader = &events->of_gpu[gpu->index][all_users].reader;
	*reader = (struct sim_log_reader){ .buf = &events->buf, .lock = &events->lock, .version = version, .all_users = all_users,
					   .admin = ask->by->level >= SIM_CALLER_ROOT,
					   .kernel = ask->by->level == SIM_CALLER_KERNEL, .uid = ask->object->client->euid };
	events->of_gpu[gpu->index][all_users].bound = true;
	sim_log_join(gpu->engine, reader);
	return NV_OK;
}

static NV_STATUS bind_one(struct sim_ask *ask)
{
	return bind(ask, 1);
}

static NV_STATUS bind_two(struct sim_ask *ask)
{
	sim_put(ask->params, BIND_REASON, 4, 0);
	return bind(ask, 2);
}

static NV_STATUS enable(struct sim_ask *ask)
{
	struct sim_events *events = ask->object->events;
	u32 flags;

	if (ask->size != PAIR_SIZE)
		return NV_ERR_INVALID_ARGUMENT;
	flags = sim_get(ask->params, 4, 4);
	if (flags & ~(KEEP_OLDEST | KEEP_NEWEST))
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&events->lock);
	events->buf.enabled = sim_get(ask->params, 0, 1);
	if (flags)
		events->buf.newest = flags & KEEP_NEWEST;
	mutex_unlock(&events->lock);
	return NV_OK;
}

static NV_STATUS update_get(struct sim_ask *ask)
{
	struct sim_events *events = ask->object->events;
	bool done;

	/* there is no vardata */
	if (ask->size != PAIR_SIZE || sim_get(ask->params, 4, 4))
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&events->lock);
	done = eventbuf_get(&events->buf, sim_get(ask->params, 0, 4));
	mutex_unlock(&events->lock);
	return done ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

/* Of all GPUs. */
static NV_STATUS flush(struct sim_ask *ask)
{
	if (ask->size)
		return NV_ERR_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < sim_gpu_count; i++)
		sim_log_flush(sim_gpus[i].engine);
	return NV_OK;
}

const struct sim_handler sim_event_handlers[] = {
	{ NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID, true, bind_one },
	{ NV2080_CTRL_CMD_GR_FECS_BIND_EVTBUF_FOR_UID_V2, true, bind_two },
	{ NV_EVENT_BUFFER_CTRL_CMD_ENABLE_EVENTS, true, enable },
	{ NV_EVENT_BUFFER_CTRL_CMD_UPDATE_GET, true, update_get },
	{ NV_EVENT_BUFFER_CTRL_CMD_FLUSH, false, flush },
	{ },
};
