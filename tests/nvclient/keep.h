/* SPDX-License-Identifier: Apache-2.0 */
/* Ways in which GPU memory outlives the handle by which a program got it. */
#ifndef NVCLIENT_KEEP_H
#define NVCLIENT_KEEP_H

#include "nvclient.h"

/* Makes a descriptor of this memory: exported to a fresh control file. */
u32 nv_export(const struct nv *nv, u32 client, u32 device, u32 memory, int *fd);
u32 nv_import(const struct nv *nv, u32 client, u32 parent, u32 *handle, int fd);
/*
 * The forms for several objects. A memory (0: nothing) goes to one of `places` places of a control file, made if *fd is -1;
 * what is at `count` places from `index` on comes in by handles that begin at `first`.
 */
u32 nv_export_place(const struct nv *nv, u32 client, u32 device, u32 memory, int *fd, u32 index, u32 places);
u32 nv_import_places(const struct nv *nv, u32 client, u32 parent, u32 first, int fd, u32 index, u32 count);
/* A DMA buffer of the whole memory. gpu: the GPU's device file. */
u32 nv_dmabuf(const struct nv *nv, int gpu, u32 client, u32 memory, u64 size, int *fd);
/* A fabric address for this memory. */
u32 nv_fabric(const struct nv *nv, u32 client, u32 subdevice, u32 *handle, u32 memory, u64 size);
/* A range made for nv_uvm_map() and all that is mapped there. */
u32 nv_uvm_free(struct nv_program *program, u64 va, u64 length);

#endif
