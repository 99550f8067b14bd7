/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's pages of a GPU: asking for them, mapping them. All under the lock of the GPU's device. */
#ifndef DS_ATTACH_H
#define DS_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda.h"
#include "pages.h"

#define DS_MAX_DEVICES 64

/* The GPU as the daemon is told of it. */
struct ds_gpu {
	CUdevice ordinal;
	unsigned int sms; /* of the whole device */
	unsigned int sm_step; /* green contexts have multiples of this many */
	CUuuid uuid;
};

/*
 * Sends the request while there is no context yet, and waits for nothing. Either ds_pages_ask() or ds_pages_ask_no_more() follows, which takes
 * the request back.
 */
void ds_pages_ask_ahead(const struct ds_gpu *gpu);
void ds_pages_ask_no_more(CUdevice ordinal);
/* Asks the daemon, and maps its pages. false: none, and `why` says why. */
bool ds_pages_ask(const struct ds_gpu *gpu, struct ds_pages *pages, char *why, size_t room);
/* What was asked ahead, where the policy has this GPU's memory waited for: ds_pages_ask() gives these pages when there is a context. false: none. */
bool ds_pages_early(const struct ds_gpu *gpu, struct ds_pages *pages);
/* Not 0: what asks for host memory gives up, for somebody waits for it, and the daemon may not answer. */
extern _Atomic(uint32_t) ds_arena_hurry;
/* Asks the daemon for host memory to park in: a descriptor of at least `bytes` that nobody can shorten. -1: none, and `why` says why. */
int ds_arena_ask(const CUuuid *uuid, uint64_t bytes, char *why, size_t room);
/* As much of *bytes as there is now, and how much that is. */
int ds_arena_ask_some(const CUuuid *uuid, uint64_t *bytes, char *why, size_t room);
/* The same for memory that is got by other means: only counted. */
bool ds_host_ask(const CUuuid *uuid, uint64_t bytes, char *why, size_t room);

#endif
