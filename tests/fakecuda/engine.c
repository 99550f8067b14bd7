// SPDX-License-Identifier: Apache-2.0
/*
 * One thread runs all ops. Virtual time of an op: it starts at the latest end of those before it, not before it was
 * submitted, and ends after its duration. FAKECUDA_CLOCK=real (default): virtual time follows CLOCK_MONOTONIC, an op is
 * done when its end has come. virtual: time passes only in ops, each is done as soon as its turn comes.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include "fake.h"

#define POLL_NS 20000

static pthread_cond_t work_cond, done_cond, host_cond = PTHREAD_COND_INITIALIZER;
static bool asleep, virtual_clock;
static unsigned int waiters;
static unsigned long long last_seq;
static struct op *pending, *pending_tail, *polling;
static struct op **heap, **ready, **host_queue;
static size_t heap_count, heap_room, ready_count, ready_room, ready_next, host_count, host_room, host_next;
static size_t pending_count;
static uint64_t origin, host_time;

bool clock_is_virtual(void)
{
	return virtual_clock;
}

static uint64_t monotonic(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void)
{
	return virtual_clock ? host_time : monotonic() - origin;
}

struct op *op_get(struct op *op)
{
	if (op)
		op->refs++;
	return op;
}

void op_put(struct op *op)
{
	if (!op || --op->refs)
		return;
	for (size_t i = 0; i < op->before_count; i++)
		op_put(op->before[i]);
	work_drop(&op->work);
	clock_put(op->submitted);
	clock_put(op->clock);
	free(op->before);
	free(op->after);
	free(op);
}

struct op *op_new(struct context *context, enum work_type type)
{
	struct op *op = xalloc(sizeof(*op));

	op->refs = 1;
	op->context = context;
	op->work.type = type;
	return op;
}

static void push(struct op ***list, size_t *count, size_t *room, struct op *op)
{
	if (*count == *room) {
		*room = *room ? 2 * *room : 8;
		*list = xrealloc(*list, *room * sizeof(op));
	}
	(*list)[(*count)++] = op;
}

void op_follow(struct op *op, struct op *before)
{
	if (!before || before == op)
		return;
	for (size_t i = 0; i < op->before_count; i++)
		if (op->before[i] == before)
			return;
	push(&op->before, &op->before_count, &op->before_room, op_get(before));
	if (before->state == OP_DONE)
		return;
	push(&before->after, &before->after_count, &before->after_room, op_get(op));
	op->blockers++;
}

static bool earlier(const struct op *a, const struct op *b)
{
	return a->end_ns != b->end_ns ? a->end_ns < b->end_ns : a->seq < b->seq;
}

static void heap_push(struct op *op)
{
	size_t at = heap_count;

	push(&heap, &heap_count, &heap_room, op);
	while (at && earlier(op, heap[(at - 1) / 2])) {
		heap[at] = heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap[at] = op;
}

static struct op *heap_pop(void)
{
	struct op *top = heap[0], *last = heap[--heap_count];
	size_t at = 0;

	while (heap_count) {
		size_t child = 2 * at + 1;

		if (child >= heap_count)
			break;
		if (child + 1 < heap_count && earlier(heap[child + 1], heap[child]))
			child++;
		if (!earlier(heap[child], last))
			break;
		heap[at] = heap[child];
		at = child;
	}
	if (heap_count)
		heap[at] = last;
	return top;
}

static void make_ready(struct op *op)
{
	op->state = OP_READY;
	push(&ready, &ready_count, &ready_room, op);
}

void engine_kick(void)
{
	if (asleep) {
		asleep = false;
		pthread_cond_signal(&work_cond);
	}
}

/* Takes over the caller's reference. */
void op_submit(struct op *op)
{
	op->seq = ++last_seq;
	op->label = op_label(op);
	if (!op->submitted)
		op->submitted = host_clock();
	op->submitted = clock_join(op->submitted, context_over);
	op->submit_ns = now_ns();
	op->prev_pending = pending_tail;
	if (pending_tail)
		pending_tail->next_pending = op;
	else
		pending = op;
	pending_tail = op;
	pending_count++;
	if (!op->blockers) {
		make_ready(op);
		engine_kick();
	}
}

void op_complete(struct op *op)
{
	op->state = OP_DONE;
	trace_op(op);
	if (op->prev_pending)
		op->prev_pending->next_pending = op->next_pending;
	else
		pending = op->next_pending;
	if (op->next_pending)
		op->next_pending->prev_pending = op->prev_pending;
	else
		pending_tail = op->prev_pending;
	pending_count--;
	for (size_t i = 0; i < op->after_count; i++) {
		struct op *next = op->after[i];

		if (!--next->blockers && next->seq)
			make_ready(next);
		op_put(next);
	}
	op->after_count = 0;
	work_drop(&op->work);
	if (waiters)
		pthread_cond_broadcast(&done_cond);
	op_put(op);
}

static void start(struct op *op)
{
	op->clock = clock_get(op->submitted);
	op->start_ns = op->submit_ns;
	for (size_t i = 0; i < op->before_count; i++) {
		struct op *before = op->before[i];

		op->clock = clock_join(op->clock, before->clock);
		if (before->end_ns > op->start_ns)
			op->start_ns = before->end_ns;
		op_put(before);
	}
	op->before_count = 0;
	op->clock = clock_tick(op->clock, op->actor);
	op->end_ns = op->start_ns;
	switch (op->work.type) {
	case WORK_HOST:
	case WORK_CALLBACK:
		op->state = OP_HOST;
		push(&host_queue, &host_count, &host_room, op);
		pthread_cond_signal(&host_cond);
		return;
	case WORK_MEM_OPS:
		op->state = OP_POLLING;
		op->next_poll = polling;
		polling = op;
		return;
	default:
		op->state = OP_RUNNING;
		op->end_ns = op->start_ns + op_duration(op);
		heap_push(op);
	}
}

/* Waits and resident kernels: true if one of them ended. */
static bool poll_all(void)
{
	bool moved = false;

	for (struct op **at = &polling; *at;) {
		struct op *op = *at;
		uint64_t now = now_ns();

		if (!op_poll(op)) {
			at = &op->next_poll;
			continue;
		}
		*at = op->next_poll;
		if (!virtual_clock && now > op->end_ns)
			op->end_ns = now;
		op_complete(op);
		moved = true;
	}
	return moved;
}

static bool finish_due(void)
{
	bool moved = false;

	while (heap_count && (virtual_clock || heap[0]->end_ns <= now_ns())) {
		struct op *op = heap_pop();

		if (op->work.type == WORK_KERNEL && !op_poll(op)) {
			op->state = OP_POLLING;
			op->next_poll = polling;
			polling = op;
		} else {
			op_effect(op);
			op_complete(op);
		}
		moved = true;
		if (virtual_clock)
			break;
	}
	return moved;
}

static void sleep_until_due(void)
{
	struct timespec t;
	uint64_t due = UINT64_MAX;

	if (heap_count)
		due = heap[0]->end_ns + origin;
	if (polling && monotonic() + POLL_NS < due)
		due = monotonic() + POLL_NS;
	asleep = true;
	if (due == UINT64_MAX) {
		pthread_cond_wait(&work_cond, &fake_lock);
	} else {
		t.tv_sec = (time_t)(due / 1000000000);
		t.tv_nsec = (long)(due % 1000000000);
		pthread_cond_timedwait(&work_cond, &fake_lock, &t);
	}
	asleep = false;
}

static void *engine(void *unused)
{
	sigset_t all;

	(void)unused;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	prctl(PR_SET_NAME, "fakecuda");
	prctl(PR_SET_TIMERSLACK, 1);
	pthread_mutex_lock(&fake_lock);
	for (;;) {
		bool moved = false;

		while (ready_next < ready_count) {
			start(ready[ready_next++]);
			moved = true;
		}
		ready_next = ready_count = 0;
		moved |= finish_due();
		moved |= poll_all();
		if (!moved)
			sleep_until_due();
	}
	return NULL;
}

static void run_host(struct op *op)
{
	struct work *work = &op->work;

	pthread_mutex_unlock(&fake_lock);
	if (work->type == WORK_HOST)
		work->host.fn(work->host.data);
	else
		work->callback.fn(work->callback.stream, op->context->group->sticky, work->callback.data);
	pthread_mutex_lock(&fake_lock);
}

static void *host_thread(void *unused)
{
	sigset_t all;

	(void)unused;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	prctl(PR_SET_NAME, "fakecuda-host");
	pthread_mutex_lock(&fake_lock);
	self.in_callback = true;
	for (;;) {
		struct op *op;

		while (host_next == host_count) {
			host_next = host_count = 0;
			pthread_cond_wait(&host_cond, &fake_lock);
		}
		op = host_queue[host_next++];
		run_host(op);
		/* what a host function saw may be passed on by the program's own means */
		host_join(op->clock);
		if (!virtual_clock && now_ns() > op->end_ns)
			op->end_ns = now_ns();
		op_complete(op);
		engine_kick();
	}
	return NULL;
}

void engine_start(void)
{
	const char *clock = getenv("FAKECUDA_CLOCK");
	pthread_condattr_t monotonic_clock;
	pthread_t thread;

	virtual_clock = clock && !strcmp(clock, "virtual");
	origin = monotonic();
	pthread_condattr_init(&monotonic_clock);
	pthread_condattr_setclock(&monotonic_clock, CLOCK_MONOTONIC);
	pthread_cond_init(&work_cond, &monotonic_clock);
	pthread_cond_init(&done_cond, &monotonic_clock);
	pthread_create(&thread, NULL, engine, NULL);
	pthread_detach(thread);
	pthread_create(&thread, NULL, host_thread, NULL);
	pthread_detach(thread);
}

CUresult op_wait(struct op *op)
{
	if (!op)
		return CUDA_SUCCESS;
	op_get(op);
	while (op->state != OP_DONE) {
		waiters++;
		pthread_cond_wait(&done_cond, &fake_lock);
		waiters--;
	}
	host_join(op->clock);
	if (op->end_ns > host_time)
		host_time = op->end_ns;
	op_put(op);
	return CUDA_SUCCESS;
}

static struct op *first_of(struct context *group, unsigned long long last)
{
	for (struct op *op = pending; op && op->seq <= last; op = op->next_pending)
		if (!group || op->context->group == group)
			return op;
	return NULL;
}

/* All work submitted so far, of one group of contexts or (NULL) of the process. */
CUresult wait_all(struct context *group)
{
	unsigned long long last = last_seq;
	struct op *op;

	while ((op = first_of(group, last)))
		op_wait(op);
	for (struct context *context = contexts; context; context = context->next) {
		if (group && context->group != group)
			continue;
		for (struct stream *stream = context->streams; stream; stream = stream->next)
			if (stream->last && stream->last->state == OP_DONE)
				host_join(stream->last->clock);
		streams_prune(context);
		if (context->ended)
			host_join(context->ended);
	}
	return CUDA_SUCCESS;
}

bool idle_all(struct context *group)
{
	return !first_of(group, last_seq);
}

__attribute__((visibility("default"))) size_t fakecuda_pending(void)
{
	size_t n;

	pthread_mutex_lock(&fake_lock);
	n = pending_count;
	pthread_mutex_unlock(&fake_lock);
	return n;
}
