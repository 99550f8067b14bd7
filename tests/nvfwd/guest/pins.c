// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory of programs that the host's driver works on: pinned here, one view of it in the helper. It stays as long as the object that was
 * made of it, or the client. (An object that goes because its parent is freed keeps its pages until its client ends.)
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "fwd.h"

struct nvf_pin {
	struct list_head link;
	u32 id, client, object;
	struct page **pages;
	unsigned long count;
	bool users;		/* the pages are a program's, not our own */
};

static LIST_HEAD(pins);
static DEFINE_MUTEX(pins_lock);

/* The driver's own: pages that are no memory, such as a doorbell's. None of these cross. */
NV_STATUS os_lookup_user_io_memory(void *address, u64 page_count, u64 **pte_array, void **page_array);

noinline NV_STATUS os_lookup_user_io_memory(void *address, u64 page_count, u64 **pte_array, void **page_array)
{
	pr_warn_ratelimited("nvidia: registers as memory of a program are not forwarded\n");
	return NVF_STATUS_NOT_SUPPORTED;
}

static void drop_pages(struct nvf_pin *pin, unsigned long count)
{
	if (pin->users && count)
		unpin_user_pages_dirty_lock(pin->pages, count, true);
	if (pin->users)
		kvfree(pin->pages);
	kfree(pin);
}

static bool joins(struct page **pages, unsigned long i)
{
	return i && page_to_pfn(pages[i]) == page_to_pfn(pages[i - 1]) + 1;
}

/* Who asked for it was killed meanwhile. */
static void told_late(struct nvf_call *call)
{
	if (!call->rep.err)
		nvf_undo(NVF_UNPIN, -1, (u64)call->rep.val);
}

/* Tells the helper where the pages lie. */
static int tell(struct nvf_pin *pin)
{
	unsigned long runs = 0;
	struct nvf_call *call;
	struct nvf_run *run;
	int error;

	for (unsigned long i = 0; i < pin->count; i++)
		runs += !joins(pin->pages, i);
	if (runs > NVF_MAX_RUNS)
		return -E2BIG;
	call = nvf_call_new(NVF_PIN, -1, runs * sizeof(*run), 0);
	if (!call)
		return -ENOMEM;
	run = (struct nvf_run *)call->in - 1;
	for (unsigned long i = 0; i < pin->count; i++) {
		if (!joins(pin->pages, i))
			*++run = (struct nvf_run){ .gpa = page_to_phys(pin->pages[i]) };
		run->len += PAGE_SIZE;
	}
	call->req.a = (u64)pin->count << PAGE_SHIFT;
	call->late = told_late;
	error = nvf_call_wait(call);
	if (error)
		return error;
	error = call->rep.err;
	pin->id = (u32)call->rep.val;
	nvf_call_free(call);
	if (error == -ENOSPC)
		pr_warn_ratelimited("nvidia: memory of a program is not registered: %u pieces are, the most\n", NVF_MAX_PINS);
	else if (error)
		pr_warn_ratelimited("nvidia: memory of a program is not registered: the helper says %d\n", error);
	return error;
}

static struct nvf_pin *pin_new(unsigned long count)
{
	struct nvf_pin *pin = kzalloc(sizeof(*pin), GFP_KERNEL);

	if (!pin)
		return NULL;
	INIT_LIST_HEAD(&pin->link);
	pin->count = count;
	return pin;
}

struct nvf_pin *nvf_pin_user(u64 address, u64 length, NV_STATUS *status)
{
	unsigned long start = address & PAGE_MASK, got = 0;
	struct nvf_pin *pin;
	int error = 0;

	*status = NVF_STATUS_INVALID_ARGUMENT;
	if (!length || length > NVF_MAX_PIN || address + length < address)
		return NULL;
	*status = NVF_STATUS_NO_MEMORY;
	pin = pin_new((PAGE_ALIGN(address + length) - start) >> PAGE_SHIFT);
	if (!pin)
		return NULL;
	pin->users = true;
	pin->pages = kvcalloc(pin->count, sizeof(*pin->pages), GFP_KERNEL);
	while (pin->pages && got < pin->count && !error) {
		long some = pin_user_pages_fast(start + (got << PAGE_SHIFT), min_t(unsigned long, pin->count - got, 1 << 18),
						FOLL_WRITE | FOLL_LONGTERM, pin->pages + got);

		error = some < 0 ? (int)some : some ? 0 : -EFAULT;
		got += some > 0 ? some : 0;
	}
	if (!pin->pages) {
		drop_pages(pin, 0);
		return NULL;
	}
	if (error) {
		/* pages that are no memory are asked for by the driver's other name */
		*status = os_lookup_user_io_memory((void *)start, pin->count, NULL, NULL) ? NVF_STATUS_INVALID_ADDRESS : NVF_STATUS_GENERIC;
		drop_pages(pin, got);
		return NULL;
	}
	error = tell(pin);
	if (error) {
		*status = error == -E2BIG ? NVF_STATUS_NO_MEMORY : NVF_STATUS_OPERATING_SYSTEM;
		drop_pages(pin, pin->count);
		return NULL;
	}
	*status = NVF_STATUS_OK;
	return pin;
}

struct nvf_pin *nvf_pin_pages(struct page **pages, unsigned long count)
{
	struct nvf_pin *pin = pin_new(count);

	if (!pin)
		return NULL;
	pin->pages = pages;
	if (!tell(pin))
		return pin;
	drop_pages(pin, 0);
	return NULL;
}
EXPORT_SYMBOL_GPL(nvf_pin_pages);

u32 nvf_pin_id(const struct nvf_pin *pin)
{
	return pin->id;
}
EXPORT_SYMBOL_GPL(nvf_pin_id);

/* The helper's view goes first. */
void nvf_unpin(struct nvf_pin *pin)
{
	nvf_undo(NVF_UNPIN, -1, pin->id);
	drop_pages(pin, pin->count);
}
EXPORT_SYMBOL_GPL(nvf_unpin);

/* An object was made of it. */
void nvf_pin_of(struct nvf_pin *pin, u32 client, u32 object)
{
	mutex_lock(&pins_lock);
	pin->client = client;
	pin->object = object;
	list_add(&pin->link, &pins);
	mutex_unlock(&pins_lock);
}

/* An object of a client, or a client, is gone. */
void nvf_pins_freed(u32 client, u32 object)
{
	struct nvf_pin *pin, *next;
	LIST_HEAD(gone);

	mutex_lock(&pins_lock);
	list_for_each_entry_safe(pin, next, &pins, link)
		if (pin->client == client && (object == client || pin->object == object))
			list_move(&pin->link, &gone);
	mutex_unlock(&pins_lock);
	list_for_each_entry_safe(pin, next, &gone, link)
		nvf_unpin(pin);
}
