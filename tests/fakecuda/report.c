// SPDX-License-Identifier: Apache-2.0
/*
 * Violations and the trace. FAKECUDA_REPORT=FILE appends violations there instead of stderr; a process with violations
 * ends with status 86 unless FAKECUDA_EXIT=0. FAKECUDA_TRACE=FILE: one JSON line per finished op.
 */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "api.h"

#define KEPT 256
#define STATUS 86

static char *texts[KEPT];
static size_t count;
static FILE *trace;
static pid_t owner;

void report_start(void)
{
	const char *path = getenv("FAKECUDA_TRACE");

	owner = getpid();
	if (path && *path)
		trace = fopen(path, "ae");
}

void violation(const char *format, ...)
{
	char text[512];
	const char *path = getenv("FAKECUDA_REPORT");
	va_list list;
	FILE *to = NULL;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (count < KEPT)
		texts[count] = xdup(text);
	count++;
	if (path && *path)
		to = fopen(path, "ae");
	if (to) {
		fprintf(to, "%d %s\n", (int)getpid(), text);
		fclose(to);
	} else if (count <= KEPT) {
		fprintf(stderr, "fakecuda: %s\n", text);
	}
	if (getenv("FAKECUDA_ABORT"))
		abort();
}

static const char *const kinds[] = {
	[WORK_KERNEL] = "kernel", [WORK_COPY] = "copy", [WORK_SET] = "set", [WORK_HOST] = "host",
	[WORK_CALLBACK] = "callback", [WORK_CHILD] = "child", [WORK_EMPTY] = "empty",
	[WORK_EVENT_WAIT] = "wait", [WORK_EVENT_RECORD] = "record", [WORK_ALLOC] = "alloc", [WORK_FREE] = "free",
	[WORK_MEM_OPS] = "memops", [WORK_CONDITIONAL] = "conditional", [WORK_JOIN] = "join",
};

const char *op_label(const struct op *op)
{
	return op->work.type == WORK_KERNEL ? op->work.kernel.kernel->name : kinds[op->work.type];
}

void trace_op(const struct op *op)
{
	int domain = 0;

	if (!trace)
		return;
	if (op->stream)
		memcpy(&domain, &op->stream->domain, sizeof(domain));
	fprintf(trace, "{\"op\":%llu,\"kind\":\"%s\",\"what\":\"%s\",\"stream\":%u,\"priority\":%d,\"domain\":%d,\"context\":%u,"
		"\"green\":%s,\"sms\":%u,\"graph\":%u,\"submit\":%llu,\"start\":%llu,\"end\":%llu}\n", op->seq,
		kinds[op->work.type], op->label, op->stream ? op->stream->object.id : 0,
		op->stream ? op->stream->priority : 0, domain,
		op->context ? op->context->object.id : 0, op->context && op->context->green ? "true" : "false",
		op->context ? sms_count(&op->context->sms) : 0, op->exec ? op->exec->object.id : 0,
		(unsigned long long)op->submit_ns, (unsigned long long)op->start_ns, (unsigned long long)op->end_ns);
	fflush(trace);
}

EXPORT size_t fakecuda_violations(void)
{
	size_t n;

	pthread_mutex_lock(&fake_lock);
	n = count;
	pthread_mutex_unlock(&fake_lock);
	return n;
}

EXPORT const char *fakecuda_violation(size_t index)
{
	return index < KEPT && index < count ? texts[index] : NULL;
}

EXPORT void fakecuda_forget_violations(void)
{
	pthread_mutex_lock(&fake_lock);
	count = 0;
	pthread_mutex_unlock(&fake_lock);
}

__attribute__((destructor)) static void report_end(void)
{
	const char *keep = getenv("FAKECUDA_EXIT");

	/* the driver takes everything down now */
	if (helpers_inside && owner == getpid())
		violation("the process ends while a helper thread is inside the driver");
	if (!count || owner != getpid())
		return;
	fprintf(stderr, "fakecuda: %zu violation%s\n", count, count == 1 ? "" : "s");
	if (keep && !strcmp(keep, "0"))
		return;
	fflush(NULL);
	_exit(STATUS);
}
