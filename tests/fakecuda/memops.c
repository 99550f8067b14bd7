// SPDX-License-Identifier: Apache-2.0
/* Waits for and writes of single words in stream order. */
#include "api.h"

static bool satisfied(uint64_t have, uint64_t want, unsigned int flags, bool wide)
{
	switch (flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return wide ? (int64_t)(have - want) >= 0 : (int32_t)((uint32_t)have - (uint32_t)want) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return have == want;
	case CU_STREAM_WAIT_VALUE_AND:
		return (have & want) != 0;
	default:
		return (~(have | want) & (wide ? UINT64_MAX : UINT32_MAX)) != 0;
	}
}

static bool one(struct op *op, const CUstreamBatchMemOpParams *params)
{
	bool wide = params->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
		    params->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
	size_t size = wide ? 8 : 4;
	uint64_t have, value;
	void *at;

	switch (params->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		at = memory_reach(NULL, params->waitValue.address, size, NULL);
		if (!at)
			break;
		value = wide ? params->waitValue.value64 : params->waitValue.value;
		have = wide ? __atomic_load_n((uint64_t *)at, __ATOMIC_ACQUIRE) :
			      __atomic_load_n((uint32_t *)at, __ATOMIC_ACQUIRE);
		if (!satisfied(have, value, params->waitValue.flags, wide))
			return false;
		op->clock = clock_join(op->clock, sync_acquire(params->waitValue.address));
		return true;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		at = memory_reach(NULL, params->writeValue.address, size, NULL);
		if (!at || (memory_find(params->writeValue.address)->kind == MEMORY_REGISTERED &&
			    memory_find(params->writeValue.address)->flags & CU_MEMHOSTREGISTER_READ_ONLY))
			break;
		if (wide)
			__atomic_store_n((uint64_t *)at, params->writeValue.value64, __ATOMIC_RELEASE);
		else
			__atomic_store_n((uint32_t *)at, params->writeValue.value, __ATOMIC_RELEASE);
		sync_release(params->writeValue.address, op->clock);
		return true;
	default:
		return true;
	}
	violation("wait or write of a word (op %llu): %#llx cannot be reached that way", op->seq,
		  (unsigned long long)params->waitValue.address);
	op->context->group->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
	return true;
}

/* Goes on where it stopped; true when all are through. */
bool mem_ops_step(struct op *op)
{
	while (op->work.mem.next < op->work.mem.count) {
		if (op->context->group->sticky)
			return true;
		if (!one(op, &op->work.mem.ops[op->work.mem.next]))
			return false;
		op->work.mem.next++;
	}
	return true;
}

static CUresult issue(CUstream handle, bool per_thread, unsigned int count, const CUstreamBatchMemOpParams *params,
		      unsigned int flags)
{
	struct work work = { .type = WORK_MEM_OPS };
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	if (!params || !count || count > 256 || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		bool wide = params[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
			    params[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;

		if (params[i].operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES &&
		    params[i].operation != CU_STREAM_MEM_OP_BARRIER &&
		    (params[i].waitValue.address & (wide ? 7 : 3) || !memory_find(params[i].waitValue.address)))
			return CUDA_ERROR_INVALID_VALUE;
	}
	work.mem.context = stream->context;
	work.mem.count = count;
	work.mem.ops = xalloc(count * sizeof(*params));
	memcpy(work.mem.ops, params, count * sizeof(*params));
	return stream_issue(stream, &work, NULL);
}

#define ONE(name, kind, op_name, type, member) \
	STREAM(name, CUstream, stream, CUdeviceptr, address, type, value, unsigned int, flags) \
	{ \
		CUstreamBatchMemOpParams params; \
		memset(&params, 0, sizeof(params)); \
		params.kind.operation = op_name; \
		params.kind.address = address; \
		params.kind.member = value; \
		params.kind.flags = flags; \
		return issue(stream, per_thread, 1, &params, 0); \
	}

ONE(cuStreamWaitValue32_v2, waitValue, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t, value)
ONE(cuStreamWaitValue64_v2, waitValue, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t, value64)
ONE(cuStreamWriteValue32_v2, writeValue, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t, value)
ONE(cuStreamWriteValue64_v2, writeValue, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t, value64)
ONE(cuStreamWaitValue32, waitValue, CU_STREAM_MEM_OP_WAIT_VALUE_32, cuuint32_t, value)
ONE(cuStreamWaitValue64, waitValue, CU_STREAM_MEM_OP_WAIT_VALUE_64, cuuint64_t, value64)
ONE(cuStreamWriteValue32, writeValue, CU_STREAM_MEM_OP_WRITE_VALUE_32, cuuint32_t, value)
ONE(cuStreamWriteValue64, writeValue, CU_STREAM_MEM_OP_WRITE_VALUE_64, cuuint64_t, value64)

STREAM(cuStreamBatchMemOp_v2, CUstream, stream, unsigned int, count, CUstreamBatchMemOpParams *, params, unsigned int,
       flags)
{
	return issue(stream, per_thread, count, params, flags);
}

STREAM(cuStreamBatchMemOp, CUstream, stream, unsigned int, count, CUstreamBatchMemOpParams *, params, unsigned int,
       flags)
{
	return issue(stream, per_thread, count, params, flags);
}
