// SPDX-License-Identifier: Apache-2.0
/* Whether the program's work on a GPU is done: what is known already, and what the driver says. */
#include "done.h"

#define NS_MS 1000000ULL
/* another thread's default stream at home cannot be asked from here: so long without a launch and it counts as done */
#define PER_THREAD_QUIET_NS (20 * NS_MS)

bool ds_has_work(struct ds_stream *stream)
{
	uint32_t count = (uint32_t)(atomic_load(&stream->word) / DS_WORD_CALL);

	return count != atomic_load(&stream->idle_at) && count != atomic_load(&stream->done_at) &&
	       !atomic_load(&stream->capturing);
}

bool ds_all_done(struct ds_device *device)
{
	struct ds_stream *stream;

	for (stream = device->streams; stream; stream = stream->next)
		if (ds_has_work(stream))
			return false;
	return true;
}

bool ds_askable(struct ds_stream *stream)
{
	if (stream->tier == 0 && (stream->flags & DS_STREAM_PER_THREAD))
		return false;
	/* a default stream that is used during a capture of a blocking stream breaks it */
	return stream->tier != 0 || !(stream->flags & DS_STREAM_LEGACY) || !atomic_load(&stream->device->captures);
}

/* No work is left; also where the context is beyond repair. What captures forbid to ask is not known. */
static bool over(CUresult result)
{
	return result != CUDA_ERROR_NOT_READY && result < CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* no stream moves or ends meanwhile */
bool ds_ask_all(struct ds_board *board, uint64_t now)
{
	bool quiet = now - __atomic_load_n(&board->pages.counters->last_launch, __ATOMIC_RELAXED) > PER_THREAD_QUIET_NS;
	struct ds_stream *stream;
	bool done = true;

	for (stream = board->device->streams; stream; stream = stream->next) {
		uint64_t word = atomic_load(&stream->word);

		if (!ds_has_work(stream))
			continue;
		if (!ds_askable(stream)) {
			done = done && quiet;
			continue;
		}
		/* a call under way may put in work after we asked; one that came and went is seen in the count */
		if (!(word & DS_WORD_USERS) && over(real->cuStreamQuery(stream->cur)) && atomic_load(&stream->word) == word)
			atomic_store(&stream->done_at, (uint32_t)(word / DS_WORD_CALL));
		else
			done = false;
	}
	return done;
}
