// SPDX-License-Identifier: Apache-2.0
/*
 * cuGetProcAddress: of the names that share a stem (NAME, NAME_v2, NAME_v3, ...) the newest that the asked CUDA version
 * knows, in its per-thread form if the flags ask for that and there is one.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "api.h"

static const struct {
	const char *name;
	int version;
} since[] = {
	{ "cuCtxCreate_v3", 11040 }, { "cuCtxCreate_v4", 12050 }, { "cuStreamBeginCapture_v2", 10010 },
	{ "cuStreamGetCaptureInfo_v2", 11030 }, { "cuStreamGetCaptureInfo_v3", 12030 },
	{ "cuStreamUpdateCaptureDependencies_v2", 12030 }, { "cuStreamWaitValue32_v2", 11070 },
	{ "cuStreamWaitValue64_v2", 11070 }, { "cuStreamWriteValue32_v2", 11070 }, { "cuStreamWriteValue64_v2", 11070 },
	{ "cuStreamBatchMemOp_v2", 11070 }, { "cuGraphInstantiate_v2", 11000 }, { "cuGraphExecUpdate_v2", 12000 },
	{ "cuGraphAddKernelNode_v2", 12000 }, { "cuGraphKernelNodeGetParams_v2", 12000 },
	{ "cuGraphKernelNodeSetParams_v2", 12000 }, { "cuGraphExecKernelNodeSetParams_v2", 12000 },
	{ "cuGraphGetEdges_v2", 12030 }, { "cuGraphNodeGetDependencies_v2", 12030 },
	{ "cuGraphNodeGetDependentNodes_v2", 12030 }, { "cuGraphAddDependencies_v2", 12030 },
	{ "cuGraphRemoveDependencies_v2", 12030 }, { "cuGraphAddNode_v2", 12030 }, { "cuDevicePrimaryCtxRelease_v2", 11000 },
	{ "cuDevicePrimaryCtxReset_v2", 11000 }, { "cuDevicePrimaryCtxSetFlags_v2", 11000 }, { "cuDeviceGetUuid_v2", 11040 },
	{ "cuIpcOpenMemHandle_v2", 11000 }, { "cuMemPrefetchAsync_v2", 12020 }, { "cuMemAdvise_v2", 12020 },
	{ "cuGetProcAddress_v2", 12000 }, { "cuEventElapsedTime_v2", 12080 }, { "cuStreamGetCtx_v2", 12050 },
	{ "cuCtxGetDevice_v2", 13000 }, { "cuCtxSynchronize_v2", 13000 }, { "cuMemcpyBatchAsync_v2", 13000 },
	{ "cuMemcpy3DBatchAsync_v2", 13000 }, { "cuMemHostRegister_v2", 6050 },
};

static int version_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_LENGTH(since); i++)
		if (!strcmp(since[i].name, name))
			return since[i].version;
	return 3020;
}

static void *library(void)
{
	static void *handle;
	Dl_info info;

	if (!handle && dladdr((void *)(uintptr_t)&library, &info))
		handle = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	return handle;
}

static void *look(const char *name, bool per_thread)
{
	static const char *const suffixes[] = { "_ptsz", "_ptds" };
	char full[160];

	for (size_t i = 0; per_thread && i < ARRAY_LENGTH(suffixes); i++) {
		void *found;

		snprintf(full, sizeof(full), "%s%s", name, suffixes[i]);
		found = dlsym(library(), full);
		if (found)
			return found;
	}
	return dlsym(library(), name);
}

static bool has_suffix(const char *name)
{
	size_t length = strlen(name);

	return length > 3 && name[length - 3] == '_' && name[length - 2] == 'v';
}

static CUresult find(const char *symbol, void **pointer, int version, cuuint64_t flags,
		     CUdriverProcAddressQueryResult *status)
{
	bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, later = false;
	char name[128];

	if (!symbol || !pointer || strlen(symbol) > 100 || flags & ~3ULL)
		return CUDA_ERROR_INVALID_VALUE;
	*pointer = NULL;
	if (strncmp(symbol, "cu", 2))
		goto missing;
	for (int v = 4; v >= 1 && !*pointer; v--) {
		void *found;

		if (v > 1 && has_suffix(symbol))
			continue;
		snprintf(name, sizeof(name), v > 1 ? "%s_v%d" : "%s", symbol, v);
		found = look(name, per_thread);
		if (found && v > 1 && version_of(name) > version)
			later = true;
		else
			*pointer = found;
	}
	if (*pointer) {
		if (status)
			*status = CU_GET_PROC_ADDRESS_SUCCESS;
		return CUDA_SUCCESS;
	}
missing:
	if (status)
		*status = later ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pointer, int version, cuuint64_t flags,
				    CUdriverProcAddressQueryResult *status)
{
	CUresult result = find(symbol, pointer, version, flags, status);

	/* the name without a suffix is the four-argument function before 12.0 */
	if (!result && symbol && !strcmp(symbol, "cuGetProcAddress") && version < 12000)
		*pointer = dlsym(library(), "cuGetProcAddress");
	return result;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pointer, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, pointer, version, flags, NULL);
}

EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	(void)id;
	if (table)
		*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}
