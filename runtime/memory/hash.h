/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a grain, 2 MiB of GPU memory, in 128 bits. This is the definition; hash_kernel.c computes the same on a GPU.
 *
 * A state is four words of 32 bits, a b c d. mix(s) is the quarter round of ChaCha (RFC 8439, 2.1) twice: a permutation of states.
 * A grain is vectors of four words, little endian, v[0], v[1], ... There are 256 lanes. Lane t
 *	begins as s = mix(key ^ (t, 0, 0, 0)),
 *	takes v[t], v[t + 256], v[t + 512], ... in this order, each by s = mix(s ^ v).
 * Then lanes are joined: for half = 128, 64, ... 1 each lane t < half becomes mix(mix(s[t]) ^ s[t + half]). Lane 0 is the digest.
 *
 * Each step is a permutation, so contents that differ within one vector (a flipped bit, a changed number) have different digests always. Other
 * contents have the same digest with odds of 2^-128 if mix() is as good as random, which nobody proved. The key is drawn anew by each process:
 * what meets by accident in one does not in the next. It is no protection against who knows the key; that is the program itself, which
 * would lose bytes of its own.
 */
#ifndef DS_HASH_H
#define DS_HASH_H

#include <stddef.h>
#include <stdint.h>

#define DS_HASH_LANES 256
#define DS_HASH_ROW_BYTES (16 * DS_HASH_LANES) /* a vector of each lane */

struct ds_digest {
	uint32_t words[4];
};

/* `rows` of DS_HASH_ROW_BYTES; a multiple of 4, for the GPU takes four at a time. */
void ds_hash(const void *content, size_t rows, const struct ds_digest *key, struct ds_digest *digest);

/* PTX: detshare_hash(u64 grains, u64 digests, u32 key[0], ... key[3], u32 rows). Block n of 256 threads: digests[n] of what grains[n] points at. */
extern const char ds_hash_kernel[];

#endif
