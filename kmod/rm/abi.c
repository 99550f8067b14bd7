// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
/* Looks up the generated tables. */
#include "abi.h"

#ifndef __KERNEL__
bool (*rm_fail_alloc)(size_t size);
#endif

#define PARTS 4

/* "580.159.04" -> {580, 159, 4}; false if it is no version. */
static bool parse_version(const char *text, u32 parts[PARTS])
{
	unsigned int n = 0;

	memset(parts, 0, PARTS * sizeof(parts[0]));
	while (n < PARTS) {
		u32 value = 0;
		unsigned int digits = 0;

		for (; *text >= '0' && *text <= '9'; text++) {
			if (++digits > 6)
				return false;
			value = value * 10 + (u32)(*text - '0');
		}
		if (!digits)
			return false;
		parts[n++] = value;
		if (*text != '.')
			break;
		text++;
	}
	return n >= 2 && *text == '\0';
}

static int compare_parts(const u32 a[PARTS], const u32 b[PARTS])
{
	unsigned int i;

	for (i = 0; i < PARTS; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

const struct rm_abi *rm_abi_lookup(const char *version, enum rm_abi_match *how)
{
	const struct rm_abi *best = NULL;
	u32 asked[PARTS], parts[PARTS];
	unsigned int i;

	*how = RM_ABI_NONE;
	if (!version || !parse_version(version, asked))
		return NULL;
	for (i = 0; i < RM_ABI_VERSIONS; i++) {
		const struct rm_abi *abi = &rm_abis[i];
		int order;

		if (abi->branch != asked[0] || !parse_version(abi->version, parts))
			continue;
		order = compare_parts(parts, asked);
		if (!order) {
			*how = RM_ABI_EXACT;
			return abi;
		}
		if (!best || order < 0)
			best = abi;
	}
	if (best)
		*how = RM_ABI_BRANCH;
	return best;
}

const struct rm_abi *rm_abi_at(unsigned int index)
{
	return index < RM_ABI_VERSIONS ? &rm_abis[index] : NULL;
}

const struct rm_class *rm_abi_class(const struct rm_abi *abi, u32 nr)
{
	u32 low = 0, high = abi->classes;

	while (low < high) {
		u32 middle = (low + high) / 2;

		if (abi->class[middle].nr < nr)
			low = middle + 1;
		else
			high = middle;
	}
	return low < abi->classes && abi->class[low].nr == nr ? &abi->class[low] : NULL;
}
