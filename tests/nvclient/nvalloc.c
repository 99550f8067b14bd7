// SPDX-License-Identifier: Apache-2.0
/* Asks for GPU memory: by the line, or once by every way that a program has. */
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc.h"
#include "options.h"

static const char usage[] =
	"[ways] [--size N] [--gpu N] [--version V]\n"
	"Without `ways`: opens a device, prints a ready line, then answers each line of standard input with a line of JSON:\n"
	"  SIZE (bytes, or with k, m, g)  allocate so much video memory and hold it\n"
	"  free                           free all that is held\n"
	"  info                           only say what the driver says is there\n"
	"  It ends at the end of its input or with SIGTERM.\n"
	"With `ways`: asks once by every way for --size bytes (64m), frees it again, and prints one line for each way.\n"
	"example: echo 1g | nvalloc";

#define HELD 65536

static struct {
	u32 handle[HELD], count;
	u64 bytes;
} held;

static void answer(struct nv_program *program, const char *event, u64 asked, u64 granted,
		   u32 status)
{
	u64 total = 0, free = 0;
	u32 info = nv_fb_info(&program->nv, program->client, program->subdevice, &total, &free);

	printf("{\"event\":\"%s\",\"asked\":%llu,\"granted\":%llu,\"status\":%u,\"name\":\"%s\",\"held\":%llu,",
	       event, (unsigned long long)asked, (unsigned long long)granted, status,
	       nv_status_name(status), (unsigned long long)held.bytes);
	if (info)
		printf("\"total\":null,\"free\":null}\n");
	else
		printf("\"total\":%llu,\"free\":%llu}\n", (unsigned long long)total,
		       (unsigned long long)free);
	fflush(stdout);
}

static void allocate(struct nv_program *program, u64 size)
{
	const struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER,
					       .size = size,
					       .flags = 0x1c101 };
	u32 handle = nv_next_handle(&program->nv), status;
	u64 granted = 0;

	if (held.count == HELD)
		nv_die("%u allocations are held; free first", held.count);
	status = nv_memory(&program->nv, program->client, program->device, &handle, &ask, &granted);
	if (!status) {
		held.handle[held.count++] = handle;
		held.bytes += granted;
	}
	answer(program, "alloc", size, granted, status);
}

static void free_all(struct nv_program *program)
{
	u32 status = 0;

	while (held.count && !status)
		status = nv_free(&program->nv, program->client, program->device,
				 held.handle[--held.count]);
	held.bytes = 0;
	answer(program, "free", 0, 0, status);
}

static void by_the_line(struct nv_program *program)
{
	char line[128];

	printf("{\"event\":\"ready\",\"pid\":%d,\"t\":%.6f,\"client\":%u}\n", getpid(), nv_now(),
	       program->client);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\r\n")] = 0;
		if (!strcmp(line, "free"))
			free_all(program);
		else if (!strcmp(line, "info"))
			answer(program, "info", 0, 0, 0);
		else if (*line)
			allocate(program, nv_number(line, "the size"));
	}
}

int nvalloc_main(int argc, char **argv)
{
	const char *version = NULL, *step;
	struct nv_program program;
	u64 size = 64 << 20;
	u32 status, gpu = 0;
	bool ways;
	int first;
	const struct nv_option options[] = {
		NV_OPTION("size", &size),
		NV_OPTION("gpu", &gpu),
		NV_OPTION("version", &version),
		{ 0 },
	};

	first = nv_options(argc, argv, usage, options);
	ways = first + 1 == argc && !strcmp(argv[first], "ways");
	if (first != argc && !ways)
		nv_usage(usage, 2);
	nv_must_open_program(&program, gpu, version);
	status = nv_program_base(&program, &step);
	if (status)
		nv_die("%s: status 0x%x %s", step, status, nv_status_name(status));
	if (ways)
		alloc_every_way(&program, size);
	else
		by_the_line(&program);
	nv_close_program(&program);
	return 0;
}
