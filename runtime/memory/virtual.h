/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles that the program made by cuMemCreate. The driver's handle changes each time the memory comes back, so the program gets one of ours.
 * All between ds_home_enter() and ds_home_leave(), or within ds_park_give().
 */
#ifndef DS_VIRTUAL_H
#define DS_VIRTUAL_H

#include "range.h"

/* The program's name for a piece, which it owns once; 0: no memory. */
CUmemGenericAllocationHandle ds_virtual_name(struct ds_piece *piece);
/* NULL: a handle of the driver's own */
struct ds_piece *ds_virtual_piece(CUmemGenericAllocationHandle handle);
/* what the driver knows */
CUmemGenericAllocationHandle ds_virtual_real(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle ds_virtual_retain(struct ds_piece *piece); /* one more owner */
void ds_virtual_release(struct ds_piece *piece); /* one owner less */
/* As cuMemUnmap, where the driver may have unmapped it already: some of it is away. */
CUresult ds_virtual_unmap(CUdeviceptr address, size_t size);
/* The driver mapped it, or unmapped what begins there. */
void ds_virtual_mapped(struct ds_piece *piece, CUdeviceptr address, size_t size);
void ds_virtual_unmapped(CUdeviceptr address, size_t size);
/* The driver gave access. */
void ds_virtual_reached(CUdeviceptr address, size_t size, const CUmemAccessDesc *list, size_t count);

#endif
