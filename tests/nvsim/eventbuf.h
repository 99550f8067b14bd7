/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A buffer of events as NV_EVENT_BUFFER lays it out in a client's memory: a header and a ring of records. Plain C without
 * kernel calls, locks or allocation, so that user-space tests run it. What is full, what is counted and when is as
 * eventbufferproducer.c of the driver has it: who keeps the newest writes over what was not read and counts no drops (a
 * reader sees it by the numbers of the records), and `records` is counted anew only when the reader says how far it got.
 */
#ifndef NVSIM_EVENTBUF_H
#define NVSIM_EVENTBUF_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#endif

#define EVENTBUF_HEADER_SIZE 32
#define EVENTBUF_SWITCH_SIZE 32 /* of a record of a context switch */
#define EVENTBUF_FECS	     134 /* NV_EVENT_BUFFER_RECORD_TYPE_FECS_CTX_SWITCH */
#define EVENTBUF_FECS_V2     2
#define EVENTBUF_STARTS	     6 /* NV_EVENT_BUFFER_FECS_CTXSWTAG_SIMPLE_START */
#define EVENTBUF_ENDS	     7

/* What the reader sees first; get and put count records. */
struct eventbuf_header {
	u32 get, put;
	u64 records, dropped, dropped_vardata;
};

struct eventbuf_switch {
	u8 tag;
	u32 context, pid;
	u64 when; /* ns */
};

struct eventbuf {
	u32 size, count; /* bytes of a record, records */
	bool enabled, newest;
	u16 seq;
	struct eventbuf_header header;
	/* n bytes at byte `at` of the memory of the header, or of the records. */
	void (*write)(struct eventbuf *buf, bool header, u64 at, const void *data, size_t n);
};

/* A zeroed one with `write`; size and count are not 0. */
void eventbuf_init(struct eventbuf *buf, u32 size, u32 count);
/* A context switch; version 1 or 2 says how its record looks. Numbered also while it is not enabled. */
void eventbuf_add(struct eventbuf *buf, unsigned int version, const struct eventbuf_switch *event);
/* Records that the GPU lost before anybody wrote them. */
void eventbuf_lost(struct eventbuf *buf, u32 records);
/* The reader got so far. false: there is no such record. */
bool eventbuf_get(struct eventbuf *buf, u32 get);

#endif
