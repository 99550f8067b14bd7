/* SPDX-License-Identifier: Apache-2.0 */

#include "ledger.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS 256

struct record {
	struct ds_ledger_entry entry;
	unsigned int owners;	/* of a handle */
	unsigned int mappings;
	struct record *next;
};

struct ds_ledger_mapping {
	uint64_t address;
	size_t size;
	uint64_t handle;
	struct record *held; /* the record, taken out with it; NULL: others hold it too */
	struct ds_ledger_mapping *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct record **buckets;
static size_t bucket_count, record_count;
static struct ds_ledger_mapping *mappings[1024];

static size_t mix(uint64_t key, unsigned int kind)
{
	uint64_t hash = (key >> 8 ^ key ^ (uint64_t)kind << 60) * 0x9e3779b97f4a7c15ull;

	return (size_t)(hash >> 20);
}

static bool grow(void)
{
	size_t count = bucket_count ? bucket_count * 2 : FIRST_BUCKETS;
	struct record **wider = calloc(count, sizeof(*wider));
	size_t index;

	if (!wider)
		return bucket_count != 0;
	for (index = 0; index < bucket_count; index++) {
		struct record *record = buckets[index];

		while (record) {
			struct record *next = record->next;
			struct record **home = &wider[mix(record->entry.key, record->entry.kind) & (count - 1)];

			record->next = *home;
			*home = record;
			record = next;
		}
	}
	free(buckets);
	buckets = wider;
	bucket_count = count;
	return true;
}

/* Where the pointer to the record stands, or would stand. */
static struct record **find(enum ds_ledger_kind kind, uint64_t key)
{
	struct record **at;

	if (!bucket_count)
		return NULL;
	at = &buckets[mix(key, kind) & (bucket_count - 1)];
	while (*at && ((*at)->entry.key != key || (*at)->entry.kind != kind))
		at = &(*at)->next;
	return *at ? at : NULL;
}

static struct record *take_out(struct record **at)
{
	struct record *record = *at;

	*at = record->next;
	record_count--;
	return record;
}

static void put_in(struct record *record)
{
	struct record **home = &buckets[mix(record->entry.key, record->entry.kind) & (bucket_count - 1)];

	record->next = *home;
	*home = record;
	record_count++;
}

static void unlink_record(struct record **at, struct ds_ledger_entry *entry)
{
	struct record *record = take_out(at);

	*entry = record->entry;
	free(record);
}

bool ds_ledger_add(const struct ds_ledger_entry *entry)
{
	struct record *record = malloc(sizeof(*record));

	if (!record)
		return false;
	record->entry = *entry;
	record->owners = 1;
	record->mappings = 0;
	pthread_mutex_lock(&lock);
	if (record_count >= bucket_count && !grow()) {
		pthread_mutex_unlock(&lock);
		free(record);
		return false;
	}
	put_in(record);
	pthread_mutex_unlock(&lock);
	return true;
}

bool ds_ledger_take(enum ds_ledger_kind kind, uint64_t key, struct ds_ledger_entry *entry)
{
	struct record **at;

	pthread_mutex_lock(&lock);
	at = find(kind, key);
	if (at)
		unlink_record(at, entry);
	pthread_mutex_unlock(&lock);
	return at != NULL;
}

bool ds_ledger_retain(uint64_t handle)
{
	struct record **at;

	pthread_mutex_lock(&lock);
	at = find(DS_LEDGER_HANDLE, handle);
	if (at)
		(*at)->owners++;
	pthread_mutex_unlock(&lock);
	return at != NULL;
}

bool ds_ledger_release(uint64_t handle, struct ds_ledger_entry *entry)
{
	struct record **at;
	bool last = false;

	pthread_mutex_lock(&lock);
	at = find(DS_LEDGER_HANDLE, handle);
	if (at && (*at)->owners)
		(*at)->owners--;
	if (at && !(*at)->owners && !(*at)->mappings) {
		unlink_record(at, entry);
		last = true;
	}
	pthread_mutex_unlock(&lock);
	return last;
}

static struct ds_ledger_mapping **chain(uint64_t address)
{
	return &mappings[(address >> 21) % (sizeof(mappings) / sizeof(mappings[0]))];
}

bool ds_ledger_map(uint64_t address, size_t size, uint64_t handle)
{
	struct ds_ledger_mapping *mapping = malloc(sizeof(*mapping));
	struct record **at;

	if (!mapping)
		return false;
	pthread_mutex_lock(&lock);
	at = find(DS_LEDGER_HANDLE, handle);
	if (at) {
		(*at)->mappings++;
		*mapping = (struct ds_ledger_mapping){address, size, handle, NULL, *chain(address)};
		*chain(address) = mapping;
		mapping = NULL;
	}
	pthread_mutex_unlock(&lock);
	free(mapping);
	return at != NULL;
}

/* Takes the mapping that begins at the address out of its chain. */
static struct ds_ledger_mapping *unlink_mapping(uint64_t address)
{
	struct ds_ledger_mapping **at = chain(address);
	struct ds_ledger_mapping *mapping;

	while (*at && (*at)->address != address)
		at = &(*at)->next;
	mapping = *at;
	if (mapping)
		*at = mapping->next;
	return mapping;
}

struct ds_ledger_mapping *ds_ledger_unmap(uint64_t address, size_t size)
{
	const uint64_t granule = 1ull << 16;	/* no driver maps finer */
	struct ds_ledger_mapping *list = NULL;
	uint64_t at = address, end = address + size;

	pthread_mutex_lock(&lock);
	while (at < end) {
		struct ds_ledger_mapping *mapping = unlink_mapping(at);
		struct record **record;

		at += mapping && mapping->size ? mapping->size : granule;
		if (!mapping)
			continue;
		record = find(DS_LEDGER_HANDLE, mapping->handle);
		if (record && (*record)->mappings)
			(*record)->mappings--;
		if (record && !(*record)->owners && !(*record)->mappings)
			mapping->held = take_out(record);
		mapping->next = list;
		list = mapping;
	}
	pthread_mutex_unlock(&lock);
	return list;
}

void ds_ledger_unmapped(struct ds_ledger_mapping *list, void (*gone)(const struct ds_ledger_entry *entry))
{
	while (list) {
		struct ds_ledger_mapping *next = list->next;

		if (list->held)
			gone(&list->held->entry);
		free(list->held);
		free(list);
		list = next;
	}
}

void ds_ledger_map_again(struct ds_ledger_mapping *list)
{
	pthread_mutex_lock(&lock);
	while (list) {
		struct ds_ledger_mapping *mapping = list, **home = chain(mapping->address);
		struct record **record;

		list = mapping->next;
		if (mapping->held)
			put_in(mapping->held);
		mapping->held = NULL;
		record = find(DS_LEDGER_HANDLE, mapping->handle);
		if (record)
			(*record)->mappings++;
		mapping->next = *home;
		*home = mapping;
	}
	pthread_mutex_unlock(&lock);
}

void ds_ledger_drop(const void *context, void (*gone)(const struct ds_ledger_entry *entry))
{
	struct record *dropped = NULL;
	size_t index;

	pthread_mutex_lock(&lock);
	for (index = 0; index < bucket_count; index++) {
		struct record **at = &buckets[index];

		while (*at) {
			struct record *record = *at;

			if (record->entry.context != context) {
				at = &record->next;
				continue;
			}
			*at = record->next;
			record->next = dropped;
			dropped = record;
			record_count--;
		}
	}
	pthread_mutex_unlock(&lock);
	while (dropped) {
		struct record *next = dropped->next;

		gone(&dropped->entry);
		free(dropped);
		dropped = next;
	}
}

void ds_ledger_reset(void)
{
	/* The parent's records are left to leak: another thread may have held malloc's or our lock at the fork. */
	pthread_mutex_init(&lock, NULL);
	buckets = NULL;
	bucket_count = 0;
	record_count = 0;
	memset(mappings, 0, sizeof(mappings));
}
