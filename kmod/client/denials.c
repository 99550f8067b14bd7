// SPDX-License-Identifier: GPL-2.0-only
#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/moduleparam.h>
#include <linux/pid.h>
#include <linux/ratelimit.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "client.h"
#include "denials.h"
#include "events.h"
#include "process.h"

/* Rows that are kept, of all and of one process; the one of them that is oldest makes room. */
#define ROWS_MAX 1024
#define ROWS_OF_ONE_MAX 128
/* Of one row no more events than one in so long: the next one has the count of those that were not told. */
#define TELL_NS (20 * NSEC_PER_MSEC)
/* Tricks whose lines in the kernel log are limited each for itself. */
#define TRICKS_MAX 64
/* Lines in five seconds about what was not denied to that process before. */
#define FRESH_LINES 50
/*
 * Lines of one tenant (else cgroup, else process) in a minute, and of all: a log is read by people, and kept on disk. What has no line is
 * counted all the same.
 */
#define LOG_INTERVAL (60 * HZ)
#define LINES_OF_ONE 12
#define SHARE_OF_ALL 8		/* all together have as many as these would */
/* Those whose lines are counted; the one that began its minute first makes room. */
#define SPEAKERS 16
/* Denials on their way out of atomic context. */
#define PENDING_MAX 64

static unsigned int denied_lines = LINES_OF_ONE;
module_param(denied_lines, uint, 0644);
MODULE_PARM_DESC(denied_lines, "most lines a minute in the kernel log about what one tenant was denied, and eight times as many about all (default: 12)");

struct row {
	struct list_head link;	/* in the order in which they were added */
	struct ds_denial denial;
	u64 told;		/* when an event told of it last, 0: none did */
};

struct pending {
	struct pid *pid;	/* of the process; held */
	char comm[TASK_COMM_LEN];
	u64 when;
	u32 client, command, status;
	enum detshare_denial reason;
	const char *trick;
};

static LIST_HEAD(rows);
static unsigned int row_count;
static DEFINE_MUTEX(rows_lock);
static atomic64_t total;

static struct {
	const char *trick;
	struct ratelimit_state limit;
} tricks[TRICKS_MAX];	/* under rows_lock */

/* Raw: taken in probes. */
static DEFINE_RAW_SPINLOCK(pending_lock);
static struct pending pending[PENDING_MAX];
static unsigned int pending_count;
static void pending_irq(struct irq_work *work);
static void pending_work(struct work_struct *work);
static struct irq_work wake = IRQ_WORK_INIT(pending_irq);
static DECLARE_WORK(write_down, pending_work);

static struct speaker {
	u64 who;		/* 0: nobody */
	unsigned long since;	/* jiffies */
	unsigned int lines;
} speakers[SPEAKERS];	/* under rows_lock */

/* Whose process it is, as a name to compare. */
static u64 speaker_of(struct pid *pid)
{
	struct ds_process *process = ds_process_find(pid);
	u64 who = 0;

	if (process) {
		who = (unsigned long)READ_ONCE(process->tenant);
		if (!who)
			who = ds_process_cgroup_id(process);
	}
	ds_process_put(process);
	return who ?: (unsigned long)pid;
}

/* One line of `most` in a minute. Under rows_lock. */
static bool may_speak(struct speaker *speaker, u64 who, unsigned int most)
{
	if (speaker->who != who || time_after_eq(jiffies, speaker->since + LOG_INTERVAL))
		*speaker = (struct speaker){ .who = who, .since = jiffies };
	if (speaker->lines >= most)
		return false;
	speaker->lines++;
	return true;
}

/* Where his lines are counted. Under rows_lock. */
static struct speaker *place_of(u64 who)
{
	struct speaker *oldest = &speakers[0];
	unsigned int i;

	for (i = 0; i < SPEAKERS; i++) {
		if (speakers[i].who == who)
			return &speakers[i];
		if (!speakers[i].who || (oldest->who && time_before(speakers[i].since, oldest->since)))
			oldest = &speakers[i];
	}
	return oldest;
}

/* Does the log take another line of his? Under rows_lock. */
static bool log_has_room(u64 who)
{
	static struct speaker all;
	unsigned int most = min(READ_ONCE(denied_lines), (unsigned int)INT_MAX / SHARE_OF_ALL);

	return may_speak(place_of(who), who, most) && may_speak(&all, 1, most * SHARE_OF_ALL);
}

/* Is a line due? The first denial of a row has one, more of them are limited by trick. Under rows_lock. */
static bool may_tell(const char *trick, bool first)
{
	static DEFINE_RATELIMIT_STATE(fresh, DEFAULT_RATELIMIT_INTERVAL, FRESH_LINES);
	unsigned int i;

	if (first)
		return __ratelimit(&fresh);

	for (i = 0; i < TRICKS_MAX && tricks[i].trick && tricks[i].trick != trick; i++)
		;
	if (i == TRICKS_MAX)
		return false;
	if (!tricks[i].trick) {
		tricks[i].trick = trick;
		ratelimit_state_init(&tricks[i].limit, DEFAULT_RATELIMIT_INTERVAL, 3);
		ratelimit_set_flags(&tricks[i].limit, RATELIMIT_MSG_ON_RELEASE);
	}
	return __ratelimit(&tricks[i].limit);
}

/* Under rows_lock. NULL: no memory. */
static struct row *row_of(const struct ds_denial *denial)
{
	struct row *row, *oldest = NULL;
	unsigned int own = 0;

	list_for_each_entry(row, &rows, link) {
		if (row->denial.pid != denial->pid)
			continue;
		if (row->denial.vctx == denial->vctx && row->denial.command == denial->command &&
		    row->denial.reason == denial->reason)
			return row;
		own++;
		if (!oldest)
			oldest = row;
	}
	/* who tries a thousand things pushes out his own first */
	if (own >= ROWS_OF_ONE_MAX || row_count == ROWS_MAX) {
		row = own >= ROWS_OF_ONE_MAX ? oldest : list_first_entry(&rows, struct row, link);
		list_move_tail(&row->link, &rows);
		row->denial.count = 0;
		row->told = 0;
		return row;
	}
	row = kzalloc(sizeof(*row), GFP_KERNEL);
	if (row) {
		row_count++;
		list_add_tail(&row->link, &rows);
	}
	return row;
}

/* The vCtx that a client's calls count for; 0: none that is known. */
static u64 vctx_of(u32 handle, u32 *gpu)
{
	struct ds_client *client;
	struct ds_vctx *vctx;
	u64 id = 0;

	*gpu = RM_GPU_NONE;
	down_read(&ds_clients_lock);
	client = ds_client_find(handle);
	if (client) {
		mutex_lock(&client->tree);
		*gpu = ds_client_first_gpu(client);
		vctx = ds_vctx_find(client, *gpu);
		if (vctx)
			id = vctx->id;
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	return id;
}

static void count(struct ds_denial *denial, struct pid *pid, u32 client, const char *trick)
{
	u64 who = speaker_of(pid);
	bool event = true;
	struct row *row;
	u32 gpu;

	atomic64_inc(&total);
	denial->vctx = vctx_of(client, &gpu);
	denial->count = 1;
	mutex_lock(&rows_lock);
	row = row_of(denial);
	if (row) {
		denial->count += row->denial.count;
		row->denial = *denial;
		event = !row->told || denial->last - row->told >= TELL_NS;
		if (event)
			row->told = denial->last;
	}
	if (may_tell(trick, denial->count == 1) && log_has_room(who))
		pr_warn("process %d (%s) %s: not let through (command %#x, status %#x)\n", denial->pid, denial->comm,
			trick, denial->command, denial->status);
	mutex_unlock(&rows_lock);
	if (event)
		ds_event_denied(denial, gpu, client);
}

void ds_denied(u32 client, u32 command, enum detshare_denial reason, u32 status, const char *trick)
{
	struct ds_denial denial = {
		.pid = task_tgid_nr(current),
		.command = command,
		.reason = reason,
		.status = status,
		.last = ktime_get_ns(),
	};

	get_task_comm(denial.comm, current);
	count(&denial, task_tgid(current), client, trick);
}

/* ---- from atomic context --------------------------------------------------------- */

void ds_denied_atomic(u32 client, u32 command, enum detshare_denial reason, u32 status, const char *trick)
{
	struct pending *place = NULL;
	unsigned long flags;

	raw_spin_lock_irqsave(&pending_lock, flags);
	if (pending_count < PENDING_MAX)
		place = &pending[pending_count++];
	if (place) {
		*place = (struct pending){
			.pid = get_pid(task_tgid(current)),
			.when = ktime_get_mono_fast_ns(),
			.client = client,
			.command = command,
			.reason = reason,
			.status = status,
			.trick = trick,
		};
		memcpy(place->comm, current->comm, sizeof(place->comm));
		place->comm[TASK_COMM_LEN - 1] = '\0';
	}
	raw_spin_unlock_irqrestore(&pending_lock, flags);
	if (place)
		irq_work_queue(&wake);
	else
		atomic64_inc(&total);
}

static void pending_irq(struct irq_work *work)
{
	schedule_work(&write_down);
}

static bool take_pending(struct pending *taken)
{
	unsigned long flags;
	bool some;

	raw_spin_lock_irqsave(&pending_lock, flags);
	some = pending_count;
	if (some) {
		*taken = pending[0];
		memmove(pending, pending + 1, --pending_count * sizeof(*pending));
	}
	raw_spin_unlock_irqrestore(&pending_lock, flags);
	return some;
}

static void pending_work(struct work_struct *work)
{
	struct pending taken;

	while (take_pending(&taken)) {
		struct ds_denial denial = {
			.pid = pid_nr(taken.pid),
			.command = taken.command,
			.reason = taken.reason,
			.status = taken.status,
			.last = taken.when,
		};

		memcpy(denial.comm, taken.comm, sizeof(denial.comm));
		count(&denial, taken.pid, taken.client, taken.trick);
		put_pid(taken.pid);
	}
}

/* ---- for people ------------------------------------------------------------------ */

bool ds_denial_at(unsigned int index, struct ds_denial *denial)
{
	struct row *row;
	bool found = false;

	mutex_lock(&rows_lock);
	list_for_each_entry(row, &rows, link) {
		if (index--)
			continue;
		*denial = row->denial;
		found = true;
		break;
	}
	mutex_unlock(&rows_lock);
	return found;
}

u64 ds_denials_total(void)
{
	return atomic64_read(&total);
}

u64 ds_denials_of(u64 vctx)
{
	struct row *row;
	u64 sum = 0;

	mutex_lock(&rows_lock);
	list_for_each_entry(row, &rows, link)
		if (row->denial.vctx == vctx)
			sum += row->denial.count;
	mutex_unlock(&rows_lock);
	return sum;
}

void ds_denials_exit(void)
{
	struct row *row, *next;

	irq_work_sync(&wake);
	cancel_work_sync(&write_down);
	/* what was still on its way */
	while (pending_count)
		put_pid(pending[--pending_count].pid);
	list_for_each_entry_safe(row, next, &rows, link)
		kfree(row);
}
