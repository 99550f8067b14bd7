// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <errno.h>

#include "helper.h"

#define P(field) nv_ioctl_nvos02_parameters_with_fd__params_##field

static u64 calls, refused, questions;

/* What a call holds while it is under way. */
struct held {
	s32 handles[3];
	u32 count;
	bool pinned[2];
	u32 pins[2];
};

static struct handle *hold(struct held *held, s32 number)
{
	struct handle *handle = handle_get(number);

	if (handle)
		held->handles[held->count++] = number;
	return handle;
}

static void release(struct held *held)
{
	while (held->count)
		handle_put(held->handles[--held->count]);
	for (u32 i = 0; i < 2; i++)
		if (held->pinned[i])
			pin_release(held->pins[i]);
}

static u8 *part(const struct nvf_shape *shape, u8 *data, u32 index)
{
	return data + nvf_part_at(shape, index);
}

/* Handles become descriptors. What stood there comes back by `was`. */
static int descriptors(const struct nvf_shape *shape, u8 *data, struct held *held, u64 was[2])
{
	for (u32 i = 0; i < shape->fds; i++) {
		u8 *at = part(shape, data, shape->fd[i].in) + shape->fd[i].at;
		struct handle *file;
		u32 fd = UINT32_MAX;

		was[i] = shape->fd[i].width == 8 ? nvf_get64(at, 0) : nvf_get32(at, 0);
		if ((s32)was[i] >= 0) {
			file = hold(held, (s32)was[i]);
			if (!file)
				return -EBADF;
			fd = (u32)file->fd;
		}
		if (shape->fd[i].width == 8)
			nvf_put64(at, 0, fd);
		else
			nvf_put32(at, 0, fd);
	}
	return 0;
}

/* The guest's memory, as an address here. */
static int pinned(const struct nvf_shape *shape, u8 *data, struct held *held, u64 *was)
{
	u64 limit = nvf_get64(data, P(limit));
	void *at;

	if (!shape->pins)
		return 0;
	*was = nvf_get64(data, P(pMemory));
	at = pin_hold((u32)(*was >> 32), (u32)*was, limit + 1);
	if (!at)
		return -EFAULT;
	held->pins[0] = (u32)(*was >> 32);
	held->pinned[0] = true;
	nvf_put64(data, P(pMemory), (u64)(uintptr_t)at);
	nvf_put32(data, nv_ioctl_nvos02_parameters_with_fd__fd, UINT32_MAX);
	return 0;
}

/* Remembers what later calls need to know. `was`: handles by the place of descriptors. */
static void remember(const struct issue *issue, const u64 was[2], struct handle *file)
{
	const struct nvf_shape *shape = issue->shape;
	const u8 *block = issue->data;

	if (shape->status_at != NVF_NOWHERE && nvf_get32(block, shape->status_at))
		return;
	if (file->dev == NVF_UVM) {
		if (issue->cmd == UVM_REGISTER_GPU_VASPACE)
			pool_registered(issue->handle, block);
		return;
	}
	switch (issue->cmd) {
	case NV_ESC_REGISTER_FD:
		file->control = (s32)was[0];
		break;
	case NV_ESC_RM_ALLOC:
		if (shape->class == 0x0 || shape->class == 0x1 || shape->class == 0x41)
			client_made(nvf_get32(block, NVOS64_PARAMETERS__hObjectNew), issue->handle);
		else if (shape->class == NVF_CLASS_DEVICE)
			client_device(nvf_get32(block, NVOS64_PARAMETERS__hRoot), nvf_get32(block, NVOS64_PARAMETERS__hObjectNew));
		break;
	case NV_ESC_RM_FREE:
		if (nvf_get32(block, NVOS00_PARAMETERS__hRoot) == nvf_get32(block, NVOS00_PARAMETERS__hObjectOld))
			client_freed(nvf_get32(block, NVOS00_PARAMETERS__hRoot));
		break;
	}
}

static long refuse(const struct nvf_shape *shape, u32 cmd, enum nvf_verdict verdict)
{
	__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
	say("refused: %s (%#x), verdict %d", shape->name, shape->cmd ? shape->cmd : shape->class ? shape->class : cmd, verdict);
	return -EINVAL;
}

/* Takes the parts apart: sizes first, then pointers. 0: `shape` fits `len` bytes exactly. */
static int take_apart(struct nvf_shape *shape, enum nvf_dev dev, const struct nvf_req *req, u8 *in)
{
	u32 size = (u32)req->a;
	enum nvf_verdict verdict;

	if (req->a > req->len)
		return -EPROTO;
	verdict = nvf_shape_outer(shape, dev, req->cmd, in, size);
	if (verdict == NVF_OK && shape->nested) {
		if (nvf_part_at(shape, 1) + shape->parts[1].size > req->len)
			return -EPROTO;
		verdict = nvf_shape_inner(shape, part(shape, in, 1));
	}
	if (verdict != NVF_OK)
		return (int)refuse(shape, req->cmd, verdict);
	return nvf_part_at(shape, shape->count) == req->len ? 0 : -EPROTO;
}

static s64 issue_call(const struct nvf_req *req, s32 number, struct handle *file, u8 *in, struct held *held)
{
	u64 pointers[NVF_PARTS] = { 0 }, was[2] = { 0 }, memory = 0;
	struct nvf_shape shape;
	struct issue issue = { .handle = number, .file = file, .cmd = req->cmd, .size = (u32)req->a, .shape = &shape, .data = in,
			       .kernel = req->op == NVF_KERNEL };
	s64 value;

	value = take_apart(&shape, file->dev, req, in);
	if (value)
		return value;
	for (u32 i = 1; i < shape.count; i++) {
		u8 *at = part(&shape, in, shape.parts[i].in);

		pointers[i] = nvf_get64(at, shape.parts[i].at);
		nvf_put64(at, shape.parts[i].at, (u64)(uintptr_t)part(&shape, in, i));
	}
	value = descriptors(&shape, in, held, was);
	if (!value)
		value = pinned(&shape, in, held, &memory);
	if (!value && file->dev == NVF_UVM && req->cmd == UVM_ALLOC_SEMAPHORE_POOL) {
		issue.pin = (u32)req->c;
		value = req->c && req->c <= NVF_MAX_PINS ? 0 : -EFAULT;
	}
	if (!value) {
		value = driver->issue(&issue);
		/* a device of the NUMA kind would have the program put memory where this guest has none */
		if (!value && file->dev != NVF_UVM && req->cmd == NV_ESC_NUMA_INFO &&
		    nvf_get32(in, nv_ioctl_numa_info_t__nid) != UINT32_MAX)
			value = refuse(&shape, req->cmd, NVF_UNKNOWN);
		if (!value)
			remember(&issue, was, file);
	}
	/* no address and no descriptor of this process goes to the guest */
	for (u32 i = 1; i < shape.count; i++)
		nvf_put64(part(&shape, in, shape.parts[i].in), shape.parts[i].at, pointers[i]);
	for (u32 i = 0; i < shape.fds; i++) {
		u8 *at = part(&shape, in, shape.fd[i].in) + shape.fd[i].at;

		if (shape.fd[i].width == 8)
			nvf_put64(at, 0, was[i]);
		else
			nvf_put32(at, 0, (u32)was[i]);
	}
	if (shape.pins)
		nvf_put64(in, P(pMemory), memory);
	return value;
}

static s64 forward(const struct nvf_req *req, s32 number, u8 *in, struct nvf_rep *rep, u8 *out, u32 room)
{
	struct held held = { 0 };
	struct handle *file = hold(&held, number);
	s64 value;

	if (!file)
		return -EBADF;
	value = room < req->len ? -EPROTO : issue_call(req, number, file, in, &held);
	release(&held);
	if (value == -EPROTO)
		return value;
	/* also after a failure: drivers write a status */
	memcpy(out, in, req->len);
	rep->len = req->len;
	return value;
}

/* The guest's kernel asks: on the file of whoever made the client, or, for one that is yet to be made, on a file of our own. */
static s64 forward_kernel(const struct nvf_req *req, u8 *in, struct nvf_rep *rep, u8 *out, u32 room)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static s32 own = -1;
	u32 client;
	s32 owner;

	__atomic_fetch_add(&questions, 1, __ATOMIC_RELAXED);
	if (req->a > req->len || req->a < NVOS00_PARAMETERS__SIZE)
		return -EPROTO;
	client = nvf_get32(in, 0);	/* in all of the structures that come this way */
	owner = client_owner(client);
	if (owner < 0 && !client && req->cmd == NV_ESC_RM_ALLOC && driver->clients) {
		pthread_mutex_lock(&lock);
		struct handle *there = handle_get(own);

		if (there) {
			handle_put(own);
		} else {
			int event = -1, fd = driver->open(NVF_CTL, 0, 0, &event);

			own = fd < -1 ? fd : handle_new(NVF_CTL, fd, event);
		}
		owner = own;
		pthread_mutex_unlock(&lock);
	}
	if (owner < 0)
		return -ENOENT;
	return forward(req, owner, in, rep, out, room);
}

static s64 open_file(const struct nvf_req *req)
{
	int event = -1, fd;
	s32 handle;

	if (req->a > NVF_UVM || req->b > 255)
		return -ENODEV;
	fd = driver->open((enum nvf_dev)req->a, (u32)req->b, (int)req->c, &event);
	if (fd < -1)
		return fd;
	handle = handle_new((enum nvf_dev)req->a, fd, event);
	if (handle < 0) {
		struct handle never = { .fd = fd, .event = event, .memory = -1 };

		driver->closed(&never, false);
	}
	return handle;
}

static s64 map_file(const struct nvf_req *req)
{
	struct handle *file = handle_get(req->handle);
	s64 value;
	int fd;

	if (!file)
		return -EBADF;
	fd = driver->mappable(file, req->a, req->b);
	value = fd < 0 ? fd : shared_map(req->handle, fd, req->a, req->b);
	handle_put(req->handle);
	return value;
}

static s64 say_hello(struct nvf_rep *rep, u8 *out, u32 room)
{
	struct nvf_hello hello = { 0 };

	if (room < sizeof(hello))
		return -EPROTO;
	driver->hello(&hello);
	memcpy(out, &hello, sizeof(hello));
	rep->len = sizeof(hello);
	return 0;
}

static u32 own_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	u32 found = 0;

	while (folder && readdir(folder))
		found++;
	if (folder)
		closedir(folder);
	return found < 3 ? 0 : found - 3;	/* . and .. and its own */
}

static s64 say_stat(struct nvf_rep *rep, u8 *out, u32 room)
{
	struct nvf_stat stat = {
		.handles = handles_open(), .maps = shared_maps(), .pins = pins_held(), .waits = waits_count(),
		.descriptors = own_descriptors(), .calls = __atomic_load_n(&calls, __ATOMIC_RELAXED),
		.refused = __atomic_load_n(&refused, __ATOMIC_RELAXED), .questions = __atomic_load_n(&questions, __ATOMIC_RELAXED),
	};

	if (room < sizeof(stat))
		return -EPROTO;
	driver->stat(&stat);
	memcpy(out, &stat, sizeof(stat));
	rep->len = sizeof(stat);
	return 0;
}

static s64 say_text(const struct nvf_req *req, struct nvf_rep *rep, u8 *out, u32 room)
{
	s64 bytes = req->a > NVF_TEXT_GPU ? -EINVAL : driver->text((enum nvf_text)req->a, req->b, (char *)out, room);

	if (bytes > room)
		bytes = room;	/* what snprintf() would have written */
	rep->len = bytes > 0 ? (u32)bytes : 0;
	return bytes < 0 ? bytes : 0;
}

static s64 perform(const struct nvf_req *req, u8 *in, struct nvf_rep *rep, u8 *out, u32 room)
{
	switch (req->op) {
	case NVF_HELLO:
		return say_hello(rep, out, room);
	case NVF_TEXT:
		return say_text(req, rep, out, room);
	case NVF_OPEN:
		return open_file(req);
	case NVF_CLOSE:
		return handle_close(req->handle);
	case NVF_IOCTL:
		return forward(req, req->handle, in, rep, out, room);
	case NVF_KERNEL:
		return forward_kernel(req, in, rep, out, room);
	case NVF_MMAP:
		return map_file(req);
	case NVF_PIN:
		return req->len % sizeof(struct nvf_run) ? -EPROTO :
			       pin_make((const struct nvf_run *)(void *)in, req->len / sizeof(struct nvf_run), req->a);
	case NVF_UNPIN:
		return pin_drop(req->a);
	case NVF_STAT:
		return say_stat(rep, out, room);
	}
	return -ENOSYS;
}

void serve(const struct nvf_req *req, u8 *in, struct nvf_rep *rep, u8 *out, u32 room)
{
	s64 value;

	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	rep->len = 0;
	value = perform(req, in, rep, out, room);
	rep->err = value < 0 ? (s32)value : 0;
	rep->val = value;
}

int serve_poll(const struct nvf_req *req, u64 cookie)
{
	struct handle *file = handle_get(req->handle);
	int error;

	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	if (!file)
		return -EBADF;
	error = wait_begin(req->handle, file->event >= 0 ? file->event : file->fd, (u32)req->a, cookie);
	handle_put(req->handle);
	return error;
}

void serve_forget(void)
{
	shared_forget();
	waits_cancel(-1);
	handles_forget();
	pins_forget();
}
