/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory limit where the kernel module cannot set one: allocations through the driver's interface are charged by
 * their size before the driver sees them, and given back when they are freed. Above the limit a call fails as it does
 * on a full GPU. It holds programs that do not work around it. Not counted: what the driver takes for contexts, code,
 * local memory and green contexts, allocation nodes in graphs, and what pools keep in reserve beyond allocations.
 */

#include <string.h>

#include "alloc.h"
#include "array.h"
#include "besides.h"
#include "context.h"
#include "home.h"
#include "ledger.h"
#include "lifecycle.h"
#include "log.h"
#include "memory.h"
#include "move.h"
#include "park.h"
#include "room.h"
#include "settle.h"

static _Atomic(uint64_t) used[DS_MAX_DEVICES];
static _Atomic(bool) told;

static const struct ds_pages *pages_of(struct ds_device *device)
{
	return atomic_load_explicit(&device->state, memory_order_acquire) == DS_DEVICE_MANAGED ? device->pages : NULL;
}

struct ds_device *ds_memory_by_ordinal(int ordinal)
{
	if (ordinal < 0 || ordinal >= DS_MAX_DEVICES || !pages_of(&ds_devices[ordinal]))
		return NULL;
	return &ds_devices[ordinal];
}

struct ds_device *ds_memory_payer(void)
{
	CUdevice ordinal;

	if (!atomic_load_explicit(&ds_process.managed, memory_order_relaxed) || ds_thread.locked)
		return NULL;
	if (real->cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
		return NULL;
	return ds_memory_by_ordinal(ordinal);
}

uint64_t ds_memory_limit(struct ds_device *device)
{
	const struct ds_pages *pages = pages_of(device);

	return pages ? *(const volatile uint64_t *)&pages->policy->memory_limit : 0;
}

uint64_t ds_memory_used(struct ds_device *device)
{
	return atomic_load_explicit(&used[device->ordinal], memory_order_relaxed);
}

uint64_t ds_memory_away(struct ds_device *device)
{
	const struct ds_pages *pages = pages_of(device);

	return pages ? __atomic_load_n(&pages->counters->parked_bytes, __ATOMIC_RELAXED) : 0;
}

static void show(struct ds_device *device)
{
	const struct ds_pages *pages = pages_of(device);
	uint64_t now = ~atomic_load(&used[device->ordinal]);

	/* who wrote last looks again: what another thread had changed meanwhile would never be shown */
	while (pages && now != atomic_load(&used[device->ordinal])) {
		now = atomic_load(&used[device->ordinal]);
		__atomic_store_n(&pages->counters->memory_used, now, __ATOMIC_SEQ_CST);
	}
}

bool ds_memory_charge(struct ds_device *device, size_t bytes)
{
	uint64_t limit = ds_memory_limit(device), before = ds_memory_used(device);

	/* what is refused is never among `used`: another thread's request that fits would be refused for it */
	do {
		if (ds_unlikely(limit && (before > limit || bytes > limit - before))) {
			if (!atomic_exchange_explicit(&told, true, memory_order_relaxed))
				ds_info("memory: refused %zu bytes: %llu of the limit of %llu are in use (further refusals are not reported)",
					bytes, (unsigned long long)before, (unsigned long long)limit);
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&used[device->ordinal], &before, before + bytes, memory_order_relaxed,
							memory_order_relaxed));
	show(device);
	return true;
}

static void refund(struct ds_device *device, size_t bytes)
{
	atomic_fetch_sub_explicit(&used[device->ordinal], bytes, memory_order_relaxed);
	show(device);
}

void ds_memory_gone(const struct ds_ledger_entry *entry)
{
	refund(&ds_devices[entry->account], entry->bytes);
}

CUresult ds_memory_settle(struct ds_device *device, enum ds_ledger_kind kind, uint64_t key, size_t bytes, CUresult result)
{
	struct ds_ledger_entry entry = {
		.key = key,
		.kind = kind,
		.account = device->ordinal,
		.context = kind == DS_LEDGER_HANDLE ? NULL : ds_context_current(),
		.bytes = bytes,
	};

	if (result != CUDA_SUCCESS || !ds_ledger_add(&entry))
		refund(device, bytes);
	return result;
}

/* ---- linear memory ---- */

/* There it is, or there is no room. Whatever else the driver says of such memory: plain memory serves as well. */
static bool made(CUresult result)
{
	return result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY;
}

/* Memory that can leave the GPU, if it is to be such. */
static CUresult linear(CUdeviceptr *pointer, size_t bytes)
{
	struct ds_device *parks;
	CUresult result;

	parks = pointer ? ds_alloc_device(bytes) : NULL;
	result = parks ? ds_alloc_make(parks, bytes, pointer) : CUDA_ERROR_NOT_SUPPORTED;
	if (!made(result))
		result = real->cuMemAlloc_v2(pointer, bytes);
	return result;
}

/* Rows as the driver has them: of a multiple of 512 bytes (measured on an H200 for each width that was tried). */
static CUresult rows(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	size_t padded = (width + 511) & ~(size_t)511;
	bool plain = pointer && pitch && width && height && padded >= width && padded <= SIZE_MAX / height &&
		     (element == 4 || element == 8 || element == 16);
	struct ds_device *parks;
	CUresult result;

	parks = plain ? ds_alloc_device(padded * height) : NULL;
	result = parks ? ds_alloc_make(parks, padded * height, pointer) : CUDA_ERROR_NOT_SUPPORTED;
	if (!made(result))
		result = real->cuMemAllocPitch_v2(pointer, pitch, width, height, element);
	else if (result == CUDA_SUCCESS)
		*pitch = padded;
	return result;
}

/* Whether a capture forbids this thread to free: the driver is asked, for it ends that capture by its refusal. Else it knows no such allocation. */
static bool forbidden(CUdeviceptr pointer, CUresult *result)
{
	struct ds_device *device;
	bool captures = false;

	ds_each_managed(device) captures = captures || atomic_load(&device->captures);
	if (!captures)
		return false;
	*result = real->cuMemFree_v2(pointer);
	return *result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult plain_free(CUdeviceptr pointer)
{
	struct ds_range *range = ds_range_find(pointer);
	CUresult result;
	CUdevice ordinal;

	/* a mapping of the program's own, or another process's memory, is not freed this way, and the driver says so */
	if (!range || !range->reserved)
		return real->cuMemFree_v2(pointer);
	/* the driver frees nothing for a thread that has no context */
	result = real->cuCtxGetDevice(&ordinal);
	if (result != CUDA_SUCCESS)
		return result;
	if (range->base != pointer || range->opened)
		return CUDA_ERROR_INVALID_VALUE;
	return forbidden(pointer, &result) ? result : ds_alloc_free(range);
}

static CUresult linear_free(CUdeviceptr pointer)
{
	return ds_park_give(plain_free(pointer));
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	struct ds_device *device = ds_memory_payer();
	CUresult result;

	if (!device)
		return ds_home_make(linear(pointer, bytes));
	if (!ds_memory_charge(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = ds_room_for(device, bytes, ds_home_make(linear(pointer, bytes)));
	return ds_memory_settle(device, DS_LEDGER_POINTER, result ? 0 : *pointer, bytes, result);
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
	struct ds_device *device = ds_memory_payer();
	CUresult result;

	if (!device)
		return real->cuMemAllocManaged(pointer, bytes, flags);
	if (!ds_memory_charge(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real->cuMemAllocManaged(pointer, bytes, flags);
	return ds_memory_settle(device, DS_LEDGER_POINTER, result ? 0 : *pointer, bytes, result);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	struct ds_device *device = ds_memory_payer();
	size_t bytes = width * height;
	CUresult result;

	if (!device)
		return ds_home_make(rows(pointer, pitch, width, height, element));
	if (!ds_memory_charge(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = ds_room_for(device, bytes, ds_home_make(rows(pointer, pitch, width, height, element)));
	/* The padding of the rows is known now. */
	if (result == CUDA_SUCCESS && *pitch > width) {
		size_t padding = (*pitch - width) * height;

		if (!ds_memory_charge(device, padding)) {
			linear_free(*pointer);
			refund(device, bytes);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		bytes += padding;
	}
	return ds_memory_settle(device, DS_LEDGER_POINTER, result ? 0 : *pointer, bytes, result);
}

/* Taken out before the driver frees it: another thread may get the same address the moment after. */
static bool take(enum ds_ledger_kind kind, uint64_t key, struct ds_ledger_entry *entry)
{
	return atomic_load_explicit(&ds_process.managed, memory_order_relaxed) && ds_ledger_take(kind, key, entry);
}

CUresult ds_memory_freed(const struct ds_ledger_entry *entry, CUresult result)
{
	if (result == CUDA_SUCCESS || !ds_ledger_add(entry))
		ds_memory_gone(entry);
	return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	struct ds_ledger_entry entry;
	bool known = take(DS_LEDGER_POINTER, pointer, &entry);
	CUresult result = linear_free(pointer);

	return known ? ds_memory_freed(&entry, result) : result;
}

/* ---- in the order of a stream ---- */

/* An allocation in a capture becomes a node: it has memory only when the graph runs. */
static bool capturing(struct ds_stream *managed, CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (managed) {
		if (atomic_load_explicit(&managed->capturing, memory_order_acquire))
			return true;
		if (!atomic_load_explicit(&managed->device->captures, memory_order_relaxed))
			return false;
		stream = managed->app;
	}
	return real->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct async {
	CUdeviceptr *pointer;
	size_t bytes;
	CUmemoryPool pool;
	bool from_pool, per_thread;
	CUstream stream;
};

static CUresult async_native(const struct async *call, struct ds_stream *managed)
{
	CUstream stream = managed ? ds_stream_cur(managed) : call->stream;
	CUresult result;

	if (call->from_pool && !managed && call->per_thread)
		result = real->cuMemAllocFromPoolAsync_ptsz(call->pointer, call->bytes, call->pool, stream);
	else if (call->from_pool)
		result = real->cuMemAllocFromPoolAsync(call->pointer, call->bytes, call->pool, stream);
	else if (!managed && call->per_thread)
		result = real->cuMemAllocAsync_ptsz(call->pointer, call->bytes, stream);
	else
		result = real->cuMemAllocAsync(call->pointer, call->bytes, stream);
	if (managed)
		ds_stream_done(managed);
	return result;
}

static CUresult async_alloc(const struct async *call)
{
	struct ds_stream *managed = ds_stream_of(call->stream, call->per_thread);
	struct ds_device *device = managed ? managed->device : ds_memory_payer();
	CUresult result;

	if (!device || !pages_of(device) || capturing(managed, call->stream))
		return async_native(call, managed);
	if (!ds_memory_charge(device, call->bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = async_native(call, managed);
	return ds_memory_settle(device, DS_LEDGER_POINTER, result ? 0 : *call->pointer, call->bytes, result);
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return async_alloc(&(struct async){.pointer = pointer, .bytes = bytes, .stream = stream});
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return async_alloc(&(struct async){.pointer = pointer, .bytes = bytes, .stream = stream, .per_thread = true});
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return async_alloc(&(struct async){
		.pointer = pointer, .bytes = bytes, .pool = pool, .from_pool = true, .stream = stream});
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return async_alloc(&(struct async){.pointer = pointer, .bytes = bytes, .pool = pool, .from_pool = true,
					   .stream = stream, .per_thread = true});
}

/* Memory that can leave is no pool's: it goes when all work of the GPU is done, which is later than asked for. */
static bool ours(CUdeviceptr pointer)
{
	struct ds_range *range = ds_range_find(pointer);

	return range && range->reserved;
}

static CUresult async_free(CUdeviceptr pointer, CUstream stream, bool per_thread)
{
	struct ds_stream *managed = ds_stream_of(stream, per_thread);
	struct ds_ledger_entry entry;
	bool known = take(DS_LEDGER_POINTER, pointer, &entry);
	CUresult result;

	if (ours(pointer)) {
		result = capturing(managed, stream) ? CUDA_ERROR_INVALID_VALUE : linear_free(pointer);
	} else if (managed) {
		/* at the program's exit nobody need make room for it */
		result = real->cuMemFreeAsync(pointer, atomic_load(&ds_process.exiting) ? ds_stream_ask(managed) : ds_stream_cur(managed));
		ds_stream_done(managed);
	} else {
		result = per_thread ? real->cuMemFreeAsync_ptsz(pointer, stream) : real->cuMemFreeAsync(pointer, stream);
	}
	return known ? ds_memory_freed(&entry, result) : result;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	return async_free(pointer, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
	return async_free(pointer, stream, true);
}

/* ---- arrays ---- */

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
	struct ds_device *device = descriptor ? ds_memory_payer() : NULL;
	CUDA_ARRAY3D_DESCRIPTOR wide;
	size_t bytes;
	CUresult result;

	if (!device)
		return real->cuArrayCreate_v2(array, descriptor);
	wide = (CUDA_ARRAY3D_DESCRIPTOR){descriptor->Width, descriptor->Height, 0, descriptor->Format,
					 descriptor->NumChannels, 0};
	bytes = ds_array_bytes(&wide, 1);
	if (!ds_memory_charge(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real->cuArrayCreate_v2(array, descriptor);
	return ds_memory_settle(device, DS_LEDGER_ARRAY, result ? 0 : (uintptr_t)*array, bytes, result);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
	struct ds_device *device = descriptor ? ds_memory_payer() : NULL;
	size_t bytes;
	CUresult result;

	if (!device)
		return real->cuArray3DCreate_v2(array, descriptor);
	bytes = ds_array_bytes(descriptor, 1);
	if (!ds_memory_charge(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real->cuArray3DCreate_v2(array, descriptor);
	return ds_memory_settle(device, DS_LEDGER_ARRAY, result ? 0 : (uintptr_t)*array, bytes, result);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
	struct ds_device *device = descriptor ? ds_memory_payer() : NULL;
	size_t bytes;
	CUresult result;

	if (!device)
		return real->cuMipmappedArrayCreate(array, descriptor, levels);
	bytes = ds_array_bytes(descriptor, levels);
	if (!ds_memory_charge(device, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = real->cuMipmappedArrayCreate(array, descriptor, levels);
	return ds_memory_settle(device, DS_LEDGER_MIPMAP, result ? 0 : (uintptr_t)*array, bytes, result);
}

CUresult cuArrayDestroy(CUarray array)
{
	struct ds_ledger_entry entry;

	if (!take(DS_LEDGER_ARRAY, (uintptr_t)array, &entry))
		return real->cuArrayDestroy(array);
	return ds_memory_freed(&entry, real->cuArrayDestroy(array));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	struct ds_ledger_entry entry;

	if (!take(DS_LEDGER_MIPMAP, (uintptr_t)array, &entry))
		return real->cuMipmappedArrayDestroy(array);
	return ds_memory_freed(&entry, real->cuMipmappedArrayDestroy(array));
}

/* ---- ends of contexts and processes ---- */

static void context_gone(struct ds_device *device)
{
	ds_ledger_drop(device->primary, ds_memory_gone);
}

static CUresult destroyed(CUcontext context, CUresult result)
{
	ds_context_changed();
	if (result != CUDA_SUCCESS)
		return result;
	ds_ledger_drop(context, ds_memory_gone);
	/* what it opened of others */
	ds_park_give((ds_alloc_over(context), CUDA_SUCCESS));
	ds_besides_gone(context);
	return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
	return destroyed(context, real->cuCtxDestroy(context));
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
	return destroyed(context, real->cuCtxDestroy_v2(context));
}

static void child(void)
{
	ds_ledger_reset();
	memset(used, 0, sizeof(used));
}

static const struct ds_lifecycle life = { .context_gone = context_gone, .child = child };
DS_LIST_ADD(ds_lifecycles, life);
