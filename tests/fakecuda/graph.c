// SPDX-License-Identifier: Apache-2.0
/* Graphs as data: nodes, edges, order, clones. */
#include <stdio.h>

#include "api.h"

struct graph *graph_new(void)
{
	struct graph *graph = xalloc(sizeof(*graph));

	handle_add(graph, OBJECT_GRAPH);
	graph->tail = &graph->nodes;
	return graph;
}

CUresult graph_of(CUgraph handle, struct graph **graph)
{
	*graph = handle_get(handle, OBJECT_GRAPH);
	return *graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult node_of(CUgraphNode handle, struct node **node)
{
	*node = handle_get(handle, OBJECT_NODE);
	return *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Takes over what the work owns. */
struct node *graph_add(struct graph *graph, struct work *work)
{
	struct node *node = xalloc(sizeof(*node));

	handle_add(node, OBJECT_NODE);
	node->graph = graph;
	node->work = *work;
	node->index = (unsigned int)graph->count++;
	*graph->tail = node;
	graph->tail = &node->next;
	if (work->type == WORK_ALLOC || work->type == WORK_FREE)
		graph->memory_nodes++;
	if (work->type == WORK_CONDITIONAL)
		graph->conditions++;
	if (work->type == WORK_CHILD)
		work->child.graph->owner = graph;
	memset(work, 0, sizeof(*work));
	work->type = WORK_EMPTY;
	return node;
}

CUresult graph_edge(struct graph *graph, struct node *from, struct node *to, const CUgraphEdgeData *data)
{
	if (from == to || from->graph != graph || to->graph != graph)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < graph->edge_count; i++)
		if (graph->edges[i].from == from && graph->edges[i].to == to)
			return CUDA_ERROR_INVALID_VALUE;
	if (graph->edge_count == graph->edge_room) {
		graph->edge_room = graph->edge_room ? 2 * graph->edge_room : 8;
		graph->edges = xrealloc(graph->edges, graph->edge_room * sizeof(*graph->edges));
	}
	graph->edges[graph->edge_count] = (struct edge){ .from = from, .to = to };
	if (data)
		graph->edges[graph->edge_count].data = *data;
	graph->edge_count++;
	return CUDA_SUCCESS;
}

struct graph *graph_clone(struct graph *from)
{
	struct graph *graph = graph_new();
	struct node **map = xalloc((from->count + 1) * sizeof(*map));
	size_t n = 0;

	graph->original = from;
	for (struct node *node = from->nodes; node; node = node->next) {
		struct work work;
		struct node *copy;

		work_copy(&work, &node->work);
		copy = graph_add(graph, &work);
		copy->original = node;
		copy->disabled = node->disabled;
		map[n] = copy;
		node->op = NULL;
		node->index = (unsigned int)n++;
	}
	for (size_t i = 0; i < from->edge_count; i++)
		graph_edge(graph, map[from->edges[i].from->index], map[from->edges[i].to->index], &from->edges[i].data);
	free(map);
	users_copy(graph, from);
	return graph;
}

void node_drop(struct node *node)
{
	work_drop(&node->work);
	free(node->before);
	node->before = NULL;
	handle_kill(node);
}

void graph_drop(struct graph *graph)
{
	for (struct node *node = graph->nodes; node; node = node->next) {
		if (node->work.type == WORK_ALLOC && !graph->original) {
			struct memory *memory = memory_find(node->work.alloc.params.dptr);

			/* what a launch left allocated lives on; it is freed by the program */
			if (memory && memory->kind == MEMORY_GRAPH && memory->freed) {
				arena_give(memory->device, memory->base, memory->size);
				memory_remove(memory);
			}
		}
		node_drop(node);
	}
	handle_kill(graph);
	users_drop(graph);
	free(graph->order);
	graph->order = NULL;
	free(graph->edges);
	graph->edges = NULL;
	graph->edge_count = graph->edge_room = 0;
}

/* The copy of a node in a clone, also inside child graphs. */
struct node *graph_find(struct graph *graph, struct node *original)
{
	for (struct node *node = graph->nodes; node; node = node->next) {
		struct node *inner;

		if (node->original == original)
			return node;
		if (node->work.type != WORK_CHILD)
			continue;
		inner = graph_find(node->work.child.graph, original);
		if (inner)
			return inner;
	}
	return NULL;
}

/* Nodes in an order that keeps all edges; the caller frees it. */
CUresult graph_order(struct graph *graph, struct node ***order)
{
	unsigned int *blockers = xalloc((graph->count + 1) * sizeof(*blockers));
	struct node **list = xalloc((graph->count + 1) * sizeof(*list));
	size_t n = 0, index = 0;

	for (struct node *node = graph->nodes; node; node = node->next)
		node->index = (unsigned int)index++;
	for (size_t i = 0; i < graph->edge_count; i++)
		blockers[graph->edges[i].to->index]++;
	for (struct node *node = graph->nodes; node; node = node->next)
		if (!blockers[node->index])
			list[n++] = node;
	for (size_t at = 0; at < n; at++)
		for (size_t i = 0; i < graph->edge_count; i++)
			if (graph->edges[i].from == list[at] && !--blockers[graph->edges[i].to->index])
				list[n++] = graph->edges[i].to;
	free(blockers);
	if (n != graph->count) {
		free(list);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*order = list;
	return CUDA_SUCCESS;
}

API(cuGraphCreate, CUgraph *, handle, unsigned int, flags)
{
	if (!handle || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = (CUgraph)graph_new();
	return CUDA_SUCCESS;
}

API(cuGraphDestroy, CUgraph, handle)
{
	struct graph *graph;

	TRY(graph_of(handle, &graph));
	if (graph->owner || graph->capturing)
		return CUDA_ERROR_INVALID_VALUE;
	graph_drop(graph);
	return CUDA_SUCCESS;
}

API(cuGraphClone, CUgraph *, handle, CUgraph, from)
{
	struct graph *graph;

	TRY(graph_of(from, &graph));
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (graph->memory_nodes || graph->conditions)
		return CUDA_ERROR_NOT_SUPPORTED;
	*handle = (CUgraph)graph_clone(graph);
	return CUDA_SUCCESS;
}

API(cuGraphNodeFindInClone, CUgraphNode *, handle, CUgraphNode, original, CUgraph, in)
{
	struct graph *graph;
	struct node *node;

	TRY(graph_of(in, &graph));
	TRY(node_of(original, &node));
	if (!handle || !graph->original)
		return CUDA_ERROR_INVALID_VALUE;
	/* not inside child graphs: those are clones of their own */
	for (struct node *copy = graph->nodes; copy; copy = copy->next) {
		if (copy->original == node) {
			*handle = (CUgraphNode)copy;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphGetNodes, CUgraph, handle, CUgraphNode *, nodes, size_t *, count)
{
	struct graph *graph;
	size_t n = 0;

	TRY(graph_of(handle, &graph));
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	if (!nodes) {
		*count = graph->count;
		return CUDA_SUCCESS;
	}
	for (struct node *node = graph->nodes; node && n < *count; node = node->next)
		nodes[n++] = (CUgraphNode)node;
	for (size_t i = n; i < *count; i++)
		nodes[i] = NULL;
	*count = n;
	return CUDA_SUCCESS;
}

API(cuGraphGetRootNodes, CUgraph, handle, CUgraphNode *, nodes, size_t *, count)
{
	struct graph *graph;
	size_t n = 0;

	TRY(graph_of(handle, &graph));
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	for (struct node *node = graph->nodes; node; node = node->next) {
		bool root = true;

		for (size_t i = 0; i < graph->edge_count; i++)
			root = root && graph->edges[i].to != node;
		if (!root)
			continue;
		if (nodes && n < *count)
			nodes[n] = (CUgraphNode)node;
		n++;
	}
	if (!nodes || n < *count)
		*count = n;
	return CUDA_SUCCESS;
}

static CUresult get_edges(struct graph *graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
	size_t n = 0;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < graph->edge_count; i++, n++) {
		if (!from || !to || n >= *count)
			continue;
		from[n] = (CUgraphNode)graph->edges[i].from;
		to[n] = (CUgraphNode)graph->edges[i].to;
		if (data)
			data[n] = graph->edges[i].data;
	}
	if (!from || !to || n < *count)
		*count = n;
	return CUDA_SUCCESS;
}

API(cuGraphGetEdges, CUgraph, handle, CUgraphNode *, from, CUgraphNode *, to, size_t *, count)
{
	struct graph *graph;

	TRY(graph_of(handle, &graph));
	return get_edges(graph, from, to, NULL, count);
}

API(cuGraphGetEdges_v2, CUgraph, handle, CUgraphNode *, from, CUgraphNode *, to,
    CUgraphEdgeData *, data, size_t *, count)
{
	struct graph *graph;

	TRY(graph_of(handle, &graph));
	return get_edges(graph, from, to, data, count);
}

static CUresult neighbours(CUgraphNode handle, bool before, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	struct node *node;
	size_t n = 0;

	TRY(node_of(handle, &node));
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < node->graph->edge_count; i++) {
		const struct edge *edge = &node->graph->edges[i];

		if ((before ? edge->to : edge->from) != node)
			continue;
		if (nodes && n < *count) {
			nodes[n] = (CUgraphNode)(before ? edge->from : edge->to);
			if (data)
				data[n] = edge->data;
		}
		n++;
	}
	if (!nodes || n < *count)
		*count = n;
	return CUDA_SUCCESS;
}

API(cuGraphNodeGetDependencies, CUgraphNode, node, CUgraphNode *, nodes, size_t *, count)
{
	return neighbours(node, true, nodes, NULL, count);
}

API(cuGraphNodeGetDependencies_v2, CUgraphNode, node, CUgraphNode *, nodes, CUgraphEdgeData *, data, size_t *, count)
{
	return neighbours(node, true, nodes, data, count);
}

API(cuGraphNodeGetDependentNodes, CUgraphNode, node, CUgraphNode *, nodes, size_t *, count)
{
	return neighbours(node, false, nodes, NULL, count);
}

API(cuGraphNodeGetDependentNodes_v2, CUgraphNode, node, CUgraphNode *, nodes, CUgraphEdgeData *, data, size_t *, count)
{
	return neighbours(node, false, nodes, data, count);
}

static CUresult add_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
			  size_t count)
{
	struct node *a, *b, **order;
	struct graph *graph;

	TRY(graph_of(handle, &graph));
	for (size_t i = 0; i < count; i++) {
		TRY(node_of(from[i], &a));
		TRY(node_of(to[i], &b));
		TRY(graph_edge(graph, a, b, data ? &data[i] : NULL));
		if (graph_order(graph, &order)) {
			graph->edge_count--;
			return CUDA_ERROR_INVALID_VALUE;
		}
		free(order);
	}
	return CUDA_SUCCESS;
}

API(cuGraphAddDependencies, CUgraph, handle, const CUgraphNode *, from, const CUgraphNode *, to, size_t, count)
{
	return add_edges(handle, from, to, NULL, count);
}

API(cuGraphAddDependencies_v2, CUgraph, handle, const CUgraphNode *, from, const CUgraphNode *, to,
    const CUgraphEdgeData *, data, size_t, count)
{
	return add_edges(handle, from, to, data, count);
}

static CUresult remove_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	struct graph *graph;

	TRY(graph_of(handle, &graph));
	for (size_t k = 0; k < count; k++) {
		size_t i = 0;

		while (i < graph->edge_count && ((CUgraphNode)graph->edges[i].from != from[k] ||
						 (CUgraphNode)graph->edges[i].to != to[k]))
			i++;
		if (i == graph->edge_count)
			return CUDA_ERROR_INVALID_VALUE;
		memmove(graph->edges + i, graph->edges + i + 1, (--graph->edge_count - i) * sizeof(*graph->edges));
	}
	return CUDA_SUCCESS;
}

API(cuGraphRemoveDependencies, CUgraph, handle, const CUgraphNode *, from, const CUgraphNode *, to, size_t, count)
{
	return remove_edges(handle, from, to, count);
}

API(cuGraphRemoveDependencies_v2, CUgraph, handle, const CUgraphNode *, from, const CUgraphNode *, to,
    const CUgraphEdgeData *, data, size_t, count)
{
	(void)data;
	return remove_edges(handle, from, to, count);
}

API(cuGraphDestroyNode, CUgraphNode, handle)
{
	struct node *node, **at;
	struct graph *graph;
	size_t kept = 0;

	TRY(node_of(handle, &node));
	graph = node->graph;
	if (node->work.type == WORK_ALLOC || node->work.type == WORK_FREE)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < graph->edge_count; i++)
		if (graph->edges[i].from != node && graph->edges[i].to != node)
			graph->edges[kept++] = graph->edges[i];
	graph->edge_count = kept;
	for (at = &graph->nodes; *at != node; at = &(*at)->next)
		;
	*at = node->next;
	if (graph->tail == &node->next)
		graph->tail = at;
	graph->count--;
	node_drop(node);
	return CUDA_SUCCESS;
}

API(cuGraphDebugDotPrint, CUgraph, handle, const char *, path, unsigned int, flags)
{
	struct graph *graph;
	FILE *file;

	(void)flags;
	TRY(graph_of(handle, &graph));
	file = path ? fopen(path, "we") : NULL;
	if (!file)
		return CUDA_ERROR_OPERATING_SYSTEM;
	fprintf(file, "digraph graph_%u {\n", graph->object.id);
	for (struct node *node = graph->nodes; node; node = node->next)
		fprintf(file, "  n%u [label=\"%s\"];\n", node->object.id,
			node->work.type == WORK_KERNEL ? node->work.kernel.kernel->name : "");
	for (size_t i = 0; i < graph->edge_count; i++)
		fprintf(file, "  n%u -> n%u;\n", graph->edges[i].from->object.id, graph->edges[i].to->object.id);
	fprintf(file, "}\n");
	fclose(file);
	return CUDA_SUCCESS;
}
