// SPDX-License-Identifier: GPL-2.0-only
/* The files of /dev/nvidiactl and /dev/nvidiaN, by the driver's own names: other modules hook these. */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "fwd.h"

#define CTL_MINOR 255

const struct file_operations *nvf_uvm_fops;
EXPORT_SYMBOL_GPL(nvf_uvm_fops);

int nvidia_open(struct inode *inode, struct file *filp);
int nvidia_close(struct inode *inode, struct file *filp);
long nvidia_unlocked_ioctl(struct file *filp, unsigned int cmd, unsigned long argument);
int nvidia_ioctl(struct inode *inode, struct file *filp, unsigned int cmd, unsigned long argument);
__poll_t nvidia_poll(struct file *filp, poll_table *table);

/* ---- events ---- */

struct nvf_events *nvf_events_new(void)
{
	struct nvf_events *events = kzalloc(sizeof(*events), GFP_KERNEL);

	if (!events)
		return NULL;
	kref_init(&events->refs);
	init_waitqueue_head(&events->wait);
	return events;
}
EXPORT_SYMBOL_GPL(nvf_events_new);

static void events_free(struct kref *refs)
{
	kfree(container_of(refs, struct nvf_events, refs));
}

void nvf_events_put(struct nvf_events *events)
{
	kref_put(&events->refs, events_free);
}
EXPORT_SYMBOL_GPL(nvf_events_put);

static void events_came(struct nvf_call *call)
{
	struct nvf_events *events = call->owner;

	if (!call->rep.err)
		atomic_or((int)call->rep.val, &events->ready);
	else if (call->rep.err != -ECANCELED)
		atomic_or((__force int)EPOLLERR, &events->ready);
	nvf_question_end();
	atomic_set_release(&events->asking, 0);
	wake_up_all(&events->wait);
	nvf_events_put(events);
}

static struct nvf_call *question(struct nvf_events *events, s32 handle)
{
	struct nvf_call *call;

	if (nvf_question_begin())
		return NULL;
	call = nvf_call_new(NVF_POLL, handle, 0, 0);
	if (!call) {
		nvf_question_end();
		return NULL;
	}
	call->req.a = (__force u32)(EPOLLIN | EPOLLPRI | EPOLLRDNORM);
	call->late = events_came;
	call->owner = events;
	kref_get(&events->refs);
	return call;
}

/*
 * The driver forgets an event once it was told, so what came is kept here until a program hears of it. A question is out as long as
 * somebody may want to know; its answer to what is there already takes less than a tick or two.
 */
__poll_t nvf_poll(struct file *file, poll_table *table, struct nvf_events *events, s32 handle)
{
	struct nvf_call *call;
	__poll_t got;

	poll_wait(file, &events->wait, table);
	got = (__force __poll_t)atomic_xchg(&events->ready, 0);
	if (got || atomic_cmpxchg(&events->asking, 0, 1))
		return got;
	call = question(events, handle);
	if (!call) {
		atomic_set(&events->asking, 0);
		return EPOLLERR;
	}
	nvf_call_send(call);
	wait_event_timeout(events->wait, !atomic_read_acquire(&events->asking), 2);
	return (__force __poll_t)atomic_xchg(&events->ready, 0);
}
EXPORT_SYMBOL_GPL(nvf_poll);

/* ---- files ---- */

/* An answer that nobody waited for: the file is closed again. */
static void opened_late(struct nvf_call *call)
{
	if (!call->rep.err)
		nvf_undo(NVF_CLOSE, (s32)call->rep.val, 0);
}

int nvf_open(enum nvf_dev dev, u32 gpu, unsigned int flags, s32 *handle)
{
	struct nvf_call *call = nvf_call_new(NVF_OPEN, -1, 0, 0);
	int error;

	if (!call)
		return -ENOMEM;
	call->req.a = dev;
	call->req.b = gpu;
	call->req.c = flags & O_NONBLOCK;
	call->late = opened_late;
	error = nvf_call_wait(call);
	if (error)
		return error;
	error = call->rep.err;
	*handle = (s32)call->rep.val;
	nvf_call_free(call);
	return error;
}
EXPORT_SYMBOL_GPL(nvf_open);

/* A GPU's file has an address space of its own, so that its mappings can be revoked apart from all others. */
static void own_mapping(struct nvf_file *file, struct file *filp, struct inode *inode)
{
	address_space_init_once(&file->mapping);
	file->mapping.host = inode;
	file->mapping.a_ops = inode->i_mapping->a_ops;
	filp->f_mapping = &file->mapping;
}

noinline int nvidia_open(struct inode *inode, struct file *filp)
{
	struct nvf_file *file = kzalloc(sizeof(*file), GFP_KERNEL);
	int error = -ENOMEM;

	if (!file)
		return error;
	file->dev = iminor(inode) == CTL_MINOR ? NVF_CTL : NVF_GPU;
	mutex_init(&file->lock);
	INIT_LIST_HEAD(&file->clients);
	file->events = nvf_events_new();
	if (file->events)
		error = nvf_open(file->dev, iminor(inode), filp->f_flags, &file->handle);
	if (error) {
		kfree(file->events);
		kfree(file);
		return error;
	}
	if (file->dev == NVF_GPU)
		own_mapping(file, filp, inode);
	filp->private_data = file;
	return 0;
}

noinline int nvidia_close(struct inode *inode, struct file *filp)
{
	struct nvf_file *file = filp->private_data;

	nvf_undo(NVF_CLOSE, file->handle, 0);
	nvf_file_ends(file);
	filp->f_mapping = inode->i_mapping;
	filp->private_data = NULL;
	nvf_events_put(file->events);
	kfree(file);
	return 0;
}

noinline void *nv_get_file_private(int fd, bool control, void **held)
{
	struct file *filp = fget(fd);
	struct nvf_file *file = filp && filp->f_op == &nvidia_fops ? filp->private_data : NULL;

	if (!file || (file->dev == NVF_CTL) != control) {
		if (filp)
			fput(filp);
		return NULL;
	}
	*held = filp;
	return file;
}

struct nvf_file *nvf_file_get(int fd, void **held)
{
	struct nvf_file *file = nv_get_file_private(fd, true, held) ?: nv_get_file_private(fd, false, held);
	struct file *filp;

	if (file)
		return file;
	filp = fget(fd);
	if (filp && nvf_uvm_fops && filp->f_op == nvf_uvm_fops) {
		*held = filp;
		return filp->private_data;
	}
	if (filp)
		fput(filp);
	return NULL;
}

/* Unwraps NV_ESC_IOCTL_XFER_CMD. The magic and the direction of a command mean nothing. */
static int unwrap(unsigned int cmd, u32 *nr, size_t *size, void __user **pointer)
{
	u8 xfer[nv_ioctl_xfer_t__SIZE];

	*size = _IOC_SIZE(cmd);
	*nr = _IOC_NR(cmd);
	if (*nr != NV_ESC_IOCTL_XFER_CMD)
		return 0;
	if (*size != sizeof(xfer))
		return -EINVAL;
	if (copy_from_user(xfer, *pointer, sizeof(xfer)))
		return -EFAULT;
	*nr = nvf_get32(xfer, nv_ioctl_xfer_t__cmd);
	*size = nvf_get32(xfer, nv_ioctl_xfer_t__size);
	*pointer = u64_to_user_ptr(nvf_get64(xfer, nv_ioctl_xfer_t__ptr));
	return *size > NVF_BLOCK_MAX ? -EINVAL : 0;
}

/* What the driver's glue answers by itself; all else, known or not, goes to RM. */
static bool of_glue(u32 nr)
{
	return nr == NV_ESC_CARD_INFO || nr == NV_ESC_CHECK_VERSION_STR || (nr >= NV_ESC_ATTACH_GPUS_TO_FD && nr <= NV_ESC_WAIT_OPEN_COMPLETE);
}

static long dispatch(struct nvf_file *file, u32 nr, void *block, u32 size)
{
	NV_STATUS status;

	if (of_glue(nr))
		return nvf_forward(file->dev, file->handle, nr, block, size, NULL, &status);
	return rm_ioctl(NULL, NULL, file, nr, block, size) == NVF_STATUS_OK ? 0 : -EINVAL;
}

noinline int nvidia_ioctl(struct inode *inode, struct file *filp, unsigned int cmd, unsigned long argument)
{
	void __user *pointer = (void __user *)argument;
	size_t size;
	void *block;
	long ret;
	u32 nr;

	ret = unwrap(cmd, &nr, &size, &pointer);
	if (ret)
		return ret;
	block = kmalloc(size, GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	if (copy_from_user(block, pointer, size)) {
		ret = -EFAULT;
		goto out;
	}
	ret = dispatch(filp->private_data, nr, block, size);
	/* also after a failure */
	if (ret != -EFAULT && ret != -ERESTARTSYS && copy_to_user(pointer, block, size))
		ret = -EFAULT;
out:
	kfree(block);
	return ret;
}

noinline long nvidia_unlocked_ioctl(struct file *filp, unsigned int cmd, unsigned long argument)
{
	return nvidia_ioctl(file_inode(filp), filp, cmd, argument);
}

noinline __poll_t nvidia_poll(struct file *filp, poll_table *table)
{
	struct nvf_file *file = filp->private_data;

	return nvf_poll(filp, table, file->events, file->handle);
}

/* Not const, as in the driver: files are known by it. */
struct file_operations nvidia_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.release = nvidia_close,
	.unlocked_ioctl = nvidia_unlocked_ioctl,
	.compat_ioctl = nvidia_unlocked_ioctl,
	.mmap = nvidia_mmap,
	.poll = nvidia_poll,
};
