/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "hash.h"

/* word w of lane t at [w][t]: compilers make vectors of that */
typedef uint32_t ds_lanes[4][DS_HASH_LANES];

/* gcc makes vectors of loops from there on, clang always */
#ifdef __clang__
#define VECTOR_LOOPS
#else
#define VECTOR_LOOPS __attribute__((optimize("O3")))
#endif

static inline uint32_t left(uint32_t word, unsigned int bits)
{
	return word << bits | word >> (32 - bits);
}

/* of lane t of the first `count` */
VECTOR_LOOPS static void mix(ds_lanes s, unsigned int count)
{
	for (unsigned int t = 0; t < count; t++) {
		uint32_t a = s[0][t], b = s[1][t], c = s[2][t], d = s[3][t];

		for (unsigned int round = 0; round < 2; round++) {
			a += b, d = left(d ^ a, 16);
			c += d, b = left(b ^ c, 12);
			a += b, d = left(d ^ a, 8);
			c += d, b = left(b ^ c, 7);
		}
		s[0][t] = a, s[1][t] = b, s[2][t] = c, s[3][t] = d;
	}
}

VECTOR_LOOPS static void take(ds_lanes s, const uint32_t *row)
{
	for (unsigned int t = 0; t < DS_HASH_LANES; t++)
		for (unsigned int w = 0; w < 4; w++)
			s[w][t] ^= row[4 * t + w];
	mix(s, DS_HASH_LANES);
}

void ds_hash(const void *content, size_t rows, const struct ds_digest *key, struct ds_digest *digest)
{
	const uint32_t *row = content;
	ds_lanes s;

	for (unsigned int t = 0; t < DS_HASH_LANES; t++)
		for (unsigned int w = 0; w < 4; w++)
			s[w][t] = key->words[w] ^ (w ? 0 : t);
	mix(s, DS_HASH_LANES);
	for (size_t n = 0; n < rows; n++, row += DS_HASH_ROW_BYTES / sizeof(*row))
		take(s, row);
	for (unsigned int half = DS_HASH_LANES / 2; half; half /= 2) {
		mix(s, half);
		for (unsigned int w = 0; w < 4; w++)
			for (unsigned int t = 0; t < half; t++)
				s[w][t] ^= s[w][t + half];
		mix(s, half);
	}
	for (unsigned int w = 0; w < 4; w++)
		digest->words[w] = s[w][0];
}
