/* SPDX-License-Identifier: GPL-2.0-only */
/* What comes into a bucket (spend.c). */
#ifndef DETSHARE_FILL_H
#define DETSHARE_FILL_H

#include <linux/math64.h>
#include <linux/types.h>

#define DS_FILL_PART 1000000U

/* ns that come in within `ns`, at `rate` us a second. *rest: millionths of one that are left over; so nothing is lost by who asks often. */
static inline u64 ds_fill(u64 ns, u64 rate, u64 *rest)
{
	u64 whole = mul_u64_u64_div_u64(ns, rate, DS_FILL_PART);

	*rest += ns * rate - whole * DS_FILL_PART;
	if (*rest < DS_FILL_PART)
		return whole;
	*rest -= DS_FILL_PART;
	return whole + 1;
}

#endif
