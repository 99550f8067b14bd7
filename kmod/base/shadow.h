/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A shadow is the kernel's copy of one driver call: what DetShare decides on is what the driver
 * acts on. The driver's hook points (shield.c) find the shadow of the current task, give the
 * driver the bytes of the shadow instead of the caller's memory, and write down what it answers.
 */
#ifndef DETSHARE_SHADOW_H
#define DETSHARE_SHADOW_H

#include <linux/list.h>
#include <linux/sched.h>
#include <linux/types.h>

#define DS_SHADOW_BLOCK_MAX 256	/* largest argument block that is decided on (NVOS32: 184) */
#define DS_SHADOW_PARAMS_INLINE 384	/* fits every parameter block of RM_ALLOC in common use */

/*
 * No driver has this escape: a call of it that shield.c does not know is refused by the driver itself. Without a size it touches
 * nothing of the caller's memory.
 */
#define DS_NO_ESCAPE 0xff

enum ds_shadow_kind {
	DS_SHADOW_CALL,		/* an ioctl that dispatch.c decides on */
	DS_SHADOW_OPAQUE,	/* an ioctl that may turn out to be any other: shield.c makes it harmless */
	DS_SHADOW_CONTROL,	/* an RM_CONTROL, noticed inside the driver only */
};

struct ds_shadow_head {
	struct hlist_node link;
	struct task_struct *task;
	enum ds_shadow_kind kind;
};

struct ds_shadow {
	struct ds_shadow_head head;
	u32 nr;			/* bare escape number */
	u32 size;		/* of the block */
	bool returned;		/* block[] is what the driver made of it */
	bool unreadable;	/* params could not be read: the driver finds them so too */
	bool answered;		/* params[] is what the driver answered */
	bool ours;		/* the driver finds block and params here only: a question of our own, or a call of which nothing is copied out yet */
	u32 rm_status;		/* what rm_ioctl() returned */
	u32 untold;		/* why the answer in params[] did not reach the caller; 0: it did */
	unsigned long user_params;	/* where the caller has the nested parameters, 0: none */
	u32 params_size;
	u8 *params;		/* the shadow's copy of them; own[] or allocated */
	/* Called in atomic context when the driver has finished with the block, which may be changed. */
	void (*edit)(struct ds_shadow *shadow, void *block);
	void *edit_data;
	struct ds_transfer *transfer;	/* of an export or import by descriptor */
	struct ds_door_claim *claim;	/* of a mapping of a doorbell */
	struct ds_file **taken;	/* of a registration: which file the driver took, held */
	const struct file **shown;	/* of a mapping of other memory: which file the driver took, a name */
	u8 block[DS_SHADOW_BLOCK_MAX] __aligned(8);
	u8 own[DS_SHADOW_PARAMS_INLINE] __aligned(8);
};

/* NULL: no memory. */
struct ds_shadow *ds_shadow_alloc(void);
void ds_shadow_free(struct ds_shadow *shadow);

/*
 * Reads `size` bytes of nested parameters into the shadow; the shadow is not in force yet. -ENOMEM; memory that
 * cannot be read is no error (shadow->unreadable).
 */
int ds_shadow_read_params(struct ds_shadow *shadow, unsigned long user, u32 size);

/* From here to ds_shadow_close() the shadow is in force for the current task. A task has one at most. */
void ds_shadow_open(struct ds_shadow_head *head);
void ds_shadow_close(struct ds_shadow_head *head);

/* The shadow in force for the current task, or NULL. Any context but NMI. */
struct ds_shadow_head *ds_shadow_current(void);

/* Shadows in force, and one of the tasks that have one (0: none), for messages. */
unsigned int ds_shadow_count(void);
pid_t ds_shadow_some_pid(char comm[TASK_COMM_LEN]);

int ds_shadow_init(void);
void ds_shadow_exit(void);

#endif
