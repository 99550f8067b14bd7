// SPDX-License-Identifier: Apache-2.0
/*
 * What kernels do, by name. Parameters in brackets; all counts are of 32-bit words.
 *   write(u64 dst, u32 value)          *dst = value
 *   fill(u64 dst, u32 n, u32 value)    dst[i] = value
 *   add(u64 dst, u64 src, u32 n)       dst[i] += src[i]
 *   mix(u64 dst, u32 n, u32 a, u32 b)  dst[i] = dst[i] * a + b: the result shows the order of launches
 *   copy(u64 dst, u64 src, u32 n)      dst[i] = src[i]
 *   count(u64 dst)                     *dst += 1 per block
 *   census(u64 sm, u64 stamp)          sm[block] = id of its SM; stamp[block] = u64 start in ns, unless 0
 *   spin(u64 ns)                       as long as that
 *   until(u64 word, u32 value)         runs until *word == value (resident)
 *   fault()                            illegal address
 *   condition(u64 handle, u32 value)   sets a conditional handle
 *   detshare_hash(...)                 see digest.c
 * Any other name does nothing.
 */
#include "api.h"

struct code {
	char *name;
	fakecuda_kernel run;
	struct code *next;
};

static struct code *codes;

void *fakecuda_touch(struct fakecuda_call *call, uint64_t address, size_t size, int write);

static uint64_t wide(const struct fakecuda_call *call, unsigned int i)
{
	uint64_t value;

	memcpy(&value, call->args[i], sizeof(value));
	return value;
}

static uint32_t word(const struct fakecuda_call *call, unsigned int i)
{
	uint32_t value;

	memcpy(&value, call->args[i], sizeof(value));
	return value;
}

static int run_write(struct fakecuda_call *call)
{
	uint32_t *dst = fakecuda_touch(call, wide(call, 0), 4, 1);

	if (!dst)
		return -1;
	*dst = word(call, 1);
	return 0;
}

static int run_fill(struct fakecuda_call *call)
{
	uint32_t n = word(call, 1), value = word(call, 2), *dst = fakecuda_touch(call, wide(call, 0), 4UL * n, 1);

	for (uint32_t i = 0; dst && i < n; i++)
		dst[i] = value;
	return dst ? 0 : -1;
}

static int run_add(struct fakecuda_call *call)
{
	uint32_t n = word(call, 2), *src = fakecuda_touch(call, wide(call, 1), 4UL * n, 0);
	uint32_t *dst = src ? fakecuda_touch(call, wide(call, 0), 4UL * n, 1) : NULL;

	for (uint32_t i = 0; dst && i < n; i++)
		dst[i] += src[i];
	return dst ? 0 : -1;
}

static int run_mix(struct fakecuda_call *call)
{
	uint32_t n = word(call, 1), *dst = fakecuda_touch(call, wide(call, 0), 4UL * n, 1);

	for (uint32_t i = 0; dst && i < n; i++)
		dst[i] = dst[i] * word(call, 2) + word(call, 3);
	return dst ? 0 : -1;
}

static int run_copy(struct fakecuda_call *call)
{
	uint32_t n = word(call, 2), *src = fakecuda_touch(call, wide(call, 1), 4UL * n, 0);
	uint32_t *dst = src ? fakecuda_touch(call, wide(call, 0), 4UL * n, 1) : NULL;

	if (dst)
		memmove(dst, src, 4UL * n);
	return dst ? 0 : -1;
}

static size_t blocks(const struct fakecuda_call *call)
{
	return (size_t)call->grid[0] * call->grid[1] * call->grid[2];
}

static int run_count(struct fakecuda_call *call)
{
	uint32_t *dst = fakecuda_touch(call, wide(call, 0), 4, 1);

	if (!dst)
		return -1;
	*dst += (uint32_t)blocks(call);
	return 0;
}

static int run_census(struct fakecuda_call *call)
{
	size_t n = blocks(call);
	uint32_t *sm = fakecuda_touch(call, wide(call, 0), 4 * n, 1);
	uint64_t *stamp = wide(call, 1) ? fakecuda_touch(call, wide(call, 1), 8 * n, 1) : NULL;

	if (!sm || (wide(call, 1) && !stamp))
		return -1;
	for (size_t i = 0; i < n; i++) {
		sm[i] = call->sm[i % call->sms];
		if (stamp)
			stamp[i] = call->start_ns;
	}
	return 0;
}

static int run_until(struct fakecuda_call *call)
{
	uint32_t *at = fakecuda_touch(call, wide(call, 0), 0, 0);

	if (!at)
		return -1;
	return __atomic_load_n(at, __ATOMIC_ACQUIRE) == word(call, 1) ? 0 : 1;
}

static int run_fault(struct fakecuda_call *call)
{
	(void)call;
	return -1;
}

static int run_condition(struct fakecuda_call *call)
{
	return condition_set(wide(call, 0), word(call, 1)) ? 0 : -1;
}

static const struct {
	const char *name;
	fakecuda_kernel run;
} built_in[] = {
	{ "write", run_write }, { "fill", run_fill }, { "add", run_add }, { "mix", run_mix }, { "copy", run_copy },
	{ "count", run_count }, { "census", run_census }, { "until", run_until }, { "fault", run_fault },
	{ "condition", run_condition }, { "detshare_hash", run_digest },
};

fakecuda_kernel kernel_code(const char *name)
{
	for (struct code *code = codes; code; code = code->next)
		if (!strcmp(code->name, name))
			return code->run;
	for (size_t i = 0; i < ARRAY_LENGTH(built_in); i++)
		if (!strcmp(built_in[i].name, name))
			return built_in[i].run;
	return NULL;
}

EXPORT void fakecuda_register_kernel(const char *name, fakecuda_kernel run)
{
	struct code *code = xalloc(sizeof(*code));

	code->name = xdup(name);
	code->run = run;
	pthread_mutex_lock(&fake_lock);
	code->next = codes;
	codes = code;
	pthread_mutex_unlock(&fake_lock);
}

EXPORT void *fakecuda_touch(struct fakecuda_call *call, uint64_t address, size_t size, int write)
{
	struct op *op = call->engine;
	struct memory *memory;
	void *at = memory_reach(op->context, address, size, &memory);

	if (at)
		shadow_access(memory, address - memory->base, size, write, op);
	return at;
}
