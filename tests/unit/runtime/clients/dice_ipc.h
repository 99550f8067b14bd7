/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `dice_ipc` share: a program is told what to do, and answers. */
#ifndef DICE_IPC_H
#define DICE_IPC_H

#define _GNU_SOURCE
#include "parked.h"

enum { PLACES = 8, PROGRAMS = 4, NAMES = 16, POSIX_DESCRIPTOR = 1, LAZY_PEERS = 1 };
enum deed { ALLOC, FREE, NAME, OPEN, CLOSE, WRITE, READ, ASK, CREATE, EXPORT, IMPORT, DROP, RESET, FORK, END, DEEDS };

/* what a program is told, and answers */
struct order {
	enum deed what;
	unsigned int place, gpu, flags, value;
	size_t size, from, count;
	CUipcMemHandle handle;
};

struct answer {
	CUresult result;
	uint64_t digest;
	bool again; /* the address is one that it had */
	CUipcMemHandle handle;
};

/* A message, and a descriptor with it, if *fd is one. false: the other side is gone. */
bool ipc_message(int socket, void *data, size_t size, int *fd, bool sends);
/* Does what it is told until nobody tells it any more; its exit status. */
int ipc_program(int socket, unsigned int seed, char role);

#endif
