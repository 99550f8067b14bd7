// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Allocation parameters: what a new object takes and on what it depends. */
#include "decode.h"

#define KIB64 (64ULL << 10)
#define MIB2 (2ULL << 20)
#define MIB512 (512ULL << 20)
#define GIB256 (256ULL << 30)

u32 rm_alloc_params_size(const struct rm_abi *abi, u32 class)
{
	const struct rm_class *entry = rm_abi_class(abi, class);

	return entry ? entry->params : 0;
}

static u32 field(u32 value, u32 low, u32 high)
{
	return (value >> low) & ((2U << (high - low)) - 1);
}

#define FIELD(value, name) field(value, name##_LO, name##_HI)

static void depend(struct rm_alloc *alloc, u32 handle)
{
	if (handle && alloc->n_deps < RM_DEPS_MAX)
		alloc->deps[alloc->n_deps++] = handle;
}

/* bytes := limit + 1; a limit of all ones asks for more than there is. */
static u64 from_limit(u64 limit)
{
	return limit == RM_U64_MAX ? limit : limit + 1;
}

static void read_memory(const struct rm_abi *abi, const void *p, struct rm_alloc *alloc)
{
	alloc->bytes = rm_get64(p, abi->memory.size);
	alloc->alloc_flags = rm_get32(p, abi->memory.flags);
	alloc->attr = rm_get32(p, abi->memory.attr);
	alloc->attr2 = rm_get32(p, abi->memory.attr2);
	alloc->alignment = rm_get64(p, abi->memory.alignment);
	alloc->vaspace = rm_get32(p, abi->memory.hVASpace);
}

static void read_channel(const struct rm_abi *abi, const void *p, struct rm_alloc *alloc)
{
	/* the first of the arrays' elements is that of the GPU itself */
	struct rm_f32 memory = { abi->channel.hUserdMemory.off };
	struct rm_f64 offset = { abi->channel.userdOffset.off };

	alloc->engine = rm_get32(p, abi->channel.engineType);
	alloc->vaspace = rm_get32(p, abi->channel.hVASpace);
	alloc->ctxshare = rm_get32(p, abi->channel.hContextShare);
	alloc->userd_memory = rm_get32(p, memory);
	alloc->userd_offset = rm_get64(p, offset);
	alloc->gpfifo_va = rm_get64(p, abi->channel.gpFifoOffset);
	alloc->gpfifo_entries = rm_get32(p, abi->channel.gpFifoEntries);
	alloc->attached = alloc->userd_memory;
	depend(alloc, alloc->vaspace);
	depend(alloc, alloc->ctxshare);
	depend(alloc, alloc->userd_memory);
}

static void read_params(const struct rm_abi *abi, const void *p, struct rm_alloc *alloc)
{
	switch (alloc->kind) {
	case RM_KIND_DEVICE:
		alloc->device_id = rm_get32(p, abi->device.deviceId);
		break;
	case RM_KIND_SUBDEVICE:
		alloc->subdevice_id = rm_get32(p, abi->subdevice.subDeviceId);
		break;
	case RM_KIND_TSG:
		alloc->engine = rm_get32(p, abi->tsg.engineType);
		alloc->vaspace = rm_get32(p, abi->tsg.hVASpace);
		depend(alloc, alloc->vaspace);
		break;
	case RM_KIND_CTXSHARE:
		alloc->vaspace = rm_get32(p, abi->ctxshare.hVASpace);
		depend(alloc, alloc->vaspace);
		break;
	case RM_KIND_CHANNEL:
		read_channel(abi, p, alloc);
		break;
	case RM_KIND_COPY:
		alloc->engine = rm_get32(p, abi->copy.engineType);
		break;
	case RM_KIND_USERMODE:
		alloc->bar1_doorbell = rm_get8(p, abi->usermode.bBar1Mapping) != 0;
		break;
	case RM_KIND_MEM_VIDEO:
	case RM_KIND_MEM_EXTENDED:
	case RM_KIND_MEM_SYSTEM:
		read_memory(abi, p, alloc);
		break;
	case RM_KIND_MEM_OS:
		alloc->bytes = from_limit(rm_get64(p, abi->memory_os.limit));
		break;
	case RM_KIND_MEM_VIRTUAL:
		if (alloc->class == NV50_MEMORY_VIRTUAL) {
			read_memory(abi, p, alloc);
		} else {
			alloc->bytes = from_limit(rm_get64(p, abi->memory_virtual.limit));
			alloc->vaspace = rm_get32(p, abi->memory_virtual.hVASpace);
		}
		depend(alloc, alloc->vaspace);
		break;
	case RM_KIND_MEM_LIST:
		alloc->bytes = from_limit(rm_get64(p, abi->memory_list.limit));
		break;
	case RM_KIND_MEM_FABRIC:
		alloc->bytes = rm_get64(p, abi->fabric.allocSize);
		alloc->attached = rm_get32(p, abi->fabric.map_hVidMem);
		break;
	case RM_KIND_MEM_MULTICAST:
		alloc->bytes = rm_get64(p, abi->multicast.allocSize);
		break;
	case RM_KIND_CTXDMA:
		depend(alloc, rm_get32(p, abi->context_dma.hMemory));
		break;
	case RM_KIND_P2P:
		if (alloc->class == NV50_P2P) {
			depend(alloc, rm_get32(p, abi->p2p.hSubDevice));
			depend(alloc, rm_get32(p, abi->p2p.hPeerSubDevice));
		}
		break;
	default:
		if (alloc->class == NV_MEMORY_MAPPER && abi->mapper.hNotificationMemory.off != RM_ABSENT)
			depend(alloc, rm_get32(p, abi->mapper.hNotificationMemory));
		break;
	}
}

/* Which memory an object of this kind is. */
static void set_memory_kind(struct rm_alloc *alloc)
{
	switch (alloc->kind) {
	case RM_KIND_MEM_VIDEO:
	case RM_KIND_MEM_EXTENDED:
		alloc->vidmem = true;
		break;
	case RM_KIND_MEM_LIST:
		alloc->vidmem = alloc->class != NV01_MEMORY_LIST_SYSTEM;
		alloc->sysmem = !alloc->vidmem;
		break;
	case RM_KIND_MEM_FABRIC:
	case RM_KIND_MEM_MULTICAST:
		alloc->fabric = true;
		alloc->vidmem = !alloc->attached;
		break;
	case RM_KIND_MEM_WINDOW:
	case RM_KIND_MEM_REGISTERS:
		alloc->window = true;
		break;
	case RM_KIND_MEM_SYSTEM:
	case RM_KIND_MEM_OS:
		alloc->sysmem = true;
		break;
	case RM_KIND_MEM_VIRTUAL:
		alloc->virtual = true;
		break;
	default:
		break;
	}
}

static void begin(const struct rm_abi *abi, u32 class, struct rm_alloc *alloc)
{
	const struct rm_class *entry;

	memset(alloc, 0, sizeof(*alloc));
	if (rm_class_is_root(class))
		class = NV01_ROOT_CLIENT;
	entry = rm_abi_class(abi, class);
	alloc->class = class;
	alloc->kind = entry ? (enum rm_kind)entry->kind : RM_KIND_OTHER;
}

int rm_decode_alloc(const struct rm_abi *abi, u32 class, const void *params,
		    u32 size, struct rm_alloc *alloc)
{
	const struct rm_class *entry = rm_abi_class(abi, class);

	begin(abi, class, alloc);
	if (!entry)
		return -ENOENT;
	if (!params || !size) {
		set_memory_kind(alloc);
		return entry->flags & RM_CLASS_PARAMS_REQUIRED ? -EINVAL : 0;
	}
	if (entry->params && size != entry->params)
		return -EINVAL;
	if (entry->params)
		read_params(abi, params, alloc);
	set_memory_kind(alloc);
	return 0;
}

/* The class that the driver makes of a VID_HEAP allocation. */
static u32 vid_heap_class(const struct rm_abi *abi, u32 flags, u32 attr, u32 attr2)
{
	if (flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		return NV50_MEMORY_VIRTUAL;
	if (FIELD(attr2, NVOS32_ATTR2_USE_EGM) && rm_abi_class(abi, NV_MEMORY_EXTENDED_USER))
		return NV_MEMORY_EXTENDED_USER;
	if (FIELD(attr, NVOS32_ATTR_LOCATION) == NVOS32_ATTR_LOCATION_VIDMEM)
		return NV01_MEMORY_LOCAL_USER;
	return NV01_MEMORY_SYSTEM;
}

#define READ_ARM(arm) \
	do { \
		*handle = rm_get32(block, abi->nvos32.data_##arm##_hMemory); \
		flags = rm_get32(block, abi->nvos32.data_##arm##_flags); \
		attr = rm_get32(block, abi->nvos32.data_##arm##_attr); \
		attr2 = rm_get32(block, abi->nvos32.data_##arm##_attr2); \
		bytes = rm_get64(block, abi->nvos32.data_##arm##_size); \
		alignment = rm_get64(block, abi->nvos32.data_##arm##_alignment); \
	} while (0)

int rm_decode_vid_heap(const struct rm_abi *abi, const void *block, u32 size,
		       struct rm_alloc *alloc, u32 *handle)
{
	u32 flags, attr, attr2;
	u64 bytes, alignment;

	*handle = 0;
	memset(alloc, 0, sizeof(*alloc));
	if (size != abi->nvos32.len)
		return -EINVAL;
	switch (rm_get32(block, abi->nvos32.function)) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		READ_ARM(AllocSize);
		break;
	case NVOS32_FUNCTION_ALLOC_SIZE_RANGE:
		READ_ARM(AllocSizeRange);
		break;
	case NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT:
		READ_ARM(AllocTiledPitchHeight);
		/* the driver computes it just so, the sign of the pitch included */
		bytes = rm_get32(block, abi->nvos32.data_AllocTiledPitchHeight_height) *
			(u64)(s64)(s32)rm_get32(block, abi->nvos32.data_AllocTiledPitchHeight_pitch);
		break;
	case NVOS32_FUNCTION_HW_ALLOC:
		/* compression tags and the like; takes no frame buffer */
		begin(abi, NV01_MEMORY_HW_RESOURCES, alloc);
		*handle = rm_get32(block, abi->nvos32.data_HwAlloc_allochMemory);
		if (!(rm_get32(block, abi->nvos32.data_HwAlloc_flags) &
		      NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED))
			*handle = 0;
		return 0;
	case NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR:
		begin(abi, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, alloc);
		alloc->bytes = from_limit(rm_get64(block, abi->nvos32.data_AllocOsDesc_limit));
		set_memory_kind(alloc);
		*handle = rm_get32(block, abi->nvos32.data_AllocOsDesc_hMemory);
		if (!(rm_get32(block, abi->nvos32.data_AllocOsDesc_flags) &
		      NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED))
			*handle = 0;
		return 0;
	default:
		return -ENOENT;
	}
	begin(abi, vid_heap_class(abi, flags, attr, attr2), alloc);
	alloc->alloc_flags = flags;
	alloc->attr = attr;
	alloc->attr2 = attr2;
	alloc->bytes = bytes;
	alloc->alignment = alignment;
	if (alloc->kind == RM_KIND_MEM_VIRTUAL) {
		alloc->vaspace = rm_get32(block, abi->nvos32.hVASpace);
		depend(alloc, alloc->vaspace);
	}
	set_memory_kind(alloc);
	if (!(flags & NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED))
		*handle = 0;
	return 0;
}

int rm_decode_vid_heap_free(const struct rm_abi *abi, const void *block, u32 size,
			    u32 *handle)
{
	*handle = 0;
	if (size != abi->nvos32.len)
		return -EINVAL;
	switch (rm_get32(block, abi->nvos32.function)) {
	case NVOS32_FUNCTION_FREE:
		*handle = rm_get32(block, abi->nvos32.data_Free_hMemory);
		return 0;
	case NVOS32_FUNCTION_HW_FREE:
		*handle = rm_get32(block, abi->nvos32.data_HwFree_hResourceHandle);
		return 0;
	default:
		return -ENOENT;
	}
}

int rm_decode_alloc_memory(const struct rm_abi *abi, const void *block, u32 size,
			   struct rm_alloc *alloc)
{
	memset(alloc, 0, sizeof(*alloc));
	if (size != abi->nvos02.len)
		return -EINVAL;
	begin(abi, rm_get32(block, abi->nvos02.hClass), alloc);
	alloc->bytes = from_limit(rm_get64(block, abi->nvos02.limit));
	set_memory_kind(alloc);
	/*
	 * An administrator gets a window on the whole frame buffer, others an
	 * object without memory, and limit is an answer. Charged by the limit
	 * asked for as long as the driver has not answered another.
	 */
	if (alloc->kind == RM_KIND_MEM_VIDEO)
		alloc->window = true;
	return rm_abi_class(abi, alloc->class) ? 0 : -ENOENT;
}

/* The page that the driver takes for this request, in bytes. */
static u64 request_page(const struct rm_alloc *alloc)
{
	switch (FIELD(alloc->attr, NVOS32_ATTR_PAGE_SIZE)) {
	case NVOS32_ATTR_PAGE_SIZE_4KB:
	case NVOS32_ATTR_PAGE_SIZE_BIG:
		return KIB64;
	case NVOS32_ATTR_PAGE_SIZE_HUGE:
		switch (FIELD(alloc->attr2, NVOS32_ATTR2_PAGE_SIZE_HUGE)) {
		case NVOS32_ATTR2_PAGE_SIZE_HUGE_512MB:
			return MIB512;
		case NVOS32_ATTR2_PAGE_SIZE_HUGE_256GB:
			return GIB256;
		default:
			return MIB2;
		}
	default:
		return alloc->bytes >= MIB2 ? MIB2 : KIB64;
	}
}

/* bytes as a multiple of unit (> 0), RM_U64_MAX if there is none. */
static u64 to_multiple(u64 bytes, u64 unit)
{
	u64 rest;

	if (!(unit & (unit - 1)))
		rest = bytes & (unit - 1);
	else
		rest = rm_mod64(bytes, unit);
	if (!rest)
		return bytes;
	return bytes > RM_U64_MAX - (unit - rest) ? RM_U64_MAX : bytes + (unit - rest);
}

u64 rm_round_up_request(const struct rm_alloc *alloc)
{
	const u32 aligned = NVOS32_ALLOC_FLAGS_ALIGNMENT_HINT | NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE;
	u64 unit;

	if (!alloc->vidmem)
		return 0;
	unit = request_page(alloc);
	/* at a fixed address both ends are moved out to the alignment */
	if ((alloc->alloc_flags & NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE) &&
	    (alloc->alloc_flags & aligned))
		unit = rm_max64(unit, alloc->alignment);
	return to_multiple(alloc->bytes, unit);
}

u64 rm_answer_bytes(const struct rm_alloc *asked, const struct rm_alloc *answer)
{
	if (!asked->vidmem)
		return 0;
	if (asked->window && asked->bytes != answer->bytes)
		return 0;
	return rm_round_up_request(answer);
}
