// SPDX-License-Identifier: Apache-2.0
/* What each kind of work does to memory, how long it takes, and its deep copies. */
#include "api.h"

#define COPY_START_NS 1000
#define COPY_BYTES_PER_NS 25
#define SET_START_NS 1000
#define SET_BYTES_PER_NS 2000

static void fault(struct op *op, const char *what, CUdeviceptr address, size_t size)
{
	violation("%s (op %llu): [%#llx, +%zu) is no memory of its context", what, op->seq, (unsigned long long)address,
		  size);
	op->context->group->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
}

static bool kernel_step(struct op *op)
{
	const struct kernel_work *work = &op->work.kernel;
	fakecuda_kernel run = kernel_code(work->kernel->name);
	uint16_t ids[MAX_SMS];
	struct fakecuda_call call = {
		.name = work->kernel->name,
		.grid = { work->grid[0], work->grid[1], work->grid[2] },
		.block = { work->block[0], work->block[1], work->block[2] },
		.shared = work->shared, .params = work->params, .args = work->args, .sm = ids,
		.start_ns = op->start_ns, .end_ns = op->end_ns, .state = op->state_of_kernel, .engine = op,
	};
	int more;

	if (!run)
		return true;
	call.sms = sms_list(&op->context->sms, ids);
	more = run(&call);
	op->state_of_kernel = call.state;
	if (more < 0) {
		violation("kernel %s (op %llu) touches memory that is not its context's", call.name, op->seq);
		op->context->group->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
	}
	return more <= 0;
}

/* True once a kernel or a wait is over. */
bool op_poll(struct op *op)
{
	if (op->work.type == WORK_MEM_OPS)
		return mem_ops_step(op);
	if (op->context->group->sticky)
		return true;
	return kernel_step(op);
}

static size_t copy_bytes(const CUDA_MEMCPY3D *how)
{
	return how->WidthInBytes * (how->Height ? how->Height : 1) * (how->Depth ? how->Depth : 1);
}

uint64_t op_duration(const struct op *op)
{
	const struct work *work = &op->work;

	if (work->type == WORK_KERNEL) {
		const struct kernel_work *kernel = &work->kernel;
		unsigned int threads = kernel->block[0] * kernel->block[1] * kernel->block[2];
		uint64_t slots = (uint64_t)blocks_per_sm(kernel->kernel, threads, kernel->shared) *
				 sms_count(&op->context->sms);
		uint64_t blocks = (uint64_t)kernel->grid[0] * kernel->grid[1] * kernel->grid[2];
		double us = kernel->kernel->duration_us;

		if (!strcmp(kernel->kernel->name, "spin") && kernel->params) {
			uint64_t ns;

			memcpy(&ns, kernel->args[0], sizeof(ns));
			us = (double)ns / 1e3;
		}
		return (uint64_t)((double)((blocks + slots - 1) / (slots ? slots : 1)) * us * 1e3);
	}
	if (work->type == WORK_COPY)
		return COPY_START_NS + copy_bytes(&work->copy.how) / COPY_BYTES_PER_NS;
	if (work->type == WORK_SET)
		return SET_START_NS + work->set.width * work->set.height * work->set.element / SET_BYTES_PER_NS;
	return 0;
}

static bool host_side(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_HOST;
}

/* A row: checked if the range is known, plain host memory otherwise (only where the side may be the host's). */
static char *row_at(struct op *op, CUmemorytype type, CUdeviceptr address, size_t width, bool write)
{
	struct memory *memory = NULL;
	void *at = memory_reach(NULL, address, width, &memory);

	if (memory) {
		shadow_access(memory, address - memory->base, width, write, op);
		return at;
	}
	if (!memory_find(address) && (host_side(type) || type == CU_MEMORYTYPE_UNIFIED))
		return (char *)address;
	return NULL;
}

static void run_copy(struct op *op)
{
	const CUDA_MEMCPY3D *how = &op->work.copy.how;
	size_t height = how->Height ? how->Height : 1, depth = how->Depth ? how->Depth : 1;
	CUdeviceptr from = host_side(how->srcMemoryType) ? (CUdeviceptr)how->srcHost : how->srcDevice;
	CUdeviceptr to = host_side(how->dstMemoryType) ? (CUdeviceptr)how->dstHost : how->dstDevice;
	size_t src_pitch = how->srcPitch ? how->srcPitch : how->srcXInBytes + how->WidthInBytes;
	size_t dst_pitch = how->dstPitch ? how->dstPitch : how->dstXInBytes + how->WidthInBytes;
	size_t src_height = how->srcHeight ? how->srcHeight : how->srcY + height;
	size_t dst_height = how->dstHeight ? how->dstHeight : how->dstY + height;

	for (size_t z = 0; z < depth; z++) {
		for (size_t y = 0; y < height; y++) {
			CUdeviceptr src = from + ((how->srcZ + z) * src_height + how->srcY + y) * src_pitch +
					  how->srcXInBytes;
			CUdeviceptr dst = to + ((how->dstZ + z) * dst_height + how->dstY + y) * dst_pitch +
					  how->dstXInBytes;
			char *a, *b;

			if (op->work.copy.staged)
				a = (char *)op->work.copy.staged + (z * height + y) * how->WidthInBytes;
			else
				a = row_at(op, how->srcMemoryType, src, how->WidthInBytes, false);
			b = row_at(op, how->dstMemoryType, dst, how->WidthInBytes, true);
			if (!a || !b) {
				fault(op, "copy", a ? dst : src, how->WidthInBytes);
				return;
			}
			memmove(b, a, how->WidthInBytes);
		}
	}
}

static void run_set(struct op *op)
{
	const struct set_work *set = &op->work.set;

	for (size_t y = 0; y < set->height; y++) {
		CUdeviceptr address = set->dst + y * set->pitch;
		char *row = row_at(op, CU_MEMORYTYPE_DEVICE, address, set->width * set->element, true);

		if (!row) {
			fault(op, "memset", address, set->width * set->element);
			return;
		}
		for (size_t x = 0; x < set->width; x++)
			memcpy(row + x * set->element, &set->value, set->element);
	}
}

/* At the op's end; kernels have run by then. */
void op_effect(struct op *op)
{
	struct memory *memory;

	if (op->context->group->sticky && op->work.type != WORK_FREE)
		return;
	switch (op->work.type) {
	case WORK_COPY:
		run_copy(op);
		break;
	case WORK_SET:
		run_set(op);
		break;
	case WORK_ALLOC:
		memory = memory_find(op->work.alloc.params.dptr);
		if (memory && memory->kind == MEMORY_GRAPH) {
			shadow_clear(memory);
			memory->freed = false;
		} else if (!memory || memory->id != op->work.alloc.id) {
			violation("race: memory at %#llx is freed before the stream that allocates it gets there (op %llu)",
				  (unsigned long long)op->work.alloc.params.dptr, op->seq);
		} else {
			shadow_access(memory, 0, memory->size, true, op);
		}
		break;
	case WORK_FREE:
		memory = memory_find(op->work.free.address);
		if (memory && op->exec) {
			if (memory->freed)
				violation("graph (op %llu): frees %#llx twice", op->seq,
					  (unsigned long long)memory->base);
			memory->freed = true;
		} else if (op->work.free.memory) {
			shadow_access(op->work.free.memory, 0, op->work.free.memory->size, true, op);
			pool_give(op->work.free.memory);
		}
		break;
	case WORK_CONDITIONAL:
		conditional_expand(op);
		break;
	default:
		break;
	}
}

CUresult work_copy(struct work *to, const struct work *from)
{
	*to = *from;
	if (from->type == WORK_KERNEL && from->kernel.bytes) {
		to->kernel.bytes = xalloc(from->kernel.kernel->param_bytes);
		to->kernel.args = xalloc((from->kernel.params + 1) * sizeof(void *));
		memcpy(to->kernel.bytes, from->kernel.bytes, from->kernel.kernel->param_bytes);
		for (unsigned int i = 0; i < from->kernel.params; i++)
			to->kernel.args[i] = to->kernel.bytes + from->kernel.kernel->param_offset[i];
	} else if (from->type == WORK_MEM_OPS) {
		size_t size = from->mem.count * sizeof(*from->mem.ops);

		to->mem.ops = xalloc(size);
		memcpy(to->mem.ops, from->mem.ops, size);
	} else if (from->type == WORK_CHILD) {
		to->child.graph = graph_clone(from->child.graph);
	} else if (from->type == WORK_CONDITIONAL) {
		for (unsigned int i = 0; i < ARRAY_LENGTH(to->conditional.body); i++)
			if (from->conditional.body[i])
				to->conditional.body[i] = graph_clone(from->conditional.body[i]);
	}
	return CUDA_SUCCESS;
}

void work_drop(struct work *work)
{
	if (work->type == WORK_KERNEL) {
		free(work->kernel.bytes);
		free(work->kernel.args);
		work->kernel.bytes = NULL;
		work->kernel.args = NULL;
	} else if (work->type == WORK_MEM_OPS) {
		free(work->mem.ops);
		work->mem.ops = NULL;
	} else if (work->type == WORK_COPY) {
		free(work->copy.staged);
		work->copy.staged = NULL;
	} else if (work->type == WORK_CHILD) {
		if (work->child.graph)
			graph_drop(work->child.graph);
		work->child.graph = NULL;
	} else if (work->type == WORK_CONDITIONAL) {
		for (unsigned int i = 0; i < ARRAY_LENGTH(work->conditional.body); i++) {
			if (work->conditional.body[i])
				graph_drop(work->conditional.body[i]);
			work->conditional.body[i] = NULL;
		}
	}
}
