/* SPDX-License-Identifier: Apache-2.0 */
/* The program's streams: which handle is which record. Looked up per thread without a lock; a miss goes to a table under a mutex. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "context.h"
#include "home.h"
#include "lifecycle.h"
#include "primary.h"
#include "stream.h"

#define BUCKETS 1024
/* records of destroyed streams that are not used again yet: a thread that races a destroy finds the old one, not another stream */
#define QUARANTINE 256

/* default stream of this thread on one device */
struct ds_own_stream {
	struct ds_own_stream *next;
	struct ds_device *device;
	struct ds_stream *stream;
	uint32_t generation; /* device->generation it belongs to */
};

/* taken inside device->lock */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct node {
	struct node *next;
	struct ds_stream *stream;
	CUstream app;
} *buckets[BUCKETS];
static struct ds_stream *spare, **spare_end = &spare;
static unsigned int spares;

static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static struct node **bucket_of(CUstream app)
{
	return &buckets[((uintptr_t)app >> 4) * 2654435761U % BUCKETS];
}

static struct ds_stream *table_find(CUstream app)
{
	struct ds_stream *found = NULL;

	pthread_mutex_lock(&table_lock);
	for (struct node *node = *bucket_of(app); node; node = node->next)
		if (node->app == app) {
			found = node->stream;
			break;
		}
	pthread_mutex_unlock(&table_lock);
	return found;
}

static bool table_add(CUstream app, struct ds_stream *stream)
{
	struct node *node = malloc(sizeof(*node));
	struct node **bucket = bucket_of(app);

	if (!node)
		return false;
	pthread_mutex_lock(&table_lock);
	*node = (struct node){.next = *bucket, .stream = stream, .app = app};
	*bucket = node;
	pthread_mutex_unlock(&table_lock);
	atomic_fetch_add(&ds_process.streams_changed, 1);
	return true;
}

static void table_remove(CUstream app)
{
	struct node *gone = NULL;

	pthread_mutex_lock(&table_lock);
	for (struct node **link = bucket_of(app); *link; link = &(*link)->next)
		if ((*link)->app == app) {
			gone = *link;
			*link = gone->next;
			break;
		}
	pthread_mutex_unlock(&table_lock);
	free(gone);
	atomic_fetch_add(&ds_process.streams_changed, 1);
}

static struct ds_stream *record_new(void)
{
	struct ds_stream *stream = NULL;
	void *gate; /* gate/ keeps its part for the next user of a record */
	uint64_t word;
	bool used;

	pthread_mutex_lock(&table_lock);
	if (spares > QUARANTINE) {
		stream = spare;
		spare = stream->next;
		spares--;
	}
	pthread_mutex_unlock(&table_lock);
	used = stream;
	if (!stream && posix_memalign((void **)&stream, 64, sizeof(*stream)))
		return NULL;
	gate = used ? stream->gate : NULL;
	word = used ? atomic_load(&stream->word) : 0;
	/* a thread may still be inside a call on the stream that this was: it takes back from `word` what it put there */
	_Static_assert(offsetof(struct ds_stream, word) == 0, "word is first");
	memset((char *)stream + sizeof(stream->word), 0, sizeof(*stream) - sizeof(stream->word));
	if (!used)
		atomic_init(&stream->word, 0);
	atomic_store(&stream->idle_at, (uint32_t)(word / DS_WORD_CALL));
	atomic_store(&stream->done_at, (uint32_t)(word / DS_WORD_CALL));
	stream->gate = gate;
	return stream;
}

static void record_retire(struct ds_stream *stream)
{
	pthread_mutex_lock(&table_lock);
	stream->next = NULL;
	*spare_end = stream;
	spare_end = &stream->next;
	spares++;
	pthread_mutex_unlock(&table_lock);
}

struct ds_stream *ds_stream_add(struct ds_device *device, CUstream app, unsigned int flags, int priority)
{
	bool named = !(flags & (DS_STREAM_LEGACY | DS_STREAM_PER_THREAD));
	struct ds_stream *stream = record_new();

	if (!stream)
		return NULL;
	stream->device = device;
	stream->flags = flags;
	stream->priority = priority;
	stream->cur = app;
	stream->owner = pthread_self();
	/* what was counted before is ordered by the driver, or nothing to a new stream */
	atomic_store(&stream->seen, flags & DS_STREAM_LEGACY ? atomic_load(&device->blocking_seq)
							     : atomic_load(&device->legacy_seq) - 1);
	atomic_store(&stream->app, app);
	if (atomic_load(&ds_home.now) != DS_HOME)
		atomic_fetch_or(&stream->word, DS_WORD_PARKED);
	if (named && !table_add(app, stream)) {
		record_retire(stream);
		return NULL;
	}
	stream->next = device->streams;
	device->streams = stream;
	return stream;
}

void ds_stream_strip(struct ds_stream *stream)
{
	for (unsigned int tier = 1; tier < DS_TIERS; tier++)
		if (stream->mirrors[tier])
			real->cuStreamDestroy_v2(stream->mirrors[tier]);
	memset(stream->mirrors, 0, sizeof(stream->mirrors));
	if (stream->event)
		real->cuEventDestroy_v2(stream->event);
	stream->event = NULL;
}

void ds_stream_remove(struct ds_stream *stream, bool context_lives)
{
	struct ds_device *device = stream->device;
	CUstream app = ds_stream_app(stream);

	for (struct ds_stream **link = &device->streams; *link; link = &(*link)->next)
		if (*link == stream) {
			*link = stream->next;
			break;
		}
	if (!(stream->flags & (DS_STREAM_LEGACY | DS_STREAM_PER_THREAD)))
		table_remove(app);
	if (atomic_exchange(&stream->capturing, DS_CAPTURE_NONE))
		ds_captures_recount(device, NULL);
	ds_life_stream_gone(stream);
	if ((stream->flags & DS_STREAM_ORDERED) && stream->tier)
		atomic_fetch_sub(&device->mirrored, 1);
	/* a thread that still uses the handle gets what the driver says about it */
	stream->cur = app;
	stream->tier = 0;
	atomic_store(&stream->app, NULL);
	if (context_lives)
		ds_stream_strip(stream);
	record_retire(stream);
}

/* ---- default streams of threads ---- */

static void own_end(void *list)
{
	for (struct ds_own_stream *own = list, *next; own; own = next) {
		next = own->next;
		/* its work may still run, and the legacy stream has to wait for it: reaped later */
		pthread_mutex_lock(&own->device->lock);
		if (own->generation == atomic_load(&own->device->generation))
			own->stream->orphan = true;
		pthread_mutex_unlock(&own->device->lock);
		free(own);
	}
	ds_thread.own = NULL;
}

static void own_key_make(void)
{
	pthread_key_create(&own_key, own_end);
}

/* under device->lock */
void ds_stream_reap(struct ds_device *device)
{
	for (struct ds_stream *stream = device->streams, *next; stream; stream = next) {
		next = stream->next;
		if (stream->orphan && (!stream->tier || real->cuStreamQuery(stream->cur) != CUDA_ERROR_NOT_READY))
			ds_stream_remove(stream, true);
	}
}

static struct ds_stream *own_stream(struct ds_device *device)
{
	uint32_t generation = atomic_load(&device->generation);
	struct ds_own_stream *own;
	struct ds_own around;

	for (own = ds_thread.own; own; own = own->next)
		if (own->device == device)
			break;
	if (ds_likely(own && own->generation == generation))
		return own->stream;
	if (ds_thread.locked)
		return NULL;
	pthread_once(&own_once, own_key_make);
	if (!own) {
		own = calloc(1, sizeof(*own));
		if (!own)
			return NULL;
		own->next = ds_thread.own;
		own->device = device;
		ds_thread.own = own;
		pthread_setspecific(own_key, own);
	}
	ds_lock(device);
	own->stream = NULL;
	if (device->primary) {
		ds_own_begin(&around, device);
		ds_stream_reap(device);
		ds_own_end(&around);
		own->stream = ds_stream_add(device, CU_STREAM_PER_THREAD, DS_STREAM_PER_THREAD | DS_STREAM_BLOCKING, 0);
		own->generation = atomic_load(&device->generation);
	}
	ds_unlock(device);
	return own->stream;
}

static struct ds_stream *default_stream_find(bool per_thread)
{
	struct ds_device *device = ds_device_current();
	struct ds_stream *stream;

	if (!device)
		return NULL;
	stream = per_thread ? own_stream(device) : device->legacy;
	/* what was found for another context is void from here */
	if (ds_thread.known != atomic_load(&ds_process.contexts))
		return stream;
	if (per_thread)
		ds_thread.per_thread = stream;
	else
		ds_thread.legacy = stream;
	return stream;
}

static inline struct ds_stream *default_stream(bool per_thread)
{
	struct ds_stream *stream = per_thread ? ds_thread.per_thread : ds_thread.legacy;

	if (ds_likely(stream && ds_thread.known == atomic_load_explicit(&ds_process.contexts, memory_order_acquire)))
		return stream;
	return default_stream_find(per_thread);
}

/* In a forked child: handles of the parent mean nothing. */
static void child(void)
{
	pthread_mutex_init(&table_lock, NULL);
	memset(buckets, 0, sizeof(buckets));
	spare = NULL;
	spare_end = &spare;
	spares = 0;
	atomic_fetch_add(&ds_process.streams_changed, 1);
}

static const struct ds_lifecycle life = { .child = child };
DS_LIST_ADD(ds_lifecycles, life);

/* ---- look-up ---- */

struct ds_stream *ds_stream_of(CUstream app, bool per_thread)
{
	struct ds_stream *stream;
	uint32_t changed;
	unsigned int slot;

	if (ds_unlikely(ds_native() || ds_thread.locked))
		return NULL;
	if ((uintptr_t)app <= (uintptr_t)CU_STREAM_PER_THREAD)
		return default_stream(app == CU_STREAM_PER_THREAD || (!app && per_thread));
	slot = ((uintptr_t)app >> 4 ^ (uintptr_t)app >> 9) % DS_CACHED_STREAMS;
	changed = atomic_load_explicit(&ds_process.streams_changed, memory_order_acquire);
	if (ds_likely(ds_thread.cache[slot].app == app)) {
		stream = ds_thread.cache[slot].stream;
		if (stream ? ds_stream_app(stream) == app : ds_thread.streams == changed)
			return stream;
	}
	stream = table_find(app);
	if (!stream && ds_thread.streams != changed) {
		for (unsigned int i = 0; i < DS_CACHED_STREAMS; i++)
			if (!ds_thread.cache[i].stream)
				ds_thread.cache[i].app = NULL;
		ds_thread.streams = changed;
	}
	ds_thread.cache[slot].app = app;
	ds_thread.cache[slot].stream = stream;
	return stream;
}
