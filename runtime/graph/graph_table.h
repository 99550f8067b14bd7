/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs. Each executable graph of the program that runs in the primary context has a template: a clone of its source.
 * For the green context of a tier the template's nodes are re-targeted in place and instantiated: a variant. The
 * program's own executable is the one of tier 0 and is launched natively wherever no variant can be had.
 *
 * Locks: ds_template.lock before ds_exec.lock before those of the table and of the queue. None is held while another thread of the program
 * could need it for a launch, except for the microseconds of a bookkeeping.
 */
#ifndef DS_GRAPH_TABLE_H
#define DS_GRAPH_TABLE_H

#include "device.h"

struct ds_template;

#define DS_VARIANTS 8

struct ds_variant {
	CUcontext context;	/* NULL: free */
	unsigned int tier;
	CUgraphExec exec;	/* NULL: wanted, or cannot be made if `failed` */
	struct ds_template *from; /* whose nodes name the exec's; NULL once it was updated as a whole */
	size_t nodes;
	uint64_t used;		/* the process's clock of launches when it was launched last, or made */
	int8_t full;		/* DS_FULL_* of nodes that stay on the full GPU, -1: none */
	bool failed;
	bool queued;
};

struct ds_exec {
	_Atomic(CUgraphExec) app; /* NULL: this record is free */
	_Atomic(struct ds_exec *) next; /* in its bucket; records are never given back to the C library */
	struct ds_device *device;
	pthread_mutex_t lock;

	/* below: under lock */
	struct ds_template *template; /* NULL: no variants can be made */
	unsigned long long flags; /* of the program's instantiation that variants share */
	unsigned int overtaken;	/* times that a change may have come before the helper was done with a variant */
	unsigned int version;	/* of the parameters; a variant built from older ones is thrown away */
	unsigned int awaited, awaited_version; /* bit t: a launch has waited for tier t, since that version */
	_Atomic(unsigned int) launching; /* launches under way, outside the lock: their variants stay */
	CUgraphNode *off;	/* nodes of the template that are switched off */
	size_t off_count;
	struct ds_variant variants[DS_VARIANTS];
	struct ds_stream *last_stream; /* where it was launched last */
	CUgraphExec last;	/* and by which handle */
	CUevent left;		/* recorded behind the last launch when its stream was destroyed */
	bool left_set;

	unsigned int building;	/* threads that make variants now; under the queue's lock */
};

struct ds_exec *ds_exec_find(CUgraphExec app);
struct ds_exec *ds_exec_add(CUgraphExec app, struct ds_device *device);
void ds_exec_remove(struct ds_exec *exec);
/* calls `each` for all records of the device */
void ds_exec_each(struct ds_device *device, void (*each)(struct ds_exec *exec, void *data), void *data);
void ds_exec_reset(void);

#endif
