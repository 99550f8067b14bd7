// SPDX-License-Identifier: Apache-2.0
/* How many blocks an SM holds, and what a launch must satisfy. Figures of compute capability 9.0. */
#include "api.h"

#define SM_THREADS 2048u
#define SM_BLOCKS 32u
#define SM_REGISTERS 65536u
#define SM_SHARED 233472u
#define BLOCK_SHARED_RESERVED 1024u
#define SHARED_PLAIN 49152u

static unsigned int minimum(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

unsigned int blocks_per_sm(const struct kernel *kernel, unsigned int threads, size_t shared)
{
	unsigned int warps = (threads + 31) / 32, blocks;
	size_t bytes = kernel->shared + shared + BLOCK_SHARED_RESERVED;

	if (!warps || threads > kernel->max_threads)
		return 0;
	blocks = minimum(SM_BLOCKS, SM_THREADS / (warps * 32));
	if (kernel->registers)
		blocks = minimum(blocks, SM_REGISTERS / (kernel->registers * warps * 32));
	return minimum(blocks, (unsigned int)(SM_SHARED / bytes));
}

static uint64_t product(const unsigned int dim[3])
{
	return (uint64_t)dim[0] * dim[1] * dim[2];
}

/* Whether all blocks can be on the SMs of the work's context at once. */
bool fits_resident(const struct kernel_work *work)
{
	uint64_t slots = (uint64_t)blocks_per_sm(work->kernel, (unsigned int)product(work->block), work->shared) *
			 sms_count(&work->context->sms);

	return product(work->grid) <= slots;
}

CUresult launch_check(const struct kernel_work *work)
{
	const struct kernel *kernel = work->kernel;
	uint64_t threads = product(work->block), cluster = product(work->cluster);
	unsigned int limit = kernel->dynamic_shared ? (unsigned int)kernel->dynamic_shared : SHARED_PLAIN;

	if (!product(work->grid) || !threads)
		return CUDA_ERROR_INVALID_VALUE;
	if (work->grid[0] > 2147483647u || work->grid[1] > 65535 || work->grid[2] > 65535 || work->block[0] > 1024 ||
	    work->block[1] > 1024 || work->block[2] > 64 || threads > 1024 || threads > kernel->max_threads ||
	    work->shared + kernel->shared > (limit > SHARED_PLAIN ? limit : SHARED_PLAIN))
		return CUDA_ERROR_INVALID_VALUE;
	if (!blocks_per_sm(kernel, (unsigned int)threads, work->shared))
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (cluster > 1) {
		if (work->grid[0] % work->cluster[0] || work->grid[1] % work->cluster[1] ||
		    work->grid[2] % work->cluster[2])
			return CUDA_ERROR_INVALID_VALUE;
		if (cluster > 16 || (cluster > 8 && !kernel->non_portable_cluster) ||
		    cluster > sms_count(&work->context->sms))
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	}
	return CUDA_SUCCESS;
}

static CUresult active(int *blocks, CUfunction handle, int threads, size_t shared)
{
	struct kernel *kernel;
	bool is_kernel;

	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	if (!blocks || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = (int)blocks_per_sm(kernel, (unsigned int)threads, shared);
	return CUDA_SUCCESS;
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *, blocks, CUfunction, handle, int, threads, size_t, shared)
{
	return active(blocks, handle, threads, shared);
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *, blocks, CUfunction, handle, int, threads, size_t,
    shared, unsigned int, flags)
{
	return flags & ~1u ? CUDA_ERROR_INVALID_VALUE : active(blocks, handle, threads, shared);
}

static CUresult potential(int *grid, int *block, CUfunction handle, CUoccupancyB2DSize of, size_t shared, int limit)
{
	unsigned int best = 0, best_size = 0;
	struct context *context;
	struct kernel *kernel;
	bool is_kernel;

	TRY(context_current(&context));
	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	if (!grid || !block)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int size = kernel->max_threads / 32 * 32; size >= 32; size -= 32) {
		unsigned int n;

		if (limit > 0 && size > (unsigned int)limit)
			continue;
		n = blocks_per_sm(kernel, size, of ? of((int)size) : shared);
		if (n * size > best * best_size) {
			best = n;
			best_size = size;
		}
	}
	*block = (int)best_size;
	*grid = (int)(best * sms_count(&context->sms));
	return CUDA_SUCCESS;
}

API(cuOccupancyMaxPotentialBlockSize, int *, grid, int *, block, CUfunction, handle, CUoccupancyB2DSize, of, size_t,
    shared, int, limit)
{
	return potential(grid, block, handle, of, shared, limit);
}

API(cuOccupancyMaxPotentialBlockSizeWithFlags, int *, grid, int *, block, CUfunction, handle, CUoccupancyB2DSize, of,
    size_t, shared, int, limit, unsigned int, flags)
{
	return flags & ~1u ? CUDA_ERROR_INVALID_VALUE : potential(grid, block, handle, of, shared, limit);
}

API(cuOccupancyAvailableDynamicSMemPerBlock, size_t *, size, CUfunction, handle, int, blocks, int, threads)
{
	struct kernel *kernel;
	bool is_kernel;
	size_t each;

	(void)threads;
	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	if (!size || blocks <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	each = SM_SHARED / (unsigned int)blocks;
	*size = each > kernel->shared + BLOCK_SHARED_RESERVED ? each - kernel->shared - BLOCK_SHARED_RESERVED : 0;
	return CUDA_SUCCESS;
}

static unsigned int cluster_in(const CUlaunchConfig *config)
{
	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			return config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
			       config->attrs[i].value.clusterDim.z;
	return 1;
}

API(cuOccupancyMaxPotentialClusterSize, int *, size, CUfunction, handle, const CUlaunchConfig *, config)
{
	struct kernel *kernel;
	bool is_kernel;

	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	if (!size || !config)
		return CUDA_ERROR_INVALID_VALUE;
	*size = kernel->non_portable_cluster ? 16 : 8;
	return CUDA_SUCCESS;
}

API(cuOccupancyMaxActiveClusters, int *, clusters, CUfunction, handle, const CUlaunchConfig *, config)
{
	struct context *context;
	struct stream *stream;
	struct kernel *kernel;
	unsigned int blocks;
	bool is_kernel;

	TRY(context_current(&context));
	TRY(function_of(handle, &kernel, NULL, &is_kernel));
	if (!clusters || !config)
		return CUDA_ERROR_INVALID_VALUE;
	if (config->hStream) {
		TRY(stream_of(config->hStream, false, &stream));
		context = stream->context;
	}
	blocks = blocks_per_sm(kernel, config->blockDimX * config->blockDimY * config->blockDimZ,
			       config->sharedMemBytes);
	*clusters = (int)(blocks * sms_count(&context->sms) / cluster_in(config));
	return CUDA_SUCCESS;
}
