// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/hash.h>
#include <linux/maple_tree.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/xarray.h>

#include "boost.h"
#include "client.h"
#include "driver.h"
#include "events.h"
#include "stats.h"
#include "uvm.h"

#define FILE_BITS 6
#define UVM_INIT_FLAGS_DISABLE_HMM 1ULL

/* The order of hooks[]. */
enum {
	MMAP,
	VM_CLOSE,
	RELEASE,
	CREATE,
	MIGRATE,
	MIGRATE_GROUP,
	SET_GROUP,
	PREVENT_GROUPS,
	TOOLS_READ,
	TOOLS_WRITE,
};

static int uvm_mmap(struct file *file, struct vm_area_struct *vma);
static void uvm_vm_close(struct vm_area_struct *vma);
static int uvm_release(struct inode *inode, struct file *file);
static u32 uvm_create(struct address_space *mapping, void **space, u64 flags);
static u32 uvm_migrate(void *params, struct file *file);
static u32 uvm_migrate_group(void *params, struct file *file);
static u32 uvm_set_group(void *params, struct file *file);
static u32 uvm_prevent_groups(void *params, struct file *file);
static u32 uvm_tools_read(void *params, struct file *file);
static u32 uvm_tools_write(void *params, struct file *file);

#define MOVE_LOSS "who is held still has managed memory moved"

static struct ds_hook hooks[] = {
	[MMAP] = { "uvm_mmap_entry", uvm_mmap, NULL, false },
	[VM_CLOSE] = { "uvm_vm_close_managed_entry", uvm_vm_close, NULL, false },
	[RELEASE] = { "uvm_release_entry", uvm_release, NULL, false },
	[CREATE] = { "uvm_va_space_create", uvm_create, NULL, false, "memory that the GPU takes for a program's plain memory (HMM) is not limited" },
	[MIGRATE] = { "uvm_api_migrate", uvm_migrate, NULL, false, MOVE_LOSS },
	[MIGRATE_GROUP] = { "uvm_api_migrate_range_group", uvm_migrate_group, NULL, false, MOVE_LOSS },
	[SET_GROUP] = { "uvm_api_set_range_group", uvm_set_group, NULL, false, MOVE_LOSS },
	[PREVENT_GROUPS] = { "uvm_api_prevent_migration_range_groups", uvm_prevent_groups, NULL, false, MOVE_LOSS },
	[TOOLS_READ] = { "uvm_api_tools_read_process_memory", uvm_tools_read, NULL, false, MOVE_LOSS },
	[TOOLS_WRITE] = { "uvm_api_tools_write_process_memory", uvm_tools_write, NULL, false, MOVE_LOSS },
};

static bool (*may_move)(struct ds_process *owner);

static struct ds_hook_set uvm = {
	.module = "nvidia_uvm",
	.hooks = hooks,
	.count = ARRAY_SIZE(hooks),
};

/*
 * An open /dev/nvidia-uvm with managed memory. That may come to lie on any GPU, on one too of which the process has no device, and moves without
 * a call: so all of it is charged on each of them, and shown on the process's first.
 */
struct uvm_file {
	struct hlist_node link;
	const struct file *file;	/* a name, not a reference */
	struct ds_process *process;	/* who mapped first: who pays */
	struct ds_bound bound;
	struct mutex lock;		/* below mmap_lock; guards payers and ranges */
	struct ds_payer payers[RM_GPUS];	/* by GPU */
	u32 first;			/* the GPU that shows it */
	/*
	 * Address ranges that are charged. Parts of them go one by one, and mappings that are older than this module
	 * were never charged, so the length of what is unmapped is not enough to know.
	 */
	struct maple_tree ranges;
	u64 bytes;	/* charged */
};

static struct hlist_head files[1 << FILE_BITS];
static DEFINE_SPINLOCK(files_lock);

struct ds_hook_set *ds_uvm_hooks(void)
{
	return &uvm;
}

static struct hlist_head *bucket_of(const struct file *file)
{
	return &files[hash_ptr(file, FILE_BITS)];
}

/* Valid as long as the file is open. */
static struct uvm_file *find_file(const struct file *file)
{
	struct uvm_file *known, *found = NULL;

	spin_lock(&files_lock);
	hlist_for_each_entry(known, bucket_of(file), link)
		if (known->file == file)
			found = known;
	spin_unlock(&files_lock);
	return found;
}

/* The process's first GPU. */
static u32 gpu_of(const struct ds_process *process)
{
	struct ds_client *client;
	u32 gpu = RM_GPU_NONE;

	down_read(&ds_clients_lock);
	list_for_each_entry(client, &ds_clients, link) {
		if (client->process != process || gpu != RM_GPU_NONE)
			continue;
		mutex_lock(&client->tree);
		gpu = ds_client_first_gpu(client);
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	return gpu == RM_GPU_NONE ? 0 : gpu;
}

/* From all GPUs below `end`, under file->lock. */
static void uncharge(struct uvm_file *file, u32 end, u64 bytes)
{
	u32 gpu;

	for (gpu = 0; gpu < end; gpu++)
		rm_payer_uncharge(&file->payers[gpu].core, bytes);
}

static void remove_payers(struct uvm_file *file, u32 end)
{
	while (end--)
		ds_payer_remove(&file->payers[end]);
}

static void free_file(struct uvm_file *file)
{
	/* until they are no payers any more, accounts come and go */
	mutex_lock(&file->lock);
	if (file->bytes)
		uncharge(file, RM_GPUS, file->bytes);
	mutex_unlock(&file->lock);
	mtree_destroy(&file->ranges);
	remove_payers(file, RM_GPUS);
	ds_bound_drop(&file->bound);
	ds_process_put(file->process);
	kvfree(file);
}

static bool add_payers(struct uvm_file *file)
{
	u32 gpu;

	for (gpu = 0; gpu < RM_GPUS; gpu++) {
		struct ds_payer *payer = &file->payers[gpu];

		payer->lock = &file->lock;
		payer->process = file->process;
		payer->gpu = gpu;
		payer->again = gpu != file->first;
		if (ds_payer_add(payer)) {
			remove_payers(file, gpu);
			return false;
		}
	}
	return true;
}

static struct uvm_file *make_file(const struct file *key)
{
	struct uvm_file *file = kvzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);

	if (!file)
		return NULL;
	file->file = key;
	mutex_init(&file->lock);
	mt_init(&file->ranges);
	file->process = ds_process_current();
	if (!file->process)
		goto free;
	if (!ds_bound_take(&file->bound, DS_BOUND_FILES, RM_GPU_NONE, ds_bound_who(file->process), false))
		goto put;
	file->first = gpu_of(file->process);
	if (add_payers(file))
		return file;
	ds_bound_drop(&file->bound);
put:
	ds_process_put(file->process);
free:
	kvfree(file);
	return NULL;
}

static struct uvm_file *get_file_of(const struct file *key)
{
	struct uvm_file *known = find_file(key), *made;

	if (known)
		return known;
	made = make_file(key);
	if (!made)
		return NULL;
	spin_lock(&files_lock);
	hlist_for_each_entry(known, bucket_of(key), link)
		if (known->file == key)
			break;
	if (!known)
		hlist_add_head(&made->link, bucket_of(key));
	spin_unlock(&files_lock);
	if (!known)
		return made;
	free_file(made);
	return known;
}

static int charge(struct uvm_file *file, u64 bytes)
{
	struct rm_account *refuser = NULL;
	struct ds_refusal refusal;
	int err = 0;
	u32 gpu;

	mutex_lock(&file->lock);
	for (gpu = 0; gpu < RM_GPUS; gpu++) {
		err = rm_payer_charge(&file->payers[gpu].core, bytes, &refuser);
		if (err)
			break;
	}
	if (err)
		uncharge(file, gpu, bytes);
	if (err && refuser)
		ds_refusal_fill(&refusal, refuser, bytes);
	mutex_unlock(&file->lock);
	if (err) {
		ds_count(refused);
		if (refuser)
			ds_event_refused_process(file->process, gpu, &refusal);
	}
	return err;
}

static bool is_managed(const struct vm_area_struct *vma)
{
	return vma->vm_ops && vma->vm_ops->close && ds_hook_is(&hooks[VM_CLOSE], vma->vm_ops->close);
}

/* The driver has made or refused the mapping, which is charged. */
static void settle(struct uvm_file *file, const struct vm_area_struct *vma, u64 bytes, bool made)
{
	mutex_lock(&file->lock);
	if (made) {
		/* without memory to write down where it lies the charge stays until the file is closed */
		mtree_store_range(&file->ranges, vma->vm_start, vma->vm_end - 1, xa_mk_value(1),
				  GFP_KERNEL_ACCOUNT);
		file->bytes += bytes;
	} else {
		uncharge(file, RM_GPUS, bytes);
	}
	mutex_unlock(&file->lock);
}

static int charged_mmap(struct file *file, struct vm_area_struct *vma)
{
	u64 bytes = vma->vm_end - vma->vm_start;
	struct uvm_file *known;
	int ret;

	if (!ds_enforcing())
		return ds_hook_call(&hooks[MMAP], (unsigned long)file, (unsigned long)vma, 0);
	known = get_file_of(file);
	if (!known || ds_payers_follow(known->process) || charge(known, bytes))
		return -ENOMEM;
	ret = ds_hook_call(&hooks[MMAP], (unsigned long)file, (unsigned long)vma, 0);
	settle(known, vma, bytes, !ret && is_managed(vma));
	return ret;
}

static int uvm_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct ds_boost boost;
	int ret;

	ds_boost_enter(&boost);
	ds_count(calls);
	ret = charged_mmap(file, vma);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return ret;
}

/* Gives back what of [start, end) is charged. */
static void unmap(struct uvm_file *file, unsigned long start, unsigned long end)
{
	MA_STATE(mas, &file->ranges, start, start);
	u64 bytes = 0;
	void *entry;

	mutex_lock(&file->lock);
	rcu_read_lock();
	mas_for_each(&mas, entry, end - 1)
		bytes += min(mas.last, end - 1) - max(mas.index, start) + 1;
	rcu_read_unlock();
	/* without memory to write it down the charge stays until the file is closed */
	if (bytes && !mtree_store_range(&file->ranges, start, end - 1, NULL, GFP_KERNEL_ACCOUNT)) {
		file->bytes -= bytes;
		uncharge(file, RM_GPUS, bytes);
	}
	mutex_unlock(&file->lock);
}

static void uvm_vm_close(struct vm_area_struct *vma)
{
	unsigned long start = vma->vm_start, end = vma->vm_end;
	struct uvm_file *known;
	struct ds_boost boost;

	ds_boost_enter(&boost);
	known = find_file(vma->vm_file);
	ds_hook_call(&hooks[VM_CLOSE], (unsigned long)vma, 0, 0);
	/* of who ends, a file that several processes share keeps what it had: till it is closed, that is paid for */
	if (known && current->mm)
		unmap(known, start, end);
	ds_boost_leave(&boost);
	ds_hook_leave();
}

static int uvm_release(struct inode *inode, struct file *file)
{
	struct ds_boost boost;
	struct uvm_file *known;
	int ret;

	ds_boost_enter(&boost);
	ret = ds_hook_call(&hooks[RELEASE], (unsigned long)inode, (unsigned long)file, 0);
	known = find_file(file);
	if (known) {
		spin_lock(&files_lock);
		hlist_del(&known->link);
		spin_unlock(&files_lock);
		free_file(known);
	}
	ds_boost_leave(&boost);
	ds_hook_leave();
	return ret;
}

static bool is_limited(void)
{
	struct ds_process *process;
	bool limited;

	if (!ds_enforcing())
		return false;
	process = ds_process_current();
	limited = !process || ds_process_limited(process);
	ds_process_put(process);
	return limited;
}

/*
 * A file of UVM becomes somebody's. With HMM the driver puts a program's plain memory into video memory as the GPU touches it, and nobody is asked:
 * who is limited goes without.
 */
static u32 uvm_create(struct address_space *mapping, void **space, u64 flags)
{
	struct ds_boost boost;
	u32 status;

	ds_boost_enter(&boost);
	ds_count(calls);
	if (is_limited())
		flags |= UVM_INIT_FLAGS_DISABLE_HMM;
	status = (u32)ds_hook_call(&hooks[CREATE], (unsigned long)mapping, (unsigned long)space, flags);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return status;
}

/* What has the driver copy managed memory by a channel of its own. The memory is the file's, whoever calls. */
static u32 move(const struct ds_hook *hook, void *params, struct file *file)
{
	struct ds_boost boost;
	u32 status = NV_ERR_BUSY_RETRY;	/* which nobody hears: it is being killed */
	struct uvm_file *known;

	ds_boost_enter(&boost);
	ds_count(calls);
	known = find_file(file);
	if (may_move(known ? known->process : NULL))
		status = (u32)ds_hook_call(hook, (unsigned long)params, (unsigned long)file, 0);
	ds_boost_leave(&boost);
	ds_hook_leave();
	return status;
}

static u32 uvm_migrate(void *params, struct file *file)
{
	return move(&hooks[MIGRATE], params, file);
}

static u32 uvm_migrate_group(void *params, struct file *file)
{
	return move(&hooks[MIGRATE_GROUP], params, file);
}

static u32 uvm_set_group(void *params, struct file *file)
{
	return move(&hooks[SET_GROUP], params, file);
}

static u32 uvm_prevent_groups(void *params, struct file *file)
{
	return move(&hooks[PREVENT_GROUPS], params, file);
}

static u32 uvm_tools_read(void *params, struct file *file)
{
	return move(&hooks[TOOLS_READ], params, file);
}

static u32 uvm_tools_write(void *params, struct file *file)
{
	return move(&hooks[TOOLS_WRITE], params, file);
}

void ds_uvm_ask_mover(bool (*ask)(struct ds_process *owner))
{
	may_move = ask;
}

u64 ds_uvm_managed(const struct ds_process *process)
{
	struct uvm_file *file;
	u64 bytes = 0;
	unsigned int i;

	spin_lock(&files_lock);
	for (i = 0; i < ARRAY_SIZE(files); i++)
		hlist_for_each_entry(file, &files[i], link)
			if (file->process == process)
				bytes += READ_ONCE(file->bytes);
	spin_unlock(&files_lock);
	return bytes;
}

void ds_uvm_exit(void)
{
	struct uvm_file *file;
	struct hlist_node *next;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(files); i++)
		hlist_for_each_entry_safe(file, next, &files[i], link)
			free_file(file);
}
