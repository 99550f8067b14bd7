/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process holds of each GPU's memory: one record per allocation. Records are found by handle, so that a free
 * gives back exactly what its allocation was charged. All functions may be called from any thread.
 */
#ifndef DS_LEDGER_H
#define DS_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ds_ledger_kind {
	DS_LEDGER_POINTER,	/* linear memory, by its address */
	DS_LEDGER_ARRAY,
	DS_LEDGER_MIPMAP,
	DS_LEDGER_HANDLE,	/* cuMemCreate: held while a handle or a mapping is left */
};

struct ds_ledger_entry {
	uint64_t key;
	enum ds_ledger_kind kind;
	unsigned int account;	/* ordinal of the GPU that pays */
	const void *context;	/* whose end frees it; NULL: the process's */
	size_t bytes;
};

/* Adds a record. False without memory for it: the caller then gives the charge back and goes on unrecorded. */
bool ds_ledger_add(const struct ds_ledger_entry *entry);

/* Takes the record out and copies it to *entry. False if there is none. */
bool ds_ledger_take(enum ds_ledger_kind kind, uint64_t key, struct ds_ledger_entry *entry);

/* One more owner of a handle. False if it is not recorded. */
bool ds_ledger_retain(uint64_t handle);

/* One owner less. True if that was the last of owners and mappings: *entry is what to give back. */
bool ds_ledger_release(uint64_t handle, struct ds_ledger_entry *entry);

/* [address, address + size) maps the handle. False without memory for the note: the handle then stays charged until
 * ds_ledger_release() says that it was the last. */
bool ds_ledger_map(uint64_t address, size_t size, uint64_t handle);

/*
 * The range is about to be unmapped: its notes are taken out, and records that nothing else holds, before the driver may give their handles to another
 * thread. Then, if it did so, `gone` is called for each of these records; if not, all is put back. NULL: there are none.
 */
struct ds_ledger_mapping *ds_ledger_unmap(uint64_t address, size_t size);
void ds_ledger_unmapped(struct ds_ledger_mapping *list, void (*gone)(const struct ds_ledger_entry *entry));
void ds_ledger_map_again(struct ds_ledger_mapping *list);

/* Takes out all records of a context. */
void ds_ledger_drop(const void *context, void (*gone)(const struct ds_ledger_entry *entry));

/* Forgets everything, in the child of a fork. */
void ds_ledger_reset(void);

#endif
