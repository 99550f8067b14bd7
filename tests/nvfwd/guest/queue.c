// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/wait.h>

#include "queue.h"

#define UNDO_PATIENCE	(30 * HZ)

/* A call's state: who lets go first says so. */
enum { UNDER_WAY, ANSWERED, LEFT };

static struct {
	struct virtio_device *device;
	struct virtqueue *queue;
	struct virtio_shm_region shared;
	spinlock_t lock;		/* the queue's, and `device` */
	wait_queue_head_t room;
	atomic_t under_way, questions;
	u32 questions_most;
	struct workqueue_struct *late;
} host = {
	.lock = __SPIN_LOCK_UNLOCKED(host.lock),
	.room = __WAIT_QUEUE_HEAD_INITIALIZER(host.room),
};

static void run_late(struct work_struct *work)
{
	struct nvf_call *call = container_of(work, struct nvf_call, work);

	if (call->late)
		call->late(call);
	nvf_call_free(call);
}

static struct nvf_call *call_new(u32 op, s32 handle, u32 len, u32 room, gfp_t gfp)
{
	struct nvf_call *call = kzalloc(sizeof(*call), gfp);

	if (!call)
		return NULL;
	call->req = (struct nvf_req){ .op = op, .handle = handle, .len = len };
	call->room = room;
	init_completion(&call->done);
	INIT_WORK(&call->work, run_late);
	if (len)
		call->in = kzalloc(len, gfp);
	if (room)
		call->out = kzalloc(room, gfp);
	if ((len && !call->in) || (room && !call->out)) {
		nvf_call_free(call);
		return NULL;
	}
	return call;
}

struct nvf_call *nvf_call_new(u32 op, s32 handle, u32 len, u32 room)
{
	return len > NVF_MAX_IN || room > NVF_MAX_OUT ? NULL : call_new(op, handle, len, room, GFP_KERNEL | __GFP_NOWARN);
}
EXPORT_SYMBOL_GPL(nvf_call_new);

void nvf_call_free(struct nvf_call *call)
{
	kfree(call->in);
	kfree(call->out);
	kfree(call);
}
EXPORT_SYMBOL_GPL(nvf_call_free);

/* -ENOSPC: the queue is full. */
static int enqueue(struct nvf_call *call)
{
	struct scatterlist to[2], from[2], *lists[] = { to, from };
	unsigned long flags;
	bool kick = false;
	int error = -ENODEV;

	sg_init_table(to, call->req.len ? 2 : 1);
	sg_set_buf(&to[0], &call->req, sizeof(call->req));
	if (call->req.len)
		sg_set_buf(&to[1], call->in, call->req.len);
	sg_init_table(from, call->room ? 2 : 1);
	sg_set_buf(&from[0], &call->rep, sizeof(call->rep));
	if (call->room)
		sg_set_buf(&from[1], call->out, call->room);
	spin_lock_irqsave(&host.lock, flags);
	if (host.device) {
		error = virtqueue_add_sgs(host.queue, lists, 1, 1, call, GFP_ATOMIC);
		if (!error) {
			atomic_inc(&host.under_way);
			kick = virtqueue_kick_prepare(host.queue);
		}
		if (kick)
			virtqueue_notify(host.queue);
	}
	spin_unlock_irqrestore(&host.lock, flags);
	return error;
}

static void answered(struct virtqueue *queue)
{
	struct nvf_call *call;
	unsigned long flags;
	unsigned int len;

	spin_lock_irqsave(&host.lock, flags);
	do {
		virtqueue_disable_cb(queue);
		while ((call = virtqueue_get_buf(queue, &len))) {
			/* what the helper left out is nothing that it said */
			if (len < sizeof(call->rep))
				call->rep = (struct nvf_rep){ .err = -EIO };
			if (call->rep.len > call->room || call->rep.len > len - min_t(u32, len, sizeof(call->rep)))
				call->rep.len = 0;
			atomic_dec(&host.under_way);
			if (cmpxchg(&call->state, UNDER_WAY, ANSWERED) == LEFT)
				queue_work(host.late, &call->work);
			else
				complete(&call->done);
		}
	} while (!virtqueue_enable_cb(queue));
	spin_unlock_irqrestore(&host.lock, flags);
	wake_up_all(&host.room);
}

/* The waiter goes: true, the answer is in and still his. */
static bool leave(struct nvf_call *call)
{
	if (cmpxchg(&call->state, UNDER_WAY, LEFT) == UNDER_WAY)
		return false;
	/* who answered may still be at it */
	wait_for_completion(&call->done);
	return true;
}

int nvf_call_wait(struct nvf_call *call)
{
	int error = -ENOSPC, killed = wait_event_killable(host.room, (error = enqueue(call)) != -ENOSPC);

	if (killed || error) {
		nvf_call_free(call);
		return killed ?: error;
	}
	if (wait_for_completion_killable(&call->done) && !leave(call))
		return -ERESTARTSYS;
	return 0;
}
EXPORT_SYMBOL_GPL(nvf_call_wait);

void nvf_call_send(struct nvf_call *call)
{
	int error = -ENOSPC;

	call->state = LEFT;
	wait_event(host.room, (error = enqueue(call)) != -ENOSPC);
	if (!error)
		return;
	call->rep.err = error;
	queue_work(host.late, &call->work);
}
EXPORT_SYMBOL_GPL(nvf_call_send);

int nvf_question_begin(void)
{
	if (atomic_inc_return(&host.questions) <= host.questions_most)
		return 0;
	atomic_dec(&host.questions);
	pr_warn_ratelimited("nvidia: a poll is refused: the queue has room for %u files that are waited for\n", host.questions_most);
	return -EBUSY;
}

void nvf_question_end(void)
{
	atomic_dec(&host.questions);
}

void nvf_undo(u32 op, s32 handle, u64 a)
{
	struct nvf_call *call = call_new(op, handle, 0, 0, GFP_KERNEL | __GFP_NOFAIL);
	int error = -ENOSPC;

	call->req.a = a;
	wait_event(host.room, (error = enqueue(call)) != -ENOSPC);
	if (!error && !wait_for_completion_timeout(&call->done, UNDO_PATIENCE) && !leave(call))
		return;
	nvf_call_free(call);
}
EXPORT_SYMBOL_GPL(nvf_undo);

u64 nvf_shared_base(void)
{
	return host.shared.addr;
}

u64 nvf_shared_size(void)
{
	return host.shared.len;
}

static int probe(struct virtio_device *device)
{
	struct virtqueue *queue;

	if (host.device)
		return -EBUSY;
	if (!virtio_get_shm_region(device, &host.shared, NVF_SHMID))
		return -ENODEV;
	queue = virtio_find_single_vq(device, answered, "nvfwd");
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	host.queue = queue;
	/* each takes two entries */
	host.questions_most = virtqueue_get_vring_size(queue) / 4;
	host.device = device;
	/* mappings may be asked for from here on only: QEMU ends itself before */
	virtio_device_ready(device);
	return 0;
}

static void remove(struct virtio_device *device)
{
	unsigned long flags;
	struct nvf_call *call;

	/* polls are answered when their files are closed, and those are: the modules are going */
	wait_event_timeout(host.room, !atomic_read(&host.under_way), UNDO_PATIENCE);
	spin_lock_irqsave(&host.lock, flags);
	host.device = NULL;
	spin_unlock_irqrestore(&host.lock, flags);
	virtio_reset_device(device);
	while ((call = virtqueue_detach_unused_buf(host.queue))) {
		call->rep = (struct nvf_rep){ .err = -EIO };
		if (cmpxchg(&call->state, UNDER_WAY, ANSWERED) == LEFT)
			queue_work(host.late, &call->work);
		else
			complete(&call->done);
	}
	device->config->del_vqs(device);
	flush_workqueue(host.late);
}

static const struct virtio_device_id ids[] = { { NVF_VIRTIO_ID, VIRTIO_DEV_ANY_ID }, {} };

static struct virtio_driver driver = {
	.driver.name = "nvfwd",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
};

int nvf_queue_init(void)
{
	int error;

	host.late = alloc_workqueue("nvfwd", WQ_UNBOUND, 0);
	if (!host.late)
		return -ENOMEM;
	error = register_virtio_driver(&driver);
	if (!error && !host.device) {
		pr_err("nvidia: this machine has no nvfwd device: was it started with --driver forward?\n");
		unregister_virtio_driver(&driver);
		error = -ENODEV;
	}
	if (error)
		destroy_workqueue(host.late);
	return error;
}

void nvf_queue_exit(void)
{
	unregister_virtio_driver(&driver);
	destroy_workqueue(host.late);
}
