// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA program that also speaks to the driver by itself, as it is told on stdin, a JSON line for each answer. It looks over libcuda's
 * shoulder (this file's ioctl() comes before the library's) and so knows the names of what libcuda made: clients, groups, channels, doorbells.
 *   objects                                  what libcuda made: client, parent, object, class; channels' tokens; the doorbell
 *   run US PERIOD_MS | stop                  a thread that launches kernels, one every so often, and counts
 *   count                                    launched, ran
 *   control CLIENT OBJECT CMD HEX            RM_CONTROL with these parameters
 *   dup CLIENT PARENT NEW CLIENT OBJECT      DUP_OBJECT, of the latter
 *   free CLIENT PARENT OBJECT
 *   idle CLIENT DEVICE OTHER CHANNEL US      IDLE_CHANNELS of a list of one: a channel of another client
 *   door TOKEN                               a mapping of the doorbell of its own, and a store to it, by a thread
 *   aside LINE                               the same by a thread: for what may have to wait
 * Numbers are in any base that strtoul() knows. Calls go through the file by which libcuda made its channel groups.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "cuda.h"

#define RM_FREE 0x29
#define RM_CONTROL 0x2a
#define RM_ALLOC 0x2b
#define RM_DUP 0x34
#define RM_IDLE 0x41
#define RM_MAP 0x4e
#define REGISTER_FD 201
#define ESCAPE(nr, size) _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, size)
#define GROUP 0xa06cu		/* KEPLER_CHANNEL_GROUP_A */
#define TOKEN 0xc36f0108u	/* NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN */
#define DOOR_BYTES 0x10000u
#define DOOR_AT 0x90u		/* of the doorbell in its page */
#define IDLE_LIST (2u << 4)	/* NVOS30_FLAGS_CHANNEL_LIST */
#define MOST 4096
#define PARAMS 20480

static struct { uint32_t client, parent, object, class; } made[MOST];
static struct { uint32_t client, channel, token; } tokens[MOST];
static unsigned int made_count, token_count;
static uint32_t door_block[14];	/* how libcuda mapped its doorbell */
static int control_fd = -1;

static uint32_t word(const void *block, unsigned int at)
{
	uint32_t value;

	memcpy(&value, (const char *)block + at, 4);
	return value;
}

/* What libcuda asked, and was given. */
static void watch(int fd, unsigned int nr, const void *block, unsigned int size)
{
	if (nr == RM_ALLOC && (size == 48 || size == 32) && !word(block, size == 48 ? 40 : 28) && made_count < MOST) {
		if (word(block, 12) == GROUP)
			control_fd = fd;
		made[made_count].client = word(block, 12) == 0x41 || word(block, 12) < 2 ? word(block, 8) : word(block, 0);
		made[made_count].parent = word(block, 4);
		made[made_count].object = word(block, 8);
		made[made_count++].class = word(block, 12);
	}
	if (nr == RM_CONTROL && size == 32 && word(block, 8) == TOKEN && !word(block, 28) && token_count < MOST) {
		const void *params;

		memcpy(&params, (const char *)block + 16, sizeof(params));
		tokens[token_count].client = word(block, 0);
		tokens[token_count].channel = word(block, 4);
		tokens[token_count++].token = word(params, 0);
	}
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	void *argument;
	va_list args;
	long result;

	va_start(args, request);
	argument = va_arg(args, void *);
	va_end(args);
	/* as it was asked: the answer has other flags */
	if (request == ESCAPE(RM_MAP, sizeof(door_block)) && word(argument, 24) == DOOR_BYTES && !door_block[0])
		memcpy(door_block, argument, sizeof(door_block));
	result = syscall(SYS_ioctl, fd, request, argument);
	if (!result && _IOC_TYPE(request) == 'F')
		watch(fd, _IOC_NR(request), argument, _IOC_SIZE(request));
	return (int)result;
}

/* errno, or the status that stands at `at` of the block. */
static void escape(const char *event, unsigned int nr, void *block, unsigned int size, unsigned int at)
{
	int error = syscall(SYS_ioctl, control_fd, ESCAPE(nr, size), block) < 0 ? errno : 0;

	printf("{\"event\":\"%s\",\"errno\":%d,\"status\":%u,\"t\":%.6f}\n", event, error, word(block, at), cuda_now());
}

static void objects(void)
{
	printf("{\"event\":\"objects\",\"objects\":[");
	for (unsigned int i = 0; i < made_count; i++)
		printf("%s[%u,%u,%u,%u]", i ? "," : "", made[i].client, made[i].parent, made[i].object, made[i].class);
	printf("],\"tokens\":[");
	for (unsigned int i = 0; i < token_count; i++)
		printf("%s[%u,%u,%u]", i ? "," : "", tokens[i].client, tokens[i].channel, tokens[i].token);
	printf("],\"door\":%u}\n", door_block[2]);
}

static void control(uint32_t client, uint32_t object, uint32_t cmd, const char *hex)
{
	static unsigned char params[PARAMS];
	unsigned int size = 0;
	uint32_t block[8] = { client, object, cmd, 0, 0, 0, 0, UINT32_MAX };
	void *at = params;

	for (; size < PARAMS && sscanf(hex + 2 * size, "%2hhx", &params[size]) == 1; size++)
		;
	memcpy(&block[4], &at, sizeof(at));
	block[6] = size;
	escape("control", RM_CONTROL, block, sizeof(block), 28);
}

static void idle(uint32_t client, uint32_t device, uint32_t other, uint32_t channel, uint32_t us)
{
	uint32_t block[14] = { client, device, channel, 1 };
	void *lists[3] = { &other, &device, &channel };

	memcpy(&block[4], lists, sizeof(lists));
	block[10] = IDLE_LIST;
	block[11] = us;
	block[12] = UINT32_MAX;
	escape("idle", RM_IDLE, block, sizeof(block), 48);
}

/* ---- a doorbell ---- */

static void *store(void *token)
{
	uint32_t block[14], fd32 = (uint32_t)control_fd;
	int fd = open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
	volatile uint32_t *door;

	memcpy(block, door_block, sizeof(block));
	block[12] = (uint32_t)fd;
	block[10] = UINT32_MAX;
	if (fd < 0 || syscall(SYS_ioctl, fd, ESCAPE(REGISTER_FD, 4), &fd32) ||
	    syscall(SYS_ioctl, control_fd, ESCAPE(RM_MAP, sizeof(block)), block) || block[10]) {
		printf("{\"event\":\"door\",\"errno\":%d,\"status\":%u}\n", errno, block[10]);
		fflush(stdout);
		return NULL;
	}
	door = mmap(NULL, DOOR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	printf("{\"event\":\"door\",\"errno\":%d,\"status\":0}\n", door == MAP_FAILED ? errno : 0);
	fflush(stdout);
	if (door == MAP_FAILED)
		return NULL;
	door[DOOR_AT / 4] = (uint32_t)(uintptr_t)token;
	printf("{\"event\":\"rang\",\"t\":%.6f}\n", cuda_now());
	fflush(stdout);
	return NULL;
}

/* ---- work ---- */

static volatile int running;
static uint64_t period_us, work_us;

static void *work(void *nothing)
{
	cuda_launch_t entry = (cuda_launch_t)cuda_find("cuLaunchKernel");

	(void)nothing;
	MUST(cuCtxSetCurrent, (void *), cuda_context);
	while (running) {
		double begun = cuda_now();

		cuda_launch(entry, cuda_rounds(work_us));
		MUST(cuStreamSynchronize, (void *), cuda_stream);
		printf("{\"event\":\"request\",\"t\":%.6f,\"us\":%.0f}\n", begun, (cuda_now() - begun) * 1e6);
		fflush(stdout);
		usleep((useconds_t)period_us);
	}
	return NULL;
}

static void obey(const char *line);

static void *obey_aside(void *line)
{
	obey(line);
	free(line);
	return NULL;
}

static void begin_thread(void *(*what)(void *), void *with)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, what, with))
		exit(1);
	pthread_detach(thread);
}

static void run(uint64_t us, uint64_t period_ms)
{
	cuda_rounds(us);	/* calibrates */
	work_us = us;
	period_us = period_ms * 1000;
	running = 1;
	begin_thread(work, NULL);
}

static void obey(const char *line)
{
	unsigned long a, b, c, d, e;
	int at = 0;

	if (!strncmp(line, "objects", 7)) {
		objects();
	} else if (sscanf(line, "run %lu %lu", &a, &b) == 2) {
		run(a, b);
		printf("{\"event\":\"runs\",\"t\":%.6f}\n", cuda_now());
	} else if (!strncmp(line, "stop", 4)) {
		running = 0;
	} else if (!strncmp(line, "count", 5)) {
		printf("{\"event\":\"count\",\"launched\":%lu,\"ran\":%u,\"t\":%.6f}\n", cuda_launched, *cuda_count, cuda_now());
	} else if (sscanf(line, "control %li %li %li %n", (long *)&a, (long *)&b, (long *)&c, &at) == 3 && at) {
		control((uint32_t)a, (uint32_t)b, (uint32_t)c, line + at);
	} else if (sscanf(line, "dup %li %li %li %li %li", (long *)&a, (long *)&b, (long *)&c, (long *)&d, (long *)&e) == 5) {
		uint32_t block[7] = { (uint32_t)a, (uint32_t)b, (uint32_t)c, (uint32_t)d, (uint32_t)e, 0, UINT32_MAX };

		escape("dup", RM_DUP, block, sizeof(block), 24);
	} else if (sscanf(line, "free %li %li %li", (long *)&a, (long *)&b, (long *)&c) == 3) {
		uint32_t block[4] = { (uint32_t)a, (uint32_t)b, (uint32_t)c, UINT32_MAX };

		escape("free", RM_FREE, block, sizeof(block), 12);
	} else if (sscanf(line, "idle %li %li %li %li %li", (long *)&a, (long *)&b, (long *)&c, (long *)&d, (long *)&e) == 5) {
		idle((uint32_t)a, (uint32_t)b, (uint32_t)c, (uint32_t)d, (uint32_t)e);
	} else if (sscanf(line, "door %li", (long *)&a) == 1) {
		begin_thread(store, (void *)a);
	} else if (!strncmp(line, "aside ", 6)) {
		begin_thread(obey_aside, strdup(line + 6));
	}
	fflush(stdout);
}

int main(void)
{
	static char line[2 * PARAMS + 256];

	cuda_open();
	cuda_begin();
	printf("{\"event\":\"ready\",\"pid\":%d,\"t\":%.6f}\n", getpid(), cuda_now());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	return 0;
}
