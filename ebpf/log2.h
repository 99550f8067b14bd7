/* SPDX-License-Identifier: GPL-2.0-only */
/* Logarithms for histograms. */
#ifndef DETSHARE_EBPF_LOG2_H
#define DETSHARE_EBPF_LOG2_H

/* The position of the highest bit; 0 for 0. */
static __always_inline u32 log2_of(u64 value)
{
	u32 bits = 0;

#define DS_HALF(n) \
	if (value >> n) { \
		bits += n; \
		value >>= n; \
	}
	DS_HALF(32)
	DS_HALF(16)
	DS_HALF(8)
	DS_HALF(4)
	DS_HALF(2)
	DS_HALF(1)
#undef DS_HALF
	return bits;
}

#endif
