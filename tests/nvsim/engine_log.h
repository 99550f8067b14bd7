/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The log of context switches on an engine's graphics run list, and who reads it. Records wait in the engine until somebody
 * flushes, or a thirtieth of a second is over, as in the driver.
 *
 * All functions take the engine's lock. Inside it the buffer's is taken, and in that a memory's page lock.
 */
#ifndef NVSIM_ENGINE_LOG_H
#define NVSIM_ENGINE_LOG_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/uidgid.h>

#include "eventbuf.h"

struct sim_engine;

struct sim_log_reader {
	struct list_head in_engine;
	struct eventbuf *buf;
	struct mutex *lock; /* guards *buf, which may be bound to several engines; inside an engine's */
	unsigned int version;
	bool all_users, admin, kernel;
	kuid_t uid; /* of who reads */
};

void sim_log_join(struct sim_engine *engine, struct sim_log_reader *reader);
void sim_log_leave(struct sim_engine *engine, struct sim_log_reader *reader);
/* What happened until now is with its readers. */
void sim_log_flush(struct sim_engine *engine);

#endif
