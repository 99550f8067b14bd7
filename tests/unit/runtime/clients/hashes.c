/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.c by itself: `hashes kernel` prints the PTX; `hashes digest K0 K1 K2 K3` reads whole rows from stdin and prints their digest; `hashes flips SEED`
 * changes contents in many ways and looks that each changes the digest.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../../runtime/memory/hash.c"
#include "../../../../runtime/memory/hash_kernel.c"

#define ROWS 8
#define BYTES (ROWS * DS_HASH_ROW_BYTES)
#define VECTORS (BYTES / 16)

static uint8_t content[BYTES], other[BYTES];
static struct ds_digest key;
static uint64_t state;

static uint32_t dice(void)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(state >> 33);
}

static void differs(const char *what, unsigned int where)
{
	struct ds_digest first, second;

	ds_hash(content, ROWS, &key, &first);
	ds_hash(other, ROWS, &key, &second);
	if (memcmp(&first, &second, sizeof(first)))
		return;
	fprintf(stderr, "%s at %u: the same digest\n", what, where);
	exit(1);
}

static void swap(uint8_t *a, uint8_t *b, size_t size)
{
	uint8_t held[DS_HASH_ROW_BYTES];

	memcpy(held, a, size);
	memcpy(a, b, size);
	memcpy(b, held, size);
}

/* Contents: random numbers, all zeros, all alike. */
static void fill(unsigned int kind)
{
	for (unsigned int n = 0; n < BYTES; n++)
		content[n] = kind == 0 ? (uint8_t)dice() : kind == 1 ? 0 : 0x3f;
	memcpy(other, content, BYTES);
}

static void flips(void)
{
	for (unsigned int n = 0; n < 4; n++)
		key.words[n] = dice();
	for (unsigned int kind = 0; kind < 3; kind++) {
		fill(kind);
		for (unsigned int bit = 0; bit < 8 * BYTES; bit += 1 + dice() % 997) {
			other[bit / 8] ^= (uint8_t)(1 << bit % 8);
			differs("a flipped bit", bit);
			memcpy(other, content, BYTES);
		}
		/* a vector with a mark, somewhere: another digest each, wherever it is */
		for (unsigned int n = 0; n < 400; n++) {
			unsigned int from = dice() % VECTORS, to = dice() % VECTORS;

			if (from == to)
				continue;
			memset(other + 16 * from, 0xa5, 16);
			memset(content + 16 * to, 0xa5, 16);
			differs("the same vector elsewhere", from);
			fill(kind);
		}
	}
	fill(0);
	for (unsigned int n = 0; n < 400; n++) {
		unsigned int a = dice() % VECTORS, b = dice() % VECTORS;

		/* of the same lane, of the same row, and neither */
		if (n % 4 == 0)
			b = a % DS_HASH_LANES + b / DS_HASH_LANES * DS_HASH_LANES;
		else if (n % 4 == 1)
			b = a / DS_HASH_LANES * DS_HASH_LANES + b % DS_HASH_LANES;
		if (a == b)
			continue;
		swap(other + 16 * a, other + 16 * b, 16);
		differs("two vectors swapped", a);
		memcpy(other, content, BYTES);
	}
	for (unsigned int a = 0; a < ROWS; a++)
		for (unsigned int b = 0; b < a; b++) {
			swap(other + a * DS_HASH_ROW_BYTES, other + b * DS_HASH_ROW_BYTES, DS_HASH_ROW_BYTES);
			differs("two rows swapped", a);
			memcpy(other, content, BYTES);
		}
	/* the same change in two places: as often as not it undoes itself in a sum */
	for (unsigned int kind = 0; kind < 3; kind++)
		for (unsigned int n = 0; n < 2000; n++) {
			unsigned int a = dice() % BYTES, b = dice() % BYTES;
			uint8_t change = (uint8_t)(1 << dice() % 8);

			if (n == 0)
				fill(kind);
			if (a == b)
				continue;
			other[a] ^= change;
			other[b] ^= change;
			differs("the same change twice", a);
			memcpy(other, content, BYTES);
		}
	/* another key is another function */
	{
		struct ds_digest first, second;

		ds_hash(content, ROWS, &key, &first);
		key.words[dice() % 4] ^= 1u << dice() % 32;
		ds_hash(content, ROWS, &key, &second);
		if (!memcmp(&first, &second, sizeof(first)))
			exit(1);
	}
}

/* Of all single flipped bits of a short content, how often each bit of the digest turns: half of the time. */
static void avalanche(void)
{
	struct ds_digest first, second;
	unsigned int turned[128] = {0}, tries = 0;

	fill(0);
	ds_hash(content, ROWS, &key, &first);
	for (; tries < 4096; tries++) {
		unsigned int bit = dice() % (8 * BYTES);

		other[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ds_hash(other, ROWS, &key, &second);
		other[bit / 8] ^= (uint8_t)(1 << bit % 8);
		for (unsigned int n = 0; n < 128; n++)
			turned[n] += (first.words[n / 32] ^ second.words[n / 32]) >> n % 32 & 1;
	}
	/* 6 deviations of 32 */
	for (unsigned int n = 0; n < 128; n++)
		if (turned[n] < tries / 2 - 192 || turned[n] > tries / 2 + 192) {
			fprintf(stderr, "bit %u of the digest turns %u times of %u\n", n, turned[n], tries);
			exit(1);
		}
}

static int digest(char **words)
{
	static uint8_t rows[512 * DS_HASH_ROW_BYTES];
	size_t size = fread(rows, 1, sizeof(rows), stdin);
	struct ds_digest made;

	if (!size || size % (4 * DS_HASH_ROW_BYTES))
		return 2;
	for (unsigned int n = 0; n < 4; n++)
		key.words[n] = (uint32_t)strtoul(words[n], NULL, 0);
	ds_hash(rows, size / DS_HASH_ROW_BYTES, &key, &made);
	printf("%08x%08x%08x%08x\n", made.words[0], made.words[1], made.words[2], made.words[3]);
	return 0;
}

int main(int count, char **words)
{
	if (count == 2 && !strcmp(words[1], "kernel"))
		return fputs(ds_hash_kernel, stdout) < 0;
	if (count == 6 && !strcmp(words[1], "digest"))
		return digest(words + 2);
	if (count != 3 || strcmp(words[1], "flips"))
		return 2;
	state = strtoull(words[2], NULL, 0);
	flips();
	avalanche();
	return 0;
}
