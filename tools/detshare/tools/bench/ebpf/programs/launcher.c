// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA program by the driver's interface that launches as it is told by the line, and answers each line with one of JSON:
 *   launch N     N launches, 500 at a time, each followed by a wait; the time and the CPU time of all
 *   pace N HZ    N launches, HZ of them a second
 * The kernel's image is PTX, which says that it writes from its first parameter; libcuda is opened at run time, so that
 * nothing of CUDA is needed to build this. It ends at the end of its input.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define BATCH	500
#define ROOM	65536

static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry note(.param .u64 note_dst, .param .u64 note_src, .param .u32 note_n)\n"
	"{\n"
	"	.reg .pred %p;\n	.reg .b32 %r<4>;\n	.reg .b64 %d<6>;\n"
	"	ld.param.u64 %d1, [note_dst];\n"
	"	ld.param.u64 %d2, [note_src];\n"
	"	ld.param.u32 %r1, [note_n];\n"
	"	setp.eq.u32 %p, %r1, 0;\n"
	"	@%p bra done;\n"
	"	cvta.to.global.u64 %d3, %d1;\n"
	"	cvta.to.global.u64 %d4, %d2;\n"
	"	ld.global.u32 %r2, [%d4];\n"
	"	st.global.u32 [%d3], %r2;\n"
	"done:\n"
	"	ret;\n"
	"}\n";

typedef int (*any_fn)();
static void *library;

static any_fn find(const char *name)
{
	any_fn found = (any_fn)(uintptr_t)dlsym(library, name);

	if (!found) {
		fprintf(stderr, "launcher: libcuda has no %s\n", name);
		exit(1);
	}
	return found;
}

static void check(const char *what, int status)
{
	if (status) {
		fprintf(stderr, "launcher: %s failed with %d\n", what, status);
		exit(1);
	}
}

#define CALL(name, ...) check(#name, find(#name)(__VA_ARGS__))

static uint64_t clock_ns(clockid_t which)
{
	struct timespec ts;

	clock_gettime(which, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static struct {
	int (*launch)(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
		      void *, void **, void **);
	any_fn wait;
	void *function, *stream;
	void *params[3];
} it;

static void launch(void)
{
	check("cuLaunchKernel", it.launch(it.function, 1, 1, 1, 1, 1, 1, 0, it.stream, it.params, NULL));
}

static void launches(uint64_t count)
{
	for (uint64_t i = 1; i <= count; i++) {
		launch();
		if (i % BATCH == 0 || i == count)
			check("cuStreamSynchronize", it.wait(it.stream));
	}
}

static uint64_t paced(uint64_t count, uint64_t hz)
{
	uint64_t due = clock_ns(CLOCK_MONOTONIC), late = 0;
	struct timespec ts;

	for (uint64_t i = 0; i < count; i++) {
		due += 1000000000u / hz;
		if (clock_ns(CLOCK_MONOTONIC) >= due) {
			late++;
		} else {
			ts.tv_sec = (time_t)(due / 1000000000u);
			ts.tv_nsec = (long)(due % 1000000000u);
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
		}
		launch();
	}
	check("cuStreamSynchronize", it.wait(it.stream));
	return late;
}

int main(void)
{
	static uint64_t destination, source;
	static uint32_t count = 1;
	unsigned long long number, hz;
	uint64_t begun, cpu, late;
	void *context, *module;
	char line[128];
	int device;

	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		fprintf(stderr, "launcher: %s\n", dlerror());
		return 1;
	}
	prctl(PR_SET_TIMERSLACK, 1);
	CALL(cuInit, 0);
	CALL(cuDeviceGet, &device, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, device);
	CALL(cuCtxSetCurrent, context);
	CALL(cuModuleLoadData, &module, ptx);
	CALL(cuModuleGetFunction, &it.function, module, "note");
	CALL(cuMemAlloc_v2, &destination, (size_t)ROOM);
	CALL(cuMemAlloc_v2, &source, (size_t)ROOM);
	CALL(cuMemsetD8_v2, source, 1, (size_t)ROOM);
	CALL(cuStreamCreate, &it.stream, 1);
	it.launch = (int (*)(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
			     unsigned int, void *, void **, void **))(uintptr_t)find("cuLaunchKernel");
	it.wait = find("cuStreamSynchronize");
	it.params[0] = &destination;
	it.params[1] = &source;
	it.params[2] = &count;
	printf("{\"event\":\"ready\"}\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		late = 0;
		begun = clock_ns(CLOCK_MONOTONIC);
		cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		if (sscanf(line, "launch %llu", &number) == 1) {
			launches(number);
		} else if (sscanf(line, "pace %llu %llu", &number, &hz) == 2 && hz) {
			late = paced(number, hz);
		} else {
			fprintf(stderr, "launcher: no command: %s", line);
			return 2;
		}
		printf("{\"event\":\"done\",\"launches\":%llu,\"ns\":%llu,\"cpu_ns\":%llu,\"late\":%llu}\n", number,
		       (unsigned long long)(clock_ns(CLOCK_MONOTONIC) - begun),
		       (unsigned long long)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu), (unsigned long long)late);
		fflush(stdout);
	}
	return 0;
}
