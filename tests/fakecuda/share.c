// SPDX-License-Identifier: Apache-2.0
/*
 * Whose the memory of a device is. With FAKECUDA_SHARED=FILE all processes that name the file have the same devices' memory: each has a slot
 * there, with a lock on it that ends with the process, and what it has. Taking is one step: no two get the last byte.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"

#define SLOTS 64
#define DEVICES 16
#define GUARD SLOTS /* the byte behind those of the slots: who holds it may look and take */

static struct slot {
	uint64_t used[DEVICES];
} *slots;
static struct slot *mine;
static int file = -1;

static int lock(int command, off_t at, short type)
{
	struct flock range = { .l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };
	int result;

	do
		result = fcntl(file, command, &range);
	while (result && errno == EINTR && command == F_OFD_SETLKW);
	return command == F_OFD_GETLK ? range.l_type : result;
}

static void start(const char *path)
{
	file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file >= 0 && !ftruncate(file, SLOTS * sizeof(*slots)))
		slots = mmap(NULL, SLOTS * sizeof(*slots), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (!slots || slots == MAP_FAILED) {
		perror("fakecuda: FAKECUDA_SHARED");
		abort();
	}
	lock(F_OFD_SETLKW, GUARD, F_WRLCK);
	for (int i = 0; i < SLOTS && !mine; i++) {
		if (lock(F_OFD_SETLK, i, F_WRLCK))
			continue;
		mine = &slots[i];
		memset(mine, 0, sizeof(*mine)); /* of one that ended */
	}
	lock(F_OFD_SETLK, GUARD, F_UNLCK);
	if (!mine) {
		fprintf(stderr, "fakecuda: FAKECUDA_SHARED: more than %d processes\n", SLOTS);
		abort();
	}
}

/* What other processes have; FAKECUDA_TAKEN says it where nobody else is there. Under GUARD. */
static size_t others(const struct device *device)
{
	const char *path = getenv("FAKECUDA_TAKEN");
	FILE *said = path ? fopen(path, "re") : NULL;
	size_t bytes = 0;

	int place, read = said ? fscanf(said, "%zu %d", &bytes, &place) : 0;

	if (read < 1 || (read == 2 && place != device->place))
		bytes = 0;
	if (said)
		fclose(said);
	for (int i = 0; slots && i < SLOTS; i++)
		if (&slots[i] != mine && lock(F_OFD_GETLK, i, F_WRLCK) != F_UNLCK)
			bytes += slots[i].used[device->place];
	return bytes;
}

static void enter(void)
{
	const char *path = getenv("FAKECUDA_SHARED");

	if (path && !mine)
		start(path);
	if (mine)
		lock(F_OFD_SETLKW, GUARD, F_WRLCK);
}

static void leave(const struct device *device)
{
	if (!mine)
		return;
	mine->used[device->place] = device->used;
	lock(F_OFD_SETLK, GUARD, F_UNLCK);
}

static size_t left(const struct device *device)
{
	size_t used = device->used + others(device);

	return used < device->memory ? device->memory - used : 0;
}

size_t memory_left(const struct device *device)
{
	size_t bytes;

	enter();
	bytes = left(device);
	leave(device);
	return bytes;
}

static unsigned int refused; /* of a thousand */

__attribute__((visibility("default"))) void fakecuda_refuse(unsigned int permille)
{
	refused = permille;
}

bool refuses(void)
{
	static unsigned int seed = 1;
	const char *text = getenv("FAKECUDA_REFUSE");

	return (unsigned int)rand_r(&seed) % 1000 < (text ? (unsigned int)atoi(text) : refused);
}

bool memory_take(struct device *device, size_t size)
{
	bool fits;

	enter();
	fits = size <= left(device) && !refuses();
	if (fits)
		device->used += size;
	if (device->peak < device->memory - left(device))
		device->peak = device->memory - left(device);
	leave(device);
	return fits;
}

void memory_give(struct device *device, size_t size)
{
	enter();
	device->used -= size;
	leave(device);
}
