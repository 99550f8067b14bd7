// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "replay_file.h"

#define FORMAT 1

void replay_damaged(const struct replay_script *script)
{
	nv_die("%s is no replay script of format %d (byte %zu); convert the trace again",
	       script->path, FORMAT, script->at);
}

const u8 *replay_bytes(struct replay_script *script, size_t n)
{
	const u8 *found = script->data + script->at;

	if (n > script->size - script->at)
		replay_damaged(script);
	script->at += n;
	return found;
}

u8 replay_u8(struct replay_script *script)
{
	return *replay_bytes(script, 1);
}

u16 replay_u16(struct replay_script *script)
{
	u16 value;

	memcpy(&value, replay_bytes(script, sizeof(value)), sizeof(value));
	return value;
}

u32 replay_u32(struct replay_script *script)
{
	u32 value;

	memcpy(&value, replay_bytes(script, sizeof(value)), sizeof(value));
	return value;
}

u64 replay_u64(struct replay_script *script)
{
	u64 value;

	memcpy(&value, replay_bytes(script, sizeof(value)), sizeof(value));
	return value;
}

static void read_file(struct replay_script *script)
{
	struct stat about;
	ssize_t got;
	size_t have;
	int fd = open(script->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &about))
		nv_die("read %s: %s", script->path, strerror(errno));
	script->size = (size_t)about.st_size;
	script->data = calloc(1, script->size + 1);
	if (!script->data)
		nv_die("read %s: no memory", script->path);
	for (have = 0; have < script->size; have += (size_t)got) {
		got = read(fd, script->data + have, script->size - have);
		if (got <= 0)
			nv_die("read %s: %s", script->path,
			       got ? strerror(errno) : "it ends too early");
	}
	close(fd);
}

static void *table(u32 count, size_t size)
{
	void *made = calloc(count + 1, size);

	if (!made)
		nv_die("no memory for a replay");
	return made;
}

void replay_load(struct replay_script *script, const char *path)
{
	u8 length;
	u32 i;

	memset(script, 0, sizeof(*script));
	script->path = path;
	read_file(script);
	if (memcmp(replay_bytes(script, 8), "NVREPLAY", 8) || replay_u32(script) != FORMAT)
		replay_damaged(script);
	script->steps = replay_u32(script);
	script->file_count = replay_u16(script);
	script->client_count = replay_u16(script);
	script->buffer_count = replay_u16(script);
	script->linear_count = replay_u16(script);
	script->map_count = replay_u16(script);
	length = replay_u8(script);
	memcpy(script->source, replay_bytes(script, length), length);
	script->client = replay_u16(script);
	script->ctl = replay_u16(script);
	script->gpu = replay_u16(script);
	script->uvm = replay_u16(script);
	script->doorbell = replay_u16(script);
	script->device = replay_u32(script);
	script->subdevice = replay_u32(script);
	script->vaspace = replay_u32(script);
	script->tsg = replay_u32(script);
	script->ctxshare = replay_u32(script);
	script->next_handle = replay_u32(script);
	script->next_address = replay_u64(script);
	if (script->client >= script->client_count || script->ctl >= script->file_count ||
	    script->gpu >= script->file_count || script->uvm >= script->file_count ||
	    script->doorbell >= script->map_count)
		replay_damaged(script);
	script->files = table(script->file_count, sizeof(*script->files));
	script->clients = table(script->client_count, sizeof(*script->clients));
	script->buffers = table(script->buffer_count, sizeof(*script->buffers));
	script->linears = table(script->linear_count, sizeof(*script->linears));
	script->maps = table(script->map_count, sizeof(*script->maps));
	script->placed = table((u32)script->map_count + script->buffer_count,
			       sizeof(*script->placed));
	for (i = 0; i < script->file_count; i++)
		script->files[i] = -1;
}
