// SPDX-License-Identifier: Apache-2.0
/* The driver of this machine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "helper.h"

#define PROC "/proc/driver/nvidia"

static s64 read_text(const char *path, char *out, u32 room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	s64 got;

	if (fd < 0)
		return -errno;
	got = read(fd, out, room);
	close(fd);
	return got;
}

static bool slot_of(const struct nvf_hello *hello, u64 gpu, char *path, size_t size)
{
	return gpu < hello->gpus && snprintf(path, size, PROC "/gpus/%s/information", hello->slots[gpu]) < (int)size;
}

static void add_gpu(struct nvf_hello *hello, const char *slot)
{
	char path[256], text[2048], *minor;
	s64 got;

	if (hello->gpus == NVF_GPUS || strlen(slot) >= sizeof(hello->slots[0]))
		return;
	memcpy(hello->slots[hello->gpus++], slot, strlen(slot) + 1);
	got = slot_of(hello, hello->gpus - 1, path, sizeof(path)) ? read_text(path, text, sizeof(text) - 1) : -1;
	text[got > 0 ? got : 0] = '\0';
	minor = strstr(text, "Device Minor:");
	hello->minors[hello->gpus - 1] = minor ? (u32)strtoul(minor + 13, NULL, 10) : hello->gpus - 1;
}

/* Where /sys has none: "... for x86_64  580.159.04  Release Build ...". */
static void version_of_proc(char version[32])
{
	char text[256], *at;
	s64 got = read_text(PROC "/version", text, sizeof(text) - 1);

	text[got > 0 ? got : 0] = '\0';
	at = strstr(text, "x86_64 ");
	if (!at || sscanf(at + 7, "%31s", version) != 1)
		version[0] = '\0';
}

static void hello(struct nvf_hello *out)
{
	DIR *gpus = opendir(PROC "/gpus");
	s64 got = read_text("/sys/module/nvidia/version", out->version, sizeof(out->version) - 1);

	out->version[got > 0 ? got : 0] = '\0';
	if (got <= 0)
		version_of_proc(out->version);
	out->version[strcspn(out->version, "\n")] = '\0';
	for (struct dirent *entry; gpus && (entry = readdir(gpus));)
		if (entry->d_name[0] != '.')
			add_gpu(out, entry->d_name);
	if (gpus)
		closedir(gpus);
}

static s64 text(enum nvf_text which, u64 gpu, char *out, u32 room)
{
	struct nvf_hello known = { 0 };
	char path[256];

	if (which == NVF_TEXT_VERSION)
		return read_text(PROC "/version", out, room);
	if (which == NVF_TEXT_PARAMS)
		return read_text(PROC "/params", out, room);
	hello(&known);
	return slot_of(&known, gpu, path, sizeof(path)) ? read_text(path, out, room) : -ENOENT;
}

static int open_device(enum nvf_dev dev, u32 gpu, int flags, int *event)
{
	char path[32];
	int fd;

	(void)event;
	snprintf(path, sizeof(path), dev == NVF_CTL ? "/dev/nvidiactl" : dev == NVF_UVM ? "/dev/nvidia-uvm" : "/dev/nvidia%u", gpu);
	fd = open(path, O_RDWR | O_CLOEXEC | (flags & O_NONBLOCK));
	/* -1 is for files that have no descriptor here */
	return fd >= 0 ? fd : errno == EPERM ? -EACCES : -errno;
}

static long issue(const struct issue *call)
{
	unsigned long request = call->cmd;

	if (call->pin)
		return pool_make(call);
	if (call->file->dev != NVF_UVM) {
		if (call->size >= 1 << _IOC_SIZEBITS)
			return -EINVAL;
		request = _IOC(_IOC_READ | _IOC_WRITE, 'F', call->cmd, call->size);
	}
	return ioctl(call->file->fd, request, call->data) < 0 ? -errno : 0;
}

static int mappable(struct handle *file, u64 offset, u64 length)
{
	(void)offset;
	(void)length;
	return file->fd;
}

static void closed(struct handle *file, bool last)
{
	(void)file;
	(void)last;
}

static void stat(struct nvf_stat *out)
{
	(void)out;
}

const struct driver driver_real = { hello, text, open_device, issue, mappable, closed, stat, true };
