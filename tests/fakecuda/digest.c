// SPDX-License-Identifier: Apache-2.0
/*
 * detshare_hash(u64 grains, u64 digests, u32 key[0], ... key[3], u32 rows), the kernel by which libdetshare.so finds what changed: what its
 * PTX does, thread by thread, written apart from runtime/memory/hash.c.
 */
#include "api.h"

#define THREADS 256

/* the registers of all threads of a block */
struct block {
	uint32_t a[THREADS], b[THREADS], c[THREADS], d[THREADS];
};

#define TURN(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define QUARTER(a, b, c, d)                   \
	do {                                  \
		a += b;                       \
		d = TURN(d ^ a, 16);          \
		c += d;                       \
		b = TURN(b ^ c, 12);          \
		a += b;                       \
		d = TURN(d ^ a, 8);           \
		c += d;                       \
		b = TURN(b ^ c, 7);           \
	} while (0)

__attribute__((optimize("O3"))) static void step(struct block *restrict block, const uint32_t *restrict row)
{
	for (unsigned int t = 0; t < THREADS; t++) {
		uint32_t a = block->a[t] ^ row[4 * t], b = block->b[t] ^ row[4 * t + 1];
		uint32_t c = block->c[t] ^ row[4 * t + 2], d = block->d[t] ^ row[4 * t + 3];

		QUARTER(a, b, c, d);
		QUARTER(a, b, c, d);
		block->a[t] = a;
		block->b[t] = b;
		block->c[t] = c;
		block->d[t] = d;
	}
}

static void mix(uint32_t s[4])
{
	QUARTER(s[0], s[1], s[2], s[3]);
	QUARTER(s[0], s[1], s[2], s[3]);
}

static void join(const struct block *block, uint32_t out[4])
{
	uint32_t s[THREADS][4];

	for (unsigned int t = 0; t < THREADS; t++) {
		s[t][0] = block->a[t];
		s[t][1] = block->b[t];
		s[t][2] = block->c[t];
		s[t][3] = block->d[t];
	}
	for (unsigned int half = THREADS / 2; half; half >>= 1)
		for (unsigned int t = 0; t < half; t++) {
			mix(s[t]);
			for (unsigned int w = 0; w < 4; w++)
				s[t][w] ^= s[t + half][w];
			mix(s[t]);
		}
	memcpy(out, s[0], sizeof(s[0]));
}

int run_digest(struct fakecuda_call *call)
{
	static const uint32_t nothing[4 * THREADS];
	size_t count = call->grid[0];
	CUdeviceptr list, to, *grains;
	uint32_t rows, *out;

	memcpy(&list, call->args[0], sizeof(list));
	memcpy(&to, call->args[1], sizeof(to));
	memcpy(&rows, call->args[6], sizeof(rows));
	grains = fakecuda_touch(call, list, count * sizeof(*grains), 0);
	out = fakecuda_touch(call, to, count * 16, 1);
	if (!grains || !out || call->block[0] != THREADS || call->grid[1] * call->grid[2] * call->block[1] * call->block[2] != 1)
		return -1;
	for (size_t n = 0; n < count; n++) {
		const uint32_t *row = fakecuda_touch(call, grains[n], 16UL * THREADS * rows, 0);
		struct block block;

		/* the kernel takes four rows at a time */
		if (!row || rows % 4 || !rows)
			return -1;
		for (unsigned int t = 0; t < THREADS; t++) {
			memcpy(&block.a[t], call->args[2], 4);
			memcpy(&block.b[t], call->args[3], 4);
			memcpy(&block.c[t], call->args[4], 4);
			memcpy(&block.d[t], call->args[5], 4);
			block.a[t] ^= t;
		}
		step(&block, nothing);
		for (uint32_t r = 0; r < rows; r++, row += 4 * THREADS)
			step(&block, row);
		join(&block, out + 4 * n);
	}
	return 0;
}
