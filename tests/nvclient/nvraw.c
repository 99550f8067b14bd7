// SPDX-License-Identifier: Apache-2.0
/*
 * A fixed sequence of calls that the genuine driver answers without a GPU, with every byte that came back in hex, one call
 * a line. Two runs on one driver print the same: buffers and descriptors have fixed places, and handles that RM chose are
 * printed as 0xc1d00000 + how many it chose before.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "options.h"

#define ARENA		0x20000000ul
#define OUTER		((u8 *)ARENA)
#define WRAPPER		((u8 *)(ARENA + 0x1000))
#define NESTED		((u8 *)(ARENA + 0x2000))
#define EMBEDDED	((u8 *)(ARENA + 0x4000))
#define FIRST_FD	200
#define MOST_CHOSEN	64

static const char usage[] =
	"[--version V]\n"
	"Calls the driver in a fixed order and prints every answer in hex, the same in each run on one driver.\n"
	"  --version V  use the tables of driver V instead of the loaded one's\n"
	"example: nvraw >before; insmod detshare.ko; nvraw | diff before -";

static struct nv nv;
static u32 chosen[MOST_CHOSEN];
static unsigned int chosen_count;

static int place(int fd)
{
	static int next = FIRST_FD;
	int placed;

	if (fd < 0)
		return fd;
	placed = fcntl(fd, F_DUPFD_CLOEXEC, next++);
	close(fd);
	return placed;
}

/* RM's own choice in these bytes, put into its place in the order of choices. */
static void normalise(u8 *bytes, u32 size)
{
	u32 at, value;
	unsigned int i;

	for (at = 0; at + 4 <= size; at += 4) {
		memcpy(&value, bytes + at, 4);
		for (i = 0; i < chosen_count; i++)
			if (value == chosen[i])
				memcpy(bytes + at, &(u32){ 0xc1d00000 + i }, 4);
	}
}

static void hex(const char *label, const u8 *bytes, u32 size)
{
	u8 copy[0x2000];
	u32 i;

	memcpy(copy, bytes, size);
	normalise(copy, size);
	printf(" %s=", label);
	for (i = 0; i < size; i++)
		printf("%02x", copy[i]);
}

static int call(const char *name, int fd, unsigned long request, u8 *block, u32 size, u32 nested)
{
	int error = ioctl(fd, request, block) < 0 ? errno : 0;

	printf("%s errno=%d", name, error);
	hex("block", OUTER, size);
	if (nested)
		hex("nested", NESTED, nested);
	putchar('\n');
	return error;
}

static int escape(const char *name, int fd, u32 nr, u32 size, u32 nested)
{
	return call(name, fd, _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, nr, size), OUTER, size, nested);
}

static void fresh(u8 fill)
{
	memset(OUTER, 0, 0x1000);
	memset(NESTED, fill, 0x2000);
}

static u32 root(const char *name, u32 class, bool os21, bool xfer)
{
	u32 size = os21 ? nv.abi->nvos21.len : nv.abi->nvos64.len;
	u32 handle;

	fresh(0);
	rm_put32(OUTER, nv.abi->nvos64.hClass, class);
	if (xfer) {
		memset(WRAPPER, 0, 0x100);
		rm_put32(WRAPPER, nv.abi->xfer.cmd, NV_ESC_RM_ALLOC);
		rm_put32(WRAPPER, nv.abi->xfer.size, size);
		rm_put64(WRAPPER, nv.abi->xfer.ptr, (uintptr_t)OUTER);
		(void)!ioctl(nv.ctl, _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, NV_ESC_IOCTL_XFER_CMD, nv.abi->xfer.len),
			     WRAPPER);
	} else {
		(void)!ioctl(nv.ctl, _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, NV_ESC_RM_ALLOC, size), OUTER);
	}
	handle = rm_get32(OUTER, nv.abi->nvos64.hObjectNew);
	if (handle && chosen_count < MOST_CHOSEN)
		chosen[chosen_count++] = handle;
	printf("%s", name);
	hex("block", OUTER, size);
	putchar('\n');
	return handle;
}

static void control(const char *name, u32 client, u32 object, u32 cmd, u32 size)
{
	memset(OUTER, 0, 0x1000);
	rm_put32(OUTER, nv.abi->nvos54.hClient, client);
	rm_put32(OUTER, nv.abi->nvos54.hObject, object);
	rm_put32(OUTER, nv.abi->nvos54.cmd, cmd);
	rm_put64(OUTER, nv.abi->nvos54.params, size ? (uintptr_t)NESTED : 0);
	rm_put32(OUTER, nv.abi->nvos54.paramsSize, size);
	escape(name, nv.ctl, NV_ESC_RM_CONTROL, nv.abi->nvos54.len, size);
}

static void free_object(const char *name, u32 client, u32 object)
{
	fresh(0);
	rm_put32(OUTER, nv.abi->nvos00.hRoot, client);
	rm_put32(OUTER, nv.abi->nvos00.hObjectParent, client);
	rm_put32(OUTER, nv.abi->nvos00.hObjectOld, object);
	escape(name, nv.ctl, NV_ESC_RM_FREE, nv.abi->nvos00.len, 0);
}

static void version_handshake(void)
{
	static const char commands[] = { '2', 0, '1' };
	char name[32];
	size_t i;

	for (i = 0; i < sizeof(commands); i++) {
		fresh(0);
		rm_put32(OUTER, nv.abi->version_str.cmd, (u8)commands[i]);
		strcpy((char *)OUTER + nv.abi->version_str.versionString.off, commands[i] == '2' ? "" : "1.2.3");
		snprintf(name, sizeof(name), "CHECK_VERSION_STR/%zu", i);
		escape(name, nv.ctl, NV_ESC_CHECK_VERSION_STR, nv.abi->version_str.len, 0);
	}
}

static void build_version(u32 client)
{
	u64 at;
	int i;

	fresh(0);
	memset(EMBEDDED, 0, 0x1000);
	memcpy(NESTED, &(u32){ 256 }, 4);
	for (i = 0; i < 3; i++) {
		at = (uintptr_t)EMBEDDED + 0x400 * i;
		memcpy(NESTED + 8 + 8 * i, &at, 8);
	}
	control("GET_BUILD_VERSION", client, client, 0x101, 40);
	printf("GET_BUILD_VERSION strings=%s|%s|%s\n", EMBEDDED, EMBEDDED + 0x400, EMBEDDED + 0x800);
}

static void device(const char *name, u32 client, bool os21)
{
	u32 size = os21 ? nv.abi->nvos21.len : nv.abi->nvos64.len;

	fresh(0);
	rm_put32(OUTER, nv.abi->nvos64.hRoot, client);
	rm_put32(OUTER, nv.abi->nvos64.hObjectParent, client);
	rm_put32(OUTER, nv.abi->nvos64.hObjectNew, 0xcaf00001);
	rm_put32(OUTER, nv.abi->nvos64.hClass, NV01_DEVICE_0);
	rm_put64(OUTER, nv.abi->nvos64.pAllocParms, (uintptr_t)NESTED);
	if (os21)
		rm_put32(OUTER, nv.abi->nvos21.paramsSize, nv.abi->device.len);
	else
		rm_put32(OUTER, nv.abi->nvos64.paramsSize, nv.abi->device.len);
	rm_put32(NESTED, nv.abi->device.deviceId, 31);
	escape(name, nv.ctl, NV_ESC_RM_ALLOC, size, nv.abi->device.len);
}

static void without_device(u32 client)
{
	fresh(0);
	rm_put32(OUTER, nv.abi->nvos32.hRoot, client);
	rm_put32(OUTER, nv.abi->nvos32.hObjectParent, 0xcaf00001);
	rm_put32(OUTER, nv.abi->nvos32.function, NVOS32_FUNCTION_ALLOC_SIZE);
	rm_put64(OUTER, nv.abi->nvos32.data_AllocSize_size, 1 << 20);
	escape("VID_HEAP_CONTROL without a device", nv.ctl, NV_ESC_RM_VID_HEAP_CONTROL, nv.abi->nvos32.len, 0);
	fresh(0);
	rm_put32(OUTER, nv.abi->nvos64.hRoot, client);
	rm_put32(OUTER, nv.abi->nvos64.hObjectParent, client);
	rm_put32(OUTER, nv.abi->nvos64.hObjectNew, 0xcaf00002);
	rm_put32(OUTER, nv.abi->nvos64.hClass, NV01_MEMORY_LOCAL_USER);
	rm_put64(OUTER, nv.abi->nvos64.pAllocParms, (uintptr_t)NESTED);
	rm_put64(NESTED, nv.abi->memory.size, 1 << 20);
	escape("RM_ALLOC memory below a client", nv.ctl, NV_ESC_RM_ALLOC, nv.abi->nvos64.len, nv.abi->memory.len);
	fresh(0);
	rm_put32(OUTER, nv.abi->nvos55.hClient, client);
	rm_put32(OUTER, nv.abi->nvos55.hParent, client);
	rm_put32(OUTER, nv.abi->nvos55.hObject, 0xcaf00003);
	rm_put32(OUTER, nv.abi->nvos55.hClientSrc, client);
	rm_put32(OUTER, nv.abi->nvos55.hObjectSrc, 0xcaf00004);
	escape("RM_DUP_OBJECT of nothing", nv.ctl, NV_ESC_RM_DUP_OBJECT, nv.abi->nvos55.len, 0);
	fresh(0);
	rm_put32(OUTER, nv.abi->nvos33.hClient, client);
	rm_put32(OUTER, nv.abi->nvos33.fd, nv.ctl);
	escape("RM_MAP_MEMORY of nothing", nv.ctl, NV_ESC_RM_MAP_MEMORY, nv.abi->nvos33.len, 0);
}

/* Parameters in the serialised form: no driver has one for any class, nor for these controls. */
static void serialised_alloc(const char *name, u32 client, u32 class)
{
	fresh(0);
	rm_put32(OUTER, nv.abi->nvos64.hRoot, client);
	rm_put32(OUTER, nv.abi->nvos64.hObjectParent, client);
	rm_put32(OUTER, nv.abi->nvos64.hObjectNew, 0xcaf00005);
	rm_put32(OUTER, nv.abi->nvos64.hClass, class);
	rm_put64(OUTER, nv.abi->nvos64.pAllocParms, (uintptr_t)NESTED);
	rm_put32(OUTER, nv.abi->nvos64.flags, NVOS64_FLAGS_FINN_SERIALIZED);
	escape(name, nv.ctl, NV_ESC_RM_ALLOC, nv.abi->nvos64.len, 64);
}

static void serialised_control(const char *name, u32 client, u32 cmd, u32 size)
{
	fresh(0);
	rm_put32(OUTER, nv.abi->nvos54.hClient, client);
	rm_put32(OUTER, nv.abi->nvos54.hObject, client);
	rm_put32(OUTER, nv.abi->nvos54.cmd, cmd);
	rm_put32(OUTER, nv.abi->nvos54.flags, NVOS54_FLAGS_FINN_SERIALIZED);
	rm_put64(OUTER, nv.abi->nvos54.params, (uintptr_t)NESTED);
	rm_put32(OUTER, nv.abi->nvos54.paramsSize, size);
	escape(name, nv.ctl, NV_ESC_RM_CONTROL, nv.abi->nvos54.len, size);
}

static void serialised(u32 client)
{
	serialised_alloc("RM_ALLOC NV01_DEVICE_0, serialised", client, NV01_DEVICE_0);
	serialised_alloc("RM_ALLOC NV01_MEMORY_LOCAL_USER, serialised", client, NV01_MEMORY_LOCAL_USER);
	serialised_alloc("RM_ALLOC of no class, serialised", client, 0x17d8aae7);
	serialised_control("GET_ATTACHED_IDS, serialised", client, 0x201, 128);
	serialised_control("EXPORT_OBJECT_TO_FD, serialised", client, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD,
			   nv.abi->export_to_fd.len);
	serialised_control("EXPORT_OBJECTS_TO_FD, serialised", client, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD,
			   nv.abi->exports_to_fd.len);
}

static void wrong_sizes(void)
{
	static const u32 numbers[] = { NV_ESC_RM_ALLOC, NV_ESC_RM_CONTROL, NV_ESC_RM_FREE, NV_ESC_RM_VID_HEAP_CONTROL,
				       NV_ESC_RM_DUP_OBJECT, NV_ESC_IOCTL_XFER_CMD, 0x7f };
	char name[40];
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		fresh(0);
		snprintf(name, sizeof(name), "escape 0x%x of 12 bytes", numbers[i]);
		escape(name, nv.ctl, numbers[i], 12, 0);
	}
}

static void uvm(void)
{
	int one = place(nv_open_device("nvidia-uvm")), two = place(nv_open_device("nvidia-uvm"));

	printf("open nvidia-uvm %s\n", one < 0 ? strerror(-one) : "ok");
	if (one < 0 || two < 0)
		return;
	fresh(0);
	call("UVM_INITIALIZE", one, UVM_INITIALIZE, OUTER, nv.abi->uvm_initialize.len, 0);
	fresh(0);
	call("UVM_INITIALIZE again", one, UVM_INITIALIZE, OUTER, nv.abi->uvm_initialize.len, 0);
	fresh(0);
	rm_put32(OUTER, nv.abi->uvm_mm_initialize.uvmFd, one);
	call("UVM_MM_INITIALIZE", two, UVM_MM_INITIALIZE, OUTER, nv.abi->uvm_mm_initialize.len, 0);
	fresh(0);
	call("UVM_PAGEABLE_MEM_ACCESS", one, 39, OUTER, 8, 0);
	fresh(0);
	memset(OUTER, 0x5a, 16);
	call("UVM_REGISTER_GPU of no GPU", one, UVM_REGISTER_GPU, OUTER, nv.abi->uvm_register_gpu.len, 0);
	fresh(0);
	call("UVM 1000", one, 1000, OUTER, 16, 0);
}

static void gpu_file(void)
{
	int fd = open("/dev/nvidia0", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	fd = place(fd < 0 ? -errno : fd);
	printf("open nvidia0 O_NONBLOCK %s\n", fd < 0 ? strerror(-fd) : "ok");
	if (fd < 0)
		return;
	fresh(0);
	escape("WAIT_OPEN_COMPLETE", fd, NV_ESC_WAIT_OPEN_COMPLETE, 8, 0);
	fresh(0);
	rm_put32(OUTER, nv.abi->register_fd.ctl_fd, nv.ctl);
	escape("REGISTER_FD", fd, NV_ESC_REGISTER_FD, nv.abi->register_fd.len, 0);
}

int nvraw_main(int argc, char **argv)
{
	const char *version = NULL;
	u32 old, client;
	const struct nv_option options[] = {
		NV_OPTION("version", &version),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc)
		nv_usage(usage, 2);
	if (mmap(OUTER, 0x10000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != OUTER)
		nv_die("cannot place the buffers at 0x%lx: %s", ARENA, strerror(errno));
	nv_must_open(&nv, version);
	nv.ctl = place(nv.ctl);
	version_handshake();
	fresh(0);
	escape("SYS_PARAMS", nv.ctl, NV_ESC_SYS_PARAMS, 8, 0);
	fresh(0);
	escape("CARD_INFO", nv.ctl, NV_ESC_CARD_INFO, 32 * 72, 0);
	old = root("RM_ALLOC NV01_ROOT NVOS21", NV01_ROOT, true, false);
	client = root("RM_ALLOC NV01_ROOT_CLIENT NVOS64", NV01_ROOT_CLIENT, false, false);
	root("RM_ALLOC NV01_ROOT_CLIENT by XFER", NV01_ROOT_CLIENT, false, true);
	fresh(0);
	control("GET_PROBED_IDS", client, client, 0x214, 384);
	fresh(0xff);
	control("GET_ATTACHED_IDS", client, client, 0x201, 128);
	build_version(client);
	fresh(0);
	control("GET_HANDLE_INFO", client, client, NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, nv.abi->handle_info.len);
	control("NULL command", client, client, 0, 0);
	control("unknown command", client, client, 0x7777, 8);
	control("unknown object", client, 0x1234, 0x201, 128);
	control("unknown client", 0xc1dfffff, 0xc1dfffff, 0x201, 128);
	control("wrong size", client, client, 0x201, 64);
	device("RM_ALLOC NV01_DEVICE_0 of no GPU, NVOS64", client, false);
	device("RM_ALLOC NV01_DEVICE_0 of no GPU, NVOS21", client, true);
	without_device(client);
	serialised(client);
	wrong_sizes();
	free_object("RM_FREE of nothing", client, 0xcaf00009);
	free_object("RM_FREE NV01_ROOT", old, old);
	free_object("RM_FREE NV01_ROOT again", old, old);
	free_object("RM_FREE NV01_ROOT_CLIENT", client, client);
	uvm();
	gpu_file();
	return 0;
}
