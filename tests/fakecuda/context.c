// SPDX-License-Identifier: Apache-2.0
/* Contexts: the primary one of each device, others, and the current one of each thread. */
#include "api.h"

struct context *contexts;
struct clock *context_over;

CUresult context_current(struct context **context)
{
	*context = self.depth ? self.stack[self.depth - 1] : NULL;
	if (!*context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if ((*context)->object.dead)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return (*context)->group->sticky;
}

CUresult context_of(CUcontext handle, struct context **context)
{
	if (!handle)
		return context_current(context);
	*context = handle_get(handle, OBJECT_CONTEXT);
	return *context ? (*context)->group->sticky : CUDA_ERROR_INVALID_CONTEXT;
}

static struct stream *legacy_new(struct context *context)
{
	struct stream *legacy = stream_new(context, CU_STREAM_DEFAULT, 0);

	legacy->kind = STREAM_LEGACY;
	return legacy;
}

struct context *context_new(struct device *device, struct context *group, const struct sm_set *sms)
{
	struct context *context = xalloc(sizeof(*context));

	handle_add(context, OBJECT_CONTEXT);
	context->device = device;
	context->group = group ? group : context;
	context->sms = *sms;
	context->api_version = 3020;
	context->limits[CU_LIMIT_STACK_SIZE] = 1024;
	context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7340032;
	context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608;
	context->legacy = legacy_new(context);
	context->next = contexts;
	contexts = context;
	return context;
}

void context_close(struct context *context)
{
	struct clock *now;

	wait_all(context->group);
	/* what comes follows, whoever asks for it, on other devices too */
	now = host_clock();
	context_over = clock_join(context_over, now);
	clock_put(now);
	peer_forget(context);
	ipc_forget(context);
	/* the addresses are the process's, and may be another's by now */
	memory_unregister(context);
	handle_kill(context);
	for (struct stream *stream = context->streams; stream; stream = stream->next)
		handle_kill(stream);
}

/* of a device, what a primary context takes */
static size_t context_bytes(void)
{
	const char *text = getenv("FAKECUDA_CONTEXT");

	return text ? strtoul(text, NULL, 10) << 20 : 0;
}

CUresult primary_of(struct device *device, struct context **context)
{
	if (!device->primary && !memory_take(device, context_bytes()))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (device->reset) {
		device->primary = device->reset;
		device->reset = NULL;
		device->primary->object.dead = false;
		device->primary->sticky = CUDA_SUCCESS;
		device->primary->legacy = legacy_new(device->primary);
	}
	if (!device->primary) {
		struct sm_set all = sms_all(device->sms);

		device->primary = context_new(device, NULL, &all);
		device->primary->primary = true;
	}
	*context = device->primary;
	return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxRetain, CUcontext *, handle, CUdevice, ordinal)
{
	const char *fail = getenv("FAKECUDA_PRIMARY_FAIL");
	static unsigned int made;
	struct device *device;
	struct context *context;

	TRY(device_of(ordinal, &device));
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device->primary) {
		take_time("FAKECUDA_PRIMARY_US");
		if (fail && made++ < (unsigned int)atoi(fail))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	TRY(primary_of(device, &context));
	context->refs++;
	*handle = (CUcontext)context;
	return CUDA_SUCCESS;
}

EXPORT void fakecuda_break(int ordinal)
{
	pthread_mutex_lock(&fake_lock);
	devices[ordinal].primary->sticky = CUDA_ERROR_LAUNCH_FAILED;
	pthread_mutex_unlock(&fake_lock);
}

static CUresult primary_close(struct device *device)
{
	struct context *primary = device->primary;

	if (!primary)
		return CUDA_SUCCESS;
	context_close(primary);
	for (struct context *context = contexts; context; context = context->next)
		if (context->group == primary)
			handle_kill(context);
	memory_give(device, context_bytes());
	device->primary = NULL;
	return CUDA_SUCCESS;
}

/*
 * Green contexts retain it too. A reset leaves the references. (Measured so in 32 orders of use; in one probe a context that was retained again stayed
 * active for one more release, which failed: docs/results/raw/probes/reset.txt.gz. What made the difference is not known.)
 */
CUresult primary_release(struct device *device)
{
	struct context *context = device->primary ? device->primary : device->reset;

	if (!context || !context->refs)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--context->refs)
		return CUDA_SUCCESS;
	device->reset = NULL;
	return primary_close(device);
}

API(cuDevicePrimaryCtxRelease_v2, CUdevice, ordinal)
{
	struct device *device;

	TRY(device_of(ordinal, &device));
	return primary_release(device);
}

SAME(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, CUdevice, ordinal)

/* All that is in it ends; the program's references stay. */
API(cuDevicePrimaryCtxReset_v2, CUdevice, ordinal)
{
	struct context *primary;
	struct device *device;

	TRY(device_of(ordinal, &device));
	primary = device->primary;
	if (!primary)
		return CUDA_SUCCESS;
	TRY(primary_close(device));
	modules_end(primary);
	memory_end(primary);
	device->reset = primary;
	return CUDA_SUCCESS;
}

SAME(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, CUdevice, ordinal)

static unsigned int primary_flags[MAX_DEVICES];

API(cuDevicePrimaryCtxSetFlags_v2, CUdevice, ordinal, unsigned int, flags)
{
	struct device *device;

	TRY(device_of(ordinal, &device));
	primary_flags[ordinal] = flags;
	return CUDA_SUCCESS;
}

SAME(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, CUdevice, ordinal, unsigned int, flags)

API(cuDevicePrimaryCtxGetState, CUdevice, ordinal, unsigned int *, flags, int *, active)
{
	struct device *device;

	TRY(device_of(ordinal, &device));
	if (flags)
		*flags = primary_flags[ordinal];
	if (active)
		*active = device->primary != NULL;
	return CUDA_SUCCESS;
}

static CUresult create(CUcontext *handle, unsigned int flags, CUdevice ordinal)
{
	struct device *device;
	struct context *context;
	struct sm_set all;

	TRY(device_of(ordinal, &device));
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (self.depth == ARRAY_LENGTH(self.stack))
		return CUDA_ERROR_OUT_OF_MEMORY;
	all = sms_all(device->sms);
	context = context_new(device, NULL, &all);
	context->flags = flags;
	self.stack[self.depth++] = context;
	*handle = (CUcontext)context;
	return CUDA_SUCCESS;
}

API(cuCtxCreate_v2, CUcontext *, handle, unsigned int, flags, CUdevice, ordinal)
{
	return create(handle, flags, ordinal);
}

SAME(cuCtxCreate, cuCtxCreate_v2, CUcontext *, handle, unsigned int, flags, CUdevice, ordinal)

API(cuCtxCreate_v3, CUcontext *, handle, CUexecAffinityParam *, affinity, int, count, unsigned int, flags, CUdevice,
    ordinal)
{
	if (count && !affinity)
		return CUDA_ERROR_INVALID_VALUE;
	return count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(handle, flags, ordinal);
}

API(cuCtxCreate_v4, CUcontext *, handle, CUctxCreateParams *, params, unsigned int, flags, CUdevice, ordinal)
{
	if (params && params->numExecAffinityParams)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(handle, flags, ordinal);
}

API(cuCtxDestroy_v2, CUcontext, handle)
{
	struct context *context = handle_get(handle, OBJECT_CONTEXT);

	if (!context || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (self.depth && self.stack[self.depth - 1] == context)
		self.depth--;
	if (context->green) {
		handle_kill(context);
		return CUDA_SUCCESS;
	}
	context_close(context);
	return CUDA_SUCCESS;
}

SAME(cuCtxDestroy, cuCtxDestroy_v2, CUcontext, handle)

API_HOW(cuCtxPushCurrent_v2, ENTER_IN_CALLBACK, CUcontext, handle)
{
	struct context *context = handle_get(handle, OBJECT_CONTEXT);

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (self.depth == ARRAY_LENGTH(self.stack))
		return CUDA_ERROR_OUT_OF_MEMORY;
	self.stack[self.depth++] = context;
	return CUDA_SUCCESS;
}

SAME(cuCtxPushCurrent, cuCtxPushCurrent_v2, CUcontext, handle)

API_HOW(cuCtxPopCurrent_v2, ENTER_IN_CALLBACK, CUcontext *, handle)
{
	if (!self.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	self.depth--;
	if (handle)
		*handle = (CUcontext)self.stack[self.depth];
	return CUDA_SUCCESS;
}

SAME(cuCtxPopCurrent, cuCtxPopCurrent_v2, CUcontext *, handle)

static CUresult make_current(CUcontext handle)
{
	struct context *context = handle ? handle_get(handle, OBJECT_CONTEXT) : NULL;

	if (handle && !context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (self.depth)
		self.depth--;
	if (context)
		self.stack[self.depth++] = context;
	return CUDA_SUCCESS;
}

API_HOW(cuCtxSetCurrent, ENTER_IN_CALLBACK, CUcontext, handle)
{
	return make_current(handle);
}

EXPORT int fakecuda_make_current(void *context)
{
	CUresult result = api_enter(ENTER_IN_CALLBACK);

	return result ? result : api_leave(ENTER_IN_CALLBACK, make_current(context));
}

API_HOW(cuCtxGetCurrent, ENTER_IN_CALLBACK, CUcontext *, handle)
{
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = self.depth ? (CUcontext)self.stack[self.depth - 1] : NULL;
	return CUDA_SUCCESS;
}

API(cuCtxGetDevice, CUdevice *, ordinal)
{
	struct context *context;

	TRY(context_current(&context));
	if (!ordinal)
		return CUDA_ERROR_INVALID_VALUE;
	*ordinal = context->device->ordinal;
	return CUDA_SUCCESS;
}

API(cuCtxGetDevice_v2, CUdevice *, ordinal, CUcontext, handle)
{
	struct context *context;

	TRY(context_of(handle, &context));
	*ordinal = context->device->ordinal;
	return CUDA_SUCCESS;
}

API(cuCtxGetFlags, unsigned int *, flags)
{
	struct context *context;

	TRY(context_current(&context));
	*flags = context->primary ? primary_flags[context->device->ordinal] : context->flags;
	return CUDA_SUCCESS;
}

API(cuCtxSetFlags, unsigned int, flags)
{
	struct context *context;

	TRY(context_current(&context));
	context->flags = flags;
	return CUDA_SUCCESS;
}

API(cuCtxGetId, CUcontext, handle, unsigned long long *, id)
{
	struct context *context;

	TRY(context_of(handle, &context));
	*id = context->object.id;
	return CUDA_SUCCESS;
}

API(cuCtxGetApiVersion, CUcontext, handle, unsigned int *, version)
{
	struct context *context;

	TRY(context_of(handle, &context));
	*version = context->api_version;
	return CUDA_SUCCESS;
}

static CUresult synchronize(struct context *context)
{
	TRY(capture_forbid(context));
	wait_all(context->group);
	return context->group->sticky;
}

EXPORT CUresult cuCtxSynchronize(void)
{
	struct context *context;
	CUresult result = api_enter(ENTER_PLAIN);

	if (result)
		return result;
	result = context_current(&context);
	return api_leave(ENTER_PLAIN, result ? result : synchronize(context));
}

API(cuCtxSynchronize_v2, CUcontext, handle)
{
	struct context *context;

	TRY(context_of(handle, &context));
	return synchronize(context);
}

API(cuCtxSetLimit, CUlimit, limit, size_t, value)
{
	struct context *context;

	TRY(context_current(&context));
	if ((size_t)limit >= ARRAY_LENGTH(context->limits))
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	context->group->limits[limit] = value;
	return CUDA_SUCCESS;
}

API(cuCtxGetLimit, size_t *, value, CUlimit, limit)
{
	struct context *context;

	TRY(context_current(&context));
	if ((size_t)limit >= ARRAY_LENGTH(context->limits))
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*value = context->group->limits[limit];
	return CUDA_SUCCESS;
}

API(cuCtxSetCacheConfig, CUfunc_cache, config)
{
	struct context *context;

	TRY(context_current(&context));
	context->cache = config;
	return CUDA_SUCCESS;
}

API(cuCtxGetCacheConfig, CUfunc_cache *, config)
{
	struct context *context;

	TRY(context_current(&context));
	*config = context->cache;
	return CUDA_SUCCESS;
}

API(cuCtxGetStreamPriorityRange, int *, least, int *, greatest)
{
	struct context *context;

	TRY(context_current(&context));
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

API(cuCtxGetExecAffinity, CUexecAffinityParam *, affinity, CUexecAffinityType, type)
{
	struct context *context;

	TRY(context_current(&context));
	if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	affinity->type = type;
	affinity->param.smCount.val = sms_count(&context->sms);
	return CUDA_SUCCESS;
}
