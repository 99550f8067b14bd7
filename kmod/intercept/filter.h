/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What programs may not do themselves (rm/verdict.h says what and why), applied to their calls. Each denial is counted and told
 * (denials.h). Controls that are judged are diverted like calls that make objects, so that the driver gets the bytes that were
 * judged; one that becomes such a control behind the filter's back is stopped at the driver's door.
 *
 * The parameter filter=0 lets everything through; it exists to show what happens without.
 */
#ifndef DETSHARE_FILTER_H
#define DETSHARE_FILTER_H

#include <linux/types.h>

#include "rm/abi.h"

struct ds_call;
struct rm_alloc;

/* Is anything judged at all? */
bool ds_filter_active(void);
/* Was it asked that nothing is? */
bool ds_filter_off(void);
/* Atomic context: is this control, by the begin of its block (client, object, cmd, flags), to be judged? */
bool ds_filter_wants(const struct rm_abi *abi, const void *block);
/* Probe context, the driver's block of an RM_CONTROL that nobody has judged: true if it should have been; that is a denial. */
bool ds_filter_stops(const void *block, u32 size);

/*
 * Handlers as those of alloc.h. ds_filter_control() is called without order held, and does without.
 * The others: true if the call was answered and is not to go on.
 */
void ds_filter_control(struct ds_call *call);
bool ds_filter_idle(struct ds_call *call);
/* RM_MAP_MEMORY_DMA, RM_ALLOC_CONTEXT_DMA2: of the client's object `memory`. */
bool ds_filter_gpu_map(struct ds_call *call, u32 memory);
/* RM_MAP_MEMORY. */
bool ds_filter_map(struct ds_call *call);
/* An object of that kind will be made, with the handle asked for (0: any). */
bool ds_filter_object(struct ds_call *call, enum rm_kind kind, u32 handle);
/* A channel, of which `alloc` says what was asked for. */
bool ds_filter_channel(struct ds_call *call, const struct rm_alloc *alloc);
/* A graphics or compute object. */
bool ds_filter_engine_object(struct ds_call *call);
/* A debugger's session, of which call->shadow has the parameters. */
bool ds_filter_debugger(struct ds_call *call);

/*
 * UVM or a DMA buffer is about to duplicate, or has duplicated, an object of this kind for the current process. NV_OK, or what to
 * answer.
 */
u32 ds_filter_dup(u32 client, enum rm_kind kind, u32 command);

/*
 * os_lookup_user_io_memory() at this address: may the current process give these pages to the GPU? *none: because there was nothing of the
 * driver's, nor may there be when the driver looks (lookup.h).
 */
bool ds_filter_io_memory(unsigned long address, u64 pages, bool *none);

#endif
