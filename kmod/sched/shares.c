// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/time64.h>

#include "shares.h"

struct ds_share *ds_share_of(struct ds_share *shares, unsigned int *count, const struct ds_share *key)
{
	struct ds_share *share;

	for (share = shares; share < shares + *count; share++) {
		if (share->gpu != key->gpu || share->kind != key->kind || share->account != key->account)
			continue;
		share->weight = max(share->weight, key->weight);
		return share;
	}
	*share = *key;
	share->tsgs = 0;
	++*count;
	return share;
}

/* In ns, so that many channel groups of small weight do not all round to the same. */
static u64 plain(const struct ds_share *share)
{
	return div_u64(DS_SHARE_UNIT_US * NSEC_PER_USEC * share->weight, max(share->tsgs, 1u));
}

static void scale_gpu(struct ds_share *shares, unsigned int count, u32 gpu)
{
	u64 least = U64_MAX, most = 1, factor, limit;
	struct ds_share *share;

	for (share = shares; share < shares + count; share++) {
		if (share->gpu != gpu)
			continue;
		least = min(least, plain(share));
		most = max(most, plain(share));
	}
	/* the same for all, in 1/1024 */
	factor = DIV_ROUND_UP_ULL(DS_SHARE_SHORTEST_US * NSEC_PER_USEC * 1024, least ?: 1);
	limit = div64_u64(DS_SHARE_LONGEST_US * NSEC_PER_USEC * 1024, most);
	factor = clamp(factor, 1024ULL, max(limit, 1024ULL));
	for (share = shares; share < shares + count; share++) {
		if (share->gpu != gpu)
			continue;
		share->slice_us = div_u64(plain(share) * factor >> 10, NSEC_PER_USEC);
		share->slice_us = max(share->slice_us, DS_SHARE_SHORTEST_US);
	}
}

void ds_shares_slices(struct ds_share *shares, unsigned int count)
{
	struct ds_share *share, *earlier;

	for (share = shares; share < shares + count; share++) {
		for (earlier = shares; earlier < share && earlier->gpu != share->gpu; earlier++)
			;
		if (earlier == share)
			scale_gpu(shares, count, share->gpu);
	}
}
