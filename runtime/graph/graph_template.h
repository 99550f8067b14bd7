/* SPDX-License-Identifier: Apache-2.0 */
/* What the variants of an executable graph are made from. */
#ifndef DS_GRAPH_TEMPLATE_H
#define DS_GRAPH_TEMPLATE_H

#include "device.h"

/* Parameters of the nodes as the program set them last. */
struct ds_template {
	pthread_mutex_t lock;	/* guards the graph's nodes */
	CUgraph graph;
	CUcontext context;	/* where the nodes are now */
	_Atomic(int) references;
	size_t nodes;		/* those of children included */
};

/* NULL: the driver cannot clone it. The caller owns one reference. */
struct ds_template *ds_template_make(struct ds_device *device, CUgraph graph);
void ds_template_get(struct ds_template *template);
void ds_template_put(struct ds_template *template);
/* Moves all nodes into the context of the tier (lock held, between ds_own_begin and ds_own_end). *full: as
 * ds_variant.full. Errors: nothing is to be made of the graph. */
CUresult ds_template_target(struct ds_template *template, struct ds_device *device, unsigned int tier, int8_t *full);
/* DS_FULL_* if the kernel node with these parameters must keep the whole GPU, -1 if it may run on the tier */
int ds_template_stays(struct ds_device *device, unsigned int tier, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params);
/* the node of the template's graph that stands for one of the program's graph */
CUgraphNode ds_template_node(struct ds_template *template, CUgraphNode node);

#endif
