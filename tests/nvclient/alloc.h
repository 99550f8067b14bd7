/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVCLIENT_ALLOC_H
#define NVCLIENT_ALLOC_H

#include "nvclient.h"

/*
 * One way to get memory: asks for `size` bytes, frees what it got. Returns the status; *granted in
 * bytes.
 */
struct alloc_way {
	const char *name;
	u32 (*ask)(struct nv_program *program, u64 size, u64 *granted);
};

/* Through files that are bound to the program's control file; alloc_device_stranger: that are not. */
u32 alloc_bound(struct nv_program *program, u64 size, u64 *granted);
u32 alloc_bound_child(struct nv_program *program, u64 size, u64 *granted);
u32 alloc_device_child(struct nv_program *program, u64 size, u64 *granted);
u32 alloc_device_stranger(struct nv_program *program, u64 size, u64 *granted);

extern const struct alloc_way alloc_ways[]; /* the last has no name */
/* A line of JSON for each: way, asked, granted, status, name. */
void alloc_every_way(struct nv_program *program, u64 size);

#endif
