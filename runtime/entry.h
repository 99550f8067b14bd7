/* SPDX-License-Identifier: Apache-2.0 */
/* Names, places and wrappers of the driver's functions (gen/entries.c), and what swaps one for the other. */
#ifndef DS_ENTRY_H
#define DS_ENTRY_H

#include "runtime.h"

struct ds_entry {
	const char *name;
	size_t place; /* in struct ds_real */
	void (*wrapper)(void); /* NULL: called by us, not wrapped */
};

extern const struct ds_entry ds_entries[]; /* by name */
extern const unsigned int ds_entry_count;

/* our function in place of the driver's; `function` itself if it is not one of those we wrap */
void *ds_swap(void *function);

#endif
