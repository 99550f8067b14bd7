// SPDX-License-Identifier: Apache-2.0
/*
 * Does what each line of standard input says, and answers each with a line: a number where there is one to tell, else
 * "ok". It ends at the end of its input, with status 1 at the first refused call.
 *
 *   alloc plain|managed|async|pitch|mapped BYTES   address; allocations are numbered from 0
 *   free N
 *   module FILE              kernels come from this image from now on; the one of the tracee itself is PTX text
 *   launch COUNT             launches of `fill` into allocation 0, on one stream, 8 x 128 threads
 *   mixed COUNT              the same by all interfaces in turn
 *   copy COUNT               copies of 4 KiB: to the device, from it, on it, in turn
 *   kernel WAY NAME ARG...   WAY: plain ex extra coop per-thread; ARG: @N+BYTES (address in allocation N), w:WORD, q:WIDE,
 *                            s:ARG,ARG,... (a struct of these, as packed as they come)
 *   set N OFFSET BYTES | set2d N OFFSET WIDTH ROWS PITCH
 *   htod N OFFSET BYTES | dtoh N OFFSET BYTES | dtod N OFFSET M OFFSET BYTES | copy2d N OFFSET M OFFSET WIDTH ROWS PITCH
 *   any N OFFSET BYTES       cuMemcpyAsync from the host
 *   word N OFFSET            cuStreamWriteValue32
 *   capture | captured       what comes between becomes a graph
 *   graph COUNT              launches of it
 *   sync | ssync             the context's, the stream's
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "fakecuda.h"
#include "kernels.h"

#define MOST 4096
#define ROOM 4096

#define OK(call) \
	do { \
		CUresult status_ = (call); \
		if (status_) { \
			fprintf(stderr, "tracee: %s: %d\n", #call, (int)status_); \
			exit(1); \
		} \
	} while (0)

enum how { PLAIN, MANAGED, ASYNC, PITCH, MAPPED };

static const char *const how_names[] = { "plain", "managed", "async", "pitch", "mapped" };

static struct {
	CUdeviceptr at;
	size_t size;
	enum how how;
	CUmemGenericAllocationHandle handle;
} held[MOST];

static unsigned int count;
static CUcontext context;
static CUmodule module;
static CUstream stream;
static CUgraphExec exec;
static unsigned char host[1 << 20];

static CUdeviceptr map_new(size_t size, CUmemGenericAllocationHandle *handle)
{
	CUmemAllocationProp prop;
	CUmemAccessDesc access;
	CUdeviceptr at;

	memset(&prop, 0, sizeof(prop));
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	memset(&access, 0, sizeof(access));
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	OK(cuMemAddressReserve(&at, size, 0, 0, 0));
	OK(cuMemCreate(handle, size, &prop, 0));
	OK(cuMemMap(at, size, 0, *handle, 0));
	OK(cuMemSetAccess(at, size, &access, 1));
	return at;
}

static void allocate(const char *how, size_t size)
{
	CUdeviceptr at = 0;
	size_t pitch;
	enum how h = PLAIN;

	while (h < MAPPED && strcmp(how, how_names[h]))
		h++;
	held[count].how = h;
	if (h == PLAIN)
		OK(cuMemAlloc_v2(&at, size));
	else if (h == MANAGED)
		OK(cuMemAllocManaged(&at, size, 1));
	else if (h == ASYNC)
		OK(cuMemAllocAsync(&at, size, stream));
	else if (h == PITCH)
		OK(cuMemAllocPitch_v2(&at, &pitch, 512, (size + 511) / 512, 4));
	else
		at = map_new(size = (size + (2 << 20) - 1) & ~((2UL << 20) - 1), &held[count].handle);
	held[count].at = at;
	held[count++].size = size;
	printf("%llu\n", (unsigned long long)at);
}

static void release(unsigned int n)
{
	if (held[n].how == ASYNC) {
		OK(cuMemFreeAsync(held[n].at, stream));
	} else if (held[n].how == MAPPED) {
		OK(cuMemUnmap(held[n].at, held[n].size));
		OK(cuMemRelease(held[n].handle));
		OK(cuMemAddressFree(held[n].at, held[n].size));
	} else {
		OK(cuMemFree_v2(held[n].at));
	}
	held[n].at = 0;
}

static struct {
	char name[32];
	CUfunction function;
} known[64];

static void load(const char *path)
{
	FILE *file = fopen(path, "rbe");
	size_t size;
	char *image;

	if (!file) {
		perror(path);
		exit(1);
	}
	fseek(file, 0, SEEK_END);
	size = (size_t)ftell(file);
	rewind(file);
	image = calloc(1, size + 1);	/* never freed: programs that are linked with their images keep them too */
	if (!image || fread(image, 1, size, file) != size)
		exit(1);
	fclose(file);
	OK(cuModuleLoadData(&module, image));
	memset(known, 0, sizeof(known));
}

static CUfunction function(const char *name)
{
	unsigned int i = 0;

	for (; known[i].function; i++)
		if (!strcmp(known[i].name, name))
			return known[i].function;
	OK(cuModuleGetFunction(&known[i].function, module, name));
	snprintf(known[i].name, sizeof(known[i].name), "%s", name);
	return known[i].function;
}

static size_t value(const char *text, unsigned char *to)
{
	uint64_t wide = 0;
	uint32_t word;
	char *end;

	if (text[0] == 'w') {
		word = (uint32_t)strtoul(text + 2, NULL, 0);
		memcpy(to, &word, 4);
		return 4;
	}
	if (text[0] == '@') {
		wide = held[strtoul(text + 1, &end, 0)].at;
		if (*end == '+')
			wide += strtoull(end + 1, NULL, 0);
	} else {
		wide = strtoull(text + 2, NULL, 0);
	}
	memcpy(to, &wide, 8);
	return 8;
}

static void launch_by(const char *way, CUfunction f, void **params, void **extra)
{
	CUlaunchConfig config = { 8, 1, 1, 128, 1, 1, 0, stream, NULL, 0 };

	if (!strcmp(way, "ex"))
		OK(cuLaunchKernelEx(&config, f, params, NULL));
	else if (!strcmp(way, "extra"))
		OK(cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, stream, NULL, extra));
	else if (!strcmp(way, "coop"))
		OK(cuLaunchCooperativeKernel(f, 8, 1, 1, 128, 1, 1, 0, stream, params));
	else if (!strcmp(way, "per-thread"))
		OK(cuLaunchKernel_ptsz(f, 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
	else
		OK(cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void kernel(const char *way, const char *name, char *words)
{
	static unsigned char bytes[ROOM], buffer[ROOM];
	void *params[64] = { NULL }, *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, NULL,
						  CU_LAUNCH_PARAM_END };
	size_t used = 0, packed = 0, n = 0;
	char *rest = NULL, *inner;

	extra[3] = &packed;
	for (char *word = strtok_r(words, " \n", &rest); word && n < 64; word = strtok_r(NULL, " \n", &rest)) {
		size_t begin = used, align, size;

		if (word[0] == 's') {
			inner = NULL;
			for (char *part = strtok_r(word + 2, ",", &inner); part; part = strtok_r(NULL, ",", &inner))
				used += value(part, bytes + used);
		} else {
			used += value(word, bytes + used);
		}
		size = used - begin;
		align = size > 8 ? 8 : size;
		packed = (packed + align - 1) / align * align;
		memcpy(buffer + packed, bytes + begin, size);
		packed += size;
		params[n++] = bytes + begin;
		used = (used + 7) & ~7UL;
	}
	launch_by(way, function(name), params, extra);
}

static void fill(const char *way)
{
	struct { CUdeviceptr at; uint32_t n, value; } args = { held[0].at, 16, 7 };
	void *params[] = { &args.at, &args.n, &args.value };
	size_t size = sizeof(args);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };

	launch_by(way, function("fill"), params, extra);
}

static void copies(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++) {
		if (i % 3 == 0)
			OK(cuMemcpyHtoDAsync_v2(held[0].at, host, 4096, stream));
		else if (i % 3 == 1)
			OK(cuMemcpyDtoHAsync_v2(host, held[0].at, 4096, stream));
		else
			OK(cuMemcpyDtoDAsync_v2(held[1].at, held[0].at, 4096, stream));
	}
}

static void copy_flat(unsigned int n, size_t to, unsigned int m, size_t from, size_t width, size_t rows, size_t pitch)
{
	CUDA_MEMCPY2D copy;

	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.srcDevice = held[m].at + from;
	copy.dstDevice = held[n].at + to;
	copy.srcPitch = copy.dstPitch = pitch;
	copy.WidthInBytes = width;
	copy.Height = rows;
	OK(cuMemcpy2D_v2(&copy));
}

static void capture_end(void)
{
	CUgraph graph;

	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
}

static void obey(char *line)
{
	static const char *const ways[] = { "plain", "ex", "extra", "coop", "per-thread" };
	unsigned long a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0;
	char word[32] = "", way[32], name[32];
	int used = 0;

	sscanf(line, "%31s %n", word, &used);
	if (!strcmp(word, "alloc") && sscanf(line + used, "%31s %lu", way, &a) == 2) {
		allocate(way, a);
		return;
	}
	if (!strcmp(word, "module")) {
		line[strcspn(line, "\n")] = 0;
		load(line + used);
		puts("ok");
		return;
	}
	if (!strcmp(word, "kernel")) {
		int further = 0;

		sscanf(line + used, "%31s %31s %n", way, name, &further);
		kernel(way, name, line + used + further);
		puts("ok");
		return;
	}
	sscanf(line + used, "%lu %lu %lu %lu %lu %lu %lu", &a, &b, &c, &d, &e, &f, &g);
	if (!strcmp(word, "free"))
		release((unsigned int)a);
	else if (!strcmp(word, "launch"))
		for (unsigned long i = 0; i < a; i++)
			fill("plain");
	else if (!strcmp(word, "mixed"))
		for (unsigned long i = 0; i < a; i++)
			fill(ways[i % 5]);
	else if (!strcmp(word, "copy"))
		copies(a);
	else if (!strcmp(word, "set"))
		OK(cuMemsetD8_v2(held[a].at + b, 5, c));
	else if (!strcmp(word, "set2d"))
		OK(cuMemsetD2D8_v2(held[a].at + b, e, 5, c, d));
	else if (!strcmp(word, "htod"))
		OK(cuMemcpyHtoD_v2(held[a].at + b, host, c));
	else if (!strcmp(word, "dtoh"))
		OK(cuMemcpyDtoH_v2(host, held[a].at + b, c));
	else if (!strcmp(word, "dtod"))
		OK(cuMemcpyDtoDAsync_v2(held[a].at + b, held[c].at + d, e, stream));
	else if (!strcmp(word, "copy2d"))
		copy_flat((unsigned int)a, b, (unsigned int)c, d, e, f, g);
	else if (!strcmp(word, "any"))
		OK(cuMemcpyAsync(held[a].at + b, (CUdeviceptr)(uintptr_t)host, c, stream));
	else if (!strcmp(word, "word"))
		OK(cuStreamWriteValue32_v2(stream, held[a].at + b, 9, 0));
	else if (!strcmp(word, "capture"))
		OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	else if (!strcmp(word, "captured"))
		capture_end();
	else if (!strcmp(word, "graph"))
		for (unsigned long i = 0; i < a; i++)
			OK(cuGraphLaunch(exec, stream));
	else if (!strcmp(word, "sync"))
		OK(cuCtxSynchronize());
	else if (!strcmp(word, "ssync"))
		OK(cuStreamSynchronize(stream));
	else {
		fprintf(stderr, "tracee: what is `%s`?\n", word);
		exit(2);
	}
	puts("ok");
}

int main(void)
{
	char line[1024];
	CUdevice device;

	setvbuf(stdout, NULL, _IOLBF, 0);
	tracee_register();
	fakecuda_describe(tracee_ptx);
	OK(cuInit(0));
	OK(cuDeviceGet(&device, 0));
	OK(cuDevicePrimaryCtxRetain(&context, device));
	OK(cuCtxSetCurrent(context));
	OK(cuModuleLoadData(&module, tracee_ptx));
	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	OK(cuCtxSynchronize());
	return 0;
}
