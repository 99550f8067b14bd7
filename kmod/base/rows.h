/* SPDX-License-Identifier: GPL-2.0-only */
/* Rows that people list by their place: where one went, those behind it have another, which a dump of several messages is told of. */
#ifndef DETSHARE_ROWS_H
#define DETSHARE_ROWS_H

#include <linux/atomic.h>
#include <linux/list.h>

extern atomic_t ds_rows_gone;

/* As list_del(), for a row. */
static inline void ds_row_del(struct list_head *link)
{
	list_del(link);
	atomic_inc(&ds_rows_gone);
}

#endif
