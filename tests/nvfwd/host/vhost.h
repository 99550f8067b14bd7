/* SPDX-License-Identifier: Apache-2.0 */
/* vhost-user, as far as it is spoken here (QEMU's docs/interop/vhost-user.rst). */
#ifndef NVFWD_VHOST_H
#define NVFWD_VHOST_H

#include "../common/port.h"

enum {	/* of the front end */
	VHOST_GET_FEATURES = 1, VHOST_SET_MEM_TABLE = 5, VHOST_SET_VRING_NUM = 8, VHOST_SET_VRING_ADDR = 9,
	VHOST_SET_VRING_BASE = 10, VHOST_GET_VRING_BASE = 11, VHOST_SET_VRING_KICK = 12, VHOST_SET_VRING_CALL = 13,
	VHOST_SET_VRING_ERR = 14, VHOST_GET_PROTOCOL_FEATURES = 15, VHOST_GET_QUEUE_NUM = 17, VHOST_SET_BACKEND_FD = 21,
	VHOST_GET_CONFIG = 24, VHOST_GET_MAX_MEM_SLOTS = 36, VHOST_ADD_MEM_REG = 37, VHOST_REM_MEM_REG = 38,
	VHOST_GET_SHMEM_CONFIG = 44,
};
enum { VHOST_CONFIG_CHANGE = 2, VHOST_SHMEM_MAP = 9, VHOST_SHMEM_UNMAP = 10 };	/* of the back end */
enum { VHOST_VERSION = 1, VHOST_REPLY = 4, VHOST_NEED_REPLY = 8 };
enum { VHOST_SHMEM_WRITE = 1 };
/* what is offered, by number: several queues, answers, requests of ours, configuration, descriptors, slots, shared regions */
#define VHOST_PROTOCOL (1u << 0 | 1u << 3 | 1u << 5 | 1u << 9 | 1u << 10 | 1u << 15 | 1u << 22)
#define VHOST_FEATURES (1ull << 32 | 1ull << 30)	/* VIRTIO_F_VERSION_1, VHOST_USER_F_PROTOCOL_FEATURES */
#define VHOST_SLOTS 509

struct vhost_header { u32 request, flags, size; } __attribute__((packed));
struct vhost_region { u64 gpa, size, user, offset; };
struct vhost_shmem { u8 id, pad[7]; u64 fd_offset, at, length, flags; };

#endif
