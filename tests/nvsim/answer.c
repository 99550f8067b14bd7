// SPDX-License-Identifier: GPL-2.0-only
/* Looks up recorded answers for controls that only tell what the hardware is. */
#include "answers.h"
#include "control.h"

/* FNV-1a: what the generator of the records uses too. */
static u32 hash(const u8 *data, u32 size)
{
	u32 value = 0x811c9dc5u;

	while (size--)
		value = (value ^ *data++) * 0x01000193u;
	return value;
}

static void apply(const struct sim_record *record, u8 *params, u32 size)
{
	for (u32 i = 0; i < record->runs; i++) {
		const struct sim_run *run = &sim_runs[record->first_run + i];

		if (run->at + run->length <= size)
			memcpy(params + run->at, sim_answer_bytes + run->bytes, run->length);
	}
}

/* {u32 count; {u32 index, data}[]}: each element by itself, in whatever order and number it is asked */
static bool answer_list(u32 cmd, void *params, u32 size)
{
	u32 *list = params, count, room = (size - sizeof(u32)) / 8;
	bool known = false;

	if (size < 12)
		return false;
	count = min(list[0], room);
	for (u32 i = 0; i < count; i++) {
		for (size_t p = 0; p < sim_pair_count; p++) {
			if (sim_pairs[p].cmd == cmd && sim_pairs[p].index == list[1 + 2 * i]) {
				list[2 + 2 * i] = sim_pairs[p].data;
				known = true;
			}
		}
	}
	return known;
}

bool sim_answer(u32 cmd, void *params, u32 size)
{
	const struct sim_record *found = NULL;
	u32 key = hash(params, params ? size : 0), matches = 0;

	for (size_t i = 0; i < sim_record_count; i++) {
		const struct sim_record *record = &sim_records[i];

		if (record->cmd != cmd)
			continue;
		if (record->size == size && record->key == key) {
			apply(record, params, size);
			return true;
		}
		found = record;
		matches++;
	}
	if (params && answer_list(cmd, params, size))
		return true;
	if (!found)
		return false;
	/* other parameters than recorded: the answer still holds where it never depended on them */
	if (matches == 1 && params && found->size == size)
		apply(found, params, size);
	return true;
}
