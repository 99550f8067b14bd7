/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What channels say of themselves: USERD, a few words of the program's memory for each channel, where it writes how far it has
 * submitted (GP_PUT) and the GPU how far it has fetched (GP_GET). Read through the program's own mapping, without its help: nothing
 * of it is ever waited for. A program can lie here, about itself only.
 *
 * Fetched is not finished: a channel with nothing pending may still run a kernel.
 */
#ifndef DETSHARE_USERD_H
#define DETSHARE_USERD_H

#include "client.h"
#include "gate.h"

struct ds_userd_scan {
	unsigned int channels;	/* of the entity that are known */
	unsigned int told;	/* whose words could be read */
	unsigned int pending;	/* of those, with GP_GET != GP_PUT */
	enum ds_touch moved;	/* has a GP_PUT changed since the last scan that was kept? */
};

/*
 * Of this client on this GPU. Process context; may sleep for a moment, and takes nobody's mmap_lock but by trying. `keep`: the next look's
 * `moved` is to be since this one.
 */
void ds_userd_scan(const struct ds_process *process, u32 client, u32 gpu, bool keep, struct ds_userd_scan *scan);
/* Is something pending, or has something been submitted since the last time? false also where nothing can be read. */
bool ds_userd_lives(const struct ds_process *process, u32 client, u32 gpu);

/* The file shows this piece of the client's memory, once it is mapped. */
void ds_userd_remember(const struct file *file, u32 client, u32 memory, u64 offset, u64 length);
/* The driver has made this channel. Order held, not under client->tree. */
void ds_userd_channel_new(struct ds_client *client, u32 gpu, u32 channel, const struct rm_alloc *alloc);
/* The file is being released. */
void ds_userd_release(const struct file *file);

/* Channels and mappings that are remembered; 0 when nothing is open. */
unsigned int ds_userd_count(void);

int ds_userd_init(void);
void ds_userd_exit(void);

#endif
