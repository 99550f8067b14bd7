/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs of this folder share. One source, two ways to build it:
 * - clang -target bpf, a CO-RE object: kernel structures are named below with the members that are read, and libbpf
 *   moves the offsets to where the running kernel has them;
 * - bcc (DETSHARE_BCC): compiled on the spot against the kernel's own headers. Maps are made by the loader, which
 *   gives the descriptor of each as FD_<map>; and so it does for objects (bpf_map__reuse_fd), so that sizes stand in
 *   one place, the loader's table, which is compared with MAP() here.
 *   There are no constants in memory: an array that does not begin as zeros is set element by element.
 * x86-64 only: registers of a call's arguments.
 */
#ifndef DETSHARE_EBPF_KERNEL_H
#define DETSHARE_EBPF_KERNEL_H

#ifdef DETSHARE_BCC

#include <linux/types.h>

#define SEC(name)
#define MAP(kind, name, key_bytes, value_bytes)
#define MAP_OF(name)		((void *)bpf_pseudo_fd(1, FD_##name))
#define MAP_OF_UINT(name)	((u64)bpf_pseudo_fd(1, FD_##name))
#define map_find(name, key)	bpf_map_lookup_elem_(MAP_OF_UINT(name), key)
#define map_set(name, key, value, flags)	bpf_map_update_elem_(MAP_OF_UINT(name), key, value, flags)
#define map_drop(name, key)	bpf_map_delete_elem_(MAP_OF_UINT(name), key)
#define member_read(to, pointer, member)	bpf_probe_read_kernel(to, sizeof(*(to)), &(pointer)->member)

#else

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#define MAP(kind, map, key_bytes, value_bytes) \
	struct { \
		__uint(type, kind); \
		__uint(key_size, key_bytes); \
		__uint(value_size, value_bytes); \
		__uint(max_entries, 1); \
	} map SEC(".maps");
#define MAP_OF(name)		((void *)&name)
#define map_find(name, key)	bpf_map_lookup_elem(&name, key)
#define map_set(name, key, value, flags)	bpf_map_update_elem(&name, key, value, flags)
#define map_drop(name, key)	bpf_map_delete_elem(&name, key)
#define member_read(to, pointer, member) \
	bpf_probe_read_kernel(to, sizeof(*(to)), __builtin_preserve_access_index(&(pointer)->member))

#define CO_RE __attribute__((preserve_access_index))

typedef struct {
	int counter;
} CO_RE atomic_t;

struct inode {
	u16 i_mode;
	u32 i_rdev;
} CO_RE;

struct file {
	struct inode *f_inode;
} CO_RE;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} CO_RE;

struct files_struct {
	struct fdtable *fdt;
} CO_RE;

struct signal_struct {
	atomic_t live;
} CO_RE;

struct task_struct {
	int pid;
	int tgid;
	struct files_struct *files;
	struct signal_struct *signal;
} CO_RE;

char LICENSE[] SEC("license") = "GPL";

#endif /* DETSHARE_BCC */

/* Formats of syscalls:* tracepoints; a part of the kernel's interface (events/syscalls/.../format). */
struct ds_sys_enter {
	u64 common;
	s64 number;
	u64 args[6];
};

struct ds_sys_exit {
	u64 common;
	s64 number;
	s64 ret;
};

/* struct pt_regs of x86-64 under names of our own: kernel and user headers name its members differently. */
struct ds_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

/* Slots of the map `trouble`, one counter for each CPU: what a reader must know to call a view partial. */
enum ds_trouble {
	DS_LOST,	/* events that found the ring full */
	DS_FULL,	/* entries that found a table full */
	DS_UNREAD,	/* calls whose memory could not be read */
	DS_TROUBLES,
};

MAP(BPF_MAP_TYPE_PERCPU_ARRAY, trouble, 4, 8)

struct pt_regs;

#define note_trouble(which) \
	do { \
		u32 slot_ = which; \
		u64 *count_ = map_find(trouble, &slot_); \
		if (count_) \
			*count_ += 1; \
	} while (0)

#endif
