// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "helper.h"

static const char usage[] =
	"usage: nvfwd-helper [options] SOCKET|FD\n"
	"Serves one QEMU that connects to SOCKET, or the one at descriptor FD, until it goes. Root; issues on /dev/nvidia*.\n"
	"  --replay FILE   answer from a recording instead; what was not recorded fails\n"
	"  --shared MIB    size of the region for mappings, a power of two (1024)\n"
	"  --workers N     calls at once (4)\n"
	"  --verbose       a line for each call\n"
	"  --tsc-khz       print the rate of this CPU's time stamp counter, and end\n"
	"At the end a JSON line on stderr: what was called, refused, not recorded, and what is left open.\n"
	"example: nvfwd-helper /run/nvfwd.sock\n";

int verbose;
const struct driver *driver = &driver_real;

void say(const char *form, ...)
{
	char text[512];
	va_list args;

	va_start(args, form);
	vsnprintf(text, sizeof(text), form, args);
	va_end(args);
	fprintf(stderr, "nvfwd: %s\n", text);
}

static int tsc_khz(void)
{
	struct timespec now, then;
	u64 ticks = __rdtsc();
	double ns;

	clock_gettime(CLOCK_MONOTONIC_RAW, &then);
	usleep(200000);
	ticks = __rdtsc() - ticks;
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	ns = (double)(now.tv_sec - then.tv_sec) * 1e9 + (double)(now.tv_nsec - then.tv_nsec);
	printf("%.0f\n", (double)ticks * 1e6 / ns);
	return 0;
}

static int connected(const char *where)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char *end;
	long number = strtol(where, &end, 10);
	int listening, fd;

	if (*where && !*end)
		return (int)number;
	if (strlen(where) >= sizeof(address.sun_path)) {
		say("%s: too long for a socket", where);
		return -1;
	}
	strcpy(address.sun_path, where);
	unlink(where);
	listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listening < 0 || bind(listening, (struct sockaddr *)&address, sizeof(address)) || listen(listening, 1)) {
		say("%s: %m", where);
		return -1;
	}
	fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	close(listening);
	unlink(where);
	return fd;
}

static void last_words(void)
{
	struct nvf_rep rep;
	struct nvf_stat stat;

	serve(&(struct nvf_req){ .op = NVF_STAT }, NULL, &rep, (u8 *)&stat, sizeof(stat));
	fprintf(stderr,
		"{\"event\":\"ended\",\"calls\":%llu,\"refused\":%llu,\"unrecorded\":%llu,\"questions\":%llu,\"replayed\":%u,"
		"\"pages_written\":%llu,\"handles\":%u,\"maps\":%u,\"pins\":%u,\"waits\":%u,\"descriptors\":%u}\n",
		(unsigned long long)stat.calls, (unsigned long long)stat.refused, (unsigned long long)stat.unrecorded,
		(unsigned long long)stat.questions, stat.replayed, (unsigned long long)stat.pages_written, stat.handles, stat.maps,
		stat.pins, stat.waits, stat.descriptors);
}

static unsigned long number(const char *text, unsigned long least, unsigned long most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || value < least || value > most) {
		fputs(usage, stderr);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "replay", required_argument, NULL, 'r' }, { "shared", required_argument, NULL, 's' },
		{ "workers", required_argument, NULL, 'w' }, { "verbose", no_argument, NULL, 'v' },
		{ "tsc-khz", no_argument, NULL, 't' }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	struct rlimit files = { 65536, 65536 };
	int c, connection, workers = 4;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'r':
			driver = &driver_replay;
			if (replay_load(optarg))
				return 1;
			break;
		case 's':
			shared_size = (u64)number(optarg, 1, 1 << 20) << 20;
			break;
		case 'w':
			workers = (int)number(optarg, 1, 64);
			break;
		case 'v':
			verbose = 1;
			break;
		case 't':
			return tsc_khz();
		default:
			fputs(usage, c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
	}
	if (optind + 1 != argc || shared_size & (shared_size - 1)) {
		fputs(usage, stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_NOFILE, &files);
	connection = connected(argv[optind]);
	if (connection < 0 || ring_workers(workers))
		return 1;
	front_talk(connection);
	last_words();
	return 0;
}
