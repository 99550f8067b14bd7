// SPDX-License-Identifier: Apache-2.0
/* Graphs: captured with forks, built by hand, changed, updated, cloned, nested, launched into all kinds of streams. */
#include "client.h"

static CUdeviceptr words;
static CUstream stream, other;
static CUevent event, back;

static CUDA_KERNEL_NODE_PARAMS mix_params(CUfunction mix, uint32_t *n, uint32_t *a, uint32_t *b, void **params)
{
	CUDA_KERNEL_NODE_PARAMS all;

	params[0] = &words;
	params[1] = n;
	params[2] = a;
	params[3] = b;
	memset(&all, 0, sizeof(all));
	all.func = mix;
	all.gridDimX = 8;
	all.gridDimY = all.gridDimZ = all.blockDimY = all.blockDimZ = 1;
	all.blockDimX = 128;
	all.kernelParams = params;
	return all;
}

static CUgraphNode add(CUgraph graph, CUfunction mix, CUgraphNode before, uint32_t a, uint32_t b)
{
	uint32_t n = WORDS;
	void *params[4];
	CUDA_KERNEL_NODE_PARAMS all = mix_params(mix, &n, &a, &b, params);
	CUgraphNode node;

	OK(cuGraphAddKernelNode_v2(&node, graph, &before, before ? 1 : 0, &all));
	return node;
}

static void launch(CUgraphExec exec, CUstream to)
{
	OK(cuGraphLaunch(exec, to));
	client_mix(to, words, 3, 1);
	OK(cuStreamSynchronize(to));
}

static CUgraph capture(uint32_t seed)
{
	CUgraph graph;

	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	client_mix(stream, words, 3, seed);
	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(other, event, 0));
	client_mix(other, words + 4 * WORDS, 5, seed);
	client_mix(stream, words, 7, seed);
	OK(cuEventRecord(back, other));
	OK(cuStreamWaitEvent(stream, back, 0));
	OK(cuMemcpyDtoDAsync_v2(words + 4, words + 4 * WORDS, 64, stream));
	OK(cuMemsetD32Async(words + 4 * WORDS, seed, 8, stream));
	client_mix(stream, words, 9, seed);
	OK(cuStreamEndCapture(stream, &graph));
	return graph;
}

static void captured(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph graph = capture(11), next = capture(13);
	CUgraphExec exec;

	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 10; i++)
		launch(exec, i % 3 ? stream : i % 2 ? NULL : CU_STREAM_PER_THREAD);
	OK(cuGraphExecUpdate_v2(exec, next, &info));
	for (int i = 0; i < 5; i++)
		launch(exec, other);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(next));
}

static void by_hand(CUfunction mix)
{
	uint32_t n = WORDS, a = 21, b = 22;
	CUgraphNode first, second;
	CUgraph graph, clone;
	CUgraphExec exec, copy;
	void *params[4];
	CUDA_KERNEL_NODE_PARAMS all = mix_params(mix, &n, &a, &b, params);
	size_t count;

	OK(cuGraphCreate(&graph, 0));
	first = add(graph, mix, NULL, 3, 1);
	second = add(graph, mix, first, 5, 2);
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	launch(exec, stream);
	OK(cuGraphExecKernelNodeSetParams_v2(exec, second, &all));
	launch(exec, stream);
	OK(cuGraphNodeSetEnabled(exec, first, 0));
	launch(exec, NULL);
	OK(cuGraphKernelNodeSetParams_v2(first, &all));
	OK(cuGraphInstantiateWithFlags(&copy, graph, 0));
	launch(copy, stream);
	launch(exec, other);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphInstantiateWithFlags(&exec, clone, 0));
	launch(exec, stream);
	OK(cuGraphUpload(exec, stream));
	OK(cuGraphGetNodes(clone, NULL, &count));
	client_say("nodes", count);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphExecDestroy(copy));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(clone));
}

static void set_word(void *data)
{
	*(uint32_t *)data += 1;
}

static void nested(CUfunction mix)
{
	static uint32_t called;
	CUDA_HOST_NODE_PARAMS call = { .fn = set_word, .userData = &called };
	CUDA_MEMSET_NODE_PARAMS set = { .dst = words + 64, .value = 31, .elementSize = 4, .width = 16, .height = 1 };
	CUgraphNode node, inner, done;
	CUgraph graph, child;
	CUgraphExec exec;

	OK(cuGraphCreate(&child, 0));
	inner = add(child, mix, NULL, 3, 1);
	OK(cuGraphAddMemsetNode(&inner, child, &inner, 1, &set, client_context));
	add(child, mix, inner, 5, 1);
	OK(cuGraphCreate(&graph, 0));
	node = add(graph, mix, NULL, 7, 1);
	OK(cuGraphAddChildGraphNode(&node, graph, &node, 1, child));
	OK(cuGraphAddHostNode(&node, graph, &node, 1, &call));
	OK(cuGraphAddEventRecordNode(&done, graph, &node, 1, event));
	add(graph, mix, node, 9, 1);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 8; i++) {
		launch(exec, i % 2 ? stream : other);
		OK(cuEventSynchronize(event));
	}
	client_say("called", called);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(child));
}

/* One exec in two streams, and back to back without a sync between. */
static void back_to_back(CUfunction mix)
{
	CUgraphNode node = NULL;
	CUgraph graph;
	CUgraphExec exec;

	OK(cuGraphCreate(&graph, 0));
	for (uint32_t i = 0; i < 50; i++)
		node = add(graph, mix, node, 3 + i, i);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 20; i++) {
		OK(cuGraphLaunch(exec, i % 2 ? stream : other));
		OK(cuEventRecord(event, i % 2 ? stream : other));
		OK(cuStreamWaitEvent(i % 2 ? other : stream, event, 0));
	}
	OK(cuStreamSynchronize(stream));
	OK(cuStreamSynchronize(other));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
}

/* Launches of one executable never overlap, in whatever streams they are. */
static void serialised(CUfunction mix)
{
	CUgraphNode node = NULL;
	CUgraph graph;
	CUgraphExec exec;

	OK(cuGraphCreate(&graph, 0));
	for (uint32_t i = 0; i < 10; i++)
		node = add(graph, mix, node, 3 + i, i);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (int i = 0; i < 60; i++) {
		CUstream brief;

		OK(cuGraphLaunch(exec, i % 3 ? i % 2 ? stream : other : CU_STREAM_PER_THREAD));
		OK(cuStreamCreate(&brief, CU_STREAM_NON_BLOCKING));
		OK(cuGraphLaunch(exec, brief));
		OK(cuStreamDestroy_v2(brief));
		if (i % 10 == 0)
			usleep(500);
	}
	OK(cuCtxSynchronize());
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
}

int main(void)
{
	CUfunction functions[2];
	CUlibrary library;
	CUkernel kernel;

	client_start();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
	OK(cuLibraryLoadData(&library, client_ptx, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, library, "mix"));
	functions[0] = client_kernel("mix");
	OK(cuKernelGetFunction(&functions[1], kernel));
	words = client_words(2 * WORDS);
	captured();
	client_say_words("captured", words, 2 * WORDS);
	for (int i = 0; i < 2; i++) {
		by_hand(functions[i]);
		client_say_words("by-hand", words, 2 * WORDS);
		nested(functions[i]);
		client_say_words("nested", words, 2 * WORDS);
		back_to_back(functions[i]);
		client_say_words("back-to-back", words, 2 * WORDS);
		serialised(functions[i]);
		client_say_words("serialised", words, 2 * WORDS);
	}
	return client_end();
}
