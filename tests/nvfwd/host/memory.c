// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "helper.h"

#define REGIONS 16
#define PAGE 4096ull

static struct region { u64 gpa, size, user, offset; u8 *at; int fd; } regions[REGIONS];
static u32 region_count;
static bool settled;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { u8 *at; u64 length; u32 held; bool dropped; } pins[NVF_MAX_PINS];
static u32 pin_count;

int memory_add(u64 gpa, u64 size, u64 user, u64 offset, int fd)
{
	struct region *r;

	for (u32 i = 0; i < region_count; i++)
		if (regions[i].gpa == gpa && regions[i].size == size) {
			regions[i].user = user;
			close(fd);
			return 0;
		}
	if (settled) {
		close(fd);
		return 0;
	}
	if (region_count == REGIONS || !size || gpa + size < gpa || user + size < user) {
		close(fd);
		return -EINVAL;
	}
	r = &regions[region_count];
	*r = (struct region){ gpa, size, user, offset, NULL, fd };
	r->at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	if (r->at == MAP_FAILED) {
		say("the guest's memory cannot be mapped: %m");
		close(fd);
		return -errno;
	}
	region_count++;
	return 0;
}

void memory_settled(void)
{
	settled = true;
}

void memory_forget(void)
{
	for (u32 i = 0; i < region_count; i++) {
		munmap(regions[i].at, regions[i].size);
		close(regions[i].fd);
	}
	region_count = 0;
	settled = false;
}

static struct region *region_of(u64 gpa, u64 length)
{
	for (u32 i = 0; i < region_count; i++) {
		struct region *r = &regions[i];

		if (gpa >= r->gpa && length <= r->size && gpa - r->gpa <= r->size - length)
			return r;
	}
	return NULL;
}

void *memory_at(u64 gpa, u64 length)
{
	struct region *r = region_of(gpa, length);

	return r ? r->at + (gpa - r->gpa) : NULL;
}

void *memory_of_user(u64 user, u64 length)
{
	for (u32 i = 0; i < region_count; i++) {
		struct region *r = &regions[i];

		if (user >= r->user && length <= r->size && user - r->user <= r->size - length)
			return r->at + (user - r->user);
	}
	return NULL;
}

/* ---- views: the guest's pages, wherever they lie, as one range ---- */

static int fill(u8 *view, const struct nvf_run *runs, u32 count, u64 length)
{
	u64 at = 0;

	for (u32 i = 0; i < count; i++) {
		u64 gpa = runs[i].gpa, some = runs[i].len;
		struct region *r;

		if (!some || gpa % PAGE || some % PAGE || some > length - at)
			return -EINVAL;
		r = region_of(gpa, some);
		if (!r)
			return -EFAULT;
		if (mmap(view + at, some, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, r->fd,
			 (off_t)(r->offset + (gpa - r->gpa))) == MAP_FAILED)
			return -errno;	/* ENOMEM: vm.max_map_count */
		at += some;
	}
	return at == length ? 0 : -EINVAL;
}

s64 pin_make(const struct nvf_run *runs, u32 count, u64 length)
{
	s64 id = -ENOSPC;
	u8 *view;
	int error;

	if (!length || length % PAGE || length > NVF_MAX_PIN || !count)
		return -EINVAL;
	view = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (view == MAP_FAILED)
		return -errno;
	error = fill(view, runs, count, length);
	pthread_mutex_lock(&lock);
	for (u32 i = 0; !error && i < NVF_MAX_PINS && id < 0; i++)
		if (!pins[i].at)
			id = i;
	if (id >= 0) {
		pins[id].at = view;
		pins[id].length = length;
		pins[id].held = 0;
		pins[id].dropped = false;
		pin_count++;
	}
	pthread_mutex_unlock(&lock);
	if (id < 0)
		munmap(view, length);
	return error ? error : id;
}

/* Under the lock. */
static void end_pin(u32 id)
{
	munmap(pins[id].at, pins[id].length);
	pins[id].at = NULL;
	pin_count--;
}

int pin_drop(u64 id)
{
	int error = -ENOENT;

	pthread_mutex_lock(&lock);
	if (id < NVF_MAX_PINS && pins[id].at && !pins[id].dropped) {
		error = 0;
		pins[id].dropped = true;
		if (!pins[id].held)
			end_pin((u32)id);
	}
	pthread_mutex_unlock(&lock);
	return error;
}

void *pin_hold(u32 id, u32 offset, u64 length)
{
	void *at = NULL;

	pthread_mutex_lock(&lock);
	if (id < NVF_MAX_PINS && pins[id].at && !pins[id].dropped && length <= pins[id].length && offset <= pins[id].length - length) {
		pins[id].held++;
		at = pins[id].at + offset;
	}
	pthread_mutex_unlock(&lock);
	return at;
}

void pin_release(u32 id)
{
	pthread_mutex_lock(&lock);
	if (!--pins[id].held && pins[id].dropped)
		end_pin(id);
	pthread_mutex_unlock(&lock);
}

u32 pins_held(void)
{
	return __atomic_load_n(&pin_count, __ATOMIC_ACQUIRE);
}

void pins_forget(void)
{
	for (u32 i = 0; i < NVF_MAX_PINS; i++)
		pin_drop(i);
}
