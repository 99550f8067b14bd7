/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls that make and free objects. Each handler is called with call->known locked; call->client
 * is NULL for clients that are not of this file, and for new ones.
 */
#ifndef DETSHARE_ALLOC_H
#define DETSHARE_ALLOC_H

#include "calls.h"

void ds_alloc(struct ds_call *call);		/* RM_ALLOC */
void ds_alloc_vid_heap(struct ds_call *call);	/* RM_VID_HEAP_CONTROL */
void ds_alloc_memory(struct ds_call *call);	/* RM_ALLOC_MEMORY */
void ds_alloc_object(struct ds_call *call);	/* RM_ALLOC_OBJECT, RM_ALLOC_CONTEXT_DMA2 */
void ds_alloc_free(struct ds_call *call);	/* RM_FREE */

/* The driver has made a client: call->done.object. If it cannot be followed it is freed again and the call refused. */
void ds_alloc_client(struct ds_call *call);

#endif
