// SPDX-License-Identifier: Apache-2.0
/* Stream capture: forks and joins by events, modes, and what spoils a capture. */
#include "api.h"

static struct capture *captures;
static unsigned long long next_id;

static bool alive(const struct capture *capture)
{
	return capture && capture->status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult capture_spoil(struct capture *capture, CUresult reason)
{
	if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
	capture->reason = reason;
	return reason;
}

/* A call that may wait for, or be ordered with, work of other threads: the capture modes say when it is refused. */
CUresult check_capture_safe(void)
{
	if (self.mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct capture *capture = captures; capture; capture = capture->next) {
		bool mine = pthread_equal(capture->thread, pthread_self());

		if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			continue;
		if (!mine && (self.mode != CU_STREAM_CAPTURE_MODE_GLOBAL ||
			      capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL))
			continue;
		capture_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return CUDA_SUCCESS;
}

/* A wait for a whole context, in which something is being captured. */
static CUresult forbid(const struct context *context, bool group)
{
	CUresult result = CUDA_SUCCESS;

	for (struct capture *capture = captures; capture; capture = capture->next) {
		if (group ? capture->context->group != context->group : capture->context != context)
			continue;
		capture_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

CUresult capture_forbid(struct context *context)
{
	return forbid(context, true);
}

CUresult capture_forbid_in(struct context *context)
{
	return forbid(context, context->primary);
}

/* Work on the legacy stream would have to wait for a blocking stream that captures. */
CUresult capture_implicit(struct context *context)
{
	for (struct stream *stream = context->streams; stream; stream = stream->next) {
		if (!stream->capture || stream->flags & CU_STREAM_NON_BLOCKING)
			continue;
		capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	return CUDA_SUCCESS;
}

static void frontier_set(struct stream *stream, struct node *const *nodes, size_t count)
{
	struct node **copy = xalloc((count + 1) * sizeof(*copy));

	if (count)
		memcpy(copy, nodes, count * sizeof(*copy));
	free(stream->frontier);
	stream->frontier = copy;
	stream->frontier_count = count;
}

static void frontier_add(struct stream *stream, struct node *node)
{
	for (size_t i = 0; i < stream->frontier_count; i++)
		if (stream->frontier[i] == node)
			return;
	stream->frontier = xrealloc(stream->frontier, (stream->frontier_count + 1) * sizeof(node));
	stream->frontier[stream->frontier_count++] = node;
}

CUresult capture_add(struct stream *stream, struct work *work)
{
	struct capture *capture = stream->capture;
	struct node *node;

	if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		work_drop(work);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	node = graph_add(capture->graph, work);
	for (size_t i = 0; i < stream->frontier_count; i++)
		graph_edge(capture->graph, stream->frontier[i], node, NULL);
	frontier_set(stream, &node, 1);
	return CUDA_SUCCESS;
}

CUresult capture_record(struct stream *stream, struct event *event, bool external)
{
	struct capture *capture = stream->capture;

	if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (external) {
		struct work work = { .type = WORK_EVENT_RECORD, .event = { event } };

		return capture_add(stream, &work);
	}
	event->capture = capture;
	free(event->captured);
	event->captured = xalloc((stream->frontier_count + 1) * sizeof(*event->captured));
	memcpy(event->captured, stream->frontier, stream->frontier_count * sizeof(*event->captured));
	event->captured_count = stream->frontier_count;
	return CUDA_SUCCESS;
}

CUresult capture_wait(struct stream *stream, struct event *event)
{
	struct capture *capture = event->capture;

	if (!alive(capture))
		return CUDA_ERROR_CAPTURED_EVENT;
	if (stream->kind == STREAM_LEGACY)
		return capture_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (stream->capture && stream->capture != capture) {
		capture_spoil(stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
		return capture_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	}
	if (!stream->capture) {
		stream->capture = capture;
		frontier_set(stream, event->captured, event->captured_count);
		return CUDA_SUCCESS;
	}
	for (size_t i = 0; i < event->captured_count; i++)
		frontier_add(stream, event->captured[i]);
	return CUDA_SUCCESS;
}

static CUresult begin(struct stream *stream, CUstreamCaptureMode mode, struct graph *graph)
{
	struct capture *capture;

	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->kind == STREAM_LEGACY)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = xalloc(sizeof(*capture));
	capture->own_graph = !graph;
	capture->graph = graph ? graph : graph_new();
	capture->graph->capturing = true;
	capture->origin = stream;
	capture->mode = mode;
	capture->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	capture->thread = pthread_self();
	capture->id = ++next_id;
	capture->context = stream->context;
	capture->next = captures;
	captures = capture;
	stream->capture = capture;
	frontier_set(stream, NULL, 0);
	return CUDA_SUCCESS;
}

STREAM(cuStreamBeginCapture_v2, CUstream, handle, CUstreamCaptureMode, mode)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	return begin(stream, mode, NULL);
}

STREAM(cuStreamBeginCapture, CUstream, handle)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL);
}

STREAM(cuStreamBeginCaptureToGraph, CUstream, handle, CUgraph, into, const CUgraphNode *, nodes,
       const CUgraphEdgeData *, data, size_t, count, CUstreamCaptureMode, mode)
{
	struct stream *stream;
	struct graph *graph;
	struct node *node;

	(void)data;
	TRY(stream_of(handle, per_thread, &stream));
	TRY(graph_of(into, &graph));
	for (size_t i = 0; i < count; i++)
		TRY(node_of(nodes[i], &node));
	TRY(begin(stream, mode, graph));
	frontier_set(stream, (struct node *const *)nodes, count);
	return CUDA_SUCCESS;
}

/* From which nodes a path leads to one of the origin's last nodes, by index; the caller frees it. */
static bool *joined(const struct graph *graph, const struct stream *origin)
{
	bool *reach = xalloc((graph->count + 1) * sizeof(*reach)), more = true;
	unsigned int n = 0;

	for (struct node *node = graph->nodes; node; node = node->next)
		node->index = n++;
	for (size_t i = 0; i < origin->frontier_count; i++)
		reach[origin->frontier[i]->index] = true;
	while (more) {
		more = false;
		for (size_t i = graph->edge_count; i-- > 0;) {
			const struct edge *edge = &graph->edges[i];

			if (!reach[edge->to->index] || reach[edge->from->index])
				continue;
			reach[edge->from->index] = true;
			more = true;
		}
	}
	return reach;
}

static void leave(struct capture *capture, CUresult *result)
{
	bool *reach = joined(capture->graph, capture->origin);

	for (struct context *context = contexts; context; context = context->next) {
		for (struct stream *stream = context->streams; stream; stream = stream->next) {
			if (stream->capture != capture)
				continue;
			for (size_t i = 0; i < stream->frontier_count && stream != capture->origin; i++)
				if (!*result && !reach[stream->frontier[i]->index])
					*result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
			if (stream != capture->origin)
				stream->capture = NULL;
		}
	}
	capture->origin->capture = NULL;
	free(reach);
}

STREAM(cuStreamEndCapture, CUstream, handle, CUgraph *, graph)
{
	struct capture *capture, **at;
	struct stream *stream;
	CUresult result = CUDA_SUCCESS;

	TRY(stream_of(handle, per_thread, &stream));
	capture = stream->capture;
	if (graph)
		*graph = NULL;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (stream != capture->origin) {
		capture_spoil(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (capture->status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	leave(capture, &result);
	capture->status = CU_STREAM_CAPTURE_STATUS_NONE;
	capture->graph->capturing = false;
	for (at = &captures; *at != capture; at = &(*at)->next)
		;
	*at = capture->next;
	if (result && capture->own_graph)
		graph_drop(capture->graph);
	else if (!result && graph)
		*graph = (CUgraph)capture->graph;
	return result;
}

STREAM(cuStreamIsCapturing, CUstream, handle, CUstreamCaptureStatus *, status)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	if (stream->kind == STREAM_LEGACY && !stream->capture)
		TRY(capture_implicit(stream->context));
	*status = stream->capture ? stream->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

static CUresult info(CUstream handle, bool per_thread, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
		     const CUgraphNode **nodes, size_t *count)
{
	struct stream *stream;

	TRY(stream_of(handle, per_thread, &stream));
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->kind == STREAM_LEGACY)
		TRY(capture_implicit(stream->context));
	*status = stream->capture ? stream->capture->status : CU_STREAM_CAPTURE_STATUS_NONE;
	if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_SUCCESS;
	if (id)
		*id = stream->capture->id;
	if (graph)
		*graph = (CUgraph)stream->capture->graph;
	if (nodes)
		*nodes = (const CUgraphNode *)stream->frontier;
	if (count)
		*count = stream->frontier_count;
	return CUDA_SUCCESS;
}

STREAM(cuStreamGetCaptureInfo, CUstream, stream, CUstreamCaptureStatus *, status, cuuint64_t *, id)
{
	return info(stream, per_thread, status, id, NULL, NULL, NULL);
}

STREAM(cuStreamGetCaptureInfo_v2, CUstream, stream, CUstreamCaptureStatus *, status, cuuint64_t *, id, CUgraph *, graph,
       const CUgraphNode **, nodes, size_t *, count)
{
	return info(stream, per_thread, status, id, graph, nodes, count);
}

STREAM(cuStreamGetCaptureInfo_v3, CUstream, stream, CUstreamCaptureStatus *, status, cuuint64_t *, id, CUgraph *, graph,
       const CUgraphNode **, nodes, const CUgraphEdgeData **, edges, size_t *, count)
{
	if (edges)
		*edges = NULL;
	return info(stream, per_thread, status, id, graph, nodes, count);
}

static CUresult depend(CUstream handle, bool per_thread, CUgraphNode *nodes, size_t count, unsigned int flags)
{
	struct stream *stream;
	struct node *node;

	TRY(stream_of(handle, per_thread, &stream));
	if (!stream->capture || stream->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		TRY(node_of(nodes[i], &node));
		if (node->graph != stream->capture->graph)
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		frontier_set(stream, NULL, 0);
	for (size_t i = 0; i < count; i++)
		frontier_add(stream, (struct node *)nodes[i]);
	return CUDA_SUCCESS;
}

STREAM(cuStreamUpdateCaptureDependencies, CUstream, stream, CUgraphNode *, nodes, size_t, count, unsigned int, flags)
{
	return depend(stream, per_thread, nodes, count, flags);
}

STREAM(cuStreamUpdateCaptureDependencies_v2, CUstream, stream, CUgraphNode *, nodes, const CUgraphEdgeData *, edges,
       size_t, count, unsigned int, flags)
{
	(void)edges;
	return depend(stream, per_thread, nodes, count, flags);
}

API(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode *, mode)
{
	CUstreamCaptureMode old = self.mode;

	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	self.mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
