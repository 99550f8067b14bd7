// SPDX-License-Identifier: Apache-2.0
/*
 * Ways that lead through files bound to the program's control file by REGISTER_FD: the driver lets whoever has such a
 * file use the clients of the control file, a child that never opened anything too.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc.h"

struct answer {
	u32 status;
	u64 granted;
};

static int bound_file(const struct nv_program *program)
{
	u8 params[64] = { 0 };
	int file = nv_open_device("nvidiactl");

	rm_put32(params, program->nv.abi->register_fd.ctl_fd, program->nv.ctl);
	if (file >= 0 && nv_ioctl(file, NV_ESC_REGISTER_FD, params, program->nv.abi->register_fd.len)) {
		close(file);
		return -EINVAL;
	}
	return file;
}

static struct answer by_class(const struct nv_program *program, u32 handle, u64 size)
{
	const struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER, .size = size, .flags = 0x1c101 };
	struct answer answer = { 0 };

	answer.status = nv_memory(&program->nv, program->client, program->device, &handle, &ask, &answer.granted);
	return answer;
}

static struct answer by_device(const struct nv_program *program, u32 handle, u64 size)
{
	struct answer answer = { 0 };

	answer.status = nv_alloc_memory(&program->nv, program->gpu, program->client, program->device, &handle,
					NV01_MEMORY_LOCAL_USER, 0, 0, size - 1);
	answer.granted = answer.status ? 0 : size;
	return answer;
}

/* By a child, which has the file `instead` in the place of the control file. */
static struct answer by_child(const struct nv_program *program, int instead, u32 handle, u64 size,
			      struct answer (*ask)(const struct nv_program *program, u32 handle, u64 size))
{
	struct answer answer = { .status = NV_ERRNO(EPIPE) };
	struct nv_program child = *program;
	int news[2];
	pid_t pid;

	if (pipe2(news, O_CLOEXEC))
		return (struct answer){ .status = NV_ERRNO(errno) };
	fflush(stdout);
	pid = fork();
	if (!pid) {
		close(program->nv.ctl);
		child.nv.ctl = instead;
		answer = ask(&child, handle, size);
		_exit(write(news[1], &answer, sizeof(answer)) != sizeof(answer));
	}
	close(news[1]);
	if (pid < 0 || read(news[0], &answer, sizeof(answer)) != sizeof(answer))
		answer.status = NV_ERRNO(EPIPE);
	close(news[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return answer;
}

static u32 given_back(struct nv_program *program, u32 handle, struct answer answer, u64 *granted)
{
	*granted = answer.granted;
	if (!answer.status)
		nv_free(&program->nv, program->client, program->device, handle);
	return answer.status;
}

u32 alloc_bound(struct nv_program *program, u64 size, u64 *granted)
{
	struct nv_program through = *program;
	u32 handle = nv_next_handle(&program->nv);
	struct answer answer;

	through.nv.ctl = bound_file(program);
	if (through.nv.ctl < 0)
		return NV_ERRNO(-through.nv.ctl);
	answer = by_class(&through, handle, size);
	close(through.nv.ctl);
	return given_back(program, handle, answer, granted);
}

u32 alloc_bound_child(struct nv_program *program, u64 size, u64 *granted)
{
	u32 handle = nv_next_handle(&program->nv);
	int file = bound_file(program);
	struct answer answer;

	if (file < 0)
		return NV_ERRNO(-file);
	answer = by_child(program, file, handle, size, by_class);
	close(file);
	return given_back(program, handle, answer, granted);
}

u32 alloc_device_child(struct nv_program *program, u64 size, u64 *granted)
{
	u32 handle = nv_next_handle(&program->nv);

	return given_back(program, handle, by_child(program, -1, handle, size, by_device), granted);
}

u32 alloc_device_stranger(struct nv_program *program, u64 size, u64 *granted)
{
	struct nv_program through = *program;
	u32 handle = nv_next_handle(&program->nv);
	struct answer answer;

	through.gpu = nv_open_device(program->gpu_device);
	if (through.gpu < 0)
		return NV_ERRNO(-through.gpu);
	answer = by_child(&through, -1, handle, size, by_device);
	close(through.gpu);
	return given_back(program, handle, answer, granted);
}
