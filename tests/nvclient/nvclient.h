/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnvclient: what a program says to the NVIDIA driver, without any library of NVIDIA's. Sizes and
 * offsets come from the tables of the RM core, for the version of the driver that is loaded or for
 * one that is named.
 *
 * Functions that return u32 return the driver's status, or NV_ERRNO(errno) where the ioctl itself
 * failed. Functions whose name begins with nv_must end the program with exit code 1 and a sentence
 * instead.
 */
#ifndef NVCLIENT_H
#define NVCLIENT_H

#include "../../kmod/rm/abi.h"

#define NV_ERRNO(e)    (0x80000000u | (u32)(e))
#define NV_IS_ERRNO(s) ((s) & 0x80000000u)
#define NV_OBJECTS     0x5c000000u /* where handles that we choose begin, as libcuda's do */

/* ---- a connection: one open /dev/nvidiactl ---- */

struct nv {
	const struct rm_abi *abi;
	char version[64];
	int ctl;
	bool xfer; /* wrap each call in IOCTL_XFER_CMD */
	bool os21; /* RM_ALLOC in its short form */
	u32 next;  /* handle */
};

/* version NULL: the loaded driver's, from /proc/driver/nvidia/version. */
void nv_must_open(struct nv *nv, const char *version);
void nv_close(struct nv *nv);
int nv_open_device(const char *name); /* a file of /dev; -errno */
int nv_must_open_device(const char *name);

/* One ioctl with magic 'F' and both directions, taken up again after a signal. 0 or -errno. */
int nv_ioctl(int fd, u32 nr, void *block, u32 size);
/* The same through IOCTL_XFER_CMD. */
int nv_xfer(const struct nv *nv, int fd, u32 nr, void *block, u32 size);

u32 nv_root(struct nv *nv, u32 *client);
/* *handle 0: RM chooses. */
u32 nv_alloc(const struct nv *nv, u32 client, u32 parent, u32 *handle, u32 class, void *params,
	     u32 size);
u32 nv_alloc_on(const struct nv *nv, int fd, u32 client, u32 parent, u32 *handle, u32 class,
		void *params, u32 size);
u32 nv_free(const struct nv *nv, u32 client, u32 parent, u32 handle);
u32 nv_control(const struct nv *nv, u32 client, u32 object, u32 cmd, void *params, u32 size);
u32 nv_dup(const struct nv *nv, u32 client, u32 parent, u32 *handle, u32 from, u32 object);
u32 nv_share(const struct nv *nv, u32 client, u32 object, u16 type, u32 target);
u32 nv_next_handle(struct nv *nv);

/*
 * CPU mapping of [offset, offset + length) of a memory or usermode object, through a file of its
 * own of the device named. NULL: *status says why. The linear address that RM gave goes to *linear
 * unless that is NULL.
 */
void *nv_map(const struct nv *nv, const char *device, u32 client, u32 parent, u32 memory,
	     u64 offset, u64 length, int prot, u64 *linear, u32 *status);

/* ---- memory ---- */

struct nv_memory_request {
	u32 class; /* 0x40, 0x3e, 0x42 ... */
	u64 size;
	u32 flags, attr, attr2, type;
};

/* In: size asked. Out: size granted. */
u32 nv_memory(const struct nv *nv, u32 client, u32 parent, u32 *handle,
	      const struct nv_memory_request *ask, u64 *granted);
u32 nv_vid_heap(const struct nv *nv, u32 client, u32 parent, u32 *handle, u32 function, u64 *size,
		u64 *total, u64 *free);
u32 nv_vid_heap_free(const struct nv *nv, u32 client, u32 parent, u32 handle);
u32 nv_alloc_memory(const struct nv *nv, int gpu, u32 client, u32 parent, u32 *handle, u32 class,
		    u32 flags, u64 address, u64 limit);
/* FB_GET_INFO_V2: total and free of the heap in bytes. */
u32 nv_fb_info(const struct nv *nv, u32 client, u32 subdevice, u64 *total, u64 *free);

/* ---- a program as CUDA makes it: device, VA space, TSGs, channels ---- */

struct nv_program {
	struct nv nv;
	u32 gpu_number;
	char gpu_device[24];
	int gpu, uvm, uvm_mm;
	u8 uuid[16];
	u32 client, device, subdevice, vaspace, tsg, ctxshare, usermode;
	volatile u32 *doorbell;
	u64 next_va;
	u64 tsg_asked; /* when its TSG was asked for, CLOCK_MONOTONIC ns */
	/* set before nv_program_context(): live in another client's TSG, as a client of MPS does */
	u32 join_client, join_tsg;
};

struct nv_channel {
	struct nv_program *program;
	u32 handle, memory, compute, token, entries, put;
	u64 base;	    /* GPU address of the block below */
	u64 submitted;	    /* kernels; also the payload of the last one's semaphore */
	volatile u8 *block; /* CPU address: USERD, GPFIFO, semaphores, pushbuffer */
};

/* What a kernel is. */
struct nv_kernel {
	u64 ns; /* SIM_KERNEL_ENDLESS */
	u32 sms;
	bool until; /* endless until nv_release_kernel() */
	bool count; /* keep its run time where nv_kernel_time() reads it */
};

void nv_must_open_program(struct nv_program *program, u32 gpu, const char *version);
/* Client, device, subdevice, UVM: all but the TSG. */
u32 nv_program_base(struct nv_program *program, const char **step);
/*
 * VA space, compute TSG with context share, usermode object and its doorbell. *step names what
 * failed.
 */
u32 nv_program_context(struct nv_program *program, const char **step);
void nv_must_program(struct nv_program *program, u32 gpu, const char *version);
void nv_close_program(struct nv_program *program);

/* A memory object into the program's GPU address space, as CUDA does it through UVM. */
u32 nv_uvm_map(struct nv_program *program, u32 memory, u64 va, u64 length);
int nv_uvm(int fd, u32 nr, void *params);

u32 nv_channel_open(struct nv_channel *channel, struct nv_program *program, u32 tsg, u32 ctxshare,
		    u32 engine, const char **step);
void nv_must_channel(struct nv_channel *channel, struct nv_program *program);
/* Another compute TSG of the program with a context share and a channel, scheduled. */
u32 nv_group_open(struct nv_channel *channel, struct nv_program *program, u32 *tsg,
		  const char **step);
/* As an MPS server's: marked, and its TSG for everybody to duplicate. */
u32 nv_mark_mps(struct nv_program *program);
u32 nv_program_share(struct nv_program *program);
/* What the simulated driver says that the client's TSGs ran, us; false: it says nothing (no root). */
bool nv_gpu_time(const struct nv_program *program, u64 *us);
u32 nv_schedule(struct nv_program *program, u32 tsg, bool enable);
/* FIFO_DISABLE_CHANNELS on one channel of the program. */
u32 nv_disable(const struct nv_channel *channel, bool disable);

/* Put a kernel into the ring and GP_PUT into USERD. False: the ring is full. */
bool nv_queue(struct nv_channel *channel, const struct nv_kernel *kernel);
/* Waits until another token that is still there was taken. */
void nv_ring(const struct nv_program *program, u32 token);
/* A plain store, as CUDA's: of two tokens that come too fast the simulated GPU sees the last. */
void nv_kick(volatile u32 *doorbell, u32 token);
/* Both. */
bool nv_submit(struct nv_channel *channel, const struct nv_kernel *kernel);
u64 nv_finished(const struct nv_channel *channel); /* kernels */
/* GPU time in ns of a recent one, counted from 1 */
u64 nv_finished_at(const struct nv_channel *channel, u64 number);
/* false: not within that time */
bool nv_wait(const struct nv_channel *channel, u64 number, double seconds);
void nv_release_kernel(struct nv_channel *channel);   /* ends the endless kernel with .until */
u64 nv_kernel_time(const struct nv_channel *channel); /* ns, of the present kernel with .count */
u32 nv_room(const struct nv_channel *channel);	      /* free entries of the ring */

/* ---- words ---- */

double nv_now(void); /* CLOCK_MONOTONIC, s */
u64 nv_now_ns(void);
void nv_sleep(double seconds);
/* "name: ...", exit 1 */
void __attribute__((noreturn, format(printf, 1, 2))) nv_die(const char *format, ...);
void __attribute__((noreturn)) nv_usage(const char *text, int code);
u64 nv_number(const char *text, const char *what); /* decimal, 0x, suffixes k m g; exit 2 */
void __attribute__((noreturn)) nv_not_a_number(const char *text, const char *what);
double nv_decimal(const char *text, const char *what);
const char *nv_status_name(u32 status); /* the common ones; "" else */
extern const char *nv_name;		/* of the program, set by nv_program_name() */
void nv_program_name(const char *path);

#endif
