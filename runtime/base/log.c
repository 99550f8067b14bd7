/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for people: one write() each, so that lines of several threads do not mix. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entry.h"
#include "log.h"

enum level { OFF, INFO, DEBUG };

static _Atomic(int) level = -1;
static _Atomic(int) target = -1;
/* The program may close all descriptors that it does not know, and have others by their numbers: it is our file while it is the same. */
static _Atomic(uint64_t) place; /* of the file; 0: the standard error */

static uint64_t place_of(int fd)
{
	struct stat now;

	return fstat(fd, &now) ? 0 : (uint64_t)now.st_dev << 40 ^ (uint64_t)now.st_ino;
}

/* Of threads that come at once, one sets what it opened in place of `was`. */
static void open_file(int was)
{
	const char *file = secure_getenv("DETSHARE_LOG_FILE");
	int fd = file && *file ? open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;

	if (fd >= 0)
		atomic_store(&place, place_of(fd));
	/* who found no file to open takes nothing from another's */
	if (!atomic_compare_exchange_strong(&target, &was, fd >= 0 ? fd : STDERR_FILENO)) {
		if (fd >= 0)
			close(fd);
	} else if (fd < 0) {
		atomic_store(&place, 0);
	}
}

static int level_now(void)
{
	int known = atomic_load(&level);
	const char *wish;

	if (known >= 0)
		return known;
	wish = getenv("DETSHARE_LOG");
	known = !wish ? INFO : !strcmp(wish, "off") ? OFF : !strcmp(wish, "debug") ? DEBUG : INFO;
	open_file(-1);
	atomic_store(&level, known);
	return known;
}

static void say(const char *format, va_list args)
{
	char line[512];
	int saved = errno;
	int length = snprintf(line, sizeof(line), "detshare[%d]: ", (int)getpid());
	int more = vsnprintf(line + length, sizeof(line) - length - 1, format, args);
	int into;

	if (more > 0)
		length += more;
	if (length > (int)sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	into = atomic_load(&target);
	if (atomic_load(&place) && place_of(into) != atomic_load(&place))
		open_file(into);
	if (write(atomic_load(&target), line, length) < 0) {
		/* nobody to tell */
	}
	errno = saved;
}

void ds_info(const char *format, ...)
{
	va_list args;

	if (level_now() < INFO)
		return;
	va_start(args, format);
	say(format, args);
	va_end(args);
}

void ds_debug(const char *format, ...)
{
	va_list args;

	if (level_now() < DEBUG)
		return;
	va_start(args, format);
	say(format, args);
	va_end(args);
}

const char *ds_error_name(CUresult error)
{
	const char *name = NULL;

	if (real->cuGetErrorName(error, &name) == CUDA_SUCCESS && name)
		return name;
	return "an unknown error";
}
