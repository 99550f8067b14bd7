/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "copies.h"
#include "hasher.h"
#include "piece.h"
#include "settle.h"
#include "state.h"

#define COPIES 8 /* queued at once: the end of the process waits for no more */
#define MOST (DS_PIECE_BYTES / DS_GRAIN_BYTES) /* grains of a copy */

/* of those that leave this GPU or come, the one after `piece` that lies there */
static struct ds_piece *next_there(const struct ds_device *device, struct ds_piece *piece)
{
	for (piece = piece ? piece->next : ds_pieces; piece; piece = piece->next)
		if (piece->device == device && piece->counted && piece->handle && (piece->leaves || piece->fresh == DS_FRESH_MAPPED))
			return piece;
	return NULL;
}

#define each_there(piece, device) for ((piece) = next_there(device, NULL); (piece); (piece) = next_there(device, piece))
#define each_grain(grain, piece) \
	for (struct ds_grain *grain = (piece)->grains; grain < (piece)->grains + ds_piece_grains(piece); grain++)

/* whether copies are not to be kept */
static bool off(const struct ds_device *device)
{
	const struct ds_pages *pages = device->pages;

	return pages && __atomic_load_n(&pages->policy->flags, __ATOMIC_RELAXED) & DS_FLAG_WHOLE;
}

/* a kernel that reads elsewhere would end the context */
static bool readable(const struct ds_piece *piece)
{
	return piece->reached >> piece->device->ordinal & 1;
}

/* ---- slots ---- */

/* Each grain has one from now on; false: no memory, or too few slots. */
static bool place(struct ds_device *device, const struct ds_stay *stay)
{
	bool *taken = calloc(ds_arena_end(stay) + 1, sizeof(*taken));
	struct ds_piece *piece;
	uint32_t slot = 0;

	if (!taken)
		return false;
	each_there(piece, device) {
		if (!piece->grains)
			piece->grains = calloc(ds_piece_grains(piece), sizeof(*piece->grains));
		if (!piece->grains) {
			free(taken);
			return false;
		}
	}
	for (piece = ds_pieces; piece; piece = piece->next)
		if (piece->device == device && piece->grains)
			each_grain(grain, piece)
				if (grain->placed)
					taken[grain->slot] = true;
	each_there(piece, device)
		each_grain(grain, piece) {
			if (grain->placed || piece->window)
				continue;
			while (slot < ds_arena_end(stay) && (taken[slot] || !ds_arena_has(stay, slot)))
				slot++;
			if (slot == ds_arena_end(stay)) {
				free(taken);
				return false;
			}
			grain->slot = slot++;
			grain->placed = true;
		}
	free(taken);
	return true;
}

/* ---- what changed ---- */

/* All of it moves, and no copy that there is serves any more. */
static void take_all(struct ds_device *device)
{
	struct ds_piece *piece;

	each_there(piece, device)
		for (unsigned int n = 0; n < ds_piece_grains(piece); n++) {
			ds_piece_keep(piece, n, false);
			piece->grains[n].hashed = false;
			piece->grains[n].moves = true;
		}
}

static void compare(struct ds_device *device, const struct ds_digest *digests)
{
	struct ds_piece *piece;

	each_there(piece, device)
		for (unsigned int n = 0; n < ds_piece_grains(piece) && readable(piece); n++, digests++) {
			struct ds_grain *grain = &piece->grains[n];

			grain->hashed = true;
			grain->moves = !grain->kept || memcmp(&grain->digest, digests, sizeof(*digests)) != 0;
			grain->digest = *digests;
		}
}

/*
 * One that the GPU has a digest of moves whether it changed or not: check() computes the digest of what arrives. So a GPU that says
 * the wrong thing is found out sooner or later, the first time at once, for then everything moves.
 */
static struct pick {
	struct ds_piece *piece; /* NULL: none */
	unsigned int n;
} pick(struct ds_device *device, size_t count)
{
	struct ds_piece *piece;
	uint64_t dice = 0;
	size_t at;

	if (getrandom(&dice, sizeof(dice), GRND_NONBLOCK) != sizeof(dice))
		dice = ds_now_ns();
	at = count ? dice % count : 0;
	each_there(piece, device) {
		if (!readable(piece))
			continue;
		if (at < ds_piece_grains(piece)) {
			piece->grains[at].moves = true;
			return (struct pick){piece, (unsigned int)at};
		}
		at -= ds_piece_grains(piece);
	}
	return (struct pick){0};
}

/* DS_WHOLE_NOT: each grain says whether it moves. *picked: see pick(). */
static uint32_t find_changes(struct ds_device *device, const struct ds_stay *stay, struct pick *picked)
{
	struct ds_digest *digests = NULL;
	CUdeviceptr *list = NULL;
	struct ds_piece *piece;
	uint32_t whole;
	size_t count = 0;

	each_there(piece, device)
		count += readable(piece) ? ds_piece_grains(piece) : 0;
	list = malloc((count + 1) * sizeof(*list));
	digests = malloc((count + 1) * sizeof(*digests));
	whole = list && digests ? DS_WHOLE_NOT : DS_WHOLE_LAUNCH;
	count = 0;
	if (whole == DS_WHOLE_NOT) {
		each_there(piece, device)
			for (unsigned int n = 0; n < ds_piece_grains(piece) && readable(piece); n++)
				list[count++] = piece->address + n * DS_GRAIN_BYTES;
		whole = ds_hasher_run(device, stay->stream, list, count, digests);
	}
	if (whole == DS_WHOLE_NOT) {
		compare(device, digests);
		*picked = pick(device, count);
	}
	free(list);
	free(digests);
	return whole;
}

/* What does not arrive as it was is not kept: before anything is written over. */
static void forget_moving(struct ds_device *device)
{
	struct ds_piece *piece;

	each_there(piece, device)
		for (unsigned int n = 0; n < ds_piece_grains(piece); n++)
			if (piece->grains[n].moves)
				ds_piece_keep(piece, n, false);
}

static bool check(const struct ds_stay *stay, const struct pick *picked)
{
	const struct ds_piece *piece = picked->piece;
	const struct ds_grain *grain;
	struct ds_digest digest;
	uint32_t follow;
	void *copy;
	bool same;

	if (!piece)
		return true;
	grain = &piece->grains[picked->n];
	if (!piece->window) {
		ds_hasher_reference(ds_arena_at(stay, grain->slot, &follow), &digest);
		return !memcmp(&digest, &grain->digest, sizeof(digest));
	}
	/* the CPU has no access to a window */
	copy = malloc(DS_GRAIN_BYTES);
	same = copy && real->cuMemcpyDtoH_v2(copy, piece->window + picked->n * DS_GRAIN_BYTES, DS_GRAIN_BYTES) == CUDA_SUCCESS;
	if (same) {
		ds_hasher_reference(copy, &digest);
		same = !memcmp(&digest, &grain->digest, sizeof(digest));
	}
	free(copy);
	return same;
}

/* ---- copies ---- */

/* how many grains from n on go in one copy */
static unsigned int run(const struct ds_piece *piece, const struct ds_stay *stay, unsigned int n, bool away)
{
	const struct ds_grain *first = &piece->grains[n];
	unsigned int most = ds_piece_grains(piece) - n, count = 1;
	uint32_t follow = MOST;

	if (!piece->window)
		ds_arena_at(stay, first->slot, &follow);
	most = most < MOST ? most : MOST;
	most = most < follow + 1 ? most : follow + 1;
	while (count < most && (piece->window || first[count].slot == first->slot + count) && (!away || first[count].moves))
		count++;
	return count;
}

static CUresult one(const struct ds_piece *piece, const struct ds_stay *stay, unsigned int n, unsigned int count, bool away)
{
	CUdeviceptr there = piece->address + n * DS_GRAIN_BYTES;
	uint32_t follow;
	char *here;

	/* lent pieces come home by lend.c */
	if (piece->window)
		return real->cuMemcpyDtoDAsync_v2(piece->window + n * DS_GRAIN_BYTES, there, count * DS_GRAIN_BYTES, stay->stream);
	here = ds_arena_at(stay, piece->grains[n].slot, &follow);
	return away ? real->cuMemcpyDtoHAsync_v2(here, there, count * DS_GRAIN_BYTES, stay->stream)
		    : real->cuMemcpyHtoDAsync_v2(there, here, count * DS_GRAIN_BYTES, stay->stream);
}

static CUresult copy(struct ds_device *device, const struct ds_stay *stay, bool away, uint64_t *bytes)
{
	CUresult result = CUDA_SUCCESS, recorded;
	unsigned int queued = 0, count;
	struct ds_board *board;
	struct ds_piece *piece;

	each_there(piece, device) {
		if (!away && piece->fresh != DS_FRESH_MAPPED)
			continue;
		for (unsigned int n = 0; n < ds_piece_grains(piece) && result == CUDA_SUCCESS; n += count) {
			count = 1;
			if (away && !piece->grains[n].moves)
				continue;
			count = run(piece, stay, n, away);
			result = one(piece, stay, n, count, away);
			*bytes += count * DS_GRAIN_BYTES;
			if (result == CUDA_SUCCESS && ++queued % COPIES == 0)
				result = real->cuStreamSynchronize(stay->stream);
			board = ds_board_of(device);
			/* its context ends, or the process: the memory goes with it */
			if (result == CUDA_SUCCESS && away && (!board || atomic_load(&board->stopping)))
				result = CUDA_ERROR_DEINITIALIZED;
		}
	}
	/* whatever came of it: work that follows writes what was read here */
	recorded = real->cuEventRecord(stay->home, stay->stream);
	result = result ? result : recorded;
	recorded = real->cuStreamSynchronize(stay->stream);
	return result ? result : recorded;
}

static void keep_moved(struct ds_device *device)
{
	struct ds_piece *piece;

	each_there(piece, device)
		for (unsigned int n = 0; n < ds_piece_grains(piece); n++)
			if (piece->grains[n].moves)
				ds_piece_keep(piece, n, piece->grains[n].hashed);
}

CUresult ds_copies_away(struct ds_device *device, const struct ds_stay *stay, struct ds_copied *copied)
{
	uint64_t began = ds_now_ns();
	struct pick picked = {0};
	CUresult result;

	*copied = (struct ds_copied){ .whole = DS_WHOLE_OFF };
	if (!place(device, stay))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!off(device)) {
		struct ds_piece *piece;

		/* what no kernel may read moves each time */
		each_there(piece, device)
			each_grain(grain, piece) {
				grain->hashed = false;
				grain->moves = true;
			}
		copied->whole = find_changes(device, stay, &picked);
		copied->hash_ns = ds_now_ns() - began;
	}
	if (copied->whole != DS_WHOLE_NOT)
		take_all(device);
	forget_moving(device);
	result = copy(device, stay, true, &copied->bytes);
	if (result == CUDA_SUCCESS && copied->whole == DS_WHOLE_NOT && !check(stay, &picked)) {
		ds_hasher_wrong(device);
		copied->whole = DS_WHOLE_WRONG;
		take_all(device);
		result = copy(device, stay, true, &copied->bytes);
	}
	if (result == CUDA_SUCCESS)
		keep_moved(device);
	return result;
}

void ds_copies_learn(struct ds_device *device, const struct ds_stay *stay, struct ds_piece *const *pieces, size_t count)
{
	struct ds_digest *digests;
	CUdeviceptr *list;
	size_t all = 0, at = 0;

	if (off(device))
		return;
	for (size_t i = 0; i < count; i++)
		all += pieces[i]->grains && readable(pieces[i]) ? ds_piece_grains(pieces[i]) : 0;
	list = malloc((all + 1) * sizeof(*list));
	digests = malloc((all + 1) * sizeof(*digests));
	for (size_t i = 0; list && i < count; i++)
		for (unsigned int n = 0; pieces[i]->grains && readable(pieces[i]) && n < ds_piece_grains(pieces[i]); n++)
			list[at++] = pieces[i]->address + n * DS_GRAIN_BYTES;
	if (list && digests && ds_hasher_run(device, stay->stream, list, all, digests) == DS_WHOLE_NOT) {
		at = 0;
		for (size_t i = 0; i < count; i++)
			for (unsigned int n = 0; pieces[i]->grains && readable(pieces[i]) && n < ds_piece_grains(pieces[i]); n++) {
				pieces[i]->grains[n].digest = digests[at++];
				ds_piece_keep(pieces[i], n, true);
			}
	}
	free(list);
	free(digests);
}

CUresult ds_copies_home(struct ds_device *device, const struct ds_stay *stay)
{
	uint64_t bytes = 0;

	return copy(device, stay, false, &bytes);
}
