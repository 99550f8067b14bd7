// SPDX-License-Identifier: GPL-2.0-only
#include <linux/err.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "client.h"
#include "pin.h"

struct ds_keeper {
	struct list_head link;
	refcount_t refs;
	struct mutex lock;	/* guards the payer */
	struct ds_holder holder;
	u64 stuck;		/* bytes of deaths that there was no memory to note; given back at the end */
};

/* Part of what a pin holds: a memory, or bytes that are nobody else's. */
struct stake {
	struct list_head link;
	struct ds_keeper *keeper;
	struct rm_memory *memory;
	u64 bytes;
	u32 gpu, class;
};

struct ds_pin {
	refcount_t refs;	/* the owner's, and the worker's */
	struct mutex lock;
	struct list_head stakes;
	bool dropped;		/* nothing more is held */
	/* in flight: */
	struct list_head link;	/* client->pins; guarded by client->tree */
	struct ds_client *client;	/* read under ds_clients_lock; NULL: not in flight */
	u32 handle;
	bool odd;		/* what the handle names now may be something else than the driver found */
	struct work_struct work;
};

static LIST_HEAD(keepers);
static DEFINE_MUTEX(keepers_lock);	/* above the core's mutex only */
static atomic_t pin_count;
static struct workqueue_struct *queue;

/* ---- keepers ------------------------------------------------------------- */

struct ds_keeper *ds_keeper_make(struct ds_process *process, u32 gpu)
{
	struct ds_keeper *keeper = kzalloc(sizeof(*keeper), GFP_KERNEL_ACCOUNT);
	int err;

	if (!keeper)
		return ERR_PTR(-ENOMEM);
	refcount_set(&keeper->refs, 1);
	mutex_init(&keeper->lock);
	keeper->holder = (struct ds_holder){
		.lock = &keeper->lock,
		.process = ds_process_hold(process),
		.gpu = gpu,
		.keeps = true,
	};
	err = ds_holder_add(&keeper->holder);
	if (err) {
		ds_process_put(process);
		kfree(keeper);
		return ERR_PTR(err);
	}
	mutex_lock(&keepers_lock);
	list_add_tail(&keeper->link, &keepers);
	mutex_unlock(&keepers_lock);
	return keeper;
}

void ds_keeper_put(struct ds_keeper *keeper)
{
	if (!keeper || !refcount_dec_and_test(&keeper->refs))
		return;
	mutex_lock(&keepers_lock);
	list_del(&keeper->link);
	mutex_unlock(&keepers_lock);
	mutex_lock(&keeper->lock);
	rm_payer_uncharge(&keeper->holder.payer, keeper->stuck);
	mutex_unlock(&keeper->lock);
	ds_holder_remove(&keeper->holder);
	ds_process_put(keeper->holder.process);
	kfree(keeper);
}

u64 ds_keeper_kept(struct ds_keeper *keeper)
{
	return rm_payer_kept(&keeper->holder.payer);
}

u64 ds_pins_kept(u32 gpu)
{
	struct ds_keeper *keeper;
	u64 bytes = 0;

	mutex_lock(&keepers_lock);
	list_for_each_entry(keeper, &keepers, link)
		if (keeper->holder.gpu == gpu)
			bytes += ds_keeper_kept(keeper);
	mutex_unlock(&keepers_lock);
	return bytes;
}

/* Who pays for an object on that GPU. Under client->tree. */
static struct ds_keeper *keeper_of(struct ds_client *client, u32 gpu)
{
	struct ds_vctx *vctx = ds_vctx_find(client, gpu);

	if (!vctx || gpu == RM_GPU_NONE)
		vctx = ds_vctx_find(client, ds_client_first_gpu(client)) ?: vctx;
	return (vctx ?: ds_vctx_find(client, RM_GPU_NONE))->keeper;
}

/* ---- stakes: the pin's lock is held, or nobody else has the pin ------------ */

static struct stake *add_stake(struct ds_pin *pin, struct ds_keeper *keeper)
{
	struct stake *stake = kzalloc(sizeof(*stake), GFP_KERNEL_ACCOUNT);

	if (!stake)
		return NULL;
	refcount_inc(&keeper->refs);
	stake->keeper = keeper;
	list_add_tail(&stake->link, &pin->stakes);
	return stake;
}

static void remove_stake(struct stake *stake)
{
	list_del(&stake->link);
	ds_keeper_put(stake->keeper);
	kfree(stake);
}

static bool holds(const struct ds_pin *pin, const struct rm_memory *memory)
{
	struct stake *stake;

	list_for_each_entry(stake, &pin->stakes, link)
		if (memory && stake->memory == memory)
			return true;
	return false;
}

/* 0: held, or there is nothing to hold; -ENOMEM. The client's tree is locked. */
static int hold_object(struct ds_pin *pin, struct ds_client *client, struct rm_object *object)
{
	struct rm_memory *memory;
	struct stake *stake;
	int err;

	if (!rm_object_bytes(object) || holds(pin, object->memory))
		return 0;
	stake = add_stake(pin, keeper_of(client, object->gpu));
	if (!stake)
		return -ENOMEM;
	err = rm_memory_share(&client->rm, object, &memory);
	if (!err) {
		mutex_lock(&stake->keeper->lock);
		err = rm_memory_hold_force(memory, &stake->keeper->holder.payer);
		mutex_unlock(&stake->keeper->lock);
	}
	if (err) {
		remove_stake(stake);
		return err;
	}
	stake->memory = memory;
	stake->gpu = object->gpu;
	stake->class = object->class;
	return 0;
}

static void release_stakes(struct list_head *stakes)
{
	struct stake *stake, *next;

	list_for_each_entry_safe(stake, next, stakes, link) {
		struct rm_payer *payer = &stake->keeper->holder.payer;

		mutex_lock(&stake->keeper->lock);
		if (stake->memory)
			rm_memory_drop(stake->memory, payer);
		else
			rm_payer_uncharge(payer, stake->bytes);
		mutex_unlock(&stake->keeper->lock);
		remove_stake(stake);
	}
}

/* ---- pins ------------------------------------------------------------------ */

static void look_again(struct work_struct *work);

static struct ds_pin *make_pin(void)
{
	struct ds_pin *pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);

	if (!pin)
		return NULL;
	refcount_set(&pin->refs, 1);
	mutex_init(&pin->lock);
	INIT_LIST_HEAD(&pin->stakes);
	INIT_LIST_HEAD(&pin->link);
	INIT_WORK(&pin->work, look_again);
	atomic_inc(&pin_count);
	return pin;
}

static void put_pin(struct ds_pin *pin)
{
	if (!refcount_dec_and_test(&pin->refs))
		return;
	atomic_dec(&pin_count);
	kfree(pin);
}

struct ds_pin *ds_pin_object(struct ds_client *client, struct rm_object *object)
{
	struct ds_pin *pin;

	if (!rm_object_bytes(object))
		return NULL;
	pin = make_pin();
	if (!pin)
		return ERR_PTR(-ENOMEM);
	if (!hold_object(pin, client, object))
		return pin;
	put_pin(pin);
	return ERR_PTR(-ENOMEM);
}

struct ds_pin *ds_pin_bytes(struct ds_client *client, u32 gpu, u64 bytes)
{
	struct ds_pin *pin = make_pin();
	struct stake *stake = pin ? add_stake(pin, keeper_of(client, gpu)) : NULL;

	if (!stake) {
		if (pin)
			put_pin(pin);
		return ERR_PTR(-ENOMEM);
	}
	mutex_lock(&stake->keeper->lock);
	rm_payer_force(&stake->keeper->holder.payer, bytes);
	mutex_unlock(&stake->keeper->lock);
	stake->bytes = bytes;
	stake->gpu = gpu;
	return pin;
}

struct rm_memory *ds_pin_memory(struct ds_pin *pin, u32 *gpu, u32 *class)
{
	struct stake *stake;
	struct rm_memory *memory = NULL;

	mutex_lock(&pin->lock);
	stake = list_first_entry_or_null(&pin->stakes, struct stake, link);
	if (stake && list_is_singular(&pin->stakes)) {
		memory = stake->memory;
		*gpu = stake->gpu;
		*class = stake->class;
	}
	mutex_unlock(&pin->lock);
	return memory;
}

bool ds_pin_limited(struct ds_pin *pin)
{
	struct stake *stake;
	struct rm_view view;
	bool limited = false;

	mutex_lock(&pin->lock);
	list_for_each_entry(stake, &pin->stakes, link) {
		mutex_lock(&stake->keeper->lock);
		rm_payer_view(&stake->keeper->holder.payer, &view);
		mutex_unlock(&stake->keeper->lock);
		limited |= view.limit != RM_NO_LIMIT;
	}
	mutex_unlock(&pin->lock);
	return limited;
}

/* Under client->tree. */
static int begin(struct ds_pin *pin, struct ds_client *client)
{
	struct rm_object *object = rm_tree_find(&client->rm, pin->handle);
	int err = object ? hold_object(pin, client, object) : 0;

	if (err)
		return err;
	pin->odd = !object;
	pin->client = client;
	list_add_tail(&pin->link, &client->pins);
	return 0;
}

struct ds_pin *ds_pin_begin(u32 client_handle, u32 handle)
{
	struct ds_pin *pin = make_pin();
	struct ds_client *client;
	int err = 0;

	if (!pin)
		return ERR_PTR(-ENOMEM);
	pin->handle = handle;
	down_read(&ds_clients_lock);
	client = ds_client_find(client_handle);
	if (client) {
		mutex_lock(&client->tree);
		err = begin(pin, client);
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	if (client && !err)
		return pin;
	put_pin(pin);
	return err ? ERR_PTR(err) : NULL;
}

bool ds_pin_odd(const struct ds_pin *pin)
{
	return READ_ONCE(pin->odd);
}

/* Takes the pin out of its client's list, unless it must stay there. Returns whether it must. */
static bool leave_flight(struct ds_pin *pin, bool even_if_odd)
{
	struct ds_client *client;
	bool stays = false;

	/* those that never fly are dropped under a tree */
	if (!READ_ONCE(pin->client))
		return false;
	down_read(&ds_clients_lock);
	client = pin->client;
	if (client) {
		mutex_lock(&client->tree);
		stays = pin->odd && !even_if_odd;
		if (!stays) {
			list_del_init(&pin->link);
			pin->client = NULL;
		}
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
	return stays;
}

void ds_pin_landed(struct ds_pin *pin)
{
	if (!leave_flight(pin, false))
		return;
	refcount_inc(&pin->refs);
	queue_work(queue, &pin->work);
}

void ds_pin_drop(struct ds_pin *pin)
{
	LIST_HEAD(stakes);

	if (!pin)
		return;
	leave_flight(pin, true);
	mutex_lock(&pin->lock);
	pin->dropped = true;
	list_splice_init(&pin->stakes, &stakes);
	mutex_unlock(&pin->lock);
	release_stakes(&stakes);
	put_pin(pin);
}

/* The order of the client's file is held, so its tree is what the driver has. */
static void find_anew(struct ds_pin *pin)
{
	struct ds_client *client;
	struct rm_object *object;

	down_read(&ds_clients_lock);
	client = pin->client;
	if (client) {
		mutex_lock(&client->tree);
		object = rm_tree_find(&client->rm, pin->handle);
		mutex_lock(&pin->lock);
		if (object && !pin->dropped && hold_object(pin, client, object))
			pr_warn_once("no memory to note what the driver keeps of process %d\n",
				     ds_process_nr(client->process));
		mutex_unlock(&pin->lock);
		list_del_init(&pin->link);
		pin->client = NULL;
		mutex_unlock(&client->tree);
	}
	up_read(&ds_clients_lock);
}

static void look_again(struct work_struct *work)
{
	struct ds_pin *pin = container_of(work, struct ds_pin, work);
	struct ds_file *file = NULL;

	down_read(&ds_clients_lock);
	if (pin->client)
		file = ds_file_hold(pin->client->file);
	up_read(&ds_clients_lock);
	if (file) {
		mutex_lock(&file->order);
		find_anew(pin);
		mutex_unlock(&file->order);
		ds_file_put(file);
	}
	put_pin(pin);
}

static void keep(struct ds_pin *pin, struct ds_client *client, struct rm_object *object)
{
	struct ds_keeper *keeper = keeper_of(client, object->gpu);
	u64 bytes = rm_object_bytes(object);

	WRITE_ONCE(pin->odd, true);
	mutex_lock(&pin->lock);
	if (!pin->dropped && hold_object(pin, client, object)) {
		mutex_lock(&keeper->lock);
		rm_payer_force(&keeper->holder.payer, bytes);
		keeper->stuck += bytes;
		mutex_unlock(&keeper->lock);
	}
	mutex_unlock(&pin->lock);
}

void ds_pins_keep(struct ds_client *client, struct rm_object *object)
{
	struct ds_pin *pin;

	list_for_each_entry(pin, &client->pins, link)
		if (pin->handle == object->handle)
			keep(pin, client, object);
}

void ds_pins_orphan(struct ds_client *client)
{
	struct ds_pin *pin, *next;

	list_for_each_entry_safe(pin, next, &client->pins, link) {
		list_del_init(&pin->link);
		pin->client = NULL;
	}
}

unsigned int ds_pin_count(void)
{
	return atomic_read(&pin_count);
}

int ds_pin_init(void)
{
	/* its work waits for driver calls, each on another file: one must not wait for the other */
	queue = alloc_workqueue("detshare_pin", WQ_UNBOUND, WQ_UNBOUND_MAX_ACTIVE);
	return queue ? 0 : -ENOMEM;
}

void ds_pin_exit(void)
{
	destroy_workqueue(queue);
}
