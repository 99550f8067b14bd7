/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the program asks about addresses of memory that can leave the GPU: it is answered as for memory of cuMemAlloc, which the program takes
 * it for. What gives an address away to somebody whom we do not see makes it stay.
 */
#include "alloc.h"
#include "home.h"
#include "primary.h"
#include "share.h"

enum {
	ATTRIBUTE_CONTEXT = 1,
	ATTRIBUTE_P2P_TOKENS = 5,
	ATTRIBUTE_SYNC_MEMOPS = 6,
	ATTRIBUTE_BUFFER_ID = 7,
	ATTRIBUTE_LEGACY_IPC = 10,
	ATTRIBUTE_RANGE_START = 11,
	ATTRIBUTE_RANGE_SIZE = 12,
	ATTRIBUTE_HANDLE_TYPES = 14,
	ATTRIBUTE_MEMORY_BLOCK_ID = 20,
};

#define NOBODYS 1 /* an address of no memory */

/* The allocation of ours that holds the address; NULL: the driver knows. */
static struct ds_range *ours(CUdeviceptr address)
{
	struct ds_range *range = ds_range_find(address);

	return range && range->reserved ? range : NULL;
}

/* Behind what was asked for, where the driver maps whole pieces. */
static bool behind(const struct ds_range *range, CUdeviceptr address)
{
	return range && address - range->base >= range->size;
}

static void stay(CUdeviceptr address, size_t size)
{
	struct ds_range *range;

	ds_share_note();
	ds_range_hold();
	range = ds_range_find(address);
	if (!range)
		range = ds_range_next(address);
	for (; range && range->base < address + size; range = ds_range_next(range->base + 1))
		for (unsigned int n = 0; n < range->count; n++)
			ds_piece_stay(range->pieces[n]);
	ds_range_let_go();
}

static void answer(const struct ds_range *range, CUpointer_attribute attribute, void *data)
{
	switch (attribute) {
	case ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = range->context;
		break;
	case ATTRIBUTE_BUFFER_ID:
	case ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)data = range->id;
		break;
	case ATTRIBUTE_LEGACY_IPC:
		*(unsigned int *)data = 0;
		break;
	case ATTRIBUTE_RANGE_START:
		*(CUdeviceptr *)data = range->base;
		break;
	case ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = range->size;
		break;
	case ATTRIBUTE_HANDLE_TYPES:
		*(uint64_t *)data = 0;
		break;
	case ATTRIBUTE_P2P_TOKENS:
		stay(range->base, range->size);
		break;
	default:
		break;
	}
}

/* Whether it is of memory that may be away: a question about any other address, as of the host's memory, wakes nobody. */
static bool may_be_away(CUdeviceptr address)
{
	return ds_range_find(address) != NULL;
}

static CUresult attribute_of(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	struct ds_range *range = ours(address);
	CUresult result = behind(range, address) ? CUDA_ERROR_INVALID_VALUE : real->cuPointerGetAttribute(data, attribute, address);

	if (range && result == CUDA_SUCCESS)
		answer(range, attribute, data);
	return result;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	return may_be_away(address) ? ds_home_call(attribute_of(data, attribute, address))
				    : real->cuPointerGetAttribute(data, attribute, address);
}

static CUresult attributes_of(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
	struct ds_range *range = ours(address);
	bool nobodys = behind(range, address);
	/* an address of nobody's is no error here */
	CUresult result = real->cuPointerGetAttributes(count, attributes, data, nobodys ? NOBODYS : address);

	if (nobodys || result != CUDA_SUCCESS)
		range = NULL;

	for (unsigned int n = 0; range && n < count; n++)
		answer(range, attributes[n], data[n]);
	return result;
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
	return may_be_away(address) ? ds_home_call(attributes_of(count, attributes, data, address))
				    : real->cuPointerGetAttributes(count, attributes, data, address);
}

static CUresult set_attribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	struct ds_range *range = attribute == ATTRIBUTE_SYNC_MEMOPS && value ? ds_range_find(address) : NULL;
	CUresult result = CUDA_SUCCESS;

	if (!range)
		return real->cuPointerSetAttribute(value, attribute, address);
	if (range->reserved && behind(range, address))
		return CUDA_ERROR_INVALID_VALUE;
	/* of the whole allocation */
	for (unsigned int n = 0; n < range->count && result == CUDA_SUCCESS; n++) {
		CUdeviceptr at = range->reserved ? range->pieces[n]->address : address;

		result = real->cuPointerSetAttribute(value, attribute, at);
		range->pieces[n]->orders = *(const unsigned int *)value != 0;
	}
	return result;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	return ds_home_call(set_attribute(value, attribute, address));
}

/* false: the driver knows */
static bool known_range(CUdeviceptr *base, size_t *size, CUdeviceptr address, CUresult *result)
{
	struct ds_range *range;

	ds_range_hold();
	range = ours(address);
	*result = behind(range, address) ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
	if (range && *result == CUDA_SUCCESS && base)
		*base = range->base;
	if (range && *result == CUDA_SUCCESS && size)
		*size = range->size;
	ds_range_let_go();
	return range;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	CUresult result;

	/* that needs nothing of it on the GPU */
	if (known_range(base, size, address, &result))
		return result;
	return may_be_away(address) ? ds_home_call(real->cuMemGetAddressRange_v2(base, size, address))
				    : real->cuMemGetAddressRange_v2(base, size, address);
}

/* ---- others get it ---- */

static CUresult range_handle(void *handle, CUdeviceptr address, size_t size, CUmemRangeHandleType type, unsigned long long flags)
{
	CUresult result = real->cuMemGetHandleForAddressRange(handle, address, size, type, flags);

	if (result == CUDA_SUCCESS)
		stay(address, size);
	return result;
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size, CUmemRangeHandleType type,
				       unsigned long long flags)
{
	return ds_home_call(range_handle(handle, address, size, type, flags));
}

static CUresult bind(CUmemGenericAllocationHandle multicast, size_t at, CUdeviceptr address, size_t size, unsigned long long flags)
{
	CUresult result = real->cuMulticastBindAddr(multicast, at, address, size, flags);

	if (result == CUDA_SUCCESS)
		stay(address, size);
	return result;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t at, CUdeviceptr address, size_t size,
			     unsigned long long flags)
{
	return ds_home_call(bind(multicast, at, address, size, flags));
}

/* ---- other GPUs ---- */

static CUresult peer_memory(struct ds_device *device, CUcontext context, bool on)
{
	CUresult result;
	CUdevice who;

	/* its context may be none that is steered */
	if (real->cuCtxGetDevice(&who) != CUDA_SUCCESS || who == device->ordinal || who < 0 || who >= DS_MAX_DEVICES)
		return CUDA_SUCCESS;
	result = ds_alloc_peer(device, who, on);
	/* what cannot be taken away is no harm */
	if (result == CUDA_SUCCESS || !on)
		return CUDA_SUCCESS;
	ds_alloc_peer(device, who, false);
	real->cuCtxDisablePeerAccess(context);
	return result;
}

static CUresult peer(CUcontext context, bool on, CUresult result)
{
	struct ds_device *device = result == CUDA_SUCCESS && !ds_thread.locked ? ds_device_of(context) : NULL;

	/* the driver did it for the memory that it knows of */
	if (device && ds_alloc_parks(device))
		return ds_home_call(peer_memory(device, context, on));
	return result;
}

CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned int flags)
{
	return peer(context, true, real->cuCtxEnablePeerAccess(context, flags));
}

CUresult cuCtxDisablePeerAccess(CUcontext context)
{
	return peer(context, false, real->cuCtxDisablePeerAccess(context));
}

static CUresult green(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice device, unsigned int flags)
{
	CUresult result = real->cuGreenCtxCreate(context, desc, device, flags);

	if (result == CUDA_SUCCESS)
		ds_alloc_note_green();
	return result;
}

/* What runs there uses this memory and is not stopped by us: all of it is home from then on. */
CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice device, unsigned int flags)
{
	return ds_home_call(green(context, desc, device, flags));
}
