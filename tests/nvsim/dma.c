// SPDX-License-Identifier: GPL-2.0-only
/* RM_MAP_MEMORY_DMA: memory at an address of a VA space. Context DMAs belong to older GPUs. */
#include <linux/slab.h>

#include "sim.h"

#define FIXED	(1u << 15)	/* NVOS46_FLAGS_DMA_OFFSET_FIXED */

static struct sim_vas *vas_of(struct sim_object *object)
{
	switch (object->kind) {
	case KIND_VaSpaceApi:
		return object->vas;
	case KIND_VirtualMemory:
	case KIND_VirtualMemoryRange:
		return object->space;
	default:
		return NULL;
	}
}

static NV_STATUS map_locked(const struct sim_caller *by, void *block)
{
	struct sim_client *client = sim_client_find(NV_GET(block, NVOS46_PARAMETERS, hClient), by);
	u64 offset = NV_GET(block, NVOS46_PARAMETERS, offset), length = NV_GET(block, NVOS46_PARAMETERS, length);
	u64 va = NV_GET(block, NVOS46_PARAMETERS, dmaOffset);
	struct sim_object *memory, *space;
	struct sim_vas *vas;
	struct sim_dma *dma;

	if (!client)
		return sim_client_refused(NV_GET(block, NVOS46_PARAMETERS, hClient));
	space = sim_object_find(client, NV_GET(block, NVOS46_PARAMETERS, hDma));
	memory = sim_object_find(client, NV_GET(block, NVOS46_PARAMETERS, hMemory));
	if (!space || !memory)
		return NV_ERR_OBJECT_NOT_FOUND;
	vas = vas_of(space);
	if (!vas || !sim_kind_isa(memory->kind, KIND_Memory) || vas_of(memory))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (memory->memory->type == SIM_REGISTERS && !memory->memory->bell)
		return NV_ERR_INVALID_OBJECT_HANDLE;
	if (!length || offset > memory->memory->size || length > memory->memory->size - offset)
		return NV_ERR_INVALID_ARGUMENT;
	if (!(NV_GET(block, NVOS46_PARAMETERS, flags) & FIXED))
		va = sim_vas_reserve(vas, length, memory->memory->page_size);
	if (va % PAGE_SIZE || va + length < va)
		return NV_ERR_INVALID_ARGUMENT;
	dma = kmalloc(sizeof(*dma), GFP_KERNEL);
	if (!dma)
		return NV_ERR_NO_MEMORY;
	if (sim_vas_map(vas, va, length, memory->memory, offset, true)) {
		kfree(dma);
		return NV_ERR_NO_MEMORY;
	}
	*dma = (struct sim_dma) { .vas = sim_vas_get(vas), .handle = space->handle, .va = va, .length = length };
	list_add(&dma->link, &memory->dmas);
	NV_PUT(block, NVOS46_PARAMETERS, dmaOffset, va);
	return NV_OK;
}

void sim_map_dma(const struct sim_caller *by, void *block)
{
	NV_STATUS status;

	down_write(&sim_api_lock);
	status = map_locked(by, block);
	up_write(&sim_api_lock);
	NV_PUT(block, NVOS46_PARAMETERS, status, status);
}

static NV_STATUS unmap_locked(const struct sim_caller *by, void *block)
{
	struct sim_client *client = sim_client_find(NV_GET(block, NVOS47_PARAMETERS, hClient), by);
	u64 va = NV_GET(block, NVOS47_PARAMETERS, dmaOffset);
	struct sim_object *memory;
	struct sim_dma *dma;

	if (!client)
		return sim_client_refused(NV_GET(block, NVOS47_PARAMETERS, hClient));
	memory = sim_object_find(client, NV_GET(block, NVOS47_PARAMETERS, hMemory));
	if (!memory)
		return NV_ERR_OBJECT_NOT_FOUND;
	list_for_each_entry(dma, &memory->dmas, link) {
		if (dma->va != va || dma->handle != NV_GET(block, NVOS47_PARAMETERS, hDma))
			continue;
		sim_vas_unmap(dma->vas, dma->va, dma->length);
		sim_vas_put(dma->vas);
		list_del(&dma->link);
		kfree(dma);
		return NV_OK;
	}
	return NV_ERR_OBJECT_NOT_FOUND;
}

void sim_unmap_dma(const struct sim_caller *by, void *block)
{
	NV_STATUS status;

	down_write(&sim_api_lock);
	status = unmap_locked(by, block);
	up_write(&sim_api_lock);
	NV_PUT(block, NVOS47_PARAMETERS, status, status);
}

/* An object that names memory; nothing here reads through it. */
void sim_context_dma(const struct sim_caller *by, void *block)
{
	u8 params[64] = { };
	u32 handle = NV_GET(block, NVOS39_PARAMETERS, hObjectNew);
	u32 parent = NV_GET(block, NVOS39_PARAMETERS, hObjectParent);
	NV_STATUS status = NV_ERR_INVALID_CLASS;

	/* the client is the parent's: NVOS39 names none but the parent of all */
	if (NV_GET(block, NVOS39_PARAMETERS, hClass) == NV01_CONTEXT_DMA)
		status = sim_rm_alloc_kernel(by, parent, NV_GET(block, NVOS39_PARAMETERS, hSubDevice), &handle,
					     NV01_CONTEXT_DMA, params);
	NV_PUT(block, NVOS39_PARAMETERS, status, status);
}
