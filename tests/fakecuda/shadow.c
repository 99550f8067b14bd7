// SPDX-License-Identifier: Apache-2.0
/*
 * Last write and reads since, per range of each memory. An access that conflicts with one it is not ordered behind is
 * a violation, whether or not it happened to run in a good order.
 */
#include <stdio.h>

#include "fake.h"

#define SYNC_WORDS 4096

struct sync_word {
	CUdeviceptr address;
	struct clock *clock;
};

static struct sync_word sync_words[SYNC_WORDS];

static void segment_drop(struct segment *segment)
{
	free(segment->read);
	segment->read = NULL;
	segment->reads = 0;
}

void shadow_clear(struct memory *memory)
{
	for (size_t i = 0; i < memory->segment_count; i++)
		segment_drop(&memory->segments[i]);
	free(memory->segments);
	memory->segments = NULL;
	memory->segment_count = memory->segment_room = 0;
}

static void insert(struct memory *memory, size_t at, struct segment segment)
{
	if (memory->segment_count == memory->segment_room) {
		memory->segment_room = memory->segment_room ? 2 * memory->segment_room : 4;
		memory->segments = xrealloc(memory->segments, memory->segment_room * sizeof(segment));
	}
	memmove(memory->segments + at + 1, memory->segments + at, (memory->segment_count - at) * sizeof(segment));
	memory->segments[at] = segment;
	memory->segment_count++;
}

/* Cuts the segment that crosses `edge` in two; returns the index of the first segment at or behind it. */
static size_t cut(struct memory *memory, size_t edge)
{
	size_t low = 0, high = memory->segment_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (memory->segments[middle].high <= edge)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < memory->segment_count && memory->segments[low].low < edge) {
		struct segment tail = memory->segments[low];

		if (tail.reads) {
			tail.read = xalloc(tail.reads * sizeof(*tail.read));
			memcpy(tail.read, memory->segments[low].read, tail.reads * sizeof(*tail.read));
		}
		memory->segments[low].high = edge;
		tail.low = edge;
		insert(memory, ++low, tail);
	}
	return low;
}

static void clash(const struct memory *memory, const struct segment *segment, const struct access_epoch *old,
		  bool old_write, bool write, unsigned long long op, const char *what)
{
	violation("race: %s (op %llu) %s [%#llx, +%zu) without being ordered behind the %s by %s (op %llu)", what, op,
		  write ? "writes" : "reads", (unsigned long long)(memory->base + segment->low),
		  segment->high - segment->low, old_write ? "write" : "read", old->what, old->op);
}

static void check(const struct memory *memory, struct segment *segment, bool write, const struct clock *clock,
		  const struct access_epoch *now)
{
	if (!clock_covers(clock, segment->write.actor, segment->write.time))
		clash(memory, segment, &segment->write, true, write, now->op, now->what);
	if (write) {
		for (unsigned int i = 0; i < segment->reads; i++)
			if (!clock_covers(clock, segment->read[i].actor, segment->read[i].time))
				clash(memory, segment, &segment->read[i], false, true, now->op, now->what);
		segment_drop(segment);
		segment->write = *now;
		return;
	}
	for (unsigned int i = 0; i < segment->reads; i++) {
		if (segment->read[i].actor == now->actor) {
			segment->read[i] = *now;
			return;
		}
	}
	segment->read = xrealloc(segment->read, (segment->reads + 1) * sizeof(*now));
	segment->read[segment->reads++] = *now;
}

void shadow_access_as(struct memory *memory, size_t offset, size_t size, bool write, const struct clock *clock,
		      unsigned int actor, unsigned long long op, const char *what)
{
	struct access_epoch now = { .actor = actor, .op = op, .what = what,
				    .time = clock && actor < clock->n ? clock->t[actor] : 0 };
	size_t at, end = offset + size, low = offset;

	if (!size)
		return;
	at = cut(memory, offset);
	cut(memory, end);
	while (low < end) {
		if (at == memory->segment_count || memory->segments[at].low > low) {
			size_t gap = at == memory->segment_count || memory->segments[at].low > end ?
				     end : memory->segments[at].low;

			insert(memory, at, (struct segment){ .low = low, .high = gap });
		}
		check(memory, &memory->segments[at], write, clock, &now);
		low = memory->segments[at++].high;
	}
	if (!write)
		return;
	/* all of them hold the same write now and no reads */
	for (size_t first = at; first > 0 && memory->segments[first - 1].low >= offset; first--) {
		if (memory->segments[first - 1].low == offset) {
			memory->segments[first - 1].high = end;
			memmove(memory->segments + first, memory->segments + at,
				(memory->segment_count - at) * sizeof(struct segment));
			memory->segment_count -= at - first;
			break;
		}
	}
}

void shadow_access(struct memory *memory, size_t offset, size_t size, bool write, const struct op *op)
{
	while (offset + size > memory->size) {	/* mappings side by side */
		size_t part = memory->size - offset;

		shadow_access_as(memory, offset, part, write, op->clock, op->actor, op->seq, op->label);
		memory = memory_find(memory->base + memory->size);
		offset = 0;
		size -= part;
	}
	shadow_access_as(memory, offset, size, write, op->clock, op->actor, op->seq, op->label);
}

void sync_release(CUdeviceptr address, struct clock *clock)
{
	struct sync_word *word = &sync_words[(address >> 2) % SYNC_WORDS];

	if (word->address != address) {
		word->address = address;
		clock_put(word->clock);
		word->clock = NULL;
	}
	word->clock = clock_join(word->clock, clock);
}

const struct clock *sync_acquire(CUdeviceptr address)
{
	struct sync_word *word = &sync_words[(address >> 2) % SYNC_WORDS];

	return word->address == address ? word->clock : NULL;
}
