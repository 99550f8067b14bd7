// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <string.h>

#include "fakecuda.h"
#include "kernels.h"

__asm__(".section .rodata\n"
	".global tracee_ptx\n"
	"tracee_ptx: .incbin \"" KERNELS "\"\n"
	".byte 0\n"
	".previous\n");

static uint64_t wide(const void *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint32_t word(const void *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static int put(struct fakecuda_call *call, uint64_t address, uint32_t n, uint32_t value)
{
	uint32_t *dst = fakecuda_touch(call, address, 4UL * n, 1);

	for (uint32_t i = 0; dst && i < n; i++)
		dst[i] = value;
	return dst ? 0 : -1;
}

/* dst[0 .. n) = src[0 .. n) */
static int transfer(struct fakecuda_call *call)
{
	uint32_t n = word(call->args[2]), *src = fakecuda_touch(call, wide(call->args[1]), 4UL * n, 0);
	uint32_t *dst = src ? fakecuda_touch(call, wide(call->args[0]), 4UL * n, 1) : NULL;

	if (dst)
		memmove(dst, src, 4UL * n);
	return dst ? 0 : -1;
}

/* struct { u64 ignored; u64 dst; u32 n; u32 value; }: dst[0 .. n) = value */
static int scatter(struct fakecuda_call *call)
{
	const uint8_t *where = call->args[0];

	return put(call, wide(where + 8), word(where + 16), word(where + 20));
}

/* packed struct { u32 ignored; u64 dst; u32 value; }: *dst = value */
static int packed(struct fakecuda_call *call)
{
	const uint8_t *where = call->args[0];

	return put(call, wide(where + 4), 1, word(where + 12));
}

/* (ignored, dst, value): *dst = value */
static int ignoring(struct fakecuda_call *call)
{
	return put(call, wide(call->args[1]), 1, word(call->args[2]));
}

/* (dst, bytes, value): the word so far behind dst */
static int shifted(struct fakecuda_call *call)
{
	return put(call, wide(call->args[0]) + wide(call->args[1]), 1, word(call->args[2]));
}

/* *dst += 1 */
static int bump(struct fakecuda_call *call)
{
	uint32_t *dst = fakecuda_touch(call, wide(call->args[0]), 4, 1);

	if (dst)
		*dst += 1;
	return dst ? 0 : -1;
}

/* reads src[0 .. n) */
static int look(struct fakecuda_call *call)
{
	return fakecuda_touch(call, wide(call->args[0]), 4UL * word(call->args[1]), 0) ? 0 : -1;
}

/* **table = value */
static int chase(struct fakecuda_call *call)
{
	uint64_t *table = fakecuda_touch(call, wide(call->args[0]), 8, 0);

	return table ? put(call, *table, 1, word(call->args[1])) : -1;
}

/* *table = to */
static int point(struct fakecuda_call *call)
{
	uint64_t *table = fakecuda_touch(call, wide(call->args[0]), 8, 1);

	if (table)
		memcpy(table, call->args[1], 8);
	return table ? 0 : -1;
}

void tracee_register(void)
{
	fakecuda_register_kernel("point", point);
	fakecuda_register_kernel("transfer", transfer);
	fakecuda_register_kernel("scatter", scatter);
	fakecuda_register_kernel("packed", packed);
	fakecuda_register_kernel("ignoring", ignoring);
	fakecuda_register_kernel("shifted", shifted);
	fakecuda_register_kernel("bump", bump);
	fakecuda_register_kernel("look", look);
	fakecuda_register_kernel("chase", chase);
}
