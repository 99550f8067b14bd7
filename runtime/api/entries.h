/* SPDX-License-Identifier: Apache-2.0 */
/* Our function for each of the driver's that we wrap. */
#ifndef DS_ENTRIES_H
#define DS_ENTRIES_H

#include "entry.h"

struct ds_entry {
	const char *name;
	size_t place; /* of the driver's, in struct ds_real */
	void (*wrapper)(void);
};

extern const struct ds_entry ds_entries[]; /* by name */
extern const unsigned int ds_entry_count;

#endif
