/* SPDX-License-Identifier: Apache-2.0 */
/* Of `dice`, with DICE_MORE: what few programs do. Libraries and their variables, launches with attributes, functions of the host, words waited for, rows. */
#include "dice.h"

static const char image[] = "fakecuda 1\nkernel mix params=8,4,4,4 duration_us=20\nglobal state size=3145728\n";
enum { STATE = 3 << 20 };

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, CUdeviceptr at);
CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context);
CUresult cuLibraryGetGlobal(CUdeviceptr *at, size_t *size, CUlibrary library, const char *name);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuModuleUnload(CUmodule module);
CUresult cuMemAdvise(CUdeviceptr at, size_t size, CUmem_advise advice, CUdevice device);
CUresult cuMemPrefetchAsync(CUdeviceptr at, size_t size, CUdevice to, CUstream stream);
CUresult cuMemsetD2D8Async(CUdeviceptr at, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream);
CUresult cuMemsetD2D16Async(CUdeviceptr at, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream);
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops, unsigned int flags);
CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr at, size_t length, unsigned int flags);

static size_t rows_of(const struct block *block, size_t *pitch)
{
	*pitch = block->size >= 64 * KIB ? 512 : 16;
	return block->size / *pitch;
}

/* A variable of code, on its way into a block and back. */
static void variable(struct worker *self, struct block *block, CUdeviceptr state, size_t size)
{
	size_t some = block->size < size ? block->size : size;
	uint32_t words[4] = {0};

	say(self, " %zu", size);
	CALL(cuMemsetD32Async, state + size - some, dice(self, 1u << 30), some / 4, dice_stream(self));
	CALL(cuMemcpyDtoDAsync_v2, block->at, state + size - some, some, dice_stream(self));
	dice_settle(self);
	CALL(cuMemcpyDtoH_v2, words, state + size - 4, 4);
	say(self, " %u", words[0]);
}

static void launch(struct worker *self, CUfunction mix, struct block *block)
{
	uint32_t a = 2 * dice(self, 1000) + 1, b = dice(self, 1000), words = block->size >= 2 * KIB ? 512 : 1;
	CUlaunchAttribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -(int)dice(self, 3)},
					   {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1}};
	CUlaunchConfig config = {.gridDimX = 8, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1, .attrs = attributes};
	void *params[] = {&block->at, &words, &a, &b};

	config.numAttrs = dice(self, 3);
	config.hStream = dice_stream(self);
	if (dice(self, 2))
		CALL(cuLaunchKernelEx, &config, mix, params, NULL);
	else
		CALL(cuLaunchCooperativeKernel, mix, 8, 1, 1, 64, 1, 1, 0, config.hStream, params);
}

/* Its code is loaded as it is used first. */
static void libraries(struct worker *self, struct block *block)
{
	CUlibrary library = NULL;
	CUfunction mix = NULL;
	CUkernel kernel = NULL;
	CUdeviceptr state = 0;
	size_t size = 0;

	dice_settle(self);
	CALL(cuLibraryLoadData, &library, image, NULL, NULL, 0, NULL, NULL, 0);
	CALL(cuLibraryGetKernel, &kernel, library, "mix");
	if (dice(self, 2)) {
		CALL(cuKernelGetFunction, &mix, kernel);
		launch(self, mix, block);
	} else {
		launch(self, (CUfunction)kernel, block);
	}
	PATIENT(cuLibraryGetGlobal, &state, &size, library, "state");
	if (size == STATE)
		variable(self, block, state, size);
	dice_settle(self);
	CALL(cuLibraryUnload, library);
}

static void modules(struct worker *self, struct block *block)
{
	CUmodule module = NULL;
	CUdeviceptr state = 0;
	size_t size = 0;

	dice_settle(self);
	PATIENT(cuModuleLoadData, &module, image);
	PATIENT(cuModuleGetGlobal_v2, &state, &size, module, "state");
	if (size == STATE)
		variable(self, block, state, size);
	CALL(cuModuleUnload, module);
}

static void attributes(struct worker *self, struct block *block)
{
	launch(self, here(self)->mix, block);
}

static void rests(void *data)
{
	usleep(4000);
	++*(unsigned int *)data;
}

static void hosts(struct worker *self, struct block *block)
{
	unsigned int times = 0;

	for (unsigned int n = 0; n < 2; n++) {
		launch(self, here(self)->mix, block);
		CALL(cuLaunchHostFunc, dice_stream(self), rests, &times);
	}
	dice_settle(self);
	say(self, " %u", times);
}

static void words(struct worker *self, struct block *block)
{
	CUdeviceptr at = block->at + (block->size - 4) / 8 * 4;
	uint32_t value = dice(self, 1u << 30), got = 0;
	CUstream *streams = here(self)->streams;
	CUstreamBatchMemOpParams ops[2];

	dice_settle(self);
	if (!dice(self, 4))
		CALL(cuStreamWaitValue32_v2, streams[0], at, value, CU_STREAM_WAIT_VALUE_EQ);
	if (dice(self, 2)) {
		CALL(cuStreamWriteValue32_v2, streams[1], at, value, 0);
	} else {
		memset(ops, 0, sizeof(ops));
		ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		ops[0].writeValue.address = at;
		ops[0].writeValue.value = value;
		ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
		ops[1].waitValue.address = at;
		ops[1].waitValue.value = value;
		ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
		CALL(cuStreamBatchMemOp_v2, streams[1], 2, ops, 0);
	}
	CALL(cuStreamWaitValue32_v2, streams[0], at, value, CU_STREAM_WAIT_VALUE_EQ);
	CALL(cuStreamSynchronize, streams[0]);
	CALL(cuStreamSynchronize, streams[1]);
	CALL(cuMemcpyDtoH_v2, &got, at, 4);
	say(self, " %d", got == value);
	CALL(cuStreamWriteValue32_v2, streams[1], at + 2, value, 0);
	CALL(cuStreamWriteValue32_v2, streams[1], 64, value, 0);
}

static void rows(struct worker *self, struct block *block)
{
	size_t pitch, count = rows_of(block, &pitch), width = pitch / 2, height = count < 32 ? count : 32;
	uint32_t host[16 * KIB / 4];
	CUDA_MEMCPY2D plain = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = width, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = block->at, .dstPitch = pitch, .dstXInBytes = width, .WidthInBytes = width};
	CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = block->at, .srcPitch = pitch, .srcHeight = 2, .srcXInBytes = 4,
			      .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = host, .dstPitch = width, .dstHeight = 1, .WidthInBytes = width - 8,
			      .Height = 1};

	for (unsigned int n = 0; n < 16 * KIB / 4; n++)
		host[n] = n * 2654435761U + self->called;
	if (!height)
		return;
	switch (dice(self, 4)) {
	case 0:
		CALL(cuMemsetD2D8Async, block->at + 1, pitch, (unsigned char)dice(self, 256), width, height, dice_stream(self));
		break;
	case 1:
		CALL(cuMemsetD2D16Async, block->at, pitch, (unsigned short)dice(self, 65536), width / 2, height, dice_stream(self));
		break;
	case 2:
		dice_settle(self);
		plain.dstY = dice(self, 2) && height > 1;
		plain.Height = height - plain.dstY;
		CALL(cuMemcpy2D_v2, &plain);
		break;
	default:
		deep.Depth = height / 2;
		if (!deep.Depth)
			break;
		memset(host, 0, sizeof(host));
		CALL(cuMemcpy3DAsync_v2, &deep, dice_stream(self));
		dice_settle(self);
		for (unsigned int n = 0; n < 4; n++)
			say(self, " %u", host[n]);
	}
}

/* Advice about memory of any kind: most is refused. */
static void advice(struct worker *self, struct block *block)
{
	CUdevice device = (CUdevice)self->gpu;

	CALL(cuMemPrefetchAsync, block->at, block->size, device, dice_stream(self));
	CALL(cuMemPrefetchAsync, block->at, block->size + 8 * MIB, device, dice_stream(self));
	CALL(cuMemAdvise, block->at, block->size, 1, device);
	if (block->kind == MANAGED)
		CALL(cuStreamAttachMemAsync, dice_stream(self), block->at, 0, CU_MEM_ATTACH_GLOBAL);
}

/* Of a thread without a context. */
static void nowhere(struct worker *self, struct block *block)
{
	CUstream stream = here(self)->streams[0];

	dice_settle(self);
	CALL(cuCtxSetCurrent, NULL);
	if (block->kind == PLAIN || block->kind == PITCHED || block->kind == STREAMED) {
		CALL(cuMemFree_v2, block->at);
		CALL(cuMemFreeAsync, block->at, stream);
		CALL(cuMemFreeAsync, block->at, NULL);
	}
	CALL(cuMemsetD8Async, block->at, 1, 4, NULL);
	CALL(cuCtxSetCurrent, here(self)->context);
}

/* A graph of nodes, with memory of its own. */
static void nodes(struct worker *self, struct block *block)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							   .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)self->gpu}},
					    .bytesize = 5 * MIB};
	CUDA_MEMSET_NODE_PARAMS set = {.value = dice(self, 1u << 30), .elementSize = 4, .width = 64, .height = 1};
	CUgraphNode list[4];
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;

	CALL(cuGraphCreate, &graph, 0);
	PATIENT(cuGraphAddMemAllocNode, &list[0], graph, NULL, 0, &alloc);
	set.dst = alloc.dptr;
	CALL(cuGraphAddMemsetNode, &list[1], graph, &list[0], 1, &set, here(self)->context);
	set.dst = block->at;
	set.width = block->size >= 256 ? 64 : 1;
	CALL(cuGraphAddMemsetNode, &list[2], graph, &list[1], 1, &set, here(self)->context);
	CALL(cuGraphAddMemFreeNode, &list[3], graph, &list[2], 1, alloc.dptr);
	PATIENT(cuGraphInstantiateWithFlags, &exec, graph, 0);
	for (unsigned int n = 0; n < 2; n++)
		PATIENT(cuGraphLaunch, exec, dice_stream(self));
	dice_settle(self);
	CALL(cuGraphExecDestroy, exec);
	CALL(cuGraphDestroy, graph);
}

void dice_more(struct worker *self, struct block *block)
{
	static void (*const deeds[])(struct worker *, struct block *) = {libraries, modules, attributes, hosts, words, rows, rows, advice, nowhere, nodes};

	deeds[dice(self, sizeof(deeds) / sizeof(deeds[0]))](self, block);
}
