// SPDX-License-Identifier: GPL-2.0-only
/* Calls of other kernel modules that take their time because a test says so: the debugfs file `waiting`. */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "debugfs.h"
#include "sim.h"

#define WAITING_MAX 4
#define MOST_MS 10000

static struct waiting {
	u32 cmd;			/* 0: this place is free */
	u32 ms[SIM_STAGES];		/* at the end of each stage */
	u64 calls[SIM_STAGES];		/* that have come so far */
} waiting[WAITING_MAX];
static DEFINE_SPINLOCK(waiting_lock);

/* The place of this command; NULL: it has none. */
static struct waiting *place_of(u32 cmd)
{
	for (int i = 0; i < WAITING_MAX; i++)
		if (waiting[i].cmd == cmd)
			return &waiting[i];
	return NULL;
}

void sim_waiting(u32 cmd, enum sim_stage stage)
{
	struct waiting *place;
	u32 ms = 0;

	spin_lock(&waiting_lock);
	place = cmd ? place_of(cmd) : NULL;
	if (place) {
		place->calls[stage]++;
		ms = place->ms[stage];
	}
	spin_unlock(&waiting_lock);
	if (ms)
		msleep(ms);
}

/* CMD BEFORE AFTER, ms: how long it is not done, and how long it is done and not answered. 0 0: no more. A line a write. */
static ssize_t waiting_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	struct waiting *place;
	u32 cmd, before, after;
	char line[64];

	if (size >= sizeof(line) || copy_from_user(line, from, size))
		return -EINVAL;
	line[size] = '\0';
	if (sscanf(line, "%i %u %u", &cmd, &before, &after) < 3 || !cmd || before > MOST_MS || after > MOST_MS)
		return -EINVAL;
	spin_lock(&waiting_lock);
	place = place_of(cmd) ?: place_of(0);
	if (place)
		*place = (struct waiting){
			.cmd = before || after ? cmd : 0,
			.ms = { [SIM_BEGUN] = before, [SIM_DONE] = after },
		};
	spin_unlock(&waiting_lock);
	return place ? size : -ENOSPC;
}

static int waiting_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "command begun done answered\n");
	spin_lock(&waiting_lock);
	for (int i = 0; i < WAITING_MAX; i++)
		if (waiting[i].cmd)
			seq_printf(m, "%#x %llu %llu %llu\n", waiting[i].cmd, waiting[i].calls[SIM_BEGUN],
				   waiting[i].calls[SIM_DONE], waiting[i].calls[SIM_ANSWERED]);
	spin_unlock(&waiting_lock);
	return 0;
}

static int waiting_open(struct inode *inode, struct file *file)
{
	return single_open(file, waiting_show, NULL);
}

static const struct file_operations waiting_fops = {
	.owner = THIS_MODULE,
	.open = waiting_open,
	.read = seq_read,
	.write = waiting_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void sim_debugfs_waiting(struct dentry *folder)
{
	debugfs_create_file("waiting", 0600, folder, NULL, &waiting_fops);
}
