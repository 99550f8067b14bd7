// SPDX-License-Identifier: GPL-2.0-only
/* nvidia.ko that hands each call to a helper on the host: devices, and what the host is asked first. */
#include <linux/cdev.h>
#include <linux/init.h>
#include <linux/module.h>

#include "fwd.h"

#define NVIDIA_MAJOR 195
#define MINORS 256

static struct nvf_hello hello;
const struct nvf_hello *nvf_host = &hello;
static struct cdev devices;

static int ask_host(void)
{
	struct nvf_call *call = nvf_call_new(NVF_HELLO, -1, 0, sizeof(hello));
	int error;

	if (!call)
		return -ENOMEM;
	error = nvf_call_wait(call);
	if (error)
		return error;
	error = call->rep.err ?: call->rep.len == sizeof(hello) ? 0 : -EPROTO;
	memcpy(&hello, call->out, sizeof(hello));
	nvf_call_free(call);
	hello.version[sizeof(hello.version) - 1] = '\0';
	for (u32 i = 0; i < NVF_GPUS; i++)
		hello.slots[i][sizeof(hello.slots[i]) - 1] = '\0';
	if (!error && (hello.gpus > NVF_GPUS || !hello.version[0]))
		error = -EPROTO;
	return error;
}

/* As the driver's own: user space reads /sys/module/nvidia/version. */
static ssize_t version_show(struct kobject *kobject, struct kobj_attribute *attribute, char *buffer)
{
	return sysfs_emit(buffer, "%s\n", hello.version);
}

static struct kobj_attribute version_attribute = __ATTR(version, 0444, version_show, NULL);

static int __init nvf_init(void)
{
	int error = nvf_queue_init();

	if (error)
		return error;
	error = ask_host();
	if (error)
		goto fail_queue;
	error = nvf_proc_init();
	if (error)
		goto fail_queue;
	error = register_chrdev_region(MKDEV(NVIDIA_MAJOR, 0), MINORS, "nvidia");
	if (error)
		goto fail_proc;
	cdev_init(&devices, &nvidia_fops);
	devices.owner = THIS_MODULE;
	error = cdev_add(&devices, MKDEV(NVIDIA_MAJOR, 0), MINORS);
	if (error)
		goto fail_region;
	if (sysfs_create_file(&THIS_MODULE->mkobj.kobj, &version_attribute.attr))
		pr_warn("nvidia: /sys/module/nvidia/version could not be made\n");
	pr_info("nvidia: forwards to %s %s, %u GPU(s)\n", hello.replayed ? "a recording of driver" : "driver", hello.version,
		hello.gpus);
	return 0;
fail_region:
	unregister_chrdev_region(MKDEV(NVIDIA_MAJOR, 0), MINORS);
fail_proc:
	nvf_proc_exit();
fail_queue:
	nvf_queue_exit();
	return error;
}

static void __exit nvf_exit(void)
{
	sysfs_remove_file(&THIS_MODULE->mkobj.kobj, &version_attribute.attr);
	cdev_del(&devices);
	unregister_chrdev_region(MKDEV(NVIDIA_MAJOR, 0), MINORS);
	nvf_proc_exit();
	nvf_queue_exit();
}

module_init(nvf_init);
module_exit(nvf_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("NVIDIA's driver of the host, forwarded call by call");
