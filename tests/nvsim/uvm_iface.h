/* SPDX-License-Identifier: GPL-2.0-only */
/* What nvidia.ko does for nvidia-uvm.ko, in the caller's name: handles are checked against the control file given. */
#ifndef NVSIM_UVM_IFACE_H
#define NVSIM_UVM_IFACE_H

#include "sim.h"

/* The VA space of a handle, with a reference. */
NV_STATUS sim_uvm_get_vas(int ctl_fd, u32 client, u32 handle, struct sim_gpu *gpu, struct sim_vas **vas);
/*
 * UVM's own reference to a client's memory, by the driver's names: it keeps the memory, and its place in the heap, when
 * the client frees its handle. `device` is the GPU; `info`, if given, receives the struct sim_memory.
 */
NV_STATUS nvUvmInterfaceDupMemory(void *device, NvU32 hClient, NvU32 hPhysMemory, NvU32 *hDupMemory, void *info);
NV_STATUS nvUvmInterfaceFreeDupedHandle(void *device, NvU32 hPhysHandle);
/* Marks a channel as known to UVM, so that it may be scheduled. */
NV_STATUS sim_uvm_register_channel(int ctl_fd, u32 client, u32 handle, struct sim_gpu *gpu, struct sim_vas *vas);
void sim_uvm_unregister_channel(u32 client, u32 handle);
NV_STATUS sim_uvm_check_client(int ctl_fd, u32 client);
bool sim_uvm_take(struct sim_gpu *gpu, u64 bytes);
void sim_uvm_give(struct sim_gpu *gpu, u64 bytes);
u32 sim_uvm_ioctl_size(u32 nr);

#endif
