// SPDX-License-Identifier: Apache-2.0
/* The escapes of /dev/nvidiactl and /dev/nvidiaN. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nvclient.h"

#define BLOCK 256 /* above every escape that is used here */

static void find_version(char *version, size_t size)
{
	FILE *file = fopen("/proc/driver/nvidia/version", "re");
	char line[512], word[64];
	const char *at;
	int n;

	if (!file || !fgets(line, sizeof(line), file))
		nv_die("asked for the driver's version; /proc/driver/nvidia/version cannot be read; load the driver, or "
		       "name a version");
	fclose(file);
	for (at = line; sscanf(at, " %63s%n", word, &n) == 1; at += n) {
		if (word[0] >= '0' && word[0] <= '9' && strchr(word, '.')) {
			snprintf(version, size, "%s", word);
			return;
		}
	}
	nv_die("asked for the driver's version; there is none in: %s", line);
}

int nv_open_device(const char *name)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/%s", name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int nv_must_open_device(const char *name)
{
	int fd = nv_open_device(name);

	if (fd < 0)
		nv_die("open /dev/%s: %s; is the driver loaded, and is this root?", name,
		       strerror(-fd));
	return fd;
}

void nv_must_open(struct nv *nv, const char *version)
{
	enum rm_abi_match how;

	memset(nv, 0, sizeof(*nv));
	if (version)
		snprintf(nv->version, sizeof(nv->version), "%s", version);
	else
		find_version(nv->version, sizeof(nv->version));
	nv->abi = rm_abi_lookup(nv->version, &how);
	if (!nv->abi)
		nv_die("no table for driver %s; name a version that has one", nv->version);
	nv->ctl = nv_must_open_device("nvidiactl");
	nv->next = NV_OBJECTS;
}

void nv_close(struct nv *nv)
{
	close(nv->ctl);
	nv->ctl = -1;
}

static int one_ioctl(int fd, unsigned long request, void *block)
{
	int done;

	do {
		done = ioctl(fd, request, block);
	} while (done < 0 && (errno == EINTR || errno == EAGAIN));
	return done < 0 ? -errno : 0;
}

int nv_ioctl(int fd, u32 nr, void *block, u32 size)
{
	return one_ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, NV_IOCTL_MAGIC, nr, size), block);
}

int nv_xfer(const struct nv *nv, int fd, u32 nr, void *block, u32 size)
{
	u8 wrapper[BLOCK] = { 0 };

	rm_put32(wrapper, nv->abi->xfer.cmd, nr);
	rm_put32(wrapper, nv->abi->xfer.size, size);
	rm_put64(wrapper, nv->abi->xfer.ptr, (uintptr_t)block);
	return nv_ioctl(fd, NV_ESC_IOCTL_XFER_CMD, wrapper, nv->abi->xfer.len);
}

/* One escape whose status lies at an offset of its block. */
static u32 escape(const struct nv *nv, int fd, u32 nr, void *block, u32 size, struct rm_f32 status)
{
	int error;

	rm_put32(block, status, 0xffffffff);
	error = nv->xfer ? nv_xfer(nv, fd, nr, block, size) : nv_ioctl(fd, nr, block, size);
	return error ? NV_ERRNO(-error) : rm_get32(block, status);
}

u32 nv_next_handle(struct nv *nv)
{
	return ++nv->next;
}

u32 nv_alloc_on(const struct nv *nv, int fd, u32 client, u32 parent, u32 *handle, u32 class,
		void *params, u32 size)
{
	u8 block[BLOCK] = { 0 };
	u32 status;

	if (nv->os21) {
		rm_put32(block, nv->abi->nvos21.hRoot, client);
		rm_put32(block, nv->abi->nvos21.hObjectParent, parent);
		rm_put32(block, nv->abi->nvos21.hObjectNew, *handle);
		rm_put32(block, nv->abi->nvos21.hClass, class);
		rm_put64(block, nv->abi->nvos21.pAllocParms, (uintptr_t)params);
		rm_put32(block, nv->abi->nvos21.paramsSize, size);
		status = escape(nv, fd, NV_ESC_RM_ALLOC, block, nv->abi->nvos21.len,
				nv->abi->nvos21.status);
		if (!status)
			*handle = rm_get32(block, nv->abi->nvos21.hObjectNew);
		return status;
	}
	rm_put32(block, nv->abi->nvos64.hRoot, client);
	rm_put32(block, nv->abi->nvos64.hObjectParent, parent);
	rm_put32(block, nv->abi->nvos64.hObjectNew, *handle);
	rm_put32(block, nv->abi->nvos64.hClass, class);
	rm_put64(block, nv->abi->nvos64.pAllocParms, (uintptr_t)params);
	rm_put32(block, nv->abi->nvos64.paramsSize, size);
	status = escape(nv, fd, NV_ESC_RM_ALLOC, block, nv->abi->nvos64.len,
			nv->abi->nvos64.status);
	if (!status)
		*handle = rm_get32(block, nv->abi->nvos64.hObjectNew);
	return status;
}

u32 nv_alloc(const struct nv *nv, u32 client, u32 parent, u32 *handle, u32 class, void *params,
	     u32 size)
{
	return nv_alloc_on(nv, nv->ctl, client, parent, handle, class, params, size);
}

u32 nv_root(struct nv *nv, u32 *client)
{
	*client = 0;
	return nv_alloc(nv, 0, 0, client, NV01_ROOT_CLIENT, NULL, 0);
}

u32 nv_free(const struct nv *nv, u32 client, u32 parent, u32 handle)
{
	u8 block[BLOCK] = { 0 };

	rm_put32(block, nv->abi->nvos00.hRoot, client);
	rm_put32(block, nv->abi->nvos00.hObjectParent, parent);
	rm_put32(block, nv->abi->nvos00.hObjectOld, handle);
	return escape(nv, nv->ctl, NV_ESC_RM_FREE, block, nv->abi->nvos00.len,
		      nv->abi->nvos00.status);
}

u32 nv_control(const struct nv *nv, u32 client, u32 object, u32 cmd, void *params, u32 size)
{
	u8 block[BLOCK] = { 0 };

	rm_put32(block, nv->abi->nvos54.hClient, client);
	rm_put32(block, nv->abi->nvos54.hObject, object);
	rm_put32(block, nv->abi->nvos54.cmd, cmd);
	rm_put64(block, nv->abi->nvos54.params, (uintptr_t)params);
	rm_put32(block, nv->abi->nvos54.paramsSize, size);
	return escape(nv, nv->ctl, NV_ESC_RM_CONTROL, block, nv->abi->nvos54.len,
		      nv->abi->nvos54.status);
}

u32 nv_dup(const struct nv *nv, u32 client, u32 parent, u32 *handle, u32 from, u32 object)
{
	u8 block[BLOCK] = { 0 };
	u32 status;

	rm_put32(block, nv->abi->nvos55.hClient, client);
	rm_put32(block, nv->abi->nvos55.hParent, parent);
	rm_put32(block, nv->abi->nvos55.hObject, *handle);
	rm_put32(block, nv->abi->nvos55.hClientSrc, from);
	rm_put32(block, nv->abi->nvos55.hObjectSrc, object);
	status = escape(nv, nv->ctl, NV_ESC_RM_DUP_OBJECT, block, nv->abi->nvos55.len,
			nv->abi->nvos55.status);
	if (!status)
		*handle = rm_get32(block, nv->abi->nvos55.hObject);
	return status;
}

u32 nv_share(const struct nv *nv, u32 client, u32 object, u16 type, u32 target)
{
	u8 block[BLOCK] = { 0 };

	rm_put32(block, nv->abi->nvos57.hClient, client);
	rm_put32(block, nv->abi->nvos57.hObject, object);
	rm_put32(block, nv->abi->nvos57.sharePolicy_target, target);
	memcpy(block + nv->abi->nvos57.sharePolicy_target.off + 4, &(u32){ 1 },
	       4); /* mask: RS_ACCESS_DUP_OBJECT */
	memcpy(block + nv->abi->nvos57.sharePolicy_type.off, &type, 2);
	return escape(nv, nv->ctl, NV_ESC_RM_SHARE, block, nv->abi->nvos57.len,
		      nv->abi->nvos57.status);
}

void *nv_map(const struct nv *nv, const char *device, u32 client, u32 parent, u32 memory,
	     u64 offset, u64 length, int prot, u64 *linear, u32 *status)
{
	u8 block[BLOCK] = { 0 };
	void *at;
	int fd;

	fd = nv_open_device(device);
	if (fd < 0) {
		*status = NV_ERRNO(-fd);
		return NULL;
	}
	rm_put32(block, nv->abi->nvos33.hClient, client);
	rm_put32(block, nv->abi->nvos33.hDevice, parent);
	rm_put32(block, nv->abi->nvos33.hMemory, memory);
	rm_put64(block, nv->abi->nvos33.offset, offset);
	rm_put64(block, nv->abi->nvos33.length, length);
	rm_put32(block, nv->abi->nvos33.fd, fd);
	*status = escape(nv, nv->ctl, NV_ESC_RM_MAP_MEMORY, block, nv->abi->nvos33.len,
			 nv->abi->nvos33.status);
	at = *status ? MAP_FAILED : mmap(NULL, length, prot, MAP_SHARED, fd, 0);
	if (!*status && at == MAP_FAILED)
		*status = NV_ERRNO(errno);
	if (linear)
		*linear = rm_get64(block, nv->abi->nvos33.pLinearAddress);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}
