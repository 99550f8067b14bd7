/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management by the program: charged to the memory limit, and made so that it can leave the GPU (virtual.h). */
#include "alloc.h"
#include "home.h"
#include "ledger.h"
#include "memory.h"
#include "park.h"
#include "room.h"
#include "share.h"
#include "virtual.h"

/* Whether addresses of [address, address + size) hold memory that the program takes for cuMemAlloc's: such is not mapped or unmapped by it. */
static bool plain(CUdeviceptr address, size_t size)
{
	struct ds_range *range;
	bool found = false;

	ds_range_hold();
	range = ds_range_find(address);
	for (range = range ? range : ds_range_next(address); range && range->base < address + size && !found; range = ds_range_next(range->base + 1))
		found = range->reserved;
	ds_range_let_go();
	return found;
}

/* The device whose memory the program asks for, if it is managed. */
static struct ds_device *asked(const CUmemAllocationProp *prop)
{
	if (!atomic_load_explicit(&ds_process.managed, memory_order_relaxed) || ds_thread.locked || !prop ||
	    prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return NULL;
	return ds_memory_by_ordinal(prop->location.id);
}

static CUresult create(struct ds_device *device, CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		       unsigned long long flags)
{
	struct ds_piece *piece;
	CUresult result;

	if (!handle || flags || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || !ds_alloc_parks(device))
		return real->cuMemCreate(handle, bytes, prop, flags);
	piece = ds_piece_make(device, bytes, prop, &result);
	if (!piece)
		return result;
	*handle = ds_virtual_name(piece);
	if (*handle)
		return CUDA_SUCCESS;
	ds_piece_free(piece);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	struct ds_device *device = asked(prop);
	CUresult result;

	if (!device)
		return real->cuMemCreate(handle, bytes, prop, flags);
	if (!ds_memory_charge(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = ds_room_for(device, bytes, ds_home_make(create(device, handle, bytes, prop, flags)));
	return ds_memory_settle(device, DS_LEDGER_HANDLE, result ? 0 : *handle, bytes, result);
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	struct ds_piece *piece = ds_virtual_piece(handle);

	if (!piece)
		return real->cuMemRelease(ds_virtual_real(handle));
	ds_virtual_release(piece);
	return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct ds_ledger_entry entry;

	if (!atomic_load_explicit(&ds_process.managed, memory_order_relaxed) || !ds_ledger_release(handle, &entry))
		return ds_park_give(release(handle));
	return ds_memory_freed(&entry, ds_park_give(release(handle)));
}

static CUresult retain(CUmemGenericAllocationHandle *handle, void *address)
{
	struct ds_range *range = ds_range_find((CUdeviceptr)address);

	if (!range || !handle)
		return real->cuMemRetainAllocationHandle(handle, address);
	/* for the program that is memory of cuMemAlloc, which has no handle */
	if (range->reserved)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = ds_virtual_retain(range->pieces[0]);
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	CUresult result = ds_home_call(retain(handle, address));

	if (result == CUDA_SUCCESS)
		ds_ledger_retain(*handle);
	return result;
}

static CUresult map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct ds_piece *piece = ds_virtual_piece(handle);
	CUresult result = real->cuMemMap(address, size, offset, ds_virtual_real(handle), flags);

	if (result == CUDA_SUCCESS && piece) {
		if (offset || size != piece->size)
			ds_piece_stay(piece);
		ds_virtual_mapped(piece, address, size);
	}
	return result;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	CUresult result = ds_home_call(map(address, size, offset, handle, flags));

	if (result == CUDA_SUCCESS)
		ds_ledger_map(address, size, handle);
	return result;
}

static CUresult unmap(CUdeviceptr address, size_t size)
{
	CUresult result = plain(address, size) ? CUDA_ERROR_INVALID_VALUE : ds_virtual_unmap(address, size);

	if (result == CUDA_SUCCESS)
		ds_virtual_unmapped(address, size);
	return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	struct ds_ledger_mapping *known = NULL;
	CUresult result;

	if (atomic_load_explicit(&ds_process.managed, memory_order_relaxed))
		known = ds_ledger_unmap(address, size);
	result = ds_park_give(unmap(address, size));
	if (result == CUDA_SUCCESS)
		ds_ledger_unmapped(known, ds_memory_gone);
	else
		ds_ledger_map_again(known);
	return result;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	return ds_park_give(real->cuMemAddressFree(address, size));
}

static CUresult set_access(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count)
{
	CUresult result = plain(address, size) ? CUDA_ERROR_INVALID_VALUE : real->cuMemSetAccess(address, size, list, count);

	if (result == CUDA_SUCCESS)
		ds_virtual_reached(address, size, list, count);
	return result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count)
{
	return ds_home_call(set_access(address, size, list, count));
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	return ds_home_call(real->cuMemGetAllocationPropertiesFromHandle(prop, ds_virtual_real(handle)));
}

/* Others have it from now on: new memory in its place would be another. */
static CUmemGenericAllocationHandle shared(CUmemGenericAllocationHandle handle)
{
	struct ds_piece *piece = ds_virtual_piece(handle);

	if (piece)
		ds_piece_stay(piece);
	ds_share_note();
	return ds_virtual_real(handle);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)
{
	ds_share_note();
	return real->cuMemImportFromShareableHandle(handle, shareable, type);
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
				      unsigned long long flags)
{
	return ds_home_call(real->cuMemExportToShareableHandle(shareable, shared(handle), type, flags));
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t at, CUmemGenericAllocationHandle handle, size_t offset,
			    size_t size, unsigned long long flags)
{
	return ds_home_call(real->cuMulticastBindMem(multicast, at, shared(handle), offset, size, flags));
}

CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags)
{
	ds_share_note();
	return real->cuMemPoolExportToShareableHandle(shareable, pool, type, flags);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable, CUmemAllocationHandleType type, unsigned long long flags)
{
	ds_share_note();
	return real->cuMemPoolImportFromShareableHandle(pool, shareable, type, flags);
}
