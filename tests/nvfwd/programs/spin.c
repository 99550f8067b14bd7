// SPDX-License-Identifier: Apache-2.0
/*
 * A program with a CUDA context that does as it is told on stdin, a JSON line for each thing that happens. Kernels spin by the GPU's own
 * clock, and each counts itself in GPU memory, so that none can be lost unseen.
 *   alloc MIB          cuMemAlloc
 *   run US PERIOD_MS   kernels of US microseconds: PERIOD_MS 0: two batches of 20 ms in flight at any time; else one every so often
 *   rest               no more; tells how many were launched and how many ran
 *   end                destroys its context
 */
#include <dlfcn.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH_US 20000
#define SHOWN 0.1	/* seconds between two lines of one that runs */

static const char kernel[] =
	".version 7.0\n.target sm_50\n.address_size 64\n"
	".visible .entry spin(.param .u64 ns, .param .u64 count) {\n"
	".reg .pred %p; .reg .b64 %d<8>; .reg .b32 %r<4>;\n"
	"ld.param.u64 %d1, [ns]; ld.param.u64 %d2, [count]; mov.u64 %d3, %globaltimer;\n"
	"again: mov.u64 %d4, %globaltimer; sub.u64 %d5, %d4, %d3; setp.lt.u64 %p, %d5, %d1; @%p bra again;\n"
	"mov.u32 %r1, 1; atom.global.add.u32 %r2, [%d2], %r1;\nret;\n}\n";

static void *library, *function, *stream, *events[2];
static uint64_t counter, launched, done;

typedef int (*launch_t)(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, void *,
			void **, void **);
typedef int (*record_t)(void *, void *);
typedef int (*sync_t)(void *);

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *find(const char *name)
{
	void *found = dlsym(library, name);

	if (found)
		return found;
	printf("{\"event\":\"failed\",\"step\":\"%s\",\"result\":-1}\n", name);
	exit(1);
}

static void must(const char *step, int result)
{
	if (!result)
		return;
	printf("{\"event\":\"failed\",\"step\":\"%s\",\"result\":%d,\"t\":%.6f}\n", step, result, now());
	exit(1);
}

#define CALL(name, types, ...) (((int (*) types)find(#name))(__VA_ARGS__))
#define MUST(name, types, ...) must(#name, CALL(name, types, __VA_ARGS__))

static void begin(void)
{
	void *context, *module;
	int device;

	MUST(cuInit, (unsigned int), 0);
	MUST(cuDeviceGet, (int *, int), &device, 0);
	MUST(cuCtxCreate_v2, (void **, unsigned int, int), &context, 4, device);	/* who waits sleeps */
	MUST(cuMemAlloc_v2, (uint64_t *, size_t), &counter, 4);
	MUST(cuMemsetD32_v2, (uint64_t, unsigned int, size_t), counter, 0, 1);
	MUST(cuModuleLoadData, (void **, const void *), &module, kernel);
	MUST(cuModuleGetFunction, (void **, void *, const char *), &function, module, "spin");
	MUST(cuStreamCreate, (void **, unsigned int), &stream, 1);
	for (int i = 0; i < 2; i++)
		MUST(cuEventCreate, (void **, unsigned int), &events[i], 1 | 2);
	printf("{\"event\":\"ready\",\"pid\":%d,\"t\":%.6f}\n", getpid(), now());
}

static void alloc(size_t mib)
{
	uint64_t at;
	double begun = now();
	int result = CALL(cuMemAlloc_v2, (uint64_t *, size_t), &at, mib << 20);

	printf("{\"event\":\"alloc\",\"mib\":%zu,\"result\":%d,\"us\":%.0f}\n", mib, result, (now() - begun) * 1e6);
}

static void launch(launch_t entry, uint64_t us)
{
	uint64_t ns = us * 1000;
	void *parameters[] = { &ns, &counter };

	must("cuLaunchKernel", entry(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
	launched++;
}

static int told(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };

	return poll(&in, 1, 0) > 0;
}

static void wait_until(double when)
{
	double left = when - now();
	struct timespec t = { .tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9) };

	if (left > 0)
		nanosleep(&t, NULL);
}

static void run(uint64_t us, unsigned int period_ms)
{
	launch_t entry = (launch_t)find("cuLaunchKernel");
	record_t record = (record_t)find("cuEventRecord");
	sync_t sync = (sync_t)find("cuEventSynchronize");
	uint64_t batch = period_ms ? 1 : BATCH_US / us ? BATCH_US / us : 1;
	double due = now(), shown = due;
	unsigned int turn = 0, filled = 0;

	while (!told()) {
		double begun = now();

		for (uint64_t i = 0; i < batch; i++)
			launch(entry, us);
		must("cuEventRecord", record(events[turn], stream));
		if (period_ms) {
			must("cuEventSynchronize", sync(events[turn]));
			done += batch;
			printf("{\"event\":\"request\",\"t\":%.6f,\"us\":%.0f}\n", begun, (now() - begun) * 1e6);
			fflush(stdout);
			due += period_ms / 1e3;
			if (due < now())
				due = now();
			wait_until(due);
			continue;
		}
		turn ^= 1;
		if (filled++) {
			must("cuEventSynchronize", sync(events[turn]));
			done += batch;
		}
		if (now() - shown >= SHOWN) {
			shown = now();
			printf("{\"event\":\"done\",\"t\":%.6f,\"kernels\":%lu}\n", shown, done);
			fflush(stdout);
		}
	}
}

static void rest(void)
{
	unsigned int ran = 0;

	MUST(cuStreamSynchronize, (void *), stream);
	MUST(cuMemcpyDtoH_v2, (void *, uint64_t, size_t), &ran, counter, sizeof(ran));
	done = launched;
	printf("{\"event\":\"rest\",\"t\":%.6f,\"launched\":%lu,\"ran\":%u}\n", now(), launched, ran);
}

int main(void)
{
	char line[128];
	unsigned long a, b;

	setvbuf(stdin, NULL, _IONBF, 0);	/* poll must see what is there */
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("{\"event\":\"failed\",\"step\":\"dlopen\",\"result\":-1}\n");
		return 1;
	}
	begin();
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "alloc %lu", &a) == 1)
			alloc(a);
		else if (sscanf(line, "run %lu %lu", &a, &b) == 2)
			run(a, (unsigned int)b);
		else if (!strncmp(line, "rest", 4))
			rest();
		else if (!strncmp(line, "end", 3))
			break;
		fflush(stdout);
	}
	return 0;
}
