// SPDX-License-Identifier: GPL-2.0-only
/* Calls of other kernel modules that fail because a test says so: the debugfs file `failing`. */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "debugfs.h"
#include "sim.h"

#define FAILING_MAX 16

static struct failing {
	u32 cmd, status;
	u32 left;	/* calls that are still to fail, 0: this place is free */
	bool late;	/* it is done, and said to have failed */
	u64 failed;
} failing[FAILING_MAX];
static DEFINE_SPINLOCK(failing_lock);

NV_STATUS sim_failing(u32 cmd, bool *late)
{
	NV_STATUS status = NV_OK;

	*late = false;
	spin_lock(&failing_lock);
	for (int i = 0; i < FAILING_MAX; i++) {
		if (!failing[i].left || failing[i].cmd != cmd)
			continue;
		failing[i].left -= failing[i].left != U32_MAX;
		failing[i].failed++;
		status = failing[i].status;
		*late = failing[i].late;
		break;
	}
	spin_unlock(&failing_lock);
	return status;
}

/* The place of this command, or a free one; NULL: there is none. */
static struct failing *place_of(u32 cmd)
{
	struct failing *place = NULL;

	for (int i = 0; i < FAILING_MAX; i++)
		if (failing[i].left && failing[i].cmd == cmd)
			return &failing[i];
	for (int i = 0; i < FAILING_MAX; i++)
		if (!failing[i].left && (!place || failing[i].cmd == cmd))
			place = &failing[i];
	return place;
}

/* CMD STATUS COUNT [late]; COUNT 0: always. STATUS 0: no more. A line a write. */
static ssize_t failing_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	char line[64], late[8] = "";
	u32 cmd, status, count;
	struct failing *place;

	if (size >= sizeof(line) || copy_from_user(line, from, size))
		return -EINVAL;
	line[size] = '\0';
	if (sscanf(line, "%i %i %i %7s", &cmd, &status, &count, late) < 3 || (late[0] && strcmp(late, "late")))
		return -EINVAL;
	spin_lock(&failing_lock);
	place = place_of(cmd);
	if (place)
		*place = (struct failing){
			.cmd = cmd,
			.status = status,
			.left = !status ? 0 : count ?: U32_MAX,
			.late = late[0],
		};
	spin_unlock(&failing_lock);
	return place ? size : -ENOSPC;
}

static int failing_show(struct seq_file *m, void *unused)
{
	seq_puts(m, "command status left failed\n");
	spin_lock(&failing_lock);
	for (int i = 0; i < FAILING_MAX; i++)
		if (failing[i].cmd)
			seq_printf(m, "%#x %#x %u %llu\n", failing[i].cmd, failing[i].status, failing[i].left, failing[i].failed);
	spin_unlock(&failing_lock);
	return 0;
}

static int failing_open(struct inode *inode, struct file *file)
{
	return single_open(file, failing_show, NULL);
}

static const struct file_operations failing_fops = {
	.owner = THIS_MODULE,
	.open = failing_open,
	.read = seq_read,
	.write = failing_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void sim_debugfs_failing(struct dentry *folder)
{
	debugfs_create_file("failing", 0600, folder, NULL, &failing_fops);
}
