/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `dice_green SEED STEPS`: a program with green contexts and contexts of its own, the same calls with and without the library, whose tiers change and whose
 * daemon parks meanwhile. What each call answered goes to stdout. The order of its work is kept by events of all kinds, or by waiting.
 */
#include "dice.h"
#include "weather.h"

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device);
CUresult cuGreenCtxDestroy(CUgreenCtx green);
CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event);
CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event);
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green);
CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green);

enum { GREENS = 3, STREAMS = 2, CENSUS = 264 };

struct green {
	CUgreenCtx handle;
	CUcontext context;
	CUstream streams[2];
	CUfunction mix; /* of the primary context: they share its modules */
	unsigned int sms;
};

static struct green greens[GREENS];
static struct worker me;
static CUcontext primary;
static CUfunction mix, census;
static CUstream own[STREAMS + 2]; /* and the default ones */
static struct {
	CUdeviceptr at;
	size_t size;
	CUstream last; /* where its last work is */
	struct green *in; /* whose stream that is */
} data[4];
static CUevent event;
static CUgraphExec exec;

static void load(struct worker *self)
{
	extern const char client_image[];
	CUmodule module;

	CALL(cuModuleLoadData, &module, client_image);
	CALL(cuModuleGetFunction, &mix, module, "mix");
	CALL(cuModuleGetFunction, &census, module, "census");
}

static void begins(struct worker *self)
{
	PATIENT(cuDevicePrimaryCtxRetain, &primary, 0);
	CALL(cuCtxSetCurrent, primary);
	load(self);
	CALL(cuStreamCreate, &own[0], CU_STREAM_NON_BLOCKING);
	CALL(cuStreamCreate, &own[1], 0);
	own[2] = CU_STREAM_LEGACY;
	own[3] = CU_STREAM_PER_THREAD;
	CALL(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	/* there before a context waits: what comes later does not */
	CALL(cuEventRecord, event, CU_STREAM_PER_THREAD);
}

static void settle(struct worker *self)
{
	CALL(cuCtxSynchronize);
	for (unsigned int n = 0; n < 4; n++)
		data[n].last = NULL;
}

/* Work on the block goes to this stream: of a green context, if there is one and the dice say so. */
static CUstream stream_for(struct worker *self, unsigned int block)
{
	struct green *green = &greens[dice(self, GREENS)], *in = data[block].in;
	CUstream stream = green->handle && dice(self, 2) ? green->streams[dice(self, 2)] : own[dice(self, 4)];

	if (stream != green->streams[0] && stream != green->streams[1])
		green = NULL;
	if (data[block].last && data[block].last != stream) {
		switch (dice(self, 5)) {
		case 0:
			CALL(cuStreamSynchronize, data[block].last);
			break;
		case 1:
			if (in)
				CALL(cuGreenCtxRecordEvent, in->handle, event);
			else
				CALL(cuCtxRecordEvent, primary, event);
			CALL(cuStreamWaitEvent, stream, event, 0);
			break;
		case 2:
			CALL(cuEventRecord, event, data[block].last);
			if (green)
				CALL(cuGreenCtxWaitEvent, green->handle, event);
			else
				CALL(cuCtxWaitEvent, primary, event);
			break;
		default:
			CALL(cuEventRecord, event, data[block].last);
			CALL(cuStreamWaitEvent, stream, event, 0);
		}
	}
	data[block].last = stream;
	data[block].in = green;
	return stream;
}

static CUresult mix_on(struct worker *self, CUstream stream, CUdeviceptr at, uint32_t words)
{
	uint32_t a = 2 * dice(self, 1000) + 1, b = dice(self, 1000);
	void *params[] = {&at, &words, &a, &b};

	return CALL(cuLaunchKernel, mix, 8, 1, 1, 64, 1, 1, 0, stream, params, NULL);
}

static void asks(struct worker *self, const struct green *green)
{
	CUdevResource whole = {0}, mine = {0}, same = {0};
	CUcontext context = NULL;
	CUgreenCtx which = NULL;

	CALL(cuDeviceGetDevResource, 0, &whole, CU_DEV_RESOURCE_TYPE_SM);
	CALL(cuCtxGetDevResource, primary, &mine, CU_DEV_RESOURCE_TYPE_SM);
	say(self, " %u %u", whole.sm.smCount, mine.sm.smCount);
	for (unsigned int n = 0; n < STREAMS; n++) {
		CALL(cuStreamGetGreenCtx, own[n], &which);
		CALL(cuStreamGetCtx, own[n], &context);
		say(self, " %d %d", which != NULL, context == primary);
	}
	if (!green->handle)
		return;
	CALL(cuGreenCtxGetDevResource, green->handle, &mine, CU_DEV_RESOURCE_TYPE_SM);
	CALL(cuCtxGetDevResource, green->context, &same, CU_DEV_RESOURCE_TYPE_SM);
	CALL(cuStreamGetGreenCtx, green->streams[0], &which);
	say(self, " %u %u %d", mine.sm.smCount, same.sm.smCount, which == green->handle);
	CALL(cuStreamGetCtx_v2, green->streams[1], &context, &which);
	say(self, " %d %d", context == NULL, which == green->handle);
}

static void makes(struct worker *self, struct green *green)
{
	CUdevResource whole, groups[4], rest, *chosen = &groups[0];
	unsigned int count = 1 + dice(self, 4);
	CUdevResourceDesc desc;

	CALL(cuDeviceGetDevResource, 0, &whole, CU_DEV_RESOURCE_TYPE_SM);
	CALL(cuDevSmResourceSplitByCount, groups, &count, &whole, &rest, 0, 1 + dice(self, 40));
	chosen = dice(self, 4) ? &groups[dice(self, count)] : &rest;
	CALL(cuDevResourceGenerateDesc, &desc, chosen, 1);
	if (CALL(cuGreenCtxCreate, &green->handle, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM)) {
		green->handle = NULL;
		return;
	}
	green->sms = chosen->sm.smCount;
	CALL(cuCtxFromGreenCtx, &green->context, green->handle);
	CALL(cuGreenCtxStreamCreate, &green->streams[0], green->handle, CU_STREAM_NON_BLOCKING, -(int)dice(self, 3));
	CALL(cuGreenCtxStreamCreate, &green->streams[1], green->handle, 0, 0);
	CALL(cuCtxPushCurrent_v2, green->context);
	CALL(cuStreamCreate, &green->streams[1], CU_STREAM_NON_BLOCKING);
	CALL(cuCtxPopCurrent_v2, &(CUcontext){NULL});
}

static void ends(struct worker *self, struct green *green)
{
	settle(self);
	CALL(cuStreamDestroy_v2, green->streams[0]);
	CALL(cuStreamDestroy_v2, green->streams[1]);
	CALL(cuGreenCtxDestroy, green->handle);
	memset(green, 0, sizeof(*green));
}

/* How many SMs its work runs on, which no tier changes. */
static void counts(struct worker *self, struct green *green)
{
	uint32_t sms[CENSUS];
	bool seen[1024] = {false};
	unsigned int count = 0;
	CUdeviceptr room = 0, none = 0;
	void *params[] = {&room, &none};

	PATIENT(cuMemAlloc_v2, &room, sizeof(sms));
	CALL(cuLaunchKernel, census, CENSUS, 1, 1, 32, 1, 1, 0, green->streams[dice(self, 2)], params, NULL);
	settle(self);
	CALL(cuMemcpyDtoH_v2, sms, room, sizeof(sms));
	CALL(cuMemFree_v2, room);
	for (unsigned int n = 0; n < CENSUS; n++) {
		count += !seen[sms[n]];
		seen[sms[n]] = true;
	}
	say(self, " %u of %u", count, green->sms);
}

/* With its context current, or another one of the same GPU. */
static void within(struct worker *self, CUcontext context, unsigned int block, bool shares)
{
	uint32_t word = 7;
	CUdeviceptr at = 0;

	settle(self);
	CALL(cuCtxPushCurrent_v2, context);
	PATIENT(cuMemAlloc_v2, &at, 2 * MIB);
	CALL(cuMemcpyDtoD_v2, at, data[block].at, data[block].size < 2 * MIB ? data[block].size : 2 * MIB);
	if (shares) {
		mix_on(self, CU_STREAM_LEGACY, at, 16);
		mix_on(self, CU_STREAM_PER_THREAD, data[block].at, 16);
	}
	CALL(cuCtxSynchronize);
	CALL(cuMemcpyDtoH_v2, &word, at, sizeof(word));
	say(self, " %u", word);
	CALL(cuMemFree_v2, at);
	CALL(cuCtxPopCurrent_v2, &(CUcontext){NULL});
}

static void beside(struct worker *self, unsigned int block)
{
	CUcontext other = NULL;

	settle(self);
	if (CALL(cuCtxCreate_v4, &other, NULL, 0, 0))
		return;
	CALL(cuCtxPopCurrent_v2, &(CUcontext){NULL});
	within(self, other, block, false);
	CALL(cuCtxDestroy_v2, other);
	CALL(cuCtxSetCurrent, primary);
}

static void graphs(struct worker *self, unsigned int block, struct green *green)
{
	CUstream stream = green->handle ? green->streams[0] : own[0];
	CUgraph graph;

	settle(self);
	if (exec)
		CALL(cuGraphExecDestroy, exec);
	CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL + dice(self, 2));
	CALL(cuMemsetD32Async, data[block].at, dice(self, 1000), 1, stream);
	mix_on(self, stream, data[block].at, 16);
	CALL(cuStreamEndCapture, stream, &graph);
	CALL(cuGraphInstantiateWithFlags, &exec, graph, 0);
	CALL(cuGraphDestroy, graph);
	PATIENT(cuGraphLaunch, exec, stream_for(self, block));
	if (dice(self, 2))
		PATIENT(cuGraphLaunch, exec, stream_for(self, block));
	settle(self);
	CALL(cuGraphExecDestroy, exec);
	exec = NULL;
}

static void reads(struct worker *self, unsigned int block)
{
	uint64_t sum = 14695981039346656037ULL;
	unsigned char *bytes = malloc(data[block].size);

	if (data[block].last)
		CALL(cuStreamSynchronize, data[block].last);
	data[block].last = NULL;
	CALL(cuMemcpyDtoH_v2, bytes, data[block].at, data[block].size);
	for (size_t n = 0; n < data[block].size; n++)
		sum = (sum ^ bytes[n]) * 1099511628211ULL;
	say(self, " [%016lx]", (unsigned long)sum);
	free(bytes);
}

static void renews(struct worker *self, unsigned int block)
{
	settle(self);
	if (data[block].at)
		CALL(cuMemFree_v2, data[block].at);
	data[block].size = 64 + 4 * (size_t)dice(self, MIB);
	PATIENT(cuMemAlloc_v2, &data[block].at, data[block].size);
	CALL(cuMemsetD8Async, data[block].at, (unsigned char)dice(self, 256), data[block].size, stream_for(self, block));
}

/* The last reference of the program's goes, green contexts keep the context; or all of it goes. */
static void released(struct worker *self)
{
	bool kept = false;

	settle(self);
	for (unsigned int n = 0; n < GREENS; n++)
		kept |= greens[n].handle != NULL;
	CALL(cuDevicePrimaryCtxRelease_v2, 0);
	if (kept) {
		PATIENT(cuDevicePrimaryCtxRetain, &primary, 0);
		CALL(cuCtxSetCurrent, primary);
		return;
	}
	memset(data, 0, sizeof(data));
	begins(self);
	for (unsigned int n = 0; n < 4; n++)
		renews(self, n);
}

static void step(struct worker *self)
{
	struct green *green = &greens[dice(self, GREENS)];
	unsigned int block = dice(self, 4), what = dice(self, 40);

	say(self, "\n%u green %ld block %u:", self->called++, (long)(green - greens), block);
	if (what < 3 && !green->handle && self->called > self->steps / 3)
		makes(self, green);
	else if (what < 2 && green->handle)
		ends(self, green);
	else if (what < 5)
		asks(self, green);
	else if (what < 7 && green->handle)
		counts(self, green);
	else if (what < 9 && green->handle)
		within(self, green->context, block, true);
	else if (what < 11)
		graphs(self, block, green);
	else if (what < 12)
		beside(self, block);
	else if (what < 13)
		released(self);
	else if (what < 15)
		renews(self, block);
	else if (what < 19)
		reads(self, block);
	else if (what < 23)
		CALL(cuMemsetD8Async, data[block].at + 16, (unsigned char)what, 40, stream_for(self, block));
	else
		mix_on(self, stream_for(self, block), data[block].at, 16);
}

int main(int count, char **words)
{
	struct worker *self = &me;

	self->seed = count == 3 ? (unsigned int)atoi(words[1]) : 1;
	self->steps = count == 3 ? (unsigned int)atoi(words[2]) : 100;
	daemon_start();
	if (cuInit(0))
		return 1;
	weather_begin(self->seed);
	begins(self);
	for (unsigned int n = 0; n < 4; n++)
		renews(self, n);
	for (unsigned int n = 0; n < self->steps; n++) {
		step(self);
		usleep((n * 7919) % 2000);
	}
	for (unsigned int n = 0; n < GREENS; n++)
		if (greens[n].handle)
			ends(self, &greens[n]);
	weather_end();
	printf("%s\n", self->record);
	return 0;
}
