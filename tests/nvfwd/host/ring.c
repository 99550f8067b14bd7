// SPDX-License-Identifier: Apache-2.0
/* The queue: a split ring in the guest's memory, which the guest may write to at any time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_ring.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "helper.h"

#define NUM_MAX 1024
#define CHAIN_MAX 8

/* Under the lock: the ring's place and where we stand. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct {
	volatile struct vring_desc *desc;
	volatile struct vring_avail *avail;
	volatile struct vring_used *used;
	u32 num;
	u16 next, used_next;
	int kick, call;
	bool on;
	u32 working;
} ring = { .kick = -1, .call = -1 };
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;	/* one worker looks for the next call */
static int wake = -1;

/* A chain, as it was when it was looked at: no address of it is read twice. */
struct chain {
	u32 head;
	struct { u8 *at; u32 len; } in[2], out[2];
	u32 ins, outs;
};

void ring_size(u32 num)
{
	pthread_mutex_lock(&lock);
	ring.num = num && num <= NUM_MAX && !(num & (num - 1)) ? num : 0;
	pthread_mutex_unlock(&lock);
}

void ring_base(u32 next)
{
	pthread_mutex_lock(&lock);
	ring.next = ring.used_next = (u16)next;
	pthread_mutex_unlock(&lock);
}

int ring_at(u64 desc, u64 used, u64 avail)
{
	int error = 0;

	pthread_mutex_lock(&lock);
	ring.desc = ring.num ? memory_of_user(desc, ring.num * sizeof(struct vring_desc)) : NULL;
	ring.used = ring.num ? memory_of_user(used, 6 + ring.num * sizeof(struct vring_used_elem)) : NULL;
	ring.avail = ring.num ? memory_of_user(avail, 6 + ring.num * 2) : NULL;
	if (!ring.desc || !ring.used || !ring.avail || desc % 16 || used % 4 || avail % 2) {
		ring.desc = NULL;
		error = -EFAULT;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

static void swap_fd(int *place, int fd)
{
	if (*place >= 0)
		close(*place);
	*place = fd;
}

void ring_kick(int fd)
{
	u64 one = 1;

	pthread_mutex_lock(&lock);
	swap_fd(&ring.kick, fd);
	if (fd >= 0)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	ring.on = fd >= 0 && ring.desc;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
	if (write(wake, &one, sizeof(one)) < 0)
		say("ring: %m");
}

void ring_call(int fd)
{
	pthread_mutex_lock(&lock);
	swap_fd(&ring.call, fd);
	pthread_mutex_unlock(&lock);
}

u32 ring_stop(void)
{
	struct timespec until;
	u64 one = 1;
	u32 next;

	pthread_mutex_lock(&lock);
	ring.on = false;
	next = ring.next;
	pthread_mutex_unlock(&lock);
	if (write(wake, &one, sizeof(one)) < 0)
		say("ring: %m");
	/* polls are answered before what is under way is waited for */
	waits_cancel(-1);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 5;
	pthread_mutex_lock(&lock);
	while (ring.working && !pthread_cond_timedwait(&moved, &lock, &until))
		;
	ring.desc = NULL;
	swap_fd(&ring.kick, -1);
	swap_fd(&ring.call, -1);
	pthread_mutex_unlock(&lock);
	return next;
}

/* Under the lock. false: nothing there, or nothing that is a chain: that is answered at once. */
static void answer_locked(u32 head, u32 len)
{
	u64 one = 1;

	ring.working--;
	pthread_cond_broadcast(&moved);
	if (!ring.desc)
		return;
	ring.used->ring[ring.used_next % ring.num].id = head;
	ring.used->ring[ring.used_next % ring.num].len = len;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	ring.used->idx = ++ring.used_next;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (ring.call >= 0 && !(ring.avail->flags & VRING_AVAIL_F_NO_INTERRUPT) && write(ring.call, &one, sizeof(one)) < 0)
		say("ring: %m");
}

static void answer(u32 head, u32 len)
{
	pthread_mutex_lock(&lock);
	answer_locked(head, len);
	pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static bool walk(struct chain *chain)
{
	u32 at = chain->head;

	for (u32 i = 0; i < CHAIN_MAX; i++) {
		u64 gpa;
		u32 len;
		u16 flags, next;
		u8 *mem;

		if (at >= ring.num)
			return false;
		gpa = ring.desc[at].addr;
		len = ring.desc[at].len;
		flags = ring.desc[at].flags;
		next = ring.desc[at].next;
		mem = flags & VRING_DESC_F_INDIRECT || !len ? NULL : memory_at(gpa, len);
		if (!mem)
			return false;
		if (flags & VRING_DESC_F_WRITE) {
			if (chain->outs == 2)
				return false;
			chain->out[chain->outs].at = mem;
			chain->out[chain->outs++].len = len;
		} else {
			if (chain->ins == 2 || chain->outs)
				return false;
			chain->in[chain->ins].at = mem;
			chain->in[chain->ins++].len = len;
		}
		if (!(flags & VRING_DESC_F_NEXT))
			return chain->ins && chain->outs && chain->in[0].len == sizeof(struct nvf_req) &&
			       chain->out[0].len == sizeof(struct nvf_rep);
		at = next;
	}
	return false;
}

/* The next call. Waits for one. */
static void next_chain(struct chain *chain)
{
	for (;;) {
		struct pollfd ready[2];
		u64 count;

		pthread_mutex_lock(&lock);
		while (ring.on && ring.next != ring.avail->idx) {
			__atomic_thread_fence(__ATOMIC_ACQUIRE);
			memset(chain, 0, sizeof(*chain));
			chain->head = ring.avail->ring[ring.next++ % ring.num];
			ring.working++;
			if (walk(chain)) {
				pthread_mutex_unlock(&lock);
				return;
			}
			say("a chain of the guest's is none");
			answer_locked(chain->head, 0);
		}
		ready[0] = (struct pollfd){ ring.on ? ring.kick : -1, POLLIN, 0 };
		ready[1] = (struct pollfd){ wake, POLLIN, 0 };
		pthread_mutex_unlock(&lock);
		poll(ready, 2, -1);
		if (ready[0].revents && read(ready[0].fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
			usleep(1000);
		if (ready[1].revents && read(wake, &count, sizeof(count)) < 0 && errno != EAGAIN)
			usleep(1000);
	}
}

/* A question's answer, when it comes; its chain is kept by its head and the place of its answer. */
static struct { u8 *at; } polled[NUM_MAX];

static void answer_poll(u64 cookie, s64 value)
{
	struct nvf_rep rep = { .err = value < 0 ? (s32)value : 0, .val = value };

	memcpy(polled[cookie].at, &rep, sizeof(rep));
	answer((u32)cookie, sizeof(rep));
}

static void work_on(struct chain *chain, u8 *in, u8 *out)
{
	u32 room = chain->outs > 1 ? chain->out[1].len : 0;
	struct nvf_rep rep = { 0 };
	struct nvf_req req;

	memcpy(&req, chain->in[0].at, sizeof(req));
	if (req.len > NVF_MAX_IN || room > NVF_MAX_OUT || req.len != (chain->ins > 1 ? chain->in[1].len : 0)) {
		rep.err = -EPROTO;
	} else if (req.op == NVF_POLL) {
		polled[chain->head].at = chain->out[0].at;
		rep.err = serve_poll(&req, chain->head);
		if (!rep.err)
			return;
	} else {
		if (req.len)
			memcpy(in, chain->in[1].at, req.len);
		serve(&req, in, &rep, out, room);
		if (rep.len > room)
			rep = (struct nvf_rep){ .err = -EPROTO };
		if (rep.len)
			memcpy(chain->out[1].at, out, rep.len);
	}
	if (verbose)
		say("op %u handle %d cmd %#x a %#llx: %d %lld", req.op, req.handle, req.cmd, (unsigned long long)req.a, rep.err,
		    (long long)rep.val);
	memcpy(chain->out[0].at, &rep, sizeof(rep));
	answer(chain->head, sizeof(rep) + rep.len);
}

static void *work(void *unused)
{
	u8 *in = malloc(NVF_MAX_IN), *out = malloc(NVF_MAX_OUT);
	struct chain chain;

	(void)unused;
	if (!in || !out)
		abort();
	for (;;) {
		pthread_mutex_lock(&taking);
		next_chain(&chain);
		pthread_mutex_unlock(&taking);
		work_on(&chain, in, out);
	}
	return NULL;
}

int ring_workers(int count)
{
	pthread_t thread;

	wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake < 0 || waits_start(answer_poll))
		return -1;
	while (count--)
		if (pthread_create(&thread, NULL, work, NULL))
			return -1;
	return 0;
}
