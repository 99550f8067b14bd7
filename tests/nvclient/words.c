// SPDX-License-Identifier: Apache-2.0
/* Time, numbers, sentences. */
#include <stdarg.h>
#include <time.h>

#include "nvclient.h"

const char *nv_name = "nvclient";

void nv_program_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	nv_name = slash ? slash + 1 : path;
	setvbuf(stdout, NULL, _IOLBF, 1 << 16);
}

void nv_die(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", nv_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void nv_usage(const char *text, int code)
{
	fprintf(code ? stderr : stdout, "usage: %s %s\n", nv_name, text);
	exit(code);
}

void nv_not_a_number(const char *text, const char *what)
{
	fprintf(stderr, "%s: %s %s is no number; see --help\n", nv_name, what, text);
	exit(2);
}

u64 nv_number(const char *text, const char *what)
{
	u64 value, unit = 1;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (end == text || errno || *text == '-')
		nv_not_a_number(text, what);
	if (*end && strchr("kKmMgG", *end)) {
		unit = strchr("kK", *end)   ? 1ull << 10
		       : strchr("mM", *end) ? 1ull << 20
					    : 1ull << 30;
		end++;
	}
	if (*end || value > RM_U64_MAX / unit)
		nv_not_a_number(text, what);
	return value * unit;
}

double nv_decimal(const char *text, const char *what)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= 0))
		nv_not_a_number(text, what);
	return value;
}

u64 nv_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

double nv_now(void)
{
	return (double)nv_now_ns() / 1e9;
}

void nv_sleep(double seconds)
{
	struct timespec span = { (time_t)seconds,
				 (long)((seconds - (double)(time_t)seconds) * 1e9) };

	if (seconds > 0)
		nanosleep(&span, NULL);
}

const char *nv_status_name(u32 status)
{
	switch (status) {
	case 0:
		return "NV_OK";
	case NV_ERR_INSUFFICIENT_RESOURCES:
		return "NV_ERR_INSUFFICIENT_RESOURCES";
	case NV_ERR_INSUFFICIENT_PERMISSIONS:
		return "NV_ERR_INSUFFICIENT_PERMISSIONS";
	case NV_ERR_INVALID_ARGUMENT:
		return "NV_ERR_INVALID_ARGUMENT";
	case NV_ERR_INVALID_CLASS:
		return "NV_ERR_INVALID_CLASS";
	case NV_ERR_INVALID_CLIENT:
		return "NV_ERR_INVALID_CLIENT";
	case NV_ERR_NO_MEMORY:
		return "NV_ERR_NO_MEMORY";
	case NV_ERR_NOT_SUPPORTED:
		return "NV_ERR_NOT_SUPPORTED";
	case NV_ERR_OBJECT_NOT_FOUND:
		return "NV_ERR_OBJECT_NOT_FOUND";
	default:
		return NV_IS_ERRNO(status) ? strerror((int)(status & 0x7fffffff)) : "";
	}
}
