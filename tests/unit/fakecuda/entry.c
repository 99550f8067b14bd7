// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "check.h"

TEST(nothing_works_before_init)
{
	int n;

	IS(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	OK(cuDriverGetVersion(&n));
	CHECK(n == 13000);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&n));
	CHECK(n == 1);
}

TEST(a_child_cannot_use_what_was_initialised_before_the_fork)
{
	int status, n;
	pid_t child;

	start();
	child = fork();
	if (!child)
		_exit(cuDeviceGetCount(&n) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

TEST(a_child_of_a_program_that_did_not_start_yet_works)
{
	int status;
	pid_t child = fork();

	if (!child) {
		CUdeviceptr p;

		start();
		p = words(4);
		OK(mix(NULL, p, 3, 1));
		CHECK(word_at(p) == 4);
		_exit(0);
	}
	start();
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *named(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static void *asked(const char *name, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;
	void *pointer = NULL;

	OK(cuGetProcAddress_v2(name, &pointer, version, flags, &status));
	CHECK((pointer != NULL) == (status == CU_GET_PROC_ADDRESS_SUCCESS));
	return pointer;
}

TEST(addresses_are_asked_by_version_and_stream_rule)
{
	void *pointer;

	CHECK(asked("cuMemAlloc", 12000, 0) == named("cuMemAlloc_v2"));
	CHECK(asked("cuStreamBeginCapture", 13000, 0) == named("cuStreamBeginCapture_v2"));
	CHECK(asked("cuStreamBeginCapture", 10000, 0) == named("cuStreamBeginCapture"));
	CHECK(asked("cuStreamWaitValue32", 11000, 0) == named("cuStreamWaitValue32"));
	CHECK(asked("cuStreamWaitValue32", 12000, 2) == named("cuStreamWaitValue32_v2_ptsz"));
	CHECK(asked("cuLaunchKernel", 12000, 2) == named("cuLaunchKernel_ptsz"));
	CHECK(asked("cuLaunchKernel", 12000, 1) == named("cuLaunchKernel"));
	CHECK(asked("cuMemcpyDtoH", 12000, 2) == named("cuMemcpyDtoH_v2_ptds"));
	CHECK(asked("cuCtxCreate", 11000, 0) == named("cuCtxCreate_v2"));
	CHECK(asked("cuGetProcAddress", 13000, 0) == named("cuGetProcAddress_v2"));
	CHECK(asked("cuGetProcAddress", 11030, 0) == named("cuGetProcAddress"));
	CHECK(!asked("cuNoSuchCall", 13000, 0));
	IS(cuGetProcAddress("cuNoSuchCall", &pointer, 11030, 0), CUDA_ERROR_NOT_FOUND);
}

TEST(contexts_stack_per_thread)
{
	CUcontext other, got;
	CUdevice device;

	start();
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuCtxGetCurrent(&got));
	CHECK(got == other);
	OK(cuCtxPopCurrent_v2(&got));
	CHECK(got == other);
	OK(cuCtxGetCurrent(&got));
	CHECK(got == primary);
	OK(cuCtxSetCurrent(NULL));
	IS(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxDestroy_v2(other));
	IS(cuCtxPushCurrent_v2(other), CUDA_ERROR_INVALID_CONTEXT);
	VIOLATED(1, "use of destroyed context");
}

TEST(a_green_context_keeps_the_primary_one_alive)
{
	unsigned int flags;
	CUgreenCtx green;
	int active;

	start();
	green = green_new(32, NULL);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK(active);
	OK(cuGreenCtxDestroy(green));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	CHECK(!active);
}

static int active(void)
{
	unsigned int flags;
	int answer;

	OK(cuDevicePrimaryCtxGetState(0, &flags, &answer));
	return answer;
}

/* as measured: docs/results/raw/probes/reset.txt.gz */
TEST(a_reset_takes_what_is_in_a_context_and_leaves_its_references)
{
	start();
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuDevicePrimaryCtxReset_v2(0));
	CHECK(!active());
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK(!active());
}

TEST(a_context_that_is_retained_after_a_reset_is_the_same)
{
	CUcontext before, now;
	CUfunction gone;
	CUdeviceptr p;

	start();
	gone = function("nothing");
	p = words(4);
	before = primary;
	OK(cuDevicePrimaryCtxReset_v2(0));
	IS(cuMemAlloc_v2(&p, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuCtxGetCurrent(&now));
	CHECK(now == before && !active());
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	CHECK(primary == before && active());
	IS(cuLaunchKernel(gone, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	VIOLATED(1, "destroyed function");
	IS(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	OK(cuModuleLoadData(&module, image));
	CHECK(word_at(words(4)) == 1);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK(active());
	OK(cuDevicePrimaryCtxRelease_v2(0));
	CHECK(!active());
	IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(functions_and_kernels_are_told_apart_without_harm)
{
	CUlibrary library;
	const char *name;
	CUkernel kernel;

	start();
	OK(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernel(&kernel, library, "mix"));
	IS(cuFuncGetName(&name, (CUfunction)kernel), CUDA_ERROR_INVALID_HANDLE);
	IS(cuKernelGetName(&name, (CUkernel)function("mix")), CUDA_ERROR_INVALID_HANDLE);
	OK(cuKernelGetName(&name, kernel));
	CHECK(!strcmp(name, "mix"));
	CLEAN();
}

TEST(ptx_text_is_an_image_too)
{
	static const char ptx[] =
		".version 8.0\n.target sm_90\n.address_size 64\n"
		"// fakecuda: kernel write duration_us=70 registers=40\n"
		".visible .entry write(\n\t.param .u64 a,\n\t.param .u32 b\n)\n{ ret; }\n"
		".visible .entry wide(.param .align 8 .b8 s[20], .param .u16 t)\n{ ret; }\n";
	size_t offset, size;
	unsigned int count, value = 8;
	CUdeviceptr p;
	CUmodule m;
	CUfunction w;
	int registers;

	start();
	p = words(4);
	OK(cuModuleLoadData(&m, ptx));
	OK(cuModuleGetFunctionCount(&count, m));
	CHECK(count == 2);
	OK(cuModuleGetFunction(&w, m, "wide"));
	OK(cuFuncGetParamInfo(w, 1, &offset, &size));
	CHECK(offset == 20 && size == 2);
	OK(cuModuleGetFunction(&w, m, "write"));
	OK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, w));
	CHECK(registers == 40);
	OK(cuLaunchKernel(w, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){ &p, &value }, NULL));
	CHECK(word_at(p) == 8);
	IS(cuModuleLoadData(&m, "nonsense"), CUDA_ERROR_INVALID_IMAGE);
}

TEST(parameters_may_come_as_one_buffer)
{
	struct { CUdeviceptr p; unsigned int value; } args = { 0, 12 };
	size_t size = sizeof(args);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };

	start();
	args.p = words(4);
	OK(cuLaunchKernel(function("write"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	CHECK(word_at(args.p) == 12);
	size = 4;
	IS(cuLaunchKernel(function("write"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_INVALID_VALUE);
}

TEST(the_oldest_launch_calls_work)
{
	CUdeviceptr p;
	CUfunction f;

	start();
	p = words(4);
	f = function("write");
	OK(cuFuncSetBlockShape(f, 32, 1, 1));
	OK(cuParamSetSize(f, 12));
	OK(cuParamSetv(f, 0, &p, 8));
	OK(cuParamSeti(f, 8, 33));
	OK(cuLaunchGrid(f, 2, 1));
	CHECK(word_at(p) == 33);
}

TEST(launches_that_cannot_be_are_refused)
{
	CUfunction f;

	start();
	f = function("nothing");
	IS(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	IS(cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	IS(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 200000, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200000));
	OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 200000, NULL, NULL, NULL));
	OK(cuCtxSynchronize());
}

static int rounds(struct fakecuda_call *call)
{
	unsigned int *word = fakecuda_touch(call, *(uint64_t *)call->args[0], 4, 1);

	CHECK(word && call->sms == 16 && !strcmp(call->name, "write"));
	return ++*word < 30;
}

TEST(a_test_may_bring_its_own_kernel_that_stays_resident)
{
	CUdeviceptr p;
	CUstream g;

	start();
	p = words(4);
	fakecuda_register_kernel("write", rounds);
	g = green_stream(16);
	OK(put(g, p, 0));
	OK(cuStreamSynchronize(g));
	CHECK(word_at(p) == 30);
	CLEAN();
}

TEST(a_resident_kernel_ends_when_its_word_changes)
{
	CUdeviceptr word;
	unsigned int value = 5;
	CUstream a, b;

	start();
	word = words(1);
	a = stream_new(CU_STREAM_NON_BLOCKING);
	b = stream_new(CU_STREAM_NON_BLOCKING);
	OK(cuLaunchKernel(function("until"), 1, 1, 1, 1, 1, 1, 0, a, (void *[]){ &word, &value }, NULL));
	usleep(5000);
	IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
	OK(cuStreamWriteValue32_v2(b, word, 5, 0));
	OK(cuStreamSynchronize(a));
}
