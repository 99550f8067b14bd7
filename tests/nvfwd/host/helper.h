/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper: a vhost-user back end that issues a guest's calls on the host's driver, or answers them from a recording. Everything that comes
 * from the guest is copied once and then judged; nothing of it is an address here.
 */
#ifndef NVFWD_HELPER_H
#define NVFWD_HELPER_H

#include <pthread.h>

#include "../common/shape.h"
#include "../common/wire.h"

#define HANDLES	4096
#define WAITS	1024

void say(const char *form, ...) __attribute__((format(printf, 1, 2)));
extern int verbose;

/* ---- handles.c: what the guest has open. One lock; a handle is held while it is used. ---- */

struct handle {
	enum nvf_dev dev;
	int fd;			/* -1: a recording's */
	s32 control;		/* handle of the control file that it was registered with, -1 */
	int held, taken;	/* `taken`: still the guest's */
	int memory, event;	/* of a recording: what is mapped, what is polled; -1 */
	u32 seed;
};

s32 handle_new(enum nvf_dev dev, int fd, int event);	/* -EMFILE; the descriptors are then still the caller's */
struct handle *handle_get(s32 number);			/* NULL: none */
void handle_put(s32 number);
int handle_close(s32 number);				/* by the guest; -EBADF */
u32 handles_open(void);
void handles_forget(void);

/* Clients, by who made them: a question of the guest's kernel names a client only. */
void client_made(u32 client, s32 handle);
void client_freed(u32 client);
s32 client_owner(u32 client);				/* handle, or -ENOENT */
void client_device(u32 client, u32 device);
u32 client_has_device(u32 client);			/* 0: none */

/* ---- memory.c: the guest's RAM, and views of parts of it ---- */

/* A region of RAM; `fd` is taken. Regions that come after memory_settled() are the helper's own mappings come back. */
int memory_add(u64 gpa, u64 size, u64 user, u64 offset, int fd);
void memory_settled(void);
void memory_forget(void);
void *memory_at(u64 gpa, u64 length);			/* NULL: not RAM, or not all of it */
void *memory_of_user(u64 user, u64 length);		/* by the addresses of QEMU's own that rings have */
s64 pin_make(const struct nvf_run *runs, u32 count, u64 length);	/* id, -errno */
int pin_drop(u64 id);
/* The address of `length` bytes in a view, which stays while it is held. NULL: there are none such. */
void *pin_hold(u32 id, u32 offset, u64 length);
void pin_release(u32 id);
u32 pins_held(void);
void pins_forget(void);

/* ---- shared.c: the region that guest and host share, by requests to QEMU ---- */

extern u64 shared_size;
void shared_channel(int fd);				/* QEMU's, for requests */
s64 shared_map(s32 handle, int fd, u64 offset, u64 length);	/* offset in the region, -errno */
void shared_unmap(s32 handle);				/* all that the handle has there */
u32 shared_maps(void);
void shared_forget(void);				/* QEMU has dropped all by itself */

/* ---- waits.c: questions for events, answered later ---- */

/* 0: `answer(cookie, value)` comes later, value may be -errno. */
int wait_begin(s32 handle, int fd, u32 events, u64 cookie);
void waits_cancel(s32 handle);				/* -1: all */
u32 waits_count(void);
int waits_start(void (*answer)(u64 cookie, s64 value));

/* ---- drivers ---- */

struct issue {
	s32 handle;
	const struct handle *file;
	u32 cmd, size;
	const struct nvf_shape *shape;
	u8 *data;		/* the parts, with this process's pointers and descriptors in them */
	u32 pin;		/* of a semaphore pool: 1 + id, else 0 */
	bool kernel;		/* asked by the guest's kernel */
};

struct driver {
	void (*hello)(struct nvf_hello *hello);
	s64 (*text)(enum nvf_text which, u64 gpu, char *out, u32 room);	/* bytes, -errno */
	int (*open)(enum nvf_dev dev, u32 gpu, int flags, int *event);	/* descriptor, or -1 and *event; -errno below -1 */
	long (*issue)(const struct issue *issue);
	int (*mappable)(struct handle *file, u64 offset, u64 length);	/* descriptor that QEMU is to map */
	void (*closed)(struct handle *file, bool last);
	void (*stat)(struct nvf_stat *stat);
	bool clients;		/* the guest's kernel may make clients of its own */
};

extern const struct driver driver_real;
extern const struct driver driver_replay;
extern const struct driver *driver;
/* Reads a recording made by `detshare-vm`; 0, or 1 and it was said why not. */
int replay_load(const char *path);

/* ---- pool.c: a semaphore pool of UVM, made of the guest's memory ---- */

long pool_make(const struct issue *issue);
void pool_registered(s32 uvm, const u8 *block);
void pool_closed(s32 uvm);

/* ---- serve.c: one call ---- */

/*
 * `in` has req->len bytes and is the caller's own copy; `out` has room for `room`. Fills *rep; rep->len bytes of `out` are to be given
 * back. NVF_POLL is none of its: see serve_poll().
 */
void serve(const struct nvf_req *req, u8 *in, struct nvf_rep *rep, u8 *out, u32 room);
int serve_poll(const struct nvf_req *req, u64 cookie);
void serve_forget(void);				/* the guest is gone, or its driver */

/* ---- front.c, ring.c ---- */

int front_talk(int connection);				/* until QEMU goes */
void ring_size(u32 num);
void ring_base(u32 next);
int ring_at(u64 desc, u64 used, u64 avail);
void ring_kick(int fd);
void ring_call(int fd);
u32 ring_stop(void);					/* -> where it stood */
int ring_workers(int count);

#endif
