// SPDX-License-Identifier: GPL-2.0-only
/*
 * Objects that are memory or a range of addresses: device memory, system memory, OS descriptors, virtual ranges, fabric
 * memory, doorbells. What a construction writes back is what an H100 answered.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "sim.h"

#define ATTR_PAGE_MASK		(3u << NVOS32_ATTR_PAGE_SIZE_LO)
#define ATTR_PHYS_MASK		(3u << 27)	/* NVOS32_ATTR_PHYSICALITY */
#define ATTR_PHYS_NONCONTIG	(1u << 27)
#define ATTR_PHYS_CONTIG	(2u << 27)
#define ATTR2_ZBC		1u
#define ATTR2_CACHED		(1u << 2)
#define ATTR2_UNCACHED		(2u << 2)
#define ATTR2_CACHE_MASK	(3u << 2)
#define ATTR2_HUGE_2MB		(NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB << NVOS32_ATTR2_PAGE_SIZE_HUGE_LO)
#define FORMAT_PITCH		6u
#define USERMODE_SIZE		0x10000
#define SHARED_DATA_SIZE	0x1000
#define OWNER_SCRATCH_FIRST	0xdeaf0000u	/* HEAP_OWNER_RM_SCRATCH_BEGIN */
#define OWNER_SCRATCH_LAST	0xdeaf0003u	/* HEAP_OWNER_RM_SCRATCH_END */

#define GET(f)		NV_GET(alloc->params, NV_MEMORY_ALLOCATION_PARAMS, f)
#define PUT(f, v)	NV_PUT(alloc->params, NV_MEMORY_ALLOCATION_PARAMS, f, v)

/* Binds memory to an object: the object is its one user. */
static NV_STATUS bind(struct sim_object *object, struct sim_memory *memory)
{
	if (!memory)
		return NV_ERR_NO_MEMORY;
	memory->class = object->class;
	sim_memory_use(memory);
	sim_memory_put(memory);	/* use took a reference of its own */
	object->memory = memory;
	return NV_OK;
}

static void memory_destroy(struct sim_object *object)
{
	sim_memory_unuse(object->memory);
}

/* Below the device of another GPU too: the driver asks for one instance where MIG is in use only (memCopyConstruct). */
static NV_STATUS memory_copy(struct sim_object *object, struct sim_object *from)
{
	object->memory = from->memory;
	sim_memory_use(object->memory);
	return NV_OK;
}

/* The checks of stdmemValidateParams. */
static NV_STATUS check_params(struct sim_alloc *alloc)
{
	u32 owner = GET(owner);

	if (alloc->by->level < SIM_CALLER_KERNEL && GET(internalflags))
		return NV_ERR_INVALID_ARGUMENT;
	if (!GET(size))
		return NV_ERR_INVALID_ARGUMENT;
	if (!owner || owner == ~0u || (owner >= OWNER_SCRATCH_FIRST && owner <= OWNER_SCRATCH_LAST))
		return NV_ERR_INVALID_OWNER;
	if (!(GET(flags) & NVOS32_ALLOC_FLAGS_USE_BEGIN_END) && (GET(rangeLo) || GET(rangeHi)))
		return NV_ERR_INVALID_ARGUMENT;
	if (GET(flags) & NVOS32_ALLOC_FLAGS_TURBO_CIPHER_ENCRYPTED)
		return NV_ERR_INVALID_ARGUMENT;
	return NV_OK;
}

static u32 page_attr(u64 page_size)
{
	u32 code = page_size == 4096 ? NVOS32_ATTR_PAGE_SIZE_4KB :
		   page_size == 65536 ? NVOS32_ATTR_PAGE_SIZE_BIG : NVOS32_ATTR_PAGE_SIZE_HUGE;

	return code << NVOS32_ATTR_PAGE_SIZE_LO;
}

static NV_STATUS vidmem_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	u32 attr = GET(attr), attr2 = GET(attr2);
	struct sim_memory *memory;
	NV_STATUS status = check_params(alloc);
	u64 size = GET(size), page;

	if (status != NV_OK)
		return status;
	if (NV_BITS(attr, NVOS32_ATTR_LOCATION) != NVOS32_ATTR_LOCATION_VIDMEM)
		return NV_ERR_INVALID_ARGUMENT;
	if (GET(flags) & NVOS32_ALLOC_FLAGS_VIRTUAL)
		return NV_ERR_INVALID_ARGUMENT;
	page = sim_page_size(size, attr, attr2);
	if (size > object->gpu->heap.size)
		return NV_ERR_NO_MEMORY;
	size = ALIGN(size, page);
	memory = sim_memory_create(object->gpu, SIM_VIDMEM, size);
	if (!memory)
		return NV_ERR_NO_MEMORY;
	memory->page_size = page;
	status = sim_memory_charge(memory);
	if (status != NV_OK) {
		sim_memory_put(memory);
		return status;
	}
	attr = (attr & ~(ATTR_PAGE_MASK | ATTR_PHYS_MASK)) | page_attr(page) | ATTR_PHYS_CONTIG;
	attr2 |= ATTR2_ZBC | ATTR2_CACHED | (page == 2 << 20 ? ATTR2_HUGE_2MB : 0);
	memory->attr = attr;
	memory->attr2 = attr2;
	memory->kind = GET(type);
	memory->flags = GET(flags);
	PUT(attr, attr);
	PUT(attr2, attr2);
	PUT(format, FORMAT_PITCH);
	PUT(size, size);
	PUT(offset, memory->offset);
	PUT(limit, size - 1);
	return bind(object, memory);
}

const struct sim_ops sim_vidmem_ops = {
	.construct = vidmem_construct, .destroy = memory_destroy, .copy = memory_copy,
};

static NV_STATUS sysmem_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	u32 attr = GET(attr), attr2 = GET(attr2);
	NV_STATUS status = check_params(alloc);
	struct sim_memory *memory;
	u64 size = GET(size);

	if (status != NV_OK)
		return status;
	if (NV_BITS(attr, NVOS32_ATTR_LOCATION) == NVOS32_ATTR_LOCATION_VIDMEM)
		return NV_ERR_INVALID_ARGUMENT;
	if (size > (u64)totalram_pages() << PAGE_SHIFT)
		return NV_ERR_NO_MEMORY;
	size = PAGE_ALIGN(size);
	memory = sim_memory_create(object->gpu, SIM_SYSMEM, size);
	if (!memory)
		return NV_ERR_NO_MEMORY;
	attr = (attr & ~(ATTR_PAGE_MASK | ATTR_PHYS_MASK)) | page_attr(4096) | ATTR_PHYS_NONCONTIG;
	attr2 |= ATTR2_ZBC | (attr2 & ATTR2_CACHE_MASK ? 0 : ATTR2_UNCACHED);
	memory->attr = attr;
	memory->attr2 = attr2;
	memory->kind = GET(type);
	memory->flags = GET(flags);
	PUT(attr, attr);
	PUT(attr2, attr2);
	PUT(format, FORMAT_PITCH);
	PUT(size, size);
	PUT(alignment, PAGE_SIZE);
	PUT(limit, size - 1);
	return bind(object, memory);
}

const struct sim_ops sim_sysmem_ops = {
	.construct = sysmem_construct, .destroy = memory_destroy, .copy = memory_copy,
};

/* NV01_MEMORY_DEVICELESS: of no GPU, and next to nothing of what is asked for is checked, or told. */
static NV_STATUS deviceless_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	u64 size = GET(size);
	struct sim_memory *memory;

	if (!size)
		return NV_ERR_INVALID_ARGUMENT;
	if (size > (u64)totalram_pages() << PAGE_SHIFT)
		return NV_ERR_NO_MEMORY;
	memory = sim_memory_create(NULL, SIM_SYSMEM, size);
	if (memory) {
		memory->attr = GET(attr);
		memory->attr2 = GET(attr2);
		memory->flags = GET(flags);
	}
	return bind(object, memory);
}

const struct sim_ops sim_deviceless_ops = {
	.construct = deviceless_construct, .destroy = memory_destroy, .copy = memory_copy,
};

static NV_STATUS osdesc_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	NV_STATUS status;

	if (!alloc->pinned)
		return NV_ERR_NOT_SUPPORTED;	/* kernel descriptors are not simulated */
	if (alloc->pinned->type == SIM_REGISTERS) {
		status = sim_memory_give_bell(alloc->pinned, "descriptor", object);
		if (status != NV_OK)
			return status;
	} else {
		alloc->pinned->gpu = object->gpu;
	}
	alloc->pinned->attr = NV_GET(alloc->params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, attr);
	return bind(object, sim_memory_get(alloc->pinned));
}

const struct sim_ops sim_osdesc_ops = {
	.construct = osdesc_construct, .destroy = memory_destroy, .copy = memory_copy,
};

/* ---- ranges of GPU addresses: no memory behind them ---- */

static void range_destroy(struct sim_object *object)
{
	sim_vas_put(object->space);
	sim_memory_unuse(object->memory);
}

static NV_STATUS range_copy(struct sim_object *object, struct sim_object *from)
{
	object->space = sim_vas_get(from->space);
	return memory_copy(object, from);
}

static NV_STATUS bind_range(struct sim_object *object, u32 hvas, u64 size)
{
	struct sim_object *vas_object = NULL;
	struct sim_vas *vas;
	NV_STATUS status;

	status = sim_find_vas(object->client, sim_object_device(object), hvas, &vas, &vas_object);
	if (status != NV_OK)
		return status;
	status = bind(object, sim_memory_create(object->gpu, SIM_VIRTUAL, size));
	if (status != NV_OK)
		return status;
	object->space = sim_vas_get(vas);
	status = sim_depend(object, vas_object);
	if (status != NV_OK)
		range_destroy(object);
	return status;
}

static NV_STATUS virtual_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	NV_STATUS status;
	u64 size = GET(size);

	/* a range that begins at a fixed address is told so in offset, and comes back as rangeLo */
	status = check_params(alloc);
	if (status != NV_OK)
		return status;
	if (!(GET(flags) & NVOS32_ALLOC_FLAGS_VIRTUAL))
		return NV_ERR_INVALID_ARGUMENT;
	status = bind_range(object, GET(hVASpace), size);
	if (status != NV_OK)
		return status;
	object->memory->offset = GET(offset);
	PUT(attr, GET(attr) | (NVOS32_ATTR_LOCATION_ANY << NVOS32_ATTR_LOCATION_LO) | ATTR_PHYS_CONTIG);
	PUT(attr2, GET(attr2) | ATTR2_ZBC | ATTR2_CACHED | ATTR2_HUGE_2MB);
	PUT(format, FORMAT_PITCH);
	PUT(alignment, 2 << 20);
	PUT(limit, size - 1);
	if (GET(flags) & NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE) {
		PUT(rangeLo, GET(offset));
		PUT(rangeHi, GET(offset) + size - 1);
	}
	return NV_OK;
}

const struct sim_ops sim_virtual_ops = {
	.construct = virtual_construct, .destroy = range_destroy, .copy = range_copy,
};

static NV_STATUS virtual_range_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	u64 limit = NV_GET(alloc->params, NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, limit);
	u64 offset = NV_GET(alloc->params, NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, offset);

	if (limit < offset)
		return NV_ERR_INVALID_ARGUMENT;
	return bind_range(object, NV_GET(alloc->params, NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS, hVASpace), limit - offset + 1);
}

const struct sim_ops sim_virtual_range_ops = {
	.construct = virtual_range_construct, .destroy = range_destroy, .copy = range_copy,
};

/* ---- fabric memory: device memory by other names ---- */

static NV_STATUS fabric_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	u64 size = NV_GET(alloc->params, NV00F8_ALLOCATION_PARAMETERS, allocSize);
	u64 page = NV_GET(alloc->params, NV00F8_ALLOCATION_PARAMETERS, pageSize);
	u32 vidmem = NV_GET(alloc->params, NV00F8_ALLOCATION_PARAMETERS, map_hVidMem);
	struct sim_memory *memory;
	struct sim_object *behind;
	NV_STATUS status;

	if ((page != 2 << 20 && page != 512 << 20) || !size)
		return NV_ERR_INVALID_ARGUMENT;
	if (vidmem) {	/* an address for memory that exists: takes none itself */
		behind = sim_object_find(object->client, vidmem);
		if (!behind)
			return NV_ERR_OBJECT_NOT_FOUND;
		if (behind->kind != KIND_VideoMemory)
			return NV_ERR_INVALID_ARGUMENT;
		if (behind->gpu != object->gpu)
			return NV_ERR_INVALID_OBJECT_PARENT;
		return memory_copy(object, behind);
	}
	if (size > object->gpu->heap.size)
		return NV_ERR_NO_MEMORY;
	memory = sim_memory_create(object->gpu, SIM_VIDMEM, ALIGN(size, page));
	if (!memory)
		return NV_ERR_NO_MEMORY;
	memory->page_size = page;
	status = sim_memory_charge(memory);
	if (status == NV_OK)
		return bind(object, memory);
	sim_memory_put(memory);
	return status;
}

const struct sim_ops sim_fabric_ops = {
	.construct = fabric_construct, .destroy = memory_destroy, .copy = memory_copy,
};

/* ---- memory that is none: registers, shared data, the whole frame buffer ---- */

static NV_STATUS usermode_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	NV_STATUS status;

	if (alloc->params && NV_GET(alloc->params, NV_HOPPER_USERMODE_A_PARAMS, bPriv) &&
	    alloc->by->level < SIM_CALLER_KERNEL)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	status = bind(object, sim_memory_create(object->gpu, SIM_REGISTERS, USERMODE_SIZE));
	/* only what is reached through BAR1 can be mapped for the GPU itself */
	if (status == NV_OK && alloc->params && NV_GET(alloc->params, NV_HOPPER_USERMODE_A_PARAMS, bBar1Mapping))
		status = sim_memory_give_bell(object->memory, "gpu", object);
	if (status != NV_OK && object->memory)
		memory_destroy(object);
	return status;
}

const struct sim_ops sim_usermode_ops = {
	.construct = usermode_construct, .destroy = memory_destroy, .copy = memory_copy,
};

/* NV01_MEMORY_LOCAL_PRIVILEGED: all registers of the GPU. Anybody may have it; to map it is another matter (map.c). */
static NV_STATUS register_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	return bind(object, sim_memory_create(object->gpu, SIM_REGISTERS, SIM_BAR0_SIZE));
}

const struct sim_ops sim_register_ops = { .construct = register_construct, .destroy = memory_destroy };

static NV_STATUS shared_data_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	return bind(object, sim_memory_create(object->gpu, SIM_SYSMEM, SHARED_DATA_SIZE));
}

const struct sim_ops sim_shared_data_ops = {
	.construct = shared_data_construct, .destroy = memory_destroy, .copy = memory_copy,
};

/* NV01_MEMORY_LOCAL_PHYSICAL: a view of all device memory, for root; it allocates nothing. */
static NV_STATUS physical_construct(struct sim_object *object, struct sim_alloc *alloc)
{
	if (alloc->params)
		NV_PUT(alloc->params, NV_PHYSICAL_MEMORY_ALLOCATION_PARAMS, memSize, object->gpu->heap.size);
	return bind(object, sim_memory_create(object->gpu, SIM_VIRTUAL, object->gpu->heap.size));
}

const struct sim_ops sim_physical_ops = { .construct = physical_construct, .destroy = memory_destroy };
