// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kernel.h>
#include <linux/overflow.h>
#include <linux/time64.h>

#include "detshare_uapi.h"
#include "turns.h"

static unsigned int index_of(s32 level)
{
	return level >= DETSHARE_LEVEL_LOW && level <= DETSHARE_LEVEL_HIGH ? level : DETSHARE_LEVEL_MEDIUM;
}

static u64 product(u64 a, u64 b)
{
	u64 result;

	return check_mul_overflow(a, b, &result) ? U64_MAX : result;
}

u64 ds_turns_sum(u64 a, u64 b)
{
	u64 result;

	return check_add_overflow(a, b, &result) ? U64_MAX : result;
}

void ds_turns_add(struct ds_turns *turns, s32 level, unsigned int tsgs)
{
	turns->tsgs[index_of(level)] += max(tsgs, 1u);
}

void ds_turns_count(struct ds_turns *turns)
{
	u64 low = turns->tsgs[DETSHARE_LEVEL_LOW], medium = turns->tsgs[DETSHARE_LEVEL_MEDIUM];

	turns->turns[DETSHARE_LEVEL_LOW] = 1;
	turns->turns[DETSHARE_LEVEL_MEDIUM] = max(low, 1ULL);
	turns->turns[DETSHARE_LEVEL_HIGH] = max(low ? product(medium + 1, low) : medium, 1ULL);
}

static u64 times(const struct ds_turns *turns, s32 level, unsigned int tsgs)
{
	return product(turns->turns[index_of(level)], max(tsgs, 1u));
}

u64 ds_turns_used(const struct ds_turns *turns, s32 level, unsigned int tsgs, u64 slice_us)
{
	return product(times(turns, level, tsgs), product(slice_us ?: DS_SLICE_US, NSEC_PER_USEC));
}

u64 ds_turns_taken(const struct ds_turns *turns, s32 level, unsigned int tsgs, u64 slice_us)
{
	u64 used = ds_turns_used(turns, level, tsgs, slice_us);

	/* who is alone is never switched */
	if (turns->tsgs[0] + turns->tsgs[1] + turns->tsgs[2] <= 1)
		return used;
	return ds_turns_sum(used, product(times(turns, level, tsgs), DS_SWITCH_NS));
}
