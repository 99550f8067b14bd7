// SPDX-License-Identifier: GPL-2.0-only
/* The allocators from before RM_ALLOC: VID_HEAP_CONTROL and ALLOC_MEMORY, done by RM_ALLOC inside. */
#include "sim.h"

#define OS02_MAPPING_DEFAULT	0	/* NVOS02_FLAGS_MAPPING, bits 31:30 */
#define OS02_TO_NONCONTIG	(1u << 27)
#define SHIM_OWNER		0x7368696du

#define GET(f)	NV_GET(block, NVOS32_PARAMETERS, f)

/* Members that ALLOC_SIZE, ALLOC_SIZE_RANGE and the class's parameters have in common. */
#define FOR_EACH_COMMON(m, arm) \
	m(type, arm) m(flags, arm) m(attr, arm) m(attr2, arm) m(format, arm) m(comprCovg, arm) m(zcullCovg, arm) \
	m(size, arm) m(alignment, arm) m(offset, arm) m(limit, arm) m(address, arm) m(ctagOffset, arm)
#define COPY_IN(f, arm)		NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, f, GET(data_##arm##_##f));
#define COPY_OUT(f, arm)	NV_PUT(block, NVOS32_PARAMETERS, data_##arm##_##f, \
				       NV_GET(params, NV_MEMORY_ALLOCATION_PARAMS, f));

static NV_STATUS alloc_common(const struct sim_caller *by, void *block, u8 *params, u32 *handle)
{
	u32 flags = NV_GET(params, NV_MEMORY_ALLOCATION_PARAMS, flags), class = NV01_MEMORY_SYSTEM;
	NV_STATUS status;

	if (!(flags & NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED))
		*handle = 0;
	NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, hVASpace, GET(hVASpace));
	if (flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		class = NV50_MEMORY_VIRTUAL;
	else if (NV_BITS(NV_GET(params, NV_MEMORY_ALLOCATION_PARAMS, attr), NVOS32_ATTR_LOCATION) ==
		 NVOS32_ATTR_LOCATION_VIDMEM)
		class = NV01_MEMORY_LOCAL_USER;
	status = sim_rm_alloc_kernel(by, GET(hRoot), GET(hObjectParent), handle, class, params);
	NV_PUT(block, NVOS32_PARAMETERS, free, 0);
	NV_PUT(block, NVOS32_PARAMETERS, total, 0);
	return status;
}

static NV_STATUS alloc_size(const struct sim_caller *by, void *block)
{
	u8 params[192] = { };
	u32 handle = GET(data_AllocSize_hMemory);
	NV_STATUS status;

	FOR_EACH_COMMON(COPY_IN, AllocSize)
	NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, owner, GET(data_AllocSize_owner));
	if (GET(data_AllocSize_flags) & NVOS32_ALLOC_FLAGS_USE_BEGIN_END) {
		NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, rangeLo, GET(data_AllocSize_rangeBegin));
		NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, rangeHi, GET(data_AllocSize_rangeEnd));
	}
	NV_PUT(block, NVOS32_PARAMETERS, data_AllocSize_partitionStride, 256);
	status = alloc_common(by, block, params, &handle);
	FOR_EACH_COMMON(COPY_OUT, AllocSize)
	NV_PUT(block, NVOS32_PARAMETERS, data_AllocSize_hMemory, handle);
	return status;
}

static NV_STATUS alloc_size_range(const struct sim_caller *by, void *block)
{
	u8 params[192] = { };
	u32 handle = GET(data_AllocSizeRange_hMemory);
	NV_STATUS status;

	FOR_EACH_COMMON(COPY_IN, AllocSizeRange)
	NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, owner, GET(data_AllocSizeRange_owner));
	NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, rangeLo, GET(data_AllocSizeRange_rangeBegin));
	NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, rangeHi, GET(data_AllocSizeRange_rangeEnd));
	NV_PUT(block, NVOS32_PARAMETERS, data_AllocSizeRange_partitionStride, 256);
	status = alloc_common(by, block, params, &handle);
	FOR_EACH_COMMON(COPY_OUT, AllocSizeRange)
	NV_PUT(block, NVOS32_PARAMETERS, data_AllocSizeRange_hMemory, handle);
	return status;
}

static NV_STATUS alloc_tiled(const struct sim_caller *by, void *block)
{
	u64 size = GET(data_AllocTiledPitchHeight_height) * GET(data_AllocTiledPitchHeight_pitch);
	u32 handle = GET(data_AllocTiledPitchHeight_hMemory);
	u8 params[192] = { };
	NV_STATUS status;

	NV_PUT(block, NVOS32_PARAMETERS, data_AllocTiledPitchHeight_size, size);
	FOR_EACH_COMMON(COPY_IN, AllocTiledPitchHeight)
	NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, owner, GET(data_AllocTiledPitchHeight_owner));
	status = alloc_common(by, block, params, &handle);
	FOR_EACH_COMMON(COPY_OUT, AllocTiledPitchHeight)
	NV_PUT(block, NVOS32_PARAMETERS, data_AllocTiledPitchHeight_hMemory, handle);
	return status;
}

static NV_STATUS alloc_os_descriptor(const struct sim_caller *by, void *block)
{
	u32 handle = GET(data_AllocOsDesc_flags) & NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED ?
		     GET(data_AllocOsDesc_hMemory) : 0;
	u8 params[64] = { };
	NV_STATUS status;

	NV_PUT(params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, type, GET(data_AllocOsDesc_type));
	NV_PUT(params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, flags, GET(data_AllocOsDesc_flags));
	NV_PUT(params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, attr, GET(data_AllocOsDesc_attr));
	NV_PUT(params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, attr2, GET(data_AllocOsDesc_attr2));
	NV_PUT(params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, descriptor, GET(data_AllocOsDesc_descriptor));
	NV_PUT(params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, limit, GET(data_AllocOsDesc_limit));
	status = sim_rm_alloc_kernel(by, GET(hRoot), GET(hObjectParent), &handle, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, params);
	NV_PUT(block, NVOS32_PARAMETERS, data_AllocOsDesc_hMemory, handle);
	return status;
}

static NV_STATUS heap_free(const struct sim_caller *by, void *block)
{
	if (!(GET(data_Free_flags) & NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED))
		return NV_ERR_INVALID_ARGUMENT;
	return sim_rm_free(by, GET(hRoot), GET(data_Free_hMemory));
}

static NV_STATUS heap_info(const struct sim_caller *by, void *block)
{
	NV_STATUS status = NV_ERR_INVALID_CLIENT;
	struct sim_object *device = NULL;
	struct sim_client *client;
	u64 free;

	down_read(&sim_api_lock);
	client = sim_client_find(GET(hRoot), by);
	if (client) {
		device = sim_object_find(client, GET(hObjectParent));
		status = !device ? NV_ERR_OBJECT_NOT_FOUND :
			 device->kind == KIND_Device || device->kind == KIND_Subdevice ? NV_OK :
			 NV_ERR_INVALID_OBJECT_HANDLE;
	}
	if (status == NV_OK) {
		free = sim_heap_free(&device->gpu->heap) >> 10 << 10;
		NV_PUT(block, NVOS32_PARAMETERS, free, free);
		NV_PUT(block, NVOS32_PARAMETERS, total, device->gpu->heap.size);
		NV_PUT(block, NVOS32_PARAMETERS, data_Info_base, 0);
		NV_PUT(block, NVOS32_PARAMETERS, data_Info_size, free);
		NV_PUT(block, NVOS32_PARAMETERS, data_Info_offset, device->gpu->heap.size - free);
	}
	up_read(&sim_api_lock);
	return status;
}

void sim_vid_heap(const struct sim_caller *by, void *block)
{
	NV_STATUS status;

	switch (GET(function)) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		status = alloc_size(by, block);
		break;
	case NVOS32_FUNCTION_ALLOC_SIZE_RANGE:
		status = alloc_size_range(by, block);
		break;
	case NVOS32_FUNCTION_ALLOC_TILED_PITCH_HEIGHT:
		status = alloc_tiled(by, block);
		break;
	case NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR:
		status = alloc_os_descriptor(by, block);
		break;
	case NVOS32_FUNCTION_FREE:
		status = heap_free(by, block);
		break;
	case NVOS32_FUNCTION_INFO:
		status = heap_info(by, block);
		break;
	case NVOS32_FUNCTION_RELEASE_COMPR:
	case NVOS32_FUNCTION_REACQUIRE_COMPR:
	case NVOS32_FUNCTION_GET_MEM_ALIGNMENT:
	case NVOS32_FUNCTION_HW_ALLOC:
	case NVOS32_FUNCTION_HW_FREE:
		status = NV_ERR_NOT_SUPPORTED;
		break;
	default:
		status = NV_ERR_INVALID_ARGUMENT;
	}
	NV_PUT(block, NVOS32_PARAMETERS, status, status);
}

#define GET02(f)	NV_GET(block, nv_ioctl_nvos02_parameters_with_fd, params_##f)

static NV_STATUS alloc_system(const struct sim_caller *by, void *block, u32 *handle)
{
	u8 params[192] = { };
	u32 flags = GET02(flags);

	if (NV_BITS(flags, NVOS02_FLAGS_LOCATION) != NVOS02_FLAGS_LOCATION_PCI ||
	    NV_BITS(flags, NVOS02_FLAGS_ALLOC) == NVOS02_FLAGS_ALLOC_NONE)
		return NV_ERR_INVALID_FLAGS;
	NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, owner, SHIM_OWNER);
	NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, size, GET02(limit) + 1);
	NV_PUT(params, NV_MEMORY_ALLOCATION_PARAMS, attr,
	       (NVOS32_ATTR_LOCATION_PCI << NVOS32_ATTR_LOCATION_LO) | OS02_TO_NONCONTIG);
	/* the mapping that RM would make at once has to be asked for by RM_MAP_MEMORY here */
	return sim_rm_alloc_kernel(by, GET02(hRoot), GET02(hObjectParent), handle, NV01_MEMORY_SYSTEM, params);
}

static NV_STATUS alloc_pinned(const struct sim_caller *by, void *block, u32 *handle)
{
	u8 params[64] = { };

	NV_PUT(params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, descriptor, GET02(pMemory));
	NV_PUT(params, NV_OS_DESC_MEMORY_ALLOCATION_PARAMS, limit, GET02(limit));
	return sim_rm_alloc_kernel(by, GET02(hRoot), GET02(hObjectParent), handle, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
				   params);
}

/* Root sees all device memory by this, anyone else is told its size: in neither case is any of it allocated. */
static NV_STATUS view_all(const struct sim_caller *by, void *block, u32 *handle)
{
	u8 params[64] = { };
	NV_STATUS status;

	status = sim_rm_alloc_kernel(by, GET02(hRoot), GET02(hObjectParent), handle, NV01_MEMORY_LOCAL_PHYSICAL, params);
	if (status == NV_ERR_INSUFFICIENT_PERMISSIONS) {
		struct sim_caller raised = *by;

		raised.level = SIM_CALLER_ROOT;
		status = sim_rm_alloc_kernel(&raised, GET02(hRoot), GET02(hObjectParent), handle,
					     NV01_MEMORY_LOCAL_PHYSICAL, params);
	}
	if (status == NV_OK)
		NV_PUT(block, nv_ioctl_nvos02_parameters_with_fd, params_limit,
		       NV_GET(params, NV_PHYSICAL_MEMORY_ALLOCATION_PARAMS, memSize) - 1);
	return status;
}

void sim_alloc_memory(const struct sim_caller *by, void *block)
{
	u32 handle = GET02(hObjectNew);
	NV_STATUS status;

	switch (GET02(hClass)) {
	case NV01_MEMORY_SYSTEM:
		status = alloc_system(by, block, &handle);
		break;
	case NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
		status = alloc_pinned(by, block, &handle);
		break;
	case NV01_MEMORY_LOCAL_USER:
		status = view_all(by, block, &handle);
		break;
	default:
		status = NV_ERR_INVALID_CLASS;
	}
	NV_PUT(block, nv_ioctl_nvos02_parameters_with_fd, params_status, status);
}
