// SPDX-License-Identifier: Apache-2.0
/*
 * A recorded program's driver: answers as it was recorded, in the recorded order, and nothing else. A call that is not the next one of the
 * record fails. A program that has come to the end of the record may stay while the next one begins it. Made up, for a recording shows neither: what mappings hold (each page begins with a number of its own), and that an event
 * comes a moment after it was asked for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "helper.h"

#define EVENT_NS 20000000
#define PAGE 4096u
#define TOLD 20	/* of what was not recorded: one leads to others */
/* The first number of a page of a mapping; a program that has written leaves its complement behind it. */
#define MARK(page) (0x6e76667764000000ull | (page))

struct bytes { u8 *at; u32 length; };
struct record {
	bool map;
	enum nvf_dev dev;
	u32 seq, cmd;
	s32 ret;
	struct bytes before, after, nested_before, nested_after;
	u64 length;
};

static struct record *records;
static u32 count, next;
static char version[32];
static u64 unrecorded, pages_written;
static u32 replayed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the file: a line a record, bytes in hex ---- */

static bool parse_hex(const char *text, struct bytes *out)
{
	size_t length = strlen(text);

	*out = (struct bytes){ 0 };
	if (!strcmp(text, "-"))
		return true;
	if (length % 2 || length > 2 * NVF_PART_MAX)
		return false;
	out->at = malloc(length / 2 + 1);
	if (!out->at)
		return false;
	for (size_t i = 0; i < length; i += 2) {
		const char pair[3] = { text[i], text[i + 1], '\0' };
		char *end;

		out->at[i / 2] = (u8)strtoul(pair, &end, 16);
		if (*end)
			return false;
	}
	out->length = (u32)(length / 2);
	return true;
}

static bool parse(char *line, struct record *record)
{
	char *words[10], *rest = line;
	u32 found = 0;

	while (found < 10 && (words[found] = strtok_r(found ? NULL : line, " \n", &rest)))
		found++;
	memset(record, 0, sizeof(*record));
	if (!found || (strcmp(words[0], "call") && strcmp(words[0], "map")))
		return false;
	record->map = words[0][0] == 'm';
	if (found != (record->map ? 4 : 9))
		return false;
	record->seq = (u32)strtoul(words[1], NULL, 10);
	record->dev = (enum nvf_dev)strtoul(words[2], NULL, 10);
	if (record->dev > NVF_UVM)
		return false;
	if (record->map) {
		record->length = strtoull(words[3], NULL, 10);
		return record->length && record->length % PAGE == 0;
	}
	record->cmd = (u32)strtoul(words[3], NULL, 10);
	record->ret = (s32)strtol(words[4], NULL, 10);
	return parse_hex(words[5], &record->before) && parse_hex(words[6], &record->after) &&
	       parse_hex(words[7], &record->nested_before) && parse_hex(words[8], &record->nested_after) &&
	       record->before.length == record->after.length && record->nested_before.length == record->nested_after.length;
}

int replay_load(const char *path)
{
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	u32 number = 0, rooms = 0;

	if (!file) {
		say("%s: %m", path);
		return 1;
	}
	while (getline(&line, &room, file) > 0) {
		if (!number++) {
			if (sscanf(line, "driver %31s", version) != 1)
				break;
			continue;
		}
		if (count == rooms) {
			rooms = rooms ? 2 * rooms : 256;
			records = reallocarray(records, rooms, sizeof(*records));
			if (!records)
				abort();
		}
		if (!parse(line, &records[count])) {
			say("%s, line %u: no record", path, number);
			free(line);
			fclose(file);
			return 1;
		}
		count++;
	}
	free(line);
	fclose(file);
	if (count)
		return 0;
	say("%s holds no recording", path);
	return 1;
}

/* ---- calls ---- */

static void hello(struct nvf_hello *out)
{
	memcpy(out->version, version, sizeof(version));
	out->gpus = 1;
	out->replayed = 1;
	memcpy(out->slots[0], "0000:06:00.0", 13);
}

static s64 text(enum nvf_text which, u64 gpu, char *out, u32 room)
{
	switch (which) {
	case NVF_TEXT_VERSION:
		return snprintf(out, room, "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (recorded)\n",
				version);
	case NVF_TEXT_PARAMS:
		return snprintf(out, room, "ModifyDeviceFiles: 0\n");
	default:
		return gpu ? -ENOENT : snprintf(out, room, "Device Minor: \t 0\n");
	}
}

static int open_device(enum nvf_dev dev, u32 gpu, int flags, int *event)
{
	(void)flags;
	if (dev == NVF_GPU && gpu)
		return -ENXIO;
	pthread_mutex_lock(&lock);
	if (next == count)
		next = 0;
	pthread_mutex_unlock(&lock);
	*event = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return *event < 0 ? -EMFILE : -1;
}

/* Bytes that differ from run to run: addresses, descriptors, and what the guest's driver changes on purpose. */
struct masks { u32 count; struct { u8 in; u16 at, width; } range[NVF_PARTS + 5]; };

static void mask(struct masks *m, u8 in, u16 at, u16 width)
{
	m->range[m->count].in = in;
	m->range[m->count].at = at;
	m->range[m->count++].width = width;
}

static void masks_of(const struct issue *issue, struct masks *m)
{
	const struct nvf_shape *shape = issue->shape;

	m->count = 0;
	for (u32 i = 1; i < shape->count; i++)
		mask(m, shape->parts[i].in, shape->parts[i].at, 8);
	for (u32 i = 0; i < shape->fds; i++)
		mask(m, shape->fd[i].in, shape->fd[i].at, shape->fd[i].width);
	if (shape->pins) {
		mask(m, 0, nv_ioctl_nvos02_parameters_with_fd__params_pMemory, 8);
		mask(m, 0, nv_ioctl_nvos02_parameters_with_fd__fd, 4);
	}
	if (issue->file->dev == NVF_UVM && issue->cmd == UVM_INITIALIZE)
		mask(m, 0, UVM_INITIALIZE_PARAMS__flags, 8);
	if (issue->file->dev != NVF_UVM && issue->cmd == NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO)
		mask(m, 0, NVOS56_PARAMETERS__pNewCpuAddress, 8);
}

static bool masked(const struct masks *m, u8 in, u32 at)
{
	for (u32 i = 0; i < m->count; i++)
		if (m->range[i].in == in && at >= m->range[i].at && at < (u32)m->range[i].at + m->range[i].width)
			return true;
	return false;
}

static u32 common(const struct bytes *recorded, u32 size)
{
	return recorded->length < size ? recorded->length : size;
}

/* -1: the same; else the first byte that is not. */
static int differs(const struct masks *m, u8 in, const u8 *data, u32 size, const struct bytes *recorded)
{
	for (u32 i = 0; i < common(recorded, size); i++)
		if (data[i] != recorded->at[i] && !masked(m, in, i))
			return (int)i;
	return -1;
}

static void answer(const struct masks *m, u8 in, u8 *data, u32 size, const struct bytes *recorded)
{
	for (u32 i = 0; i < common(recorded, size); i++)
		if (!masked(m, in, i))
			data[i] = recorded->at[i];
}

static long not_recorded(const struct issue *issue, const char *why, int at)
{
	const struct record *r = next < count ? &records[next] : NULL;

	if (unrecorded++ >= TOLD)
		return -ENOSYS;
	say("not recorded: %s (%#x), %s %d; next is record %d, %s %#x", issue->shape->name,
	    issue->shape->cmd ? issue->shape->cmd : issue->cmd, why, at, r ? (int)r->seq : -1, r && r->map ? "mapping" : "call",
	    r ? r->cmd : 0);
	return -ENOSYS;
}

/* The pool's pages are marked as those of mappings are: the program is to see that they are the same memory. */
static void mark_pool(const struct issue *issue)
{
	u64 length = nvf_get64(issue->data, UVM_ALLOC_SEMAPHORE_POOL_PARAMS__length);
	u8 *at = pin_hold(issue->pin - 1, 0, length);

	for (u64 page = 0; at && page < length / PAGE; page++)
		nvf_put64(at + page * PAGE, 0, MARK(page));
	if (at)
		pin_release(issue->pin - 1);
}

static long issue_locked(const struct issue *issue)
{
	const struct nvf_shape *shape = issue->shape;
	u8 *nested = issue->data + nvf_part_at(shape, 1);
	struct record *r = &records[next];
	struct masks m;
	int at;

	if (next >= count || r->map || r->dev != issue->file->dev || r->cmd != issue->cmd)
		return not_recorded(issue, "wanted record", (int)next);
	masks_of(issue, &m);
	at = differs(&m, 0, issue->data, issue->size, &r->before);
	if (at >= 0)
		return not_recorded(issue, "the block differs at byte", at);
	if (shape->nested) {
		at = differs(&m, 1, nested, shape->parts[1].size, &r->nested_before);
		if (at >= 0)
			return not_recorded(issue, "the parameters differ at byte", at);
		answer(&m, 1, nested, shape->parts[1].size, &r->nested_after);
	}
	answer(&m, 0, issue->data, issue->size, &r->after);
	next++;
	replayed++;
	if (issue->pin)
		mark_pool(issue);
	if (issue->file->dev == NVF_GPU && issue->cmd == NV_ESC_ALLOC_OS_EVENT)
		timerfd_settime(issue->file->event, 0, &(struct itimerspec){ .it_value.tv_nsec = EVENT_NS }, NULL);
	return r->ret;
}

static long issue_recorded(const struct issue *issue)
{
	long ret;

	/* no guest's kernel was recorded */
	if (issue->kernel)
		return -ENOSYS;
	pthread_mutex_lock(&lock);
	ret = issue_locked(issue);
	pthread_mutex_unlock(&lock);
	return ret;
}

/* ---- mappings ---- */

static int make_memory(u64 length)
{
	int fd = memfd_create("recorded", MFD_CLOEXEC);
	u8 *at;

	if (fd < 0 || ftruncate(fd, (off_t)length))
		goto fail;
	at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		goto fail;
	for (u64 page = 0; page < length / PAGE; page++)
		nvf_put64(at + page * PAGE, 0, MARK(page));
	munmap(at, length);
	return fd;
fail:
	if (fd >= 0)
		close(fd);
	return -ENOMEM;
}

static int mappable(struct handle *file, u64 offset, u64 length)
{
	int fd = -ENOSYS;

	pthread_mutex_lock(&lock);
	if (next < count && records[next].map && records[next].dev == file->dev && records[next].length == length && !offset &&
	    file->memory < 0) {
		fd = make_memory(length);
		file->memory = fd < 0 ? -1 : fd;
		next += fd >= 0;
		replayed += fd >= 0;
	} else {
		if (unrecorded++ < TOLD)
			say("not recorded: a mapping of %llu bytes; next is record %u", (unsigned long long)length,
		    next < count ? records[next].seq : 0);
	}
	pthread_mutex_unlock(&lock);
	return fd;
}

static u64 count_written(int fd)
{
	off_t length = lseek(fd, 0, SEEK_END);
	u8 *at = length > 0 ? mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
	u64 found = 0;

	if (at == MAP_FAILED)
		return 0;
	for (u64 page = 0; page < (u64)length / PAGE; page++)
		found += nvf_get64(at + page * PAGE, 8) == ~MARK(page);
	munmap(at, (size_t)length);
	return found;
}

/* With its last file the last program is gone, wherever it was: the next one begins anew. */
static void closed(struct handle *file, bool last)
{
	u64 written = file->memory >= 0 ? count_written(file->memory) : 0;

	if (file->memory >= 0)
		close(file->memory);
	pthread_mutex_lock(&lock);
	pages_written += written;
	if (last)
		next = 0;
	pthread_mutex_unlock(&lock);
}

static void stat(struct nvf_stat *out)
{
	pthread_mutex_lock(&lock);
	out->unrecorded = unrecorded;
	out->pages_written = pages_written;
	out->replayed = replayed;
	pthread_mutex_unlock(&lock);
}

const struct driver driver_replay = { hello, text, open_device, issue_recorded, mappable, closed, stat, false };
