// SPDX-License-Identifier: Apache-2.0
/*
 * The boards' and gates' part of libdetshare.so beside a driver that does nothing but remember: commands on stdin, one line of answer each.
 * What they expect of the other folders stands here in its smallest form.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "context.h"
#include "fast.h"
#include "life.h"
#include "log.h"
#include "meet.h"
#include "move.h"
#include "pool.h"

#define STREAMS 8
#define COLLECTIVE 99 /* the function that meets its peers */
#define RCK_WORDS 0x7000000000ULL

struct ds_real ds_real_table;
struct ds_process ds_process = {.ready = true};
struct ds_device ds_devices[DS_MAX_DEVICES];

static struct ds_stream streams[STREAMS];
static _Atomic(int) busy[STREAMS], waits, nors, wishes, registered, records, fail_wait, owned;
static _Atomic(float) elapsed_ms = 0.05F;
static _Atomic(int) launched, rck_waits, opened, broken, stormed;
static pthread_t spawned;

/* ---- the driver ---- */

static CUresult stream_query(CUstream stream)
{
	return atomic_load(&busy[(uintptr_t)stream - 100]) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
	(void)stream;
	if ((flags == 3) != (value == 0x7fffffff))
		abort();
	if (address == RCK_WORDS + ds_devices[0].board->pages.index * DS_RCK_STRIDE)
		atomic_fetch_add(&rck_waits, 1);
	else if (address != (CUdeviceptr)(uintptr_t)ds_devices[0].board->word)
		abort();
	if (atomic_load(&fail_wait))
		return CUDA_ERROR_NOT_SUPPORTED;
	atomic_fetch_add(flags == 3 ? &nors : &waits, 1);
	return CUDA_SUCCESS;
}

static CUresult host_register(void *address, size_t size, unsigned int flags)
{
	if (size != DS_PAGE_BYTES || flags != CU_MEMHOSTREGISTER_DEVICEMAP || (uintptr_t)address % DS_PAGE_BYTES)
		abort();
	atomic_fetch_add(&registered, 1);
	return CUDA_SUCCESS;
}

static CUresult device_pointer(CUdeviceptr *out, void *address, unsigned int flags)
{
	(void)flags;
	*out = (CUdeviceptr)(uintptr_t)address;
	return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *event, unsigned int flags)
{
	static _Atomic(uintptr_t) next = 1000;

	(void)flags;
	*event = (CUevent)atomic_fetch_add(&next, 1);
	return CUDA_SUCCESS;
}

/* an event is done when the stream it was recorded on last is: the shell keeps the one answer for all */
static CUresult event_record(CUevent event, CUstream stream)
{
	(void)event;
	(void)stream;
	atomic_fetch_add(&records, 1);
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
	int n;

	(void)event;
	for (n = 0; n < STREAMS; n++)
		if (atomic_load(&busy[n]))
			return CUDA_ERROR_NOT_READY;
	return CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to)
{
	(void)from;
	(void)to;
	*ms = atomic_load(&elapsed_ms);
	return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
	(void)event;
	return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *stream, unsigned int flags)
{
	(void)flags;
	*stream = (CUstream)(uintptr_t)(100 + STREAMS - 1);
	return CUDA_SUCCESS;
}

static CUresult ipc_open(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	(void)flags;
	if (handle.reserved[0] != 'h')
		return CUDA_ERROR_INVALID_VALUE;
	*address = RCK_WORDS;
	return CUDA_SUCCESS;
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
	(void)flags;
	if (stream != (CUstream)(uintptr_t)(100 + STREAMS - 1) || value ||
	    address != RCK_WORDS + ds_devices[0].board->pages.index * DS_RCK_STRIDE)
		abort();
	atomic_fetch_add(&opened, 1);
	return CUDA_SUCCESS;
}

static CUresult total_mem(size_t *size, CUdevice device)
{
	(void)device;
	*size = 80UL << 30;
	return CUDA_SUCCESS;
}

static __attribute__((noinline)) CUresult launch_kernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
							 unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
							 void **params, void **extra)
{
	__asm__ volatile("" : : "r"(f), "r"(gx), "r"(gy), "r"(gz), "r"(bx), "r"(by), "r"(bz), "r"(shared), "r"(stream), "r"(params), "r"(extra));
	return CUDA_SUCCESS;
}

/* ---- the other parts ---- */

void ds_load(void)
{
}

void ds_info(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
}

void ds_debug(const char *format, ...)
{
	(void)format;
}

const char *ds_error_name(CUresult error)
{
	return error == CUDA_ERROR_NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : "an error";
}

void ds_own_begin(struct ds_own *own, struct ds_device *device)
{
	(void)own;
	if (!device->primary)
		abort();
	atomic_fetch_add(&owned, 1);
}

void ds_own_end(struct ds_own *own)
{
	(void)own;
	atomic_fetch_sub(&owned, 1);
}

void ds_pool_wish(struct ds_device *device)
{
	(void)device;
	atomic_fetch_add(&wishes, 1);
}

void ds_pool_wait(struct ds_device *device, unsigned int tier, uint64_t ns)
{
	(void)device;
	(void)tier;
	(void)ns;
}

/* a pool that has whatever is wished for */
bool ds_pool_settled(struct ds_device *device, unsigned int tier)
{
	(void)device;
	(void)tier;
	return true;
}

CUstream ds_stream_slow(struct ds_stream *stream, unsigned int tier)
{
	(void)tier;
	return stream->cur;
}

void ds_stream_work_done(struct ds_stream *stream)
{
	(void)stream;
}

static void setup(void)
{
	struct ds_device *device = &ds_devices[0];
	int n;

	ds_real_table.cuStreamQuery = stream_query;
	ds_real_table.cuStreamWaitValue32_v2 = wait_value;
	ds_real_table.cuMemHostRegister_v2 = host_register;
	ds_real_table.cuMemHostGetDevicePointer_v2 = device_pointer;
	ds_real_table.cuEventCreate = event_create;
	ds_real_table.cuEventRecord = event_record;
	ds_real_table.cuEventQuery = event_query;
	ds_real_table.cuEventElapsedTime = event_elapsed;
	ds_real_table.cuEventDestroy_v2 = event_destroy;
	ds_real_table.cuStreamCreate = stream_create;
	ds_real_table.cuDeviceTotalMem_v2 = total_mem;
	ds_real_table.cuIpcOpenMemHandle_v2 = ipc_open;
	ds_real_table.cuStreamWriteValue32_v2 = write_value;
	ds_real_table.cuLaunchKernel = launch_kernel;
	pthread_mutex_init(&device->lock, NULL);
	device->primary = (CUcontext)1;
	device->sms = 132;
	device->sm_step = 8;
	memset(device->uuid.bytes, 'u', sizeof(device->uuid.bytes));
	for (n = 0; n < STREAMS - 1; n++) {
		streams[n] = (struct ds_stream){ .cur = (CUstream)(uintptr_t)(100 + n), .device = device, .next = device->streams };
		device->streams = &streams[n];
	}
}

/* as begin.h does it */
static inline __attribute__((always_inline)) unsigned int launch_on(struct ds_stream *stream, uintptr_t function, unsigned int grid,
								    enum ds_launch_kind kind)
{
	struct ds_launch launch = { .stream = stream, .function = (void *)function, .grid = { grid, 1, 1 }, .block = { 32, 1, 1 }, .kind = kind };
	struct ds_board *board = stream->device->board;
	unsigned int tier;
	CUresult result;

	ds_fast_active(board);
	if (atomic_load(&board->job) && function == COLLECTIVE)
		ds_meet(board);
	tier = ds_fast_tier(board);
	launch.actual = ds_stream_use(stream, 0);
	ds_fast_before(board, &launch);
	result = ds_real_table.cuLaunchKernel((CUfunction)function, grid, 1, 1, 32, 1, 1, 0, launch.actual, NULL, NULL);
	ds_fast_after(board, &launch, result);
	ds_stream_done(stream);
	return tier;
}

struct batch {
	int stream, count;
	unsigned long function;
	unsigned int grid;
};

static void *spawn(void *arg)
{
	struct batch *batch = arg;
	int n;

	for (n = 0; n < batch->count; n++) {
		launch_on(&streams[batch->stream], batch->function, batch->grid, DS_LAUNCH_KERNEL);
		atomic_fetch_add(&launched, 1);
	}
	return NULL;
}

static void synced(int n)
{
	uint64_t word = atomic_load(&streams[n].word);

	atomic_store(&streams[n].idle_at, (uint32_t)(word / DS_WORD_CALL));
	ds_synced(&ds_devices[0], &streams[n]);
}

/* While a launch is under way, slot 0 of a lower class knows that we are active, however idle edges fall. */
static void *storm(void *arg)
{
	struct ds_board *board = ds_devices[0].board;
	struct ds_launch launch = { .stream = &streams[0] };
	uint32_t bit = 1U << board->pages.index;
	int n, spin;

	for (n = 0; n < *(int *)arg; n++) {
		ds_fast_active(board);
		for (spin = 0; spin < (n % 2 ? 20 : 4000); spin++)
			if (!(__atomic_load_n(&board->pages.activity->slots[0].word, __ATOMIC_RELAXED) & bit))
				atomic_fetch_add(&broken, 1);
		ds_fast_after(board, &launch, CUDA_SUCCESS);
		if (n % 64 == 0)
			ds_nap(20000); /* room for an edge, however few CPUs there are */
	}
	atomic_store(&stormed, 1);
	return NULL;
}

static void edges(int count)
{
	struct ds_board *board = ds_devices[0].board;
	unsigned long taken = 0;
	pthread_t thread;
	uint64_t launches;
	bool inside;

	atomic_store(&broken, 0);
	atomic_store(&stormed, 0);
	pthread_create(&thread, NULL, storm, &count);
	while (!atomic_load(&stormed)) {
		launches = ds_launches(board, &inside);
		if (inside)
			continue;
		ds_idle_edge(board, launches);
		taken += !atomic_load(&board->active);
	}
	pthread_join(thread, NULL);
	printf("%d %lu\n", atomic_load(&broken), taken);
}

static void child(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		ds_board_child();
		_exit(ds_devices[0].board ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	printf("%d\n", status);
}

static void state(void)
{
	struct ds_board *board = ds_devices[0].board;

	printf("word=%#x active=%d floor=%d holds=%d waits=%d nors=%d registered=%d wishes=%d records=%d launched=%d ready=%d rck=%d opened=%d\n",
	       atomic_load(board->word), atomic_load(&board->active), atomic_load(&board->floor), atomic_load(&board->holds),
	       atomic_load(&waits), atomic_load(&nors), atomic_load(&registered), atomic_load(&wishes), atomic_load(&records),
	       atomic_load(&launched), atomic_load(&board->gate_word) > 1, atomic_load(&rck_waits), atomic_load(&opened));
}

static unsigned int estimate(unsigned long function, unsigned int grid)
{
	struct ds_launch launch = { .function = (void *)function, .grid = { grid, 1, 1 } };
	uint64_t key = ds_profile_key(&launch);

	return atomic_load(&ds_profile_slow(ds_devices[0].board->profiles, key)->ewma_ns);
}

int main(void)
{
	static struct batch batch;
	char line[200], word[20];
	int a, c, n;
	unsigned long b;
	unsigned int d;
	float f;

	setup();
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%19s", word) != 1)
			continue;
		if (!strcmp(word, "attach")) {
			printf("%d\n", ds_board_attach(&ds_devices[0]));
		} else if (!strcmp(word, "detach")) {
			ds_board_detach(&ds_devices[0]);
			printf("%d\n", ds_devices[0].board == NULL);
		} else if (sscanf(line, "launch %d %lu %u %d", &a, &b, &d, &c) == 4) {
			unsigned int tier = 0;

			for (n = 0; n < c; n++)
				tier = launch_on(&streams[a], b, d, DS_LAUNCH_KERNEL);
			printf("%u\n", tier);
		} else if (sscanf(line, "graph %d %lu", &a, &b) == 2) {
			printf("%u\n", launch_on(&streams[a], b, 0, DS_LAUNCH_GRAPH));
		} else if (sscanf(line, "spawn %d %lu %u %d", &a, &b, &d, &c) == 4) {
			batch = (struct batch){ .stream = a, .function = b, .grid = d, .count = c };
			printf("%d\n", pthread_create(&spawned, NULL, spawn, &batch));
		} else if (!strcmp(word, "join")) {
			printf("%d\n", pthread_join(spawned, NULL));
		} else if (sscanf(line, "busy %d %d", &a, &c) == 2) {
			atomic_store(&busy[a], c);
			printf("0\n");
		} else if (sscanf(line, "sync %d", &a) == 1) {
			synced(a);
			printf("0\n");
		} else if (sscanf(line, "enter %d", &a) == 1) { /* a launch that does not come back; `leave` ends it */
			ds_fast_active(ds_devices[0].board);
			printf("%u\n", ds_fast_tier(ds_devices[0].board));
		} else if (!strcmp(word, "leave")) {
			struct ds_launch launch = { .stream = &streams[0] };

			ds_fast_after(ds_devices[0].board, &launch, CUDA_SUCCESS);
			printf("0\n");
		} else if (sscanf(line, "elapsed %f", &f) == 1) {
			atomic_store(&elapsed_ms, f);
			printf("0\n");
		} else if (sscanf(line, "estimate %lu %u", &b, &d) == 2) {
			printf("%u\n", estimate(b, d));
		} else if (sscanf(line, "failwait %d", &a) == 1) {
			atomic_store(&fail_wait, a);
			printf("0\n");
		} else if (sscanf(line, "fences %d", &a) == 1) {
			ds_process.fences = a;
			printf("0\n");
		} else if (!strcmp(word, "state")) {
			state();
		} else if (!strcmp(word, "lock")) {
			printf("%d\n", pthread_mutex_lock(&ds_devices[0].lock));
		} else if (!strcmp(word, "unlock")) {
			printf("%d\n", pthread_mutex_unlock(&ds_devices[0].lock));
		} else if (sscanf(line, "edges %d", &a) == 1) {
			edges(a);
		} else if (!strcmp(word, "child")) {
			child();
		} else if (!strcmp(word, "exit")) {
			exit(0);
		} else {
			printf("what? %s", line);
		}
	}
	return 0;
}
