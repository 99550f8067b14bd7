// SPDX-License-Identifier: Apache-2.0
/* Libraries: kernels without a context; questions about functions and kernels. */
#include "api.h"

static CUresult load(CUlibrary *handle, const void *data, const char *path)
{
	struct image image = { 0 };
	struct library *library;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(path ? image_load(path, &image) : image_parse(data, &image));
	library = xalloc(sizeof(*library));
	handle_add(library, OBJECT_LIBRARY);
	library->image = image;
	for (struct kernel *kernel = image.kernels; kernel; kernel = kernel->next)
		kernel->library = library;
	*handle = (CUlibrary)library;
	return CUDA_SUCCESS;
}

API(cuLibraryLoadData, CUlibrary *, handle, const void *, data, CUjit_option *, jit, void **, jit_values, unsigned int,
    jit_count, CUlibraryOption *, options, void **, values, unsigned int, count)
{
	if ((jit_count && (!jit || !jit_values)) || (count && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	return load(handle, data, NULL);
}

API(cuLibraryLoadFromFile, CUlibrary *, handle, const char *, path, CUjit_option *, jit, void **, jit_values,
    unsigned int, jit_count, CUlibraryOption *, options, void **, values, unsigned int, count)
{
	if ((jit_count && (!jit || !jit_values)) || (count && (!options || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	return load(handle, NULL, path ? path : "");
}

static CUresult library_of(CUlibrary handle, struct library **library)
{
	*library = handle_get(handle, OBJECT_LIBRARY);
	return *library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API(cuLibraryUnload, CUlibrary, handle)
{
	struct library *library;

	TRY(library_of(handle, &library));
	wait_all(NULL);
	for (struct module *module = library->modules; module; module = module->next) {
		for (struct function *function = module->functions; function; function = function->next)
			handle_kill(function);
		handle_kill(module);
	}
	globals_end(&library->globals);
	image_close(&library->image);
	handle_kill(library);
	return CUDA_SUCCESS;
}

API(cuLibraryGetKernel, CUkernel *, kernel, CUlibrary, handle, const char *, name)
{
	struct library *library;
	struct kernel *found;

	TRY(library_of(handle, &library));
	if (!kernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	found = image_kernel(&library->image, name);
	if (!found)
		return CUDA_ERROR_NOT_FOUND;
	found->library = library;
	*kernel = (CUkernel)found;
	return CUDA_SUCCESS;
}

API(cuLibraryGetKernelCount, unsigned int *, count, CUlibrary, handle)
{
	struct library *library;

	TRY(library_of(handle, &library));
	*count = 0;
	for (struct kernel *kernel = library->image.kernels; kernel; kernel = kernel->next)
		++*count;
	return CUDA_SUCCESS;
}

API(cuLibraryEnumerateKernels, CUkernel *, kernels, unsigned int, room, CUlibrary, handle)
{
	struct library *library;
	unsigned int n = 0;

	TRY(library_of(handle, &library));
	for (struct kernel *kernel = library->image.kernels; kernel && n < room; kernel = kernel->next)
		kernels[n++] = (CUkernel)kernel;
	return CUDA_SUCCESS;
}

API(cuLibraryGetModule, CUmodule *, module, CUlibrary, handle)
{
	struct library *library;
	struct context *context;

	TRY(library_of(handle, &library));
	TRY(context_current(&context));
	*module = (CUmodule)library_module(library, context);
	return CUDA_SUCCESS;
}

static CUresult kernel_of(CUkernel handle, struct kernel **kernel)
{
	/* functions and kernels take each other's place in launches: a program may have to ask which it has */
	if (handle_type(handle) == OBJECT_FUNCTION)
		return CUDA_ERROR_INVALID_HANDLE;
	*kernel = handle_get(handle, OBJECT_KERNEL);
	return *kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* A function, or a kernel in its place; a kernel has no context. */
CUresult function_of(const void *handle, struct kernel **kernel, struct context **context, bool *is_kernel)
{
	struct function *function;

	*is_kernel = handle_type(handle) == OBJECT_KERNEL;
	if (*is_kernel) {
		if (context)
			*context = NULL;
		return kernel_of((CUkernel)handle, kernel);
	}
	function = handle_get(handle, OBJECT_FUNCTION);
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*kernel = function->kernel;
	if (context)
		*context = function->context;
	return CUDA_SUCCESS;
}

API(cuKernelGetFunction, CUfunction *, function, CUkernel, handle)
{
	struct context *context;
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	TRY(context_current(&context));
	if (!kernel->library)
		return CUDA_ERROR_INVALID_HANDLE;
	*function = (CUfunction)library_function(kernel, context);
	return CUDA_SUCCESS;
}

API(cuKernelGetLibrary, CUlibrary *, library, CUkernel, handle)
{
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	*library = (CUlibrary)kernel->library;
	return CUDA_SUCCESS;
}

API(cuKernelGetName, const char **, name, CUkernel, handle)
{
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	*name = kernel->name;
	return CUDA_SUCCESS;
}

API(cuFuncGetName, const char **, name, CUfunction, handle)
{
	struct kernel *kernel;
	bool is_kernel;

	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	if (is_kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	*name = kernel->name;
	return CUDA_SUCCESS;
}

API(cuFuncGetModule, CUmodule *, module, CUfunction, handle)
{
	struct function *function;

	if (handle_type(handle) == OBJECT_KERNEL)
		return CUDA_ERROR_INVALID_HANDLE;
	function = handle_get(handle, OBJECT_FUNCTION);
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*module = (CUmodule)function->module;
	return CUDA_SUCCESS;
}

static CUresult param_info(const struct kernel *kernel, size_t index, size_t *offset, size_t *size)
{
	if (index >= kernel->params)
		return CUDA_ERROR_INVALID_VALUE;
	if (offset)
		*offset = kernel->param_offset[index];
	if (size)
		*size = kernel->param_size[index];
	return CUDA_SUCCESS;
}

API(cuKernelGetParamInfo, CUkernel, handle, size_t, index, size_t *, offset, size_t *, size)
{
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	return param_info(kernel, index, offset, size);
}

API(cuFuncGetParamInfo, CUfunction, handle, size_t, index, size_t *, offset, size_t *, size)
{
	struct kernel *kernel;
	bool is_kernel;

	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	return param_info(kernel, index, offset, size);
}

static CUresult get_attribute(int *value, CUfunction_attribute attribute, const struct kernel *kernel)
{
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)kernel->max_threads;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = (int)kernel->shared;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = (int)kernel->registers;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = 90;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = kernel->dynamic_shared ? kernel->dynamic_shared : 49152;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value = kernel->carveout;
		break;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*value = kernel->non_portable_cluster;
		break;
	default:
		*value = 0;
	}
	return CUDA_SUCCESS;
}

static CUresult set_attribute(struct kernel *kernel, CUfunction_attribute attribute, int value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || value > 232448)
			return CUDA_ERROR_INVALID_VALUE;
		kernel->dynamic_shared = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		kernel->carveout = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		kernel->non_portable_cluster = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

API(cuFuncGetAttribute, int *, value, CUfunction_attribute, attribute, CUfunction, handle)
{
	struct kernel *kernel;
	bool is_kernel;

	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	return get_attribute(value, attribute, kernel);
}

API(cuFuncSetAttribute, CUfunction, handle, CUfunction_attribute, attribute, int, value)
{
	struct kernel *kernel;
	bool is_kernel;

	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	return set_attribute(kernel, attribute, value);
}

API(cuKernelGetAttribute, int *, value, CUfunction_attribute, attribute, CUkernel, handle, CUdevice, ordinal)
{
	struct device *device;
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	TRY(device_of(ordinal, &device));
	return get_attribute(value, attribute, kernel);
}

API(cuKernelSetAttribute, CUfunction_attribute, attribute, int, value, CUkernel, handle, CUdevice, ordinal)
{
	struct device *device;
	struct kernel *kernel;

	TRY(kernel_of(handle, &kernel));
	TRY(device_of(ordinal, &device));
	return set_attribute(kernel, attribute, value);
}

API(cuFuncSetCacheConfig, CUfunction, handle, CUfunc_cache, config)
{
	struct kernel *kernel;
	bool is_kernel;

	(void)config;
	return function_of(handle, &kernel, NULL, &is_kernel);
}

API(cuKernelSetCacheConfig, CUkernel, handle, CUfunc_cache, config, CUdevice, ordinal)
{
	struct kernel *kernel;

	(void)config;
	(void)ordinal;
	return kernel_of(handle, &kernel);
}

API(cuFuncIsLoaded, CUfunctionLoadingState *, state, CUfunction, handle)
{
	struct kernel *kernel;
	bool is_kernel;

	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return CUDA_SUCCESS;
}

API(cuFuncLoad, CUfunction, handle)
{
	struct kernel *kernel;
	bool is_kernel;

	return function_of(handle, &kernel, NULL, &is_kernel);
}
