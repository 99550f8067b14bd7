/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels by every function of the driver that has one. */
#include "begin.h"
#include "capture.h"
#include "home.h"
#include "room.h"

/* a grid that must be resident as a whole and does not fit after all: once more, on all SMs */
static bool too_large(struct ds_launch *launch, CUresult result)
{
	if (ds_likely(result != CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE && result != CUDA_ERROR_INVALID_CLUSTER_SIZE) ||
	    !launch->tier)
		return false;
	ds_pages_full_run(launch->stream->device->pages,
			  result == CUDA_ERROR_INVALID_CLUSTER_SIZE ? DS_FULL_CLUSTER : DS_FULL_COOPERATIVE);
	ds_stream_done_quiet(launch->stream);
	ds_stream_home(launch->stream);
	launch->actual = ds_stream_app(launch->stream);
	launch->tier = 0;
	return true;
}

static inline __attribute__((always_inline)) CUresult
launch_kernel(bool per_thread, CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
	      unsigned int by, unsigned int bz, unsigned int shared, CUstream handle, void **params, void **extra)
{
	struct ds_launch launch;
	CUresult result;

	launch.stream = ds_stream_of(handle, per_thread);
	if (ds_unlikely(!launch.stream))
		return per_thread ? real->cuLaunchKernel_ptsz(function, gx, gy, gz, bx, by, bz, shared, handle, params, extra)
				  : real->cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, handle, params, extra);
	launch.function = function;
	launch.grid[0] = gx;
	launch.grid[1] = gy;
	launch.grid[2] = gz;
	launch.block[0] = bx;
	launch.block[1] = by;
	launch.block[2] = bz;
	launch.shared = shared;
	launch.kind = DS_LAUNCH_KERNEL;
	launch.config = NULL;
	if (ds_unlikely(atomic_load_explicit(&ds_process.lent, memory_order_relaxed)))
		ds_home_name(function, params, extra);
	ds_begin(&launch);
	do
		result = real->cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, launch.actual, params, extra);
	while (ds_unlikely(result != CUDA_SUCCESS) && too_large(&launch, result));
	ds_end(&launch, result);
	return ds_room_own(launch.stream->device, result,
			   per_thread ? cuLaunchKernel_ptsz(function, gx, gy, gz, bx, by, bz, shared, handle, params, extra)
				      : cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, handle, params, extra));
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
			unsigned int by, unsigned int bz, unsigned int shared, CUstream handle, void **params, void **extra)
{
	return launch_kernel(false, function, gx, gy, gz, bx, by, bz, shared, handle, params, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
			     unsigned int by, unsigned int bz, unsigned int shared, CUstream handle, void **params, void **extra)
{
	return launch_kernel(true, function, gx, gy, gz, bx, by, bz, shared, handle, params, extra);
}

/* events that the kernel itself records */
static void note_events(const CUlaunchConfig *config)
{
	for (unsigned int i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *attr = &config->attrs[i];

		if (attr->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
			ds_capture_note(attr->value.programmaticEvent.event);
		else if (attr->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
			ds_capture_note(attr->value.launchCompletionEvent.event);
	}
}

static CUresult launch_ex(bool per_thread, const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	struct ds_launch launch;
	CUlaunchConfig copy;
	CUresult result;

	launch.stream = config ? ds_stream_of(config->hStream, per_thread) : NULL;
	if (ds_unlikely(!launch.stream))
		return per_thread ? real->cuLaunchKernelEx_ptsz(config, function, params, extra)
				  : real->cuLaunchKernelEx(config, function, params, extra);
	copy = *config;
	launch.function = function;
	launch.grid[0] = config->gridDimX;
	launch.grid[1] = config->gridDimY;
	launch.grid[2] = config->gridDimZ;
	launch.block[0] = config->blockDimX;
	launch.block[1] = config->blockDimY;
	launch.block[2] = config->blockDimZ;
	launch.shared = config->sharedMemBytes;
	launch.kind = DS_LAUNCH_KERNEL;
	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && config->attrs[i].value.cooperative)
			launch.kind = DS_LAUNCH_COOPERATIVE;
	launch.config = config;
	if (ds_unlikely(atomic_load_explicit(&ds_process.lent, memory_order_relaxed)))
		ds_home_name(function, params, extra);
	ds_begin(&launch);
	do {
		copy.hStream = launch.actual;
		result = real->cuLaunchKernelEx(&copy, function, params, extra);
	} while (ds_unlikely(result != CUDA_SUCCESS) && too_large(&launch, result));
	if (ds_unlikely(launch.captured))
		note_events(config);
	ds_end(&launch, result);
	return ds_room_own(launch.stream->device, result,
			   per_thread ? cuLaunchKernelEx_ptsz(config, function, params, extra)
				      : cuLaunchKernelEx(config, function, params, extra));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	return launch_ex(false, config, function, params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	return launch_ex(true, config, function, params, extra);
}

static CUresult launch_cooperative(bool per_thread, CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
				   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, CUstream handle,
				   void **params)
{
	struct ds_launch launch = {
		.stream = ds_stream_of(handle, per_thread),
		.function = function,
		.grid = {gx, gy, gz},
		.block = {bx, by, bz},
		.shared = shared,
		.kind = DS_LAUNCH_COOPERATIVE,
	};
	CUresult result;

	if (!launch.stream)
		return per_thread ? real->cuLaunchCooperativeKernel_ptsz(function, gx, gy, gz, bx, by, bz, shared, handle, params)
				  : real->cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, handle, params);
	ds_begin(&launch);
	do
		result = real->cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, launch.actual, params);
	while (result != CUDA_SUCCESS && too_large(&launch, result));
	ds_end(&launch, result);
	return ds_room_own(launch.stream->device, result,
			   per_thread ? cuLaunchCooperativeKernel_ptsz(function, gx, gy, gz, bx, by, bz, shared, handle, params)
				      : cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, handle, params));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
				   unsigned int by, unsigned int bz, unsigned int shared, CUstream handle, void **params)
{
	return launch_cooperative(false, function, gx, gy, gz, bx, by, bz, shared, handle, params);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
					unsigned int by, unsigned int bz, unsigned int shared, CUstream handle, void **params)
{
	return launch_cooperative(true, function, gx, gy, gz, bx, by, bz, shared, handle, params);
}

/* One grid over several devices must be resident on all of them at once: at home everywhere. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
{
	struct ds_stream *streams[DS_MAX_DEVICES];
	CUresult result;

	if (!list || count > DS_MAX_DEVICES)
		return real->cuLaunchCooperativeKernelMultiDevice(list, count, flags);
	for (unsigned int i = 0; i < count; i++) {
		/* default streams are not allowed in it */
		streams[i] = (uintptr_t)list[i].hStream > (uintptr_t)CU_STREAM_PER_THREAD ? ds_stream_of(list[i].hStream, false)
											    : NULL;
		if (!streams[i])
			continue;
		ds_pages_full_run(streams[i]->device->pages, DS_FULL_COOPERATIVE);
		ds_stream_home(streams[i]);
	}
	result = real->cuLaunchCooperativeKernelMultiDevice(list, count, flags);
	for (unsigned int i = 0; i < count; i++)
		if (streams[i])
			ds_stream_done(streams[i]);
	return result;
}

/* The launches of the first CUDA versions: block shape and parameters were set in the function before. */
static CUresult launch_grid(CUfunction function, int width, int height, CUstream handle, bool *native)
{
	struct ds_launch launch = {
		.stream = ds_has(cuLaunchGridAsync) ? ds_stream_of(handle, false) : NULL,
		.function = function,
		.grid = {width, height, 1},
		.kind = DS_LAUNCH_KERNEL,
	};
	CUresult result;

	*native = !launch.stream;
	if (!launch.stream)
		return CUDA_SUCCESS;
	ds_begin(&launch);
	result = real->cuLaunchGridAsync(function, width, height, launch.actual);
	ds_end(&launch, result);
	return result;
}

CUresult cuLaunch(CUfunction function)
{
	bool native;
	CUresult result = launch_grid(function, 1, 1, NULL, &native);

	return native ? real->cuLaunch(function) : result;
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
	bool native;
	CUresult result = launch_grid(function, width, height, NULL, &native);

	return native ? real->cuLaunchGrid(function, width, height) : result;
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream handle)
{
	bool native;
	CUresult result = launch_grid(function, width, height, handle, &native);

	return native ? real->cuLaunchGridAsync(function, width, height, handle) : result;
}
