/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways into the driver. A program gets a driver function as a linked symbol (this library is preloaded, so its symbols come first), from
 * dlsym() or from cuGetProcAddress(). The last two are let through, and the address that comes out is swapped: the driver gives the same
 * address for the same function whatever the way, so no version or flag needs to be understood.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "entry.h"

typedef void *(*dlsym_type)(void *handle, const char *name);

struct ds_process ds_process = {.contexts = 1};
struct ds_real ds_real_table;

static _Atomic(dlsym_type) next_dlsym;
static pthread_mutex_t loading = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static bool inside; /* under loading */

/* driver address to wrapper; open addressing, filled once */
#define MAP_SLOTS 2048
static struct {
	void *key;
	void *value;
} map[MAP_SLOTS];

CUresult ds_absent(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

static dlsym_type find_dlsym(void)
{
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
	dlsym_type found = atomic_load_explicit(&next_dlsym, memory_order_acquire);

	for (unsigned int i = 0; !found && i < sizeof(versions) / sizeof(versions[0]); i++)
		found = (dlsym_type)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	atomic_store_explicit(&next_dlsym, found, memory_order_release);
	return found;
}

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

void *ds_swap(void *function)
{
	if (!function || !atomic_load_explicit(&ds_process.ready, memory_order_acquire))
		return function;
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

/* library: a handle of libcuda, or NULL. The handle is kept: the driver stays as long as we point into it. */
static void fill(void *library)
{
	dlsym_type find = find_dlsym();

	for (unsigned int i = 0; i < ds_entry_count; i++) {
		const struct ds_entry *entry = &ds_entries[i];
		void *function = library ? find(library, entry->name) : NULL;

		if (function && entry->wrapper && function != (void *)entry->wrapper)
			map_add(function, (void *)entry->wrapper);
		if (!function)
			function = (void *)ds_absent;
		memcpy((char *)&ds_real_table + entry->place, &function, sizeof(function));
	}
	atomic_store_explicit(&ds_process.ready, true, memory_order_release);
}

/* false: the driver is not in this process yet */
static bool load_present(int flags)
{
	bool ready = atomic_load_explicit(&ds_process.ready, memory_order_acquire);

	if (ready)
		return true;
	pthread_mutex_lock(&loading);
	/* inside: the driver's own constructors look for symbols while we load it */
	if (!inside && !atomic_load(&ds_process.ready)) {
		void *library;

		inside = true;
		library = dlopen("libcuda.so.1", RTLD_LAZY | flags);
		if (library)
			fill(library);
		inside = false;
	}
	ready = atomic_load(&ds_process.ready);
	pthread_mutex_unlock(&loading);
	return ready;
}

void ds_load(void)
{
	if (load_present(RTLD_NOLOAD) || load_present(0))
		return;
	pthread_mutex_lock(&loading);
	if (!inside && !atomic_load(&ds_process.ready)) {
		ds_info("a driver function was called and libcuda.so.1 cannot be loaded: %s; calls are answered with NOT_FOUND",
			dlerror());
		fill(NULL);
	}
	pthread_mutex_unlock(&loading);
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
	dlsym_type next = atomic_load_explicit(&next_dlsym, memory_order_acquire);
	const struct ds_entry *entry;
	void *found;

	if (ds_unlikely(!next))
		next = find_dlsym();
	if (ds_likely(!is_driver_name(name)))
		return next(handle, name);
	if (handle == RTLD_NEXT) {
		/* another library between program and driver asks for what comes after it: we, next to the driver */
		entry = entry_of(name);
		if (entry && entry->wrapper && load_present(RTLD_NOLOAD))
			return (void *)entry->wrapper;
		return next(handle, name);
	}
	if (handle == RTLD_DEFAULT) {
		if (load_present(RTLD_NOLOAD))
			return next(handle, name);
		/* natively nobody has it: our own symbol is not to be found, so it is we who ask for what comes next, by a plain call */
		found = next(RTLD_NEXT, name);
		__asm__ volatile("" : "+r"(found));
		return found;
	}
	load_present(RTLD_NOLOAD);
	return ds_swap(next(handle, name));
}

static void swap_result(const char *symbol, void **function)
{
	void *found = *function;

	*function = ds_swap(found);
	if (*function == found) {
		const struct ds_entry *entry = symbol ? entry_of(symbol) : NULL;

		if (entry && entry->wrapper) {
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
