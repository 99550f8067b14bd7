// SPDX-License-Identifier: Apache-2.0
/* Keeps GPU memory without a handle of it, in the ways that the driver has. */
#include <sys/syscall.h>
#include <unistd.h>

#include "keep.h"
#include "options.h"

static const char usage[] =
	"[--gpu N] [--version V]\n"
	"Opens a device, prints a ready line, then answers each line of standard input with a line of JSON:\n"
	"  alloc SIZE      allocate so much video memory and hold it by its handle\n"
	"  uvm SIZE        allocate, map through nvidia-uvm, free the handle\n"
	"  export SIZE     allocate, export to a descriptor, free the handle; answers the descriptor\n"
	"  dmabuf SIZE     allocate, make a DMA buffer, free the handle\n"
	"  fabric SIZE     allocate, give it a fabric address, free the handle\n"
	"  import PID FD   take what process PID has exported to its descriptor FD\n"
	"  place SIZE FD INDEX         allocate, export to one of 8 places of descriptor FD (-1: a new one), free the handle;\n"
	"                              SIZE 0: empty the place\n"
	"  import-places PID FD INDEX COUNT   take what process PID has at those places\n"
	"  share SIZE      as a program that uses an allocation in every way: mapped, exported, imported, its handle held\n"
	"  close           let go of everything\n"
	"It ends at the end of its input. SIZE in bytes, or with k, m, g; 2m at least.\n"
	"example: (echo uvm 16m; sleep 60) | nvkeep";

#define MOST 4096

enum what { HANDLE, FABRIC, FILE_NR, RANGE };

static struct {
	enum what what;
	u64 name, size;
} kept[MOST];
static u32 count;

static void keep(enum what what, u64 name, u64 size)
{
	if (count == MOST)
		nv_die("%u things are kept; close first", count);
	kept[count].what = what;
	kept[count].name = name;
	kept[count++].size = size;
}

static u32 let_go(struct nv_program *program)
{
	u32 status = 0, now;

	while (count) {
		count--;
		now = 0;
		if (kept[count].what == FILE_NR)
			close((int)kept[count].name);
		else if (kept[count].what == RANGE)
			now = nv_uvm_free(program, kept[count].name, kept[count].size);
		else
			now = nv_free(&program->nv, program->client, program->device, (u32)kept[count].name);
		status = status ? status : now;
	}
	return status;
}

static u32 allocate(struct nv_program *program, u64 size, u32 *handle)
{
	const struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER, .size = size, .flags = 0x1c101 };

	*handle = nv_next_handle(&program->nv);
	return nv_memory(&program->nv, program->client, program->device, handle, &ask, NULL);
}

static u32 map(struct nv_program *program, u32 memory, u64 size)
{
	u64 va = program->next_va;
	u32 status = nv_uvm_map(program, memory, va, size);

	program->next_va += size;
	if (status)
		nv_uvm_free(program, va, size);
	else
		keep(RANGE, va, size);
	return status;
}

static u32 export(struct nv_program *program, u32 memory, int *fd)
{
	u32 status = nv_export(&program->nv, program->client, program->device, memory, fd);

	if (!status)
		keep(FILE_NR, (u64)*fd, 0);
	return status;
}

static u32 import(struct nv_program *program, int fd)
{
	u32 handle = nv_next_handle(&program->nv);
	u32 status = nv_import(&program->nv, program->client, program->device, &handle, fd);

	if (!status)
		keep(HANDLE, handle, 0);
	return status;
}

static u32 make_dmabuf(struct nv_program *program, u32 memory, u64 size, int *fd)
{
	u32 status = nv_dmabuf(&program->nv, program->gpu, program->client, memory, size, fd);

	if (!status)
		keep(FILE_NR, (u64)*fd, 0);
	return status;
}

static u32 make_fabric(struct nv_program *program, u32 memory, u64 size)
{
	u32 handle = nv_next_handle(&program->nv);
	u32 status = nv_fabric(&program->nv, program->client, program->subdevice, &handle, memory, size);

	if (!status)
		keep(FABRIC, handle, size);
	return status;
}

static u32 share(struct nv_program *program, u32 memory, u64 size, int *fd)
{
	int buffer;
	u32 status;

	keep(HANDLE, memory, size);
	status = map(program, memory, size);
	status = status ? status : export(program, memory, fd);
	status = status ? status : import(program, *fd);
	status = status ? status : make_dmabuf(program, memory, size, &buffer);
	return status ? status : make_fabric(program, memory, size);
}

static int take(int pid, int fd)
{
	int process = (int)syscall(SYS_pidfd_open, pid, 0);
	int mine = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, fd, 0);

	if (mine < 0)
		nv_die("take descriptor %d of process %d: %s", fd, pid, strerror(errno));
	close(process);
	return mine;
}

static u32 import_from(struct nv_program *program, const char *words)
{
	int pid, fd, mine;
	u32 status;

	if (sscanf(words, "%d %d", &pid, &fd) != 2)
		nv_die("import wants PID FD, not '%s'", words);
	mine = take(pid, fd);
	status = import(program, mine);
	close(mine);
	return status;
}

/* Empty places give nothing: to free their handle later does no harm. */
static u32 import_places(struct nv_program *program, const char *words)
{
	u32 first = program->nv.next + 1, index, n, i, status;
	int pid, fd, mine;

	if (sscanf(words, "%d %d %u %u", &pid, &fd, &index, &n) != 4)
		nv_die("import-places wants PID FD INDEX COUNT, not '%s'", words);
	mine = take(pid, fd);
	status = nv_import_places(&program->nv, program->client, program->device, first, mine, index, n);
	close(mine);
	program->nv.next += n;
	for (i = 0; !status && i < n; i++)
		keep(HANDLE, first + i, 0);
	return status;
}

static u32 by_way(struct nv_program *program, const char *way, u64 size, int *fd)
{
	u32 memory, status = allocate(program, size, &memory);

	if (status)
		return status;
	if (!strcmp(way, "alloc")) {
		keep(HANDLE, memory, size);
		return 0;
	}
	if (!strcmp(way, "share"))
		return share(program, memory, size, fd);
	if (!strcmp(way, "uvm"))
		status = map(program, memory, size);
	else if (!strcmp(way, "export"))
		status = export(program, memory, fd);
	else if (!strcmp(way, "dmabuf"))
		status = make_dmabuf(program, memory, size, fd);
	else if (!strcmp(way, "fabric"))
		status = make_fabric(program, memory, size);
	else
		nv_die("no way is called %s; see --help", way);
	nv_free(&program->nv, program->client, program->device, memory);
	return status;
}

static u32 place(struct nv_program *program, const char *words, int *fd)
{
	u32 memory = 0, index, status = 0;
	char size[32];
	int at;

	if (sscanf(words, "%31s %d %u", size, &at, &index) != 3)
		nv_die("place wants SIZE FD INDEX, not '%s'", words);
	if (nv_number(size, "the size"))
		status = allocate(program, nv_number(size, "the size"), &memory);
	if (status)
		return status;
	*fd = at;
	status = nv_export_place(&program->nv, program->client, program->device, memory, fd, index, 8);
	if (at < 0 && !status)
		keep(FILE_NR, (u64)*fd, 0);
	if (memory)
		nv_free(&program->nv, program->client, program->device, memory);
	return status;
}

static void by_the_line(struct nv_program *program)
{
	char line[128], *words;
	u32 status;
	int fd;

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\r\n")] = 0;
		words = line + strcspn(line, " ");
		if (*words)
			*words++ = 0;
		fd = -1;
		if (!strcmp(line, "close"))
			status = let_go(program);
		else if (!strcmp(line, "import"))
			status = import_from(program, words);
		else if (!strcmp(line, "import-places"))
			status = import_places(program, words);
		else if (!strcmp(line, "place"))
			status = place(program, words, &fd);
		else
			status = by_way(program, line, nv_number(words, "the size"), &fd);
		printf("{\"event\":\"%s\",\"status\":%u,\"name\":\"%s\",\"kept\":%u,\"fd\":%d}\n", line, status,
		       nv_status_name(status), count, fd);
		fflush(stdout);
	}
}

int nvkeep_main(int argc, char **argv)
{
	const char *version = NULL;
	struct nv_program program;
	u32 gpu = 0;
	const struct nv_option options[] = {
		NV_OPTION("gpu", &gpu),
		NV_OPTION("version", &version),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc)
		nv_usage(usage, 2);
	nv_must_program(&program, gpu, version);
	printf("{\"event\":\"ready\",\"pid\":%d,\"client\":%u}\n", getpid(), program.client);
	fflush(stdout);
	by_the_line(&program);
	nv_close_program(&program);
	return 0;
}
