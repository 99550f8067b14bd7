/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The names that guest and helper share: the kernel's types, and memcpy. */
#ifndef NVFWD_PORT_H
#define NVFWD_PORT_H

#ifdef __KERNEL__
#include <linux/string.h>
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;
#endif

static inline u32 nvf_get32(const void *block, u32 at)
{
	u32 value;

	memcpy(&value, (const u8 *)block + at, sizeof(value));
	return value;
}

static inline u64 nvf_get64(const void *block, u32 at)
{
	u64 value;

	memcpy(&value, (const u8 *)block + at, sizeof(value));
	return value;
}

static inline void nvf_put32(void *block, u32 at, u32 value)
{
	memcpy((u8 *)block + at, &value, sizeof(value));
}

static inline void nvf_put64(void *block, u32 at, u64 value)
{
	memcpy((u8 *)block + at, &value, sizeof(value));
}

#endif
