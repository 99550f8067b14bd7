// SPDX-License-Identifier: Apache-2.0
/* Kernel launches by every interface. Parameters are copied before the call returns. */
#include "api.h"

/* Copies the parameters, given one by one or as one buffer. */
CUresult kernel_args(struct kernel_work *work, void **params, void **extra)
{
	const struct kernel *kernel = work->kernel;
	const void *buffer = NULL;
	size_t size = 0;

	work->params = kernel->params;
	work->bytes = xalloc(kernel->param_bytes);
	work->args = xalloc((kernel->params + 1) * sizeof(void *));
	for (unsigned int i = 0; i < kernel->params; i++)
		work->args[i] = work->bytes + kernel->param_offset[i];
	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (params) {
		for (unsigned int i = 0; i < kernel->params; i++)
			memcpy(work->args[i], params[i], kernel->param_size[i]);
		return CUDA_SUCCESS;
	}
	for (void **at = extra; at && *at != CU_LAUNCH_PARAM_END; at += 2) {
		if (at[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = at[1];
		else if (at[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			size = *(size_t *)at[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (kernel->params && (!buffer || size < kernel->param_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (kernel->params)
		memcpy(work->bytes, buffer, kernel->param_bytes);
	return CUDA_SUCCESS;
}

static CUresult one_attribute(struct kernel_work *work, const CUlaunchAttribute *attribute)
{
	const CUlaunchAttributeValue *value = &attribute->value;

	switch (attribute->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		work->cooperative = value->cooperative != 0;
		break;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		work->cluster[0] = value->clusterDim.x;
		work->cluster[1] = value->clusterDim.y;
		work->cluster[2] = value->clusterDim.z;
		if (!work->cluster[0] || !work->cluster[1] || !work->cluster[2])
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		work->priority = value->priority;
		work->has_priority = true;
		break;
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
		work->serialization = value->programmaticStreamSerializationAllowed != 0;
		break;
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		TRY(event_of(value->launchCompletionEvent.event, &work->completion));
		break;
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		TRY(event_of(value->programmaticEvent.event, &work->completion));
		break;
	default:
		if ((unsigned int)attribute->id >= ARRAY_LENGTH(work->attributes))
			return CUDA_ERROR_INVALID_VALUE;
	}
	work->attributes[attribute->id] = *value;
	work->attribute_mask |= 1u << attribute->id;
	return CUDA_SUCCESS;
}

CUresult kernel_attributes(struct kernel_work *work, const CUlaunchAttribute *attributes, unsigned int count)
{
	if (count && !attributes)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		TRY(one_attribute(work, &attributes[i]));
	return CUDA_SUCCESS;
}

static CUresult fill(struct kernel_work *work, struct stream *stream, CUfunction handle, const CUlaunchConfig *config,
		     void **params, void **extra, bool cooperative)
{
	struct context *context;
	bool is_kernel;
	const char *fails = getenv("FAKECUDA_LAUNCH_FAIL");

	TRY(function_of(handle, &work->kernel, &context, &is_kernel));
	if (fails && !strcmp(fails, work->kernel->name))
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (context && context->group != stream->context->group)
		return CUDA_ERROR_INVALID_HANDLE;
	if (work->kernel->code && !memory_take(stream->context->device, work->kernel->code))
		return CUDA_ERROR_OUT_OF_MEMORY;
	work->kernel->code = 0;
	work->context = stream->context;
	work->func = is_kernel ? (CUfunction)library_function(work->kernel, stream->context) : handle;
	work->kern = is_kernel ? (CUkernel)handle : work->kernel->library ? (CUkernel)work->kernel : NULL;
	work->given = (CUcontext)stream->context;
	work->cooperative = cooperative;
	work->grid[0] = config->gridDimX;
	work->grid[1] = config->gridDimY;
	work->grid[2] = config->gridDimZ;
	work->block[0] = config->blockDimX;
	work->block[1] = config->blockDimY;
	work->block[2] = config->blockDimZ;
	work->shared = config->sharedMemBytes;
	work->cluster[0] = work->kernel->cluster ? work->kernel->cluster : 1;
	work->cluster[1] = work->cluster[2] = 1;
	TRY(kernel_attributes(work, config->attrs, config->numAttrs));
	TRY(launch_check(work));
	if (work->cooperative && !stream->capture && !fits_resident(work))
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	return kernel_args(work, params, extra);
}

CUresult kernel_launch(bool per_thread, CUfunction handle, const CUlaunchConfig *config, void **params, void **extra,
		       bool cooperative)
{
	struct work work = { .type = WORK_KERNEL };
	struct event *completion;
	struct stream *stream;
	struct op *op;
	CUresult result;

	TRY(stream_of(config->hStream, per_thread, &stream));
	result = fill(&work.kernel, stream, handle, config, params, extra, cooperative);
	if (result) {
		work_drop(&work);
		return result;
	}
	completion = work.kernel.completion;
	TRY(stream_issue(stream, &work, &op));
	if (completion && op) {
		op_put(completion->record);
		completion->record = op_get(op);
	}
	return CUDA_SUCCESS;
}

STREAM(cuLaunchKernel, CUfunction, f, unsigned int, gx, unsigned int, gy, unsigned int, gz, unsigned int, bx,
       unsigned int, by, unsigned int, bz, unsigned int, shared, CUstream, stream, void **, params, void **, extra)
{
	CUlaunchConfig config = { gx, gy, gz, bx, by, bz, shared, stream, NULL, 0 };

	return kernel_launch(per_thread, f, &config, params, extra, false);
}

STREAM(cuLaunchCooperativeKernel, CUfunction, f, unsigned int, gx, unsigned int, gy, unsigned int, gz, unsigned int, bx,
       unsigned int, by, unsigned int, bz, unsigned int, shared, CUstream, stream, void **, params)
{
	CUlaunchConfig config = { gx, gy, gz, bx, by, bz, shared, stream, NULL, 0 };

	return kernel_launch(per_thread, f, &config, params, NULL, true);
}

STREAM(cuLaunchKernelEx, const CUlaunchConfig *, config, CUfunction, f, void **, params, void **, extra)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	return kernel_launch(per_thread, f, config, params, extra, false);
}
