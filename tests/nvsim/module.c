// SPDX-License-Identifier: GPL-2.0-only
/* nvidia.ko: parameters, GPUs, devices. */
#include <linux/cdev.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/uuid.h>

#include "files.h"
#include "fops.h"
#include "sim.h"

static char *version = "580.159.04";
module_param(version, charp, 0444);
MODULE_PARM_DESC(version, "550.163.01, 580.65.06, 580.142 or 580.159.04: decides structure sizes and what is answered");
static char *says = "";
module_param(says, charp, 0444);
MODULE_PARM_DESC(says, "another version to tell everybody: a driver that nobody knows");
static unsigned int gpus = 1;
module_param(gpus, uint, 0444);
MODULE_PARM_DESC(gpus, "number of GPUs, 1 to 4");
static unsigned int heap_mb = 81559;
module_param(heap_mb, uint, 0444);
MODULE_PARM_DESC(heap_mb, "device memory of each GPU, MiB");
static unsigned int sms = 132;
module_param(sms, uint, 0444);
MODULE_PARM_DESC(sms, "streaming multiprocessors of each GPU");
static char *uuid = "3b269624-5005-67c3-4026-6cc0bb057439";
module_param(uuid, charp, 0444);
MODULE_PARM_DESC(uuid, "UUID of the first GPU; the others' differ in the first eight digits");
module_param_named(first_client, sim_next_client, uint, 0444);
MODULE_PARM_DESC(first_client, "index of the first client handle");
module_param_named(race_us, sim_race_us, uint, 0644);
MODULE_PARM_DESC(race_us, "wait so long between the copies of a call's outer block and of its parameters");

struct sim_gpu sim_gpus[SIM_GPUS_MAX];
unsigned int sim_gpu_count;
const char *sim_version;
static struct cdev devices;

struct sim_gpu *sim_gpu_by_id(u32 id)
{
	for (unsigned int i = 0; i < sim_gpu_count; i++)
		if (sim_gpus[i].id == id)
			return &sim_gpus[i];
	return NULL;
}

struct sim_gpu *sim_gpu_by_uuid(const u8 *wanted)
{
	for (unsigned int i = 0; i < sim_gpu_count; i++)
		if (!memcmp(sim_gpus[i].uuid, wanted, sizeof(sim_gpus[i].uuid)))
			return &sim_gpus[i];
	return NULL;
}
EXPORT_SYMBOL_GPL(sim_gpu_by_uuid);

struct sim_gpu *sim_gpu_by_instance(u64 instance)
{
	return instance < sim_gpu_count ? &sim_gpus[instance] : NULL;
}

static int choose_version(void)
{
	static const struct {
		const char *name;
		int abi;
	} known[] = { { "550.163.01", 0 }, { "580.65.06", 1 }, { "580.142", 2 }, { "580.159.04", 2 } };

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (!strcmp(version, known[i].name)) {
			sim_abi = known[i].abi;
			sim_version = says[0] ? says : known[i].name;
			return 0;
		}
	}
	pr_err("nvidia: no simulated driver %s; there are 550.163.01, 580.65.06, 580.142, 580.159.04\n", version);
	return -EINVAL;
}

static int make_gpu(unsigned int index)
{
	struct sim_gpu *gpu = &sim_gpus[index];
	uuid_t parsed;

	if (uuid_parse(uuid, &parsed)) {
		pr_err("nvidia: %s is no UUID\n", uuid);
		return -EINVAL;
	}
	memcpy(gpu->uuid, &parsed, sizeof(gpu->uuid));
	if (index) {
		memset(gpu->uuid, 0, 3);
		gpu->uuid[3] = index;
	}
	gpu->index = index;
	gpu->bus = 6 + index;
	gpu->id = gpu->bus;
	spin_lock_init(&gpu->heap.lock);
	mutex_init(&gpu->open_files_lock);
	mutex_init(&gpu->mmap_lock);
	INIT_LIST_HEAD(&gpu->open_files);
	gpu->safe_to_mmap = true;
	gpu->heap.size = (u64)heap_mb << 20;
	gpu->engine = sim_engine_create(index, sms, &sim_vas_ops);
	if (IS_ERR(gpu->engine))
		return PTR_ERR(gpu->engine);
	sim_gpu_count = index + 1;
	return 0;
}

static void drop_gpus(void)
{
	while (sim_gpu_count)
		sim_engine_destroy(sim_gpus[--sim_gpu_count].engine);
}

/* As the driver's own: user space reads /sys/module/nvidia/version. */
static ssize_t version_show(struct kobject *kobject, struct kobj_attribute *attribute, char *buffer)
{
	return sysfs_emit(buffer, "%s\n", sim_version);
}

static struct kobj_attribute version_attribute = __ATTR(version, 0444, version_show, NULL);

static int __init sim_init(void)
{
	int error;

	if (!gpus || gpus > SIM_GPUS_MAX || !heap_mb || !sms) {
		pr_err("nvidia: gpus=%u heap_mb=%u sms=%u cannot be\n", gpus, heap_mb, sms);
		return -EINVAL;
	}
	error = choose_version();
	for (unsigned int i = 0; i < gpus && !error; i++)
		error = make_gpu(i);
	if (error)
		goto fail_gpus;
	error = sim_debugfs_init();
	if (error)
		goto fail_gpus;
	error = sim_proc_init();
	if (error)
		goto fail_debugfs;
	error = register_chrdev_region(MKDEV(SIM_MAJOR, 0), SIM_CTL_MINOR + 1, "nvidia");
	if (error)
		goto fail_proc;
	cdev_init(&devices, &nvidia_fops);
	devices.owner = THIS_MODULE;
	error = cdev_add(&devices, MKDEV(SIM_MAJOR, 0), SIM_CTL_MINOR + 1);
	if (error)
		goto fail_region;
	if (sysfs_create_file(&THIS_MODULE->mkobj.kobj, &version_attribute.attr))
		pr_warn("nvidia: /sys/module/nvidia/version could not be made\n");
	pr_info("nvidia: simulated driver %s, %u GPU(s) with %u MiB and %u SMs\n", sim_version, gpus, heap_mb, sms);
	return 0;
fail_region:
	unregister_chrdev_region(MKDEV(SIM_MAJOR, 0), SIM_CTL_MINOR + 1);
fail_proc:
	sim_proc_exit();
fail_debugfs:
	sim_debugfs_exit();
fail_gpus:
	drop_gpus();
	return error;
}

static void __exit sim_exit(void)
{
	sysfs_remove_file(&THIS_MODULE->mkobj.kobj, &version_attribute.attr);
	cdev_del(&devices);
	unregister_chrdev_region(MKDEV(SIM_MAJOR, 0), SIM_CTL_MINOR + 1);
	sim_rmops_exit();
	sim_proc_exit();
	sim_debugfs_exit();
	drop_gpus();
	WARN_ON(sim_client_count || sim_object_count);
	WARN_ON(atomic_long_read(&sim_host_pages));
}

module_init(sim_init);
module_exit(sim_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Simulated NVIDIA driver: resource manager, heap and scheduler without a GPU");
