// SPDX-License-Identifier: Apache-2.0
/* Modules (of one context) and their functions. Loading and unloading wait for all work of the process. */
#include "api.h"

static CUresult global_of(struct global **globals, struct image *image, struct context *context, const char *name, CUdeviceptr *address,
			  size_t *size)
{
	struct memory *memory;
	struct global *global;
	struct variable *variable;

	for (global = *globals; global; global = global->next) {
		memory = memory_find(global->address);
		if (global->context == context->group && memory && !memory->freed && !strcmp(global->variable->name, name)) {
			goto out;
		}
	}
	for (variable = image->variables; variable && strcmp(variable->name, name); variable = variable->next)
		;
	if (!variable)
		return CUDA_ERROR_NOT_FOUND;
	TRY(memory_new(context, variable->size, MEMORY_DEVICE, &memory));
	memset((void *)memory->base, 0, variable->size);
	global = xalloc(sizeof(*global));
	global->variable = variable;
	global->address = memory->base;
	global->context = context->group;
	global->next = *globals;
	*globals = global;
out:
	if (address)
		*address = global->address;
	if (size)
		*size = global->variable->size;
	return CUDA_SUCCESS;
}

/* They go with their code, once no work is left. */
void globals_end(struct global **globals)
{
	while (*globals) {
		struct global *global = *globals;
		struct memory *memory = memory_find(global->address);

		*globals = global->next;
		if (memory && !memory->freed && memory->group == global->context) {
			arena_give(memory->device, memory->base, memory->size);
			memory_remove(memory);
		}
		free(global);
	}
}

static struct module *module_new(struct context *context)
{
	struct module *module = xalloc(sizeof(*module));

	handle_add(module, OBJECT_MODULE);
	module->context = context->group;
	module->next_loaded = module->context->modules;
	module->context->modules = module;
	return module;
}

static void functions_kill(struct module *module)
{
	for (struct function *function = module->functions; function; function = function->next)
		handle_kill(function);
	module->functions = NULL;
}

/* The context's code is gone; kernels of libraries are loaded again when they are used again. */
void modules_end(struct context *context)
{
	for (struct module *module = context->modules; module; module = module->next_loaded) {
		functions_kill(module);
		if (!module->library)
			handle_kill(module);
	}
}

/* Whether the driver's compiler is missing for it. */
static bool refused(const struct image *image)
{
	const char *name = getenv("FAKECUDA_LOAD_FAIL");

	for (struct kernel *kernel = image->kernels; kernel && name; kernel = kernel->next)
		if (!strcmp(kernel->name, name))
			return true;
	return false;
}

static CUresult load(CUmodule *handle, const void *data, const char *path)
{
	struct context *context;
	struct module *module;
	struct image image = { 0 };

	TRY(context_current(&context));
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check_capture_safe());
	TRY(path ? image_load(path, &image) : image_parse(data, &image));
	if (refused(&image))
		return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
	wait_all(NULL);
	module = module_new(context);
	module->image = image;
	for (struct kernel *kernel = image.kernels; kernel; kernel = kernel->next)
		kernel->module = module;
	*handle = (CUmodule)module;
	return CUDA_SUCCESS;
}

API(cuModuleLoadData, CUmodule *, handle, const void *, data)
{
	return load(handle, data, NULL);
}

API(cuModuleLoadDataEx, CUmodule *, handle, const void *, data, unsigned int, count, CUjit_option *, options, void **,
    values)
{
	if (count && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	return load(handle, data, NULL);
}

API(cuModuleLoadFatBinary, CUmodule *, handle, const void *, data)
{
	return load(handle, data, NULL);
}

API(cuModuleLoad, CUmodule *, handle, const char *, path)
{
	return load(handle, NULL, path ? path : "");
}

static CUresult module_of(CUmodule handle, struct module **module)
{
	*module = handle_get(handle, OBJECT_MODULE);
	return *module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API(cuModuleUnload, CUmodule, handle)
{
	struct module *module;

	TRY(module_of(handle, &module));
	TRY(check_capture_safe());
	if (module->library)
		return CUDA_ERROR_NOT_PERMITTED;
	wait_all(NULL);
	functions_kill(module);
	globals_end(&module->globals);
	image_close(&module->image);
	handle_kill(module);
	return CUDA_SUCCESS;
}

static struct function *function_in(struct module *module, struct kernel *kernel)
{
	struct function *function;

	for (function = module->functions; function; function = function->next)
		if (function->kernel == kernel)
			return function;
	function = xalloc(sizeof(*function));
	handle_add(function, OBJECT_FUNCTION);
	function->context = module->context;
	function->kernel = kernel;
	function->module = module;
	function->next = module->functions;
	module->functions = function;
	return function;
}

static struct image *image_of(struct module *module)
{
	return module->library ? &module->library->image : &module->image;
}

API(cuModuleGetFunction, CUfunction *, function, CUmodule, handle, const char *, name)
{
	struct module *module;
	struct kernel *kernel;

	TRY(module_of(handle, &module));
	if (!function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	kernel = image_kernel(image_of(module), name);
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	*function = (CUfunction)function_in(module, kernel);
	return CUDA_SUCCESS;
}

API(cuModuleGetFunctionCount, unsigned int *, count, CUmodule, handle)
{
	struct module *module;

	TRY(module_of(handle, &module));
	*count = 0;
	for (struct kernel *kernel = image_of(module)->kernels; kernel; kernel = kernel->next)
		++*count;
	return CUDA_SUCCESS;
}

API(cuModuleEnumerateFunctions, CUfunction *, functions, unsigned int, room, CUmodule, handle)
{
	struct module *module;
	unsigned int n = 0;

	TRY(module_of(handle, &module));
	for (struct kernel *kernel = image_of(module)->kernels; kernel && n < room; kernel = kernel->next)
		functions[n++] = (CUfunction)function_in(module, kernel);
	return CUDA_SUCCESS;
}

API(cuModuleGetGlobal_v2, CUdeviceptr *, address, size_t *, size, CUmodule, handle, const char *, name)
{
	struct module *module;

	TRY(module_of(handle, &module));
	return global_of(&module->globals, image_of(module), module->context, name, address, size);
}

API(cuModuleGetLoadingMode, CUmoduleLoadingMode *, mode)
{
	*mode = CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

/* Library functions of one context live in a module of their own. */
struct module *library_module(struct library *library, struct context *context)
{
	struct module *module;

	for (module = library->modules; module; module = module->next)
		if (module->context == context->group)
			return module;
	module = module_new(context);
	module->library = library;
	module->next = library->modules;
	library->modules = module;
	return module;
}

struct function *library_function(struct kernel *kernel, struct context *context)
{
	return function_in(library_module(kernel->library, context), kernel);
}

API(cuLibraryGetGlobal, CUdeviceptr *, address, size_t *, size, CUlibrary, handle, const char *, name)
{
	struct library *library = handle_get(handle, OBJECT_LIBRARY);
	struct context *context;

	TRY(context_current(&context));
	if (!library)
		return CUDA_ERROR_INVALID_HANDLE;
	return global_of(&library->globals, &library->image, context, name, address, size);
}
