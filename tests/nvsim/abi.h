/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The driver's ABI in the chosen version: generated numbers and tables, and access to members of a structure in a
 * byte buffer. NV_GET(p, NVOS54_PARAMETERS, hClient) reads a member; dots of nested members are written as _.
 */
#ifndef NVSIM_ABI_H
#define NVSIM_ABI_H

#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/types.h>

extern int sim_abi;	/* 0: 550.163.01, 1: 580.65.06, 2: 580.142 and 580.159.04 */

#include "abi_tables.h"


typedef u32 NV_STATUS;
typedef u32 NvU32;

enum sim_priv { SIM_NON_PRIVILEGED, SIM_PRIVILEGED, SIM_KERNEL_PRIVILEGED, SIM_INTERNAL };

#define SIM_CLASS_USER		0x01
#define SIM_CLASS_ROOT		0x02
#define SIM_CLASS_KERNEL	0x04
#define SIM_CLASS_INTERNAL	0x08	/* made by RM itself only */
#define SIM_CLASS_MULTI		0x10	/* several below one parent */
#define SIM_CLASS_PARAMS	0x20	/* parameters must be given */
#define SIM_CLASS_ANY_PARENT	0x40
#define SIM_NO_CLASS		0xffff
#define SIM_ANY_SIZE		0xfffe	/* the data has no size: not simulated */
#define SIM_NO_CONTROL		0xffff
#define SIM_MAX_PARENTS		12

struct sim_class {
	u32 nr;
	u16 kind;
	u16 flags;
	u16 size[3];
	u16 parents[SIM_MAX_PARENTS];
};

struct sim_control {
	u32 cmd;
	u16 kind;
	u8 priv;
	u8 nice;		/* wants CAP_SYS_NICE or root */
	u32 size[3];
};

struct sim_uvm_size {
	u32 nr;
	u16 size[3];
};

extern const struct sim_class sim_classes[];
extern const size_t sim_class_count;
extern const struct sim_control sim_controls[];
extern const size_t sim_control_count;
extern const struct sim_uvm_size sim_uvm_sizes[];
extern const size_t sim_uvm_size_count;

static inline u64 sim_get(const void *p, u32 at, u32 len)
{
	u64 value = 0;

	memcpy(&value, (const u8 *)p + at, len);	/* little endian, as the driver's only machines here */
	return value;
}

static inline void sim_put(void *p, u32 at, u32 len, u64 value)
{
	memcpy((u8 *)p + at, &value, len);
}

#define NV_AT(p, s, f)		((void *)((u8 *)(p) + s##__##f##__at))
#define NV_GET(p, s, f)		sim_get((p), s##__##f##__at, s##__##f##__len)
#define NV_PUT(p, s, f, v)	sim_put((p), s##__##f##__at, s##__##f##__len, (v))
#define NV_GETI(p, s, f, i)	sim_get((p), s##__##f##__at + (i) * s##__##f##__len, s##__##f##__len)
#define NV_PUTI(p, s, f, i, v)	sim_put((p), s##__##f##__at + (i) * s##__##f##__len, s##__##f##__len, (v))
#define NV_SIZE(s)		((u32)(s##__size))

/* A bit field of the driver's headers, named by its lowest and highest bit. */
#define NV_BITS(value, name)	(((value) >> name##_LO) & GENMASK(name##_HI - name##_LO, 0))

const struct sim_class *sim_class_find(u32 nr);
const struct sim_control *sim_control_find(u32 cmd, enum sim_kind kind);
u32 sim_uvm_size(u32 nr);		/* 0: this version has no such ioctl */
bool sim_kind_isa(enum sim_kind kind, enum sim_kind base);
enum sim_kind sim_kind_of_nvoc(u32 id);

#endif
