/* SPDX-License-Identifier: Apache-2.0 */
/* What nvdoor does to doorbells, by the word. */
#ifndef DOOR_H
#define DOOR_H

#include <pthread.h>
#include <stdbool.h>

#include "nvclient.h"

#define DOOR_SLOTS   8
#define DOOR_THREADS 8

/* A doorbell mapping, and the file that it came from (-1: closed). */
struct door_slot {
	int fd;
	volatile u8 *at;
	u64 length;
};

struct door {
	struct nv_program program;
	struct nv_channel channel;
	struct nv other; /* a second client, with a duplicate of the usermode object */
	struct door_slot slots[DOOR_SLOTS];
	/* threads that ring until told to stop */
	pthread_t spinners[DOOR_THREADS];
	u32 spinning;
	volatile bool halt;
	volatile u32 handled; /* signals */
};

/* What came of a command. */
struct door_answer {
	s64 result; /* >= 0, or -errno */
	u64 longest_ns;
	u64 rests; /* how often so much time passed from one ring to the next */
	int signal; /* SIGBUS or SIGSEGV, caught */
};

/* One command, in a thread of its own. Numbers that were not given are 0. */
struct door_ask {
	struct door *door;
	u64 id;
	char verb[16];
	u64 a, b, c;
	struct door_answer answer;
};

/* false: no such verb. */
bool door_do(struct door_ask *ask);
/* A ring that is counted: no two are one, none is seen twice. Returns false for a fault; *signal says which. */
bool door_ring(volatile u8 *page, int *signal);
void door_catch(void);

/* RM_MAP_MEMORY: the driver's status, or -errno. */
s64 door_arm(const struct nv *nv, u32 client, u32 parent, u32 object, u64 length, int fd);
void door_claim(struct door_ask *ask);
/* In this process only. result < 0: not what may be expected. */
void door_handle_here(struct door_ask *ask);

/* For the files of nvdoor: a command's mapping; rings on it, false at a fault; the file mapped into it. */
struct door_slot *door_slot(struct door_ask *ask);
bool door_ring_many(struct door_ask *ask, volatile u8 *page, u64 number, u64 rest_ns);
void door_map_fd(struct door_ask *ask, int fd);

/* Verbs of door_others.c. */
void door_child(struct door_ask *ask);
void door_kin(struct door_ask *ask);
void door_pass(struct door_ask *ask);
void door_handle(struct door_ask *ask);
void door_vm(struct door_ask *ask);
void door_poke(struct door_ask *ask);

/* door_ways.c: false: none of that name. A robust mutex in the page, whose owner ends with the next halt. */
bool door_way(struct door_ask *ask);
void door_robust(struct door_ask *ask);

#endif
