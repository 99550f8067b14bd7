/* SPDX-License-Identifier: GPL-2.0-only */
/* Controls that the simulator computes, by file; all others are answered as an H100 did, or not supported. */
#ifndef NVSIM_CONTROL_H
#define NVSIM_CONTROL_H

#include "sim.h"

struct sim_ask {
	const struct sim_caller *by;
	struct sim_object *object;
	void *params;
	u32 size;
	bool serialised;	/* so are the parameters, and no command here can read them */
	u32 count;		/* of a nested list: elements that were copied in */
	void *list, *list2;	/* nested lists in kernel memory */
};

struct sim_handler {
	u32 cmd;
	bool writes;		/* needs the API lock for itself */
	NV_STATUS (*run)(struct sim_ask *ask);
};

/* Each list ends with an entry without function. */
extern const struct sim_handler sim_client_handlers[], sim_gpu_handlers[], sim_fifo_handlers[], sim_fd_handlers[];
extern const struct sim_handler sim_sched_handlers[], sim_event_handlers[];

const struct sim_handler *sim_handler_find(u32 cmd);
/* False: no record of this command. Otherwise params is as the recorded answer would leave it. */
bool sim_answer(u32 cmd, void *params, u32 size);
NV_STATUS sim_control_deprecated(const struct sim_caller *by, u32 client, u32 cmd, u64 params, u32 size, bool *done);

#endif
