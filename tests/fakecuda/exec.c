// SPDX-License-Identifier: Apache-2.0
/* Executable graphs: a private copy of the nodes; a launch turns them into ops. Each node keeps its context. */
#include "api.h"

CUresult exec_of(CUgraphExec handle, struct exec **exec)
{
	*exec = handle_get(handle, OBJECT_EXEC);
	return *exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void link_nodes(struct graph *graph)
{
	for (struct node *node = graph->nodes; node; node = node->next) {
		free(node->before);
		node->before = NULL;
		node->before_count = 0;
		node->followed = false;
	}
	for (size_t i = 0; i < graph->edge_count; i++) {
		struct node *node = graph->edges[i].to;

		node->before = xrealloc(node->before, (node->before_count + 1) * sizeof(node));
		node->before[node->before_count++] = graph->edges[i].from;
		graph->edges[i].from->followed = true;
	}
}

/* Each chain of nodes is one actor: nodes that no path orders must not look ordered. */
static void give_actors(struct graph *graph)
{
	bool *taken = xalloc((graph->count + 1) * sizeof(*taken));

	for (size_t i = 0; i < graph->count; i++) {
		struct node *node = graph->order[i], *before = NULL;

		for (size_t k = 0; k < node->before_count && !before; k++)
			if (!taken[node->before[k]->index])
				before = node->before[k];
		if (before) {
			taken[before->index] = true;
			node->actor = before->actor;
		} else {
			node->actor = actor_new();
		}
	}
	free(taken);
}

static CUresult prepare(struct graph *graph)
{
	free(graph->order);
	graph->order = NULL;
	TRY(graph_order(graph, &graph->order));
	link_nodes(graph);
	give_actors(graph);
	for (struct node *node = graph->nodes; node; node = node->next) {
		if (node->work.type == WORK_CHILD)
			TRY(prepare(node->work.child.graph));
		if (node->work.type == WORK_KERNEL)
			TRY(launch_check(&node->work.kernel));
		for (unsigned int i = 0; node->work.type == WORK_CONDITIONAL && i < 2; i++)
			if (node->work.conditional.body[i])
				TRY(prepare(node->work.conditional.body[i]));
	}
	return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *handle, CUgraph from, unsigned long long flags)
{
	struct context *context;
	struct graph *graph;
	struct exec *exec;
	CUresult result;

	TRY(context_current(&context));
	TRY(graph_of(from, &graph));
	if (!handle || flags & ~15ULL)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check_capture_safe());
	if (graph->executables && graph->conditions)
		return CUDA_ERROR_INVALID_VALUE;
	if (graph->executables && graph->memory_nodes)
		return CUDA_ERROR_NOT_SUPPORTED;
	exec = xalloc(sizeof(*exec));
	exec->graph = graph_clone(graph);
	exec->graph->owner = exec->graph;
	exec->flags = flags;
	exec->context = context;
	result = prepare(exec->graph);
	take_time("FAKECUDA_GRAPH_US");
	if (result) {
		graph_drop(exec->graph);
		free(exec);
		return result;
	}
	graph->executables++;
	exec->source = graph;
	handle_add(exec, OBJECT_EXEC);
	*handle = (CUgraphExec)exec;
	return CUDA_SUCCESS;
}

API(cuGraphInstantiateWithFlags, CUgraphExec *, handle, CUgraph, graph, unsigned long long, flags)
{
	return instantiate(handle, graph, flags);
}

API(cuGraphInstantiate_v2, CUgraphExec *, handle, CUgraph, graph, CUgraphNode *, node, char *, log, size_t, size)
{
	if (node)
		*node = NULL;
	if (log && size)
		*log = 0;
	return instantiate(handle, graph, 0);
}

SAME(cuGraphInstantiate, cuGraphInstantiate_v2, CUgraphExec *, handle, CUgraph, graph, CUgraphNode *, node, char *, log,
     size_t, size)

STREAM(cuGraphInstantiateWithParams, CUgraphExec *, handle, CUgraph, graph, CUDA_GRAPH_INSTANTIATE_PARAMS *, params)
{
	CUresult result;
	struct stream *stream;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		TRY(stream_of(params->hUploadStream, per_thread, &stream));
	result = instantiate(handle, graph, params->flags);
	params->hErrNode_out = NULL;
	params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return result;
}

API(cuGraphExecGetFlags, CUgraphExec, handle, cuuint64_t *, flags)
{
	struct exec *exec;

	TRY(exec_of(handle, &exec));
	*flags = exec->flags;
	return CUDA_SUCCESS;
}

API(cuGraphExecDestroy, CUgraphExec, handle)
{
	struct exec *exec;

	TRY(exec_of(handle, &exec));
	TRY(check_capture_safe());
	handle_kill(exec);
	exec->source->executables--;
	graph_drop(exec->graph);
	op_put(exec->last);
	exec->last = NULL;
	return CUDA_SUCCESS;
}

STREAM(cuGraphUpload, CUgraphExec, handle, CUstream, to)
{
	struct work work = { .type = WORK_EMPTY };
	struct stream *stream;
	struct exec *exec;

	TRY(exec_of(handle, &exec));
	TRY(stream_of(to, per_thread, &stream));
	return stream_issue(stream, &work, NULL);
}

static struct context *context_for(const struct work *work, struct context *otherwise)
{
	struct context *context = NULL;

	if (work->type == WORK_KERNEL)
		context = work->kernel.context;
	else if (work->type == WORK_SET)
		context = work->set.context;
	else if (work->type == WORK_COPY)
		context = work->copy.context;
	return context ? context : otherwise;
}

struct expansion {
	struct exec *exec;
	struct stream *stream;
	struct context *context;
	struct clock *submitted;	/* of ops made while the graph runs */
};

static void submit(const struct expansion *how, struct op *op)
{
	if (how->submitted)
		op->submitted = clock_get(how->submitted);
	op_submit(op);
}

static struct op *expand(const struct expansion *how, struct graph *graph, struct op *begin);

static struct op *join_of(const struct expansion *how, unsigned int actor)
{
	struct op *op = op_new(how->context, WORK_JOIN);

	op->stream = how->stream;
	op->actor = actor;
	op->exec = how->exec;
	return op;
}

static struct op *expand_node(const struct expansion *how, struct node *node, struct op *begin)
{
	struct op *op = op_new(context_for(&node->work, how->context), WORK_EMPTY);
	op->stream = how->stream;
	op->actor = node->actor;
	op->exec = how->exec;
	for (size_t i = 0; i < node->before_count; i++)
		op_follow(op, node->before[i]->op);
	if (!node->before_count)
		op_follow(op, begin);
	if (node->disabled || node->work.type == WORK_CHILD)
		op->work.type = WORK_EMPTY;
	else
		work_copy(&op->work, &node->work);
	if (op->work.type == WORK_KERNEL && op->work.kernel.cooperative && !fits_resident(&op->work.kernel))
		violation("graph: cooperative kernel %s does not fit on %u SMs: the device hangs",
			  op->work.kernel.kernel->name, sms_count(&op->work.kernel.context->sms));
	if (op->work.type == WORK_EVENT_WAIT)
		op_follow(op, node->work.event.event->record);
	if (op->work.type == WORK_EVENT_RECORD) {
		op_put(node->work.event.event->record);
		node->work.event.event->record = op_get(op);
		node->work.event.event->capture = NULL;
	}
	op_get(op);
	if (op->work.type == WORK_CONDITIONAL) {
		struct op *join = join_of(how, node->actor);

		op->join = op_get(join);
		op_follow(join, op);
		submit(how, op);
		op_put(op);
		op_get(join);
		submit(how, join);
		return join;
	}
	submit(how, op);
	if (node->work.type == WORK_CHILD && !node->disabled) {
		struct op *end = expand(how, node->work.child.graph, op);

		op_put(op);
		return end;
	}
	return op;
}

/* All ops of a graph behind `begin`; returns a referenced op behind all of them. */
static struct op *expand(const struct expansion *how, struct graph *graph, struct op *begin)
{
	struct op *end = join_of(how, begin->actor);
	struct node **order = graph->order;

	op_follow(end, begin);
	for (size_t i = 0; i < graph->count; i++) {
		order[i]->op = expand_node(how, order[i], begin);
		if (!order[i]->followed)
			op_follow(end, order[i]->op);
	}
	for (size_t i = 0; i < graph->count; i++) {
		op_put(order[i]->op);
		order[i]->op = NULL;
	}
	op_get(end);
	submit(how, end);
	return end;
}

/* A conditional node's turn: its body goes between it and its join. */
void conditional_expand(struct op *op)
{
	const CUDA_CONDITIONAL_NODE_PARAMS *params = &op->work.conditional.params;
	struct expansion how = { op->exec, op->stream, op->context, op->clock };
	unsigned int value = condition_value(params->handle);
	struct graph *body = op->work.conditional.body[0];
	struct op *end;

	if (params->type == CU_GRAPH_COND_TYPE_IF && !value)
		body = params->size > 1 ? op->work.conditional.body[1] : NULL;
	else if (!value)
		body = NULL;
	if (body) {
		if (!body->order)
			prepare(body);
		end = expand(&how, body, op);
		if (params->type == CU_GRAPH_COND_TYPE_WHILE) {
			struct op *again = op_new(op->context, WORK_EMPTY);

			again->stream = op->stream;
			again->actor = op->actor;
			again->exec = op->exec;
			work_copy(&again->work, &op->work);
			again->join = op_get(op->join);
			op_follow(again, end);
			op_follow(op->join, again);
			submit(&how, again);
		} else {
			op_follow(op->join, end);
		}
		op_put(end);
	}
	op_put(op->join);
	op->join = NULL;
}

static void reset_conditions(struct graph *graph)
{
	for (struct node *node = graph->nodes; node; node = node->next)
		if (node->work.type == WORK_CONDITIONAL)
			condition_reset(node->work.conditional.params.handle);
}

CUresult exec_launch(struct exec *exec, struct stream *stream)
{
	struct expansion how = { exec, stream, stream->context, NULL };
	struct op *begin, *end;

	if (stream->kind == STREAM_LEGACY)
		TRY(capture_implicit(stream->context));
	begin = op_new(stream->context, WORK_JOIN);
	begin->stream = stream;
	begin->actor = stream->actor;
	begin->exec = exec;
	stream_depend(stream, begin);
	op_follow(begin, exec->last);
	op_get(begin);
	op_submit(begin);
	reset_conditions(exec->graph);
	end = expand(&how, exec->graph, begin);
	op_put(begin);
	op_put(stream->last);
	stream->last = op_get(end);
	op_put(exec->last);
	exec->last = end;
	return CUDA_SUCCESS;
}

STREAM(cuGraphLaunch, CUgraphExec, handle, CUstream, to)
{
	struct stream *stream;
	struct exec *exec;

	TRY(exec_of(handle, &exec));
	TRY(stream_of(to, per_thread, &stream));
	if (stream->capture) {
		struct work work = { .type = WORK_CHILD, .child = { graph_clone(exec->graph) } };

		return capture_add(stream, &work);
	}
	if (exec->context->group != stream->context->group)
		return CUDA_ERROR_INVALID_VALUE;
	return exec_launch(exec, stream);
}
