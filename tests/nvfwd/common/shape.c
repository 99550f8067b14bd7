// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "shape.h"

static const struct nvf_escape *escape(u32 nr)
{
	for (u32 i = 0; i < nvf_escapes_count; i++)
		if (nvf_escapes[i].nr == nr)
			return &nvf_escapes[i];
	return NULL;
}

static const struct nvf_control *control(u32 cmd)
{
	for (u32 i = 0; i < nvf_controls_count; i++)
		if (nvf_controls[i].cmd == cmd)
			return &nvf_controls[i];
	return NULL;
}

static const char *refused_name(u32 cmd)
{
	for (u32 i = 0; i < nvf_names_count; i++)
		if (nvf_names[i].cmd == cmd)
			return nvf_names[i].name;
	return "a control that no header names";
}

static void add_part(struct nvf_shape *shape, u8 in, u16 at, u32 size)
{
	shape->parts[shape->count++] = (struct nvf_part){ .size = size, .in = in, .at = at };
}

static void add_fd(struct nvf_shape *shape, u8 in, u16 at, u8 width)
{
	shape->fd[shape->fds].in = in;
	shape->fd[shape->fds].at = at;
	shape->fd[shape->fds++].width = width;
}

/*
 * Parameters of a control. Without a pointer or a size there are none, and the driver says what it thinks of that. A pointer is a part even
 * where nothing is behind it: none of a program's reaches the driver.
 */
static enum nvf_verdict shape_control(struct nvf_shape *shape, const void *block)
{
	u32 cmd = nvf_get32(block, NVOS54_PARAMETERS__cmd), size = nvf_get32(block, NVOS54_PARAMETERS__paramsSize);
	const struct nvf_control *known = control(cmd);

	shape->cmd = cmd;
	shape->status_at = NVOS54_PARAMETERS__status;
	shape->name = known ? known->name : refused_name(cmd);
	if (!known)
		return NVF_UNKNOWN;
	if (nvf_get32(block, NVOS54_PARAMETERS__flags) & NVOS54_FLAGS_FINN_SERIALIZED)
		return NVF_BAD_PARAMS;
	if (!nvf_get64(block, NVOS54_PARAMETERS__params))
		return NVF_OK;
	if (!size) {
		add_part(shape, 0, NVOS54_PARAMETERS__params, 0);
		return NVF_OK;
	}
	if (size > NVF_PART_MAX)
		return NVF_BAD_PARAMS;
	/* where something is translated the driver must mean the same bytes */
	for (u32 i = 0; i < nvf_embeddeds_count; i++)
		if (nvf_embeddeds[i].cmd == cmd && size != known->size)
			return NVF_BAD_PARAMS;
	if (known->fd_at != NVF_NOWHERE) {
		if (size != known->size)
			return NVF_BAD_PARAMS;
		add_fd(shape, 1, known->fd_at, 4);
	}
	add_part(shape, 0, NVOS54_PARAMETERS__params, size);
	shape->nested = true;
	return NVF_OK;
}

/* The driver takes as much as the class has, whatever paramsSize says. */
static enum nvf_verdict shape_alloc(struct nvf_shape *shape, const void *block, u32 size)
{
	const struct nvf_class *known = NULL;

	shape->class = nvf_get32(block, NVOS64_PARAMETERS__hClass);
	shape->status_at = size == NVOS64_PARAMETERS__SIZE ? NVOS64_PARAMETERS__status : NVOS21_PARAMETERS__status;
	for (u32 i = 0; i < nvf_classes_count && !known; i++)
		if (nvf_classes[i].class == shape->class)
			known = &nvf_classes[i];
	shape->name = known ? known->name : "a class that is not forwarded";
	if (!known)
		return NVF_UNKNOWN;
	if (size == NVOS64_PARAMETERS__SIZE && nvf_get32(block, NVOS64_PARAMETERS__flags) & NVOS64_FLAGS_FINN_SERIALIZED)
		return NVF_BAD_PARAMS;
	if (nvf_get64(block, NVOS64_PARAMETERS__pAllocParms)) {
		add_part(shape, 0, NVOS64_PARAMETERS__pAllocParms, known->size);
		shape->nested = known->size;
		if (shape->class == NVF_CLASS_OS_EVENT)
			add_fd(shape, 1, NV0005_ALLOC_PARAMETERS__data, 8);
		if (shape->class == NVF_CLASS_EVENT_BUFFER)
			add_fd(shape, 1, NV_EVENT_BUFFER_ALLOC_PARAMETERS__notificationHandle, 8);
	}
	if (size == NVOS64_PARAMETERS__SIZE && nvf_get64(block, NVOS64_PARAMETERS__pRightsRequested)) {
		add_part(shape, 0, NVOS64_PARAMETERS__pRightsRequested, 4);
		/* part 1 is what nvf_shape_inner() looks into */
		if (!shape->nested)
			return NVF_BAD_PARAMS;
	}
	return NVF_OK;
}

static enum nvf_verdict shape_memory(struct nvf_shape *shape, const void *block)
{
	shape->class = nvf_get32(block, nv_ioctl_nvos02_parameters_with_fd__params_hClass);
	shape->status_at = nv_ioctl_nvos02_parameters_with_fd__params_status;
	if (shape->class != NVF_CLASS_OS_DESCRIPTOR) {
		shape->name = "NV_ESC_RM_ALLOC_MEMORY of a class that is not forwarded";
		return NVF_UNKNOWN;
	}
	shape->pins = true;
	return nvf_get64(block, nv_ioctl_nvos02_parameters_with_fd__params_limit) < (4ull << 30) ? NVF_OK : NVF_BAD_PARAMS;
}

static enum nvf_verdict shape_idle(struct nvf_shape *shape, const void *block)
{
	static const u16 lists[] = { NVOS30_PARAMETERS__phClients, NVOS30_PARAMETERS__phDevices, NVOS30_PARAMETERS__phChannels };
	u32 count = nvf_get32(block, NVOS30_PARAMETERS__numChannels);

	shape->status_at = NVOS30_PARAMETERS__status;
	if (count > 1024)
		return NVF_BAD_PARAMS;
	for (u32 i = 0; i < 3; i++)
		if (nvf_get64(block, lists[i]))
			add_part(shape, 0, lists[i], count * 4);
	return NVF_OK;
}

static enum nvf_verdict shape_heap(struct nvf_shape *shape, const void *block)
{
	u32 function = nvf_get32(block, NVOS32_PARAMETERS__function);

	shape->status_at = NVOS32_PARAMETERS__status;
	shape->name = "NV_ESC_RM_VID_HEAP_CONTROL with a function that is not forwarded";
	switch (function) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		return nvf_get64(block, NVOS32_PARAMETERS__data_AllocSize_address) ? NVF_BAD_PARAMS : NVF_OK;
	case NVOS32_FUNCTION_ALLOC_SIZE_RANGE:
		return nvf_get64(block, NVOS32_PARAMETERS__data_AllocSizeRange_address) ? NVF_BAD_PARAMS : NVF_OK;
	case NVOS32_FUNCTION_FREE:
	case NVOS32_FUNCTION_INFO:
	case NVOS32_FUNCTION_RELEASE_COMPR:
	case NVOS32_FUNCTION_REACQUIRE_COMPR:
		return NVF_OK;
	}
	return NVF_UNKNOWN;
}

static enum nvf_verdict shape_escape(struct nvf_shape *shape, u32 nr, const void *block, u32 size)
{
	switch (nr) {
	case NV_ESC_RM_CONTROL:
		return shape_control(shape, block);
	case NV_ESC_RM_ALLOC:
		return shape_alloc(shape, block, size);
	case NV_ESC_RM_ALLOC_MEMORY:
		return shape_memory(shape, block);
	case NV_ESC_RM_IDLE_CHANNELS:
		return shape_idle(shape, block);
	case NV_ESC_RM_VID_HEAP_CONTROL:
		return shape_heap(shape, block);
	case NV_ESC_RM_GET_EVENT_DATA:
		shape->status_at = NVOS41_PARAMETERS__status;
		if (nvf_get64(block, NVOS41_PARAMETERS__pEvent))
			add_part(shape, 0, NVOS41_PARAMETERS__pEvent, 16);
		return NVF_OK;
	case NV_ESC_RM_FREE:
		shape->status_at = NVOS00_PARAMETERS__status;
		return NVF_OK;
	case NV_ESC_RM_DUP_OBJECT:
		shape->status_at = NVOS55_PARAMETERS__status;
		return NVF_OK;
	case NV_ESC_RM_SHARE:
		shape->status_at = NVOS57_PARAMETERS__status;
		return NVF_OK;
	case NV_ESC_RM_MAP_MEMORY:
		shape->status_at = nv_ioctl_nvos33_parameters_with_fd__params_status;
		return NVF_OK;
	}
	return NVF_OK;
}

static enum nvf_verdict shape_uvm(struct nvf_shape *shape, u32 cmd, u32 size)
{
	for (u32 i = 0; i < nvf_uvms_count; i++) {
		const struct nvf_uvm *known = &nvf_uvms[i];

		if (known->cmd != cmd)
			continue;
		shape->name = known->name;
		if (known->fd_at != NVF_NOWHERE)
			add_fd(shape, 0, known->fd_at, 4);
		return size == known->size ? NVF_OK : NVF_BAD_SIZE;
	}
	shape->name = "a call to UVM that is not forwarded";
	return NVF_UNKNOWN;
}

enum nvf_verdict nvf_shape_outer(struct nvf_shape *shape, enum nvf_dev dev, u32 nr, const void *block, u32 size)
{
	const struct nvf_escape *known;

	memset(shape, 0, sizeof(*shape));
	shape->status_at = NVF_NOWHERE;
	add_part(shape, 0, 0, size);
	if (dev == NVF_UVM)
		return shape_uvm(shape, nr, size);
	known = escape(nr);
	shape->name = known ? known->name : "an escape that is not forwarded";
	if (!known)
		return NVF_UNKNOWN;
	if (known->array) {
		if (!size || size > NVF_BLOCK_MAX || size % known->size)
			return NVF_BAD_SIZE;
	} else if (size != known->size && !(nr == NV_ESC_RM_ALLOC && size == NVOS21_PARAMETERS__SIZE)) {
		return NVF_BAD_SIZE;
	}
	if (known->fd_at != NVF_NOWHERE)
		add_fd(shape, 0, known->fd_at, 4);
	return shape_escape(shape, nr, block, size);
}

static enum nvf_verdict inner_control(struct nvf_shape *shape, const void *nested)
{
	for (u32 i = 0; i < nvf_embeddeds_count; i++) {
		const struct nvf_embedded *rule = &nvf_embeddeds[i];
		u64 bytes;

		if (rule->cmd != shape->cmd || !nvf_get64(nested, rule->at))
			continue;
		if (!rule->each || shape->count == NVF_PARTS)
			return NVF_BAD_PARAMS;
		bytes = rule->each;
		if (rule->count_at != NVF_NOWHERE)
			bytes *= nvf_get32(nested, rule->count_at);
		if (bytes > NVF_PART_MAX)
			return NVF_BAD_PARAMS;
		/* a pointer without a size stays one: the driver has its own words for it */
		add_part(shape, 1, rule->at, (u32)bytes);
	}
	return NVF_OK;
}

enum nvf_verdict nvf_shape_inner(struct nvf_shape *shape, const void *nested)
{
	if (shape->cmd)
		return inner_control(shape, nested);
	/* addresses of the driver's own, which user space may only be told */
	if (shape->class == NVF_CLASS_EVENT_BUFFER &&
	    (nvf_get64(nested, NV_EVENT_BUFFER_ALLOC_PARAMETERS__bufferHeader) ||
	     nvf_get64(nested, NV_EVENT_BUFFER_ALLOC_PARAMETERS__recordBuffer) ||
	     nvf_get64(nested, NV_EVENT_BUFFER_ALLOC_PARAMETERS__vardataBuffer)))
		return NVF_BAD_PARAMS;
	return NVF_OK;
}

u32 nvf_part_at(const struct nvf_shape *shape, u32 part)
{
	u32 at = 0;

	for (u32 i = 0; i < part; i++)
		at += (shape->parts[i].size + 7) & ~7u;
	return at;
}
