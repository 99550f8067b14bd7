// SPDX-License-Identifier: Apache-2.0
/* The launch interface of before CUDA 4: shape and parameters are set on the function first. */
#include "api.h"

#define PARAM_ROOM 4096

static CUresult kernel_of(CUfunction handle, struct kernel **kernel)
{
	bool is_kernel;

	TRY(function_of(handle, kernel, NULL, &is_kernel));
	if (!(*kernel)->old_params)
		(*kernel)->old_params = xalloc(PARAM_ROOM);
	return CUDA_SUCCESS;
}

API(cuFuncSetBlockShape, CUfunction, handle, int, x, int, y, int, z)
{
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	if (x <= 0 || y <= 0 || z <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	kernel->old_block[0] = (unsigned int)x;
	kernel->old_block[1] = (unsigned int)y;
	kernel->old_block[2] = (unsigned int)z;
	return CUDA_SUCCESS;
}

API(cuFuncSetSharedSize, CUfunction, handle, unsigned int, bytes)
{
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	kernel->old_shared = bytes;
	return CUDA_SUCCESS;
}

API(cuParamSetSize, CUfunction, handle, unsigned int, bytes)
{
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	if (bytes > PARAM_ROOM)
		return CUDA_ERROR_INVALID_VALUE;
	kernel->old_size = bytes;
	return CUDA_SUCCESS;
}

static CUresult set(CUfunction handle, int offset, const void *value, size_t size)
{
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	if (offset < 0 || (size_t)offset + size > PARAM_ROOM)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(kernel->old_params + offset, value, size);
	return CUDA_SUCCESS;
}

API(cuParamSeti, CUfunction, handle, int, offset, unsigned int, value)
{
	return set(handle, offset, &value, sizeof(value));
}

API(cuParamSetf, CUfunction, handle, int, offset, float, value)
{
	return set(handle, offset, &value, sizeof(value));
}

API(cuParamSetv, CUfunction, handle, int, offset, void *, value, unsigned int, size)
{
	return set(handle, offset, value, size);
}

static CUresult start(CUfunction handle, int width, int height, CUstream stream)
{
	struct kernel *kernel;
	CUlaunchConfig config;
	size_t size;

	TRY(kernel_of(handle, &kernel));
	if (width <= 0 || height <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	size = kernel->old_size;
	config = (CUlaunchConfig){ (unsigned int)width, (unsigned int)height, 1, kernel->old_block[0],
				   kernel->old_block[1], kernel->old_block[2], kernel->old_shared, stream, NULL, 0 };
	return kernel_launch(false, handle, &config, NULL, (void *[]){ CU_LAUNCH_PARAM_BUFFER_POINTER, kernel->old_params,
			     CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END }, false);
}

API(cuLaunch, CUfunction, handle)
{
	return start(handle, 1, 1, NULL);
}

API(cuLaunchGrid, CUfunction, handle, int, width, int, height)
{
	return start(handle, width, height, NULL);
}

API(cuLaunchGridAsync, CUfunction, handle, int, width, int, height, CUstream, stream)
{
	return start(handle, width, height, stream);
}
