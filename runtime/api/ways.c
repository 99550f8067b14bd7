/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways into the driver. A program gets a driver function as a linked symbol (this library is preloaded, so its symbols come first), from
 * dlsym() or from cuGetProcAddress(). The last two are let through, and the address that comes out is swapped: the driver gives the same
 * address for the same function whatever the way, so no version or flag needs to be understood.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "context.h"
#include "entries.h"
#include "fork.h"
#include "log.h"

/* driver address to wrapper; open addressing, filled once, when the driver's functions are known */
#define MAP_SLOTS 2048
static struct {
	void *key;
	void *value;
} map[MAP_SLOTS];
static _Atomic(bool) mapped;
static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;

static unsigned int slot_of(const void *key)
{
	return ((uintptr_t)key >> 4) * 2654435761U % MAP_SLOTS;
}

static void map_add(void *key, void *value)
{
	unsigned int slot = slot_of(key);

	while (map[slot].key && map[slot].key != key)
		slot = (slot + 1) % MAP_SLOTS;
	if (!map[slot].key) {
		map[slot].value = value;
		map[slot].key = key;
	}
}

static void map_fill(void)
{
	pthread_mutex_lock(&mapping);
	for (unsigned int i = 0; i < ds_entry_count && !atomic_load(&mapped); i++) {
		void *wrapper = (void *)ds_entries[i].wrapper, *function;

		memcpy(&function, (const char *)&ds_real_table + ds_entries[i].place, sizeof(function));
		if (function != (void *)ds_absent && function != wrapper)
			map_add(function, wrapper);
	}
	atomic_store_explicit(&mapped, true, memory_order_release);
	pthread_mutex_unlock(&mapping);
}

/* our function in place of the driver's; `function` itself if it is not one of those we wrap */
static void *swap(void *function)
{
	if (!function || !ds_load_present(RTLD_NOLOAD))
		return function;
	if (ds_unlikely(!atomic_load_explicit(&mapped, memory_order_acquire)))
		map_fill();
	for (unsigned int slot = slot_of(function); map[slot].key; slot = (slot + 1) % MAP_SLOTS)
		if (map[slot].key == function)
			return map[slot].value;
	return function;
}

static const struct ds_entry *entry_of(const char *name)
{
	unsigned int low = 0, high = ds_entry_count;

	while (low < high) {
		unsigned int middle = (low + high) / 2;
		int order = strcmp(name, ds_entries[middle].name);

		if (!order)
			return &ds_entries[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

static bool is_driver_name(const char *name)
{
	return name && name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/*
 * Calls of the C library's dlsym() must be tail calls where the handle is RTLD_NEXT or RTLD_DEFAULT: it looks at its return address to know
 * who asks. A test checks that the compiler made them so.
 */
DS_EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
	ds_dlsym_type next = ds_dlsym();
	const struct ds_entry *entry;
	void *found;

	if (ds_likely(!is_driver_name(name)))
		return next(handle, name);
	if (handle == RTLD_NEXT) {
		/* another library between program and driver asks for what comes after it: we, next to the driver */
		entry = entry_of(name);
		if (entry && ds_load_present(RTLD_NOLOAD))
			return (void *)entry->wrapper;
		return next(handle, name);
	}
	if (handle == RTLD_DEFAULT) {
		if (ds_load_present(RTLD_NOLOAD))
			return next(handle, name);
		/* natively nobody has it: our own symbol is not to be found, so it is we who ask for what comes next, by a plain call */
		found = next(RTLD_NEXT, name);
		__asm__ volatile("" : "+r"(found));
		return found;
	}
	ds_load_present(RTLD_NOLOAD);
	return swap(next(handle, name));
}

static void swap_result(const char *symbol, void **function)
{
	void *found = *function;

	*function = swap(found);
	if (*function == found) {
		const struct ds_entry *entry = symbol ? entry_of(symbol) : NULL;

		if (entry) {
			ds_context_unseen();
			ds_debug("cuGetProcAddress(%s) gave an address that no exported symbol has; it is not wrapped", symbol);
		}
	}
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
	CUresult result = real->cuGetProcAddress(symbol, function, version, flags);

	if (result == CUDA_SUCCESS && function && *function)
		swap_result(symbol, function);
	return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	CUresult result = real->cuGetProcAddress_v2(symbol, function, version, flags, status);

	if (result == CUDA_SUCCESS && function && *function)
		swap_result(symbol, function);
	return result;
}

/* What another thread had not filled is filled anew. */
static void child(void)
{
	pthread_mutex_init(&mapping, NULL);
	if (!atomic_load(&mapped))
		memset(map, 0, sizeof(map));
}

static const struct ds_fork forks = { .child = child };
DS_LIST_ADD(ds_forks, forks);
