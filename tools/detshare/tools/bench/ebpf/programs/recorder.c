// SPDX-License-Identifier: Apache-2.0
/*
 * Records what a program asks of NVIDIA's devices, from inside it: LD_PRELOAD this, RECORDER_OUT=PREFIX. One file for each
 * process, PREFIX.PID, one JSON object a line, as detshare.tools.replay reads them: blocks before and after the call, nested
 * parameters of allocations and controls; and the closes of these files, {"close": 1}. It uses no more than libc and
 * knows nothing of observers: a second source beside them. Calls that do not go through libc's ioctl() are not seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT		__attribute__((visibility("default")))
#define NVIDIA_MAJOR	195
#define CONTROL_MINOR	255
#define BLOCK		16384	/* an ioctl's number has 14 bits for it */
#define NESTED		4096
#define UVM_BLOCK	256
#define RM_CONTROL	0x2a
#define RM_ALLOC	0x2b

struct bytes {
	uint32_t count;
	uint8_t at[BLOCK];
};

struct call {
	struct bytes before, after, nested_before, nested_after;
	char line[2 * (2 * BLOCK + 2 * NESTED) + 512];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;
static pid_t owner;
static uint64_t sequence;

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Name of an open device of the driver; empty: another file. */
static void name_of(int fd, char *path, size_t room)
{
	static dev_t uvm;
	struct stat status;

	path[0] = 0;
	if (syscall(SYS_fstat, fd, &status) || !S_ISCHR(status.st_mode))
		return;
	if (major(status.st_rdev) == NVIDIA_MAJOR) {
		if (minor(status.st_rdev) == CONTROL_MINOR)
			snprintf(path, room, "/dev/nvidiactl");
		else
			snprintf(path, room, "/dev/nvidia%u", minor(status.st_rdev));
		return;
	}
	if (!uvm) {
		struct stat known;

		if (!stat("/dev/nvidia-uvm", &known))
			uvm = known.st_rdev;
	}
	if (uvm && status.st_rdev == uvm)
		snprintf(path, room, "/dev/nvidia-uvm");
}

/* Memory of this process that may not be there. */
static void take(struct bytes *to, const void *from, size_t count)
{
	struct iovec mine = { to->at, count }, theirs = { (void *)from, count };
	ssize_t got = count ? process_vm_readv(getpid(), &mine, 1, &theirs, 1, 0) : 0;

	to->count = got > 0 ? (uint32_t)got : 0;
}

static uint64_t number(const struct bytes *from, size_t at, size_t size)
{
	uint64_t value = 0;

	if (at + size <= from->count)
		memcpy(&value, from->at + at, size);
	return value;
}

static void take_nested(struct bytes *to, unsigned int escape, const struct bytes *block)
{
	size_t size_at = escape == RM_CONTROL ? 24 : block->count >= 48 ? 32 : 24;
	uint64_t size = escape == RM_CONTROL || escape == RM_ALLOC ? number(block, size_at, 4) : 0;

	to->count = 0;
	if (size && number(block, 16, 8))
		take(to, (void *)(uintptr_t)number(block, 16, 8), size < NESTED ? size : NESTED);
}

static char *put_hex(char *at, const char *key, const struct bytes *from)
{
	static const char digits[] = "0123456789abcdef";

	at += sprintf(at, ",\"%s\":\"", key);
	for (uint32_t i = 0; i < from->count; i++) {
		*at++ = digits[from->at[i] >> 4];
		*at++ = digits[from->at[i] & 15];
	}
	*at++ = '"';
	return at;
}

/* With the lock held: this process's file, and the next number in it. */
static uint64_t begin_line(void)
{
	const char *prefix = getenv("RECORDER_OUT");
	char path[4096];

	if (owner != getpid()) {	/* a child has a file of its own; the descriptor of its parent's stays open */
		owner = getpid();
		snprintf(path, sizeof(path), "%s.%d", prefix ? prefix : "/tmp/recorder", (int)owner);
		out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		sequence = 0;
	}
	return sequence++;
}

static void end_line(const char *line, size_t length)
{
	while (length && out >= 0) {
		ssize_t done = write(out, line, length);

		if (done <= 0)
			break;
		line += done;
		length -= (size_t)done;
	}
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	unsigned int escape = request & 0xff;
	uint64_t begun, took;
	struct call *call;
	char path[32], *at;
	int ret, error;
	size_t size;
	void *block;

	__builtin_va_list words;
	__builtin_va_start(words, request);
	block = __builtin_va_arg(words, void *);
	__builtin_va_end(words);

	error = errno;
	name_of(fd, path, sizeof(path));
	errno = error;
	call = path[0] ? malloc(sizeof(*call)) : NULL;
	if (!call)
		return (int)syscall(SYS_ioctl, fd, request, block);
	size = strcmp(path, "/dev/nvidia-uvm") ? request >> 16 & 0x3fff : UVM_BLOCK;
	take(&call->before, block, size);
	take_nested(&call->nested_before, escape, &call->before);
	begun = now();
	ret = (int)syscall(SYS_ioctl, fd, request, block);
	error = errno;
	took = now() - begun;
	take(&call->after, block, size);
	take_nested(&call->nested_after, escape, &call->before);
	pthread_mutex_lock(&lock);
	at = call->line + sprintf(call->line,
				  "{\"seq\":%llu,\"t\":%llu,\"dur\":%llu,\"fd\":%d,\"path\":\"%s\",\"nr\":%u,\"req\":%lu,\"ret\":%d",
				  (unsigned long long)begin_line(), (unsigned long long)begun, (unsigned long long)took, fd,
				  path, escape, request, ret);
	at = put_hex(at, "in", &call->before);
	at = put_hex(at, "out", &call->after);
	if (call->nested_before.count) {
		at = put_hex(at, "pin", &call->nested_before);
		if (call->nested_before.count != call->nested_after.count ||
		    memcmp(call->nested_before.at, call->nested_after.at, call->nested_after.count))
			at = put_hex(at, "pout", &call->nested_after);
	}
	at += sprintf(at, "}\n");
	end_line(call->line, (size_t)(at - call->line));
	pthread_mutex_unlock(&lock);
	free(call);
	errno = error;
	return ret;
}

EXPORT int close(int fd)
{
	char path[32], line[192];
	int length;

	name_of(fd, path, sizeof(path));
	if (path[0]) {
		pthread_mutex_lock(&lock);
		length = snprintf(line, sizeof(line), "{\"seq\":%llu,\"t\":%llu,\"fd\":%d,\"path\":\"%s\",\"close\":1}\n",
				  (unsigned long long)begin_line(), (unsigned long long)now(), fd, path);
		end_line(line, (size_t)length);
		pthread_mutex_unlock(&lock);
	}
	return (int)syscall(SYS_close, fd);
}
