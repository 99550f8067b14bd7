// SPDX-License-Identifier: Apache-2.0
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <unistd.h>

#include "../nvsim/methods.h"
#include "replay.h"

#define BLOCK_MAX 16384
#define NOWHERE	  0xffffffffu
#define PAGE	  4096ull

struct call {
	u32 seq, request, size, nested_at, nested_size;
	u16 file;
	s32 ret;
	char name[256];
	u8 *block, *nested;
};

void replay_fix_addresses(char **argv)
{
	int now = personality(0xffffffff);

	if (now < 0 || now & ADDR_NO_RANDOMIZE)
		return;
	if (personality((unsigned long)now | ADDR_NO_RANDOMIZE) >= 0)
		execv("/proc/self/exe", argv);
	nv_die("cannot start again without address randomisation: %s", strerror(errno));
}

static u32 numbered(const struct replay_script *script, u32 number, u32 count)
{
	if (number >= count)
		replay_damaged(script);
	return number;
}

/* Memory or a mapping at an address of the record; what was placed there before may be replaced. */
static int placing(const struct replay_script *script, u64 address, u64 length)
{
	u32 i;

	for (i = 0; i < script->placed_count; i++)
		if ((uintptr_t)script->placed[i].at <= address &&
		    address + length <= (uintptr_t)script->placed[i].at + script->placed[i].length)
			return MAP_FIXED;
	return MAP_FIXED_NOREPLACE;
}

static void *place(struct replay_script *script, u64 address, u64 length, int prot, int flags,
		   int fd, u64 offset)
{
	void *at = mmap((void *)(uintptr_t)address, length, prot,
			flags | (address ? placing(script, address, length) : 0), fd,
			(off_t)offset);

	if (at != MAP_FAILED && address)
		script->placed[script->placed_count++] = (struct replay_map){ .at = at, .length = length };
	return at;
}

static void step_open(struct replay_script *script)
{
	u16 file = (u16)numbered(script, replay_u16(script), script->file_count);
	u8 length = replay_u8(script);
	char name[256] = { 0 };

	memcpy(name, replay_bytes(script, length), length);
	script->files[file] = nv_must_open_device(name);
}

static void step_close(struct replay_script *script)
{
	u16 file = (u16)numbered(script, replay_u16(script), script->file_count);

	close(script->files[file]);
	script->files[file] = -1;
}

static void step_buffer(struct replay_script *script)
{
	u16 index = (u16)numbered(script, replay_u16(script), script->buffer_count);
	u64 address = replay_u64(script), size = replay_u64(script), down = address & (PAGE - 1);
	u32 given = replay_u32(script);
	const u8 *content = replay_bytes(script, given);
	u8 *at;

	at = place(script, address - down, (down + size + PAGE - 1) & ~(PAGE - 1),
		   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		nv_die("replay %s: place %llu bytes at 0x%llx: %s", script->path,
		       (unsigned long long)size, (unsigned long long)address, strerror(errno));
	if (given > size)
		replay_damaged(script);
	memcpy(at + down, content, given);
	script->buffers[index] = at + down;
}

static void step_map(struct replay_script *script, replay_report report,
		     struct replay_result *result)
{
	u32 seq = replay_u32(script);
	u16 index = (u16)numbered(script, replay_u16(script), script->map_count);
	u16 file = (u16)numbered(script, replay_u16(script), script->file_count);
	u64 address = replay_u64(script), length = replay_u64(script), offset = replay_u64(script);
	u32 prot = replay_u32(script);
	bool fixed = replay_u8(script);
	void *at = place(script, fixed ? address : 0, length, (int)prot, MAP_SHARED,
			 script->files[file], offset);

	result->maps++;
	if (at == MAP_FAILED) {
		result->mismatches++;
		report(seq, "mmap", "mapping", 0, -errno);
		at = NULL;
	}
	script->maps[index] = (struct replay_map){ .at = at, .length = length, .read_only = !(prot & PROT_WRITE) };
}

static u8 *block_of(struct call *call, u8 where, u32 offset, u32 width)
{
	u32 size = where ? call->nested_size : call->size;

	if (offset > size || width > size - offset)
		nv_die("replay step of record %u reaches behind its block; convert the trace again",
		       call->seq);
	return (where ? call->nested : call->block) + offset;
}

/* Where a thing is kept, and how many bytes of it stand in a block. */
static void *thing(struct replay_script *script, u8 kind, u16 index, u64 *scratch, u32 *width)
{
	*width = 8;
	switch (kind) {
	case REPLAY_CLIENT:
		*width = 4;
		return &script->clients[numbered(script, index, script->client_count)];
	case REPLAY_FILE:
		*width = 4;
		return &script->files[numbered(script, index, script->file_count)];
	case REPLAY_UUID:
		*width = 16;
		return script->uuid;
	case REPLAY_GPU_ID:
		*width = 4;
		return &script->gpu_id;
	case REPLAY_MEMORY:
		*scratch =
			(uintptr_t)script->buffers[numbered(script, index, script->buffer_count)];
		return scratch;
	case REPLAY_LINEAR:
		return &script->linears[numbered(script, index, script->linear_count)];
	case REPLAY_CPU:
		*scratch = (uintptr_t)script->maps[numbered(script, index, script->map_count)].at;
		return scratch;
	default:
		replay_damaged(script);
	}
}

/* One fix (before the call) or catch (after it). */
static void carry(struct replay_script *script, struct call *call, bool into_block)
{
	u8 where = replay_u8(script), kind = replay_u8(script);
	u16 index = replay_u16(script);
	u32 offset = replay_u32(script), width;
	u64 scratch;
	void *value = thing(script, kind, index, &scratch, &width);
	u8 *at = block_of(call, where, offset, width);

	memcpy(into_block ? at : value, into_block ? value : at, width);
}

/* False: another status than recorded. */
static bool check(struct replay_script *script, struct call *call, replay_report report,
		  struct replay_result *result)
{
	static const char *const names[] = { "status", "handle", "size", "answer" };
	u8 where = replay_u8(script), what = replay_u8(script), width = replay_u8(script);
	u32 offset = replay_u32(script);
	u64 expected = replay_u64(script), got = 0;

	if (what > REPLAY_ANSWER || (width != 4 && width != 8))
		replay_damaged(script);
	memcpy(&got, block_of(call, where, offset, width), width);
	result->checks++;
	if (got == expected)
		return true;
	result->mismatches++;
	report(call->seq, call->name, names[what], (s64)expected, (s64)got);
	return what != REPLAY_STATUS;
}

static void call_block(struct replay_script *script, struct call *call)
{
	u32 given = replay_u32(script);

	/*
	 * room behind the block: a driver that takes more than the record's size finds zeroes, not
	 * somebody's data
	 */
	call->block = calloc(1, BLOCK_MAX);
	if (!call->block || given > call->size || call->size > BLOCK_MAX)
		replay_damaged(script);
	memcpy(call->block, replay_bytes(script, given), given);
	call->nested_at = replay_u32(script);
	call->nested_size = replay_u32(script);
	call->nested = calloc(1, call->nested_size + BLOCK_MAX);
	if (!call->nested)
		nv_die("no memory for a replay");
	memcpy(call->nested, replay_bytes(script, call->nested_size), call->nested_size);
	if (call->nested_at != NOWHERE)
		memcpy(block_of(call, 0, call->nested_at, 8), &(u64){ (uintptr_t)call->nested }, 8);
}

static void step_ioctl(struct replay_script *script, replay_report report,
		       struct replay_result *result)
{
	struct call call = { 0 };
	u8 length, fixes, catches, checks;
	bool accepted;
	s32 ret;

	call.seq = replay_u32(script);
	call.file = (u16)numbered(script, replay_u16(script), script->file_count);
	call.request = replay_u32(script);
	call.size = replay_u32(script);
	call.ret = (s32)replay_u32(script);
	length = replay_u8(script);
	memcpy(call.name, replay_bytes(script, length), length);
	call_block(script, &call);
	fixes = replay_u8(script);
	catches = replay_u8(script);
	checks = replay_u8(script);
	while (fixes--)
		carry(script, &call, true);
	do {
		ret = ioctl(script->files[call.file], call.request, call.block) < 0 ? -errno : 0;
	} while (ret == -EINTR);
	result->calls += call.seq != REPLAY_NO_RECORD;
	result->checks++;
	accepted = ret == call.ret;
	if (!accepted) {
		result->mismatches++;
		report(call.seq, call.name, "return", call.ret, ret);
	}
	while (catches--)
		carry(script, &call, false);
	while (checks--)
		if (!check(script, &call, report, result))
			accepted = false;
	result->accepted += accepted && call.seq != REPLAY_NO_RECORD;
	free(call.block);
	free(call.nested);
}

void replay_must_run(struct replay_script *script, const char *path, replay_report report,
		     struct replay_result *result)
{
	u32 i;

	memset(result, 0, sizeof(*result));
	replay_load(script, path);
	for (i = 0; i < script->steps; i++) {
		switch (replay_u8(script)) {
		case REPLAY_OPEN:
			step_open(script);
			break;
		case REPLAY_CLOSE:
			step_close(script);
			break;
		case REPLAY_BUFFER:
			step_buffer(script);
			break;
		case REPLAY_MAP:
			step_map(script, report, result);
			break;
		case REPLAY_IOCTL:
			step_ioctl(script, report, result);
			break;
		default:
			replay_damaged(script);
		}
	}
}

static void say_mismatch(u32 seq, const char *name, const char *what, s64 expected, s64 got)
{
	fprintf(stderr, "%s: record %u, %s: %s 0x%llx, recorded was 0x%llx\n", nv_name, seq, name,
		what, (unsigned long long)got, (unsigned long long)expected);
}

void replay_must_become_program(const char *path, struct nv_program *program, u32 gpu,
				const char *version)
{
	static struct replay_script script;
	struct replay_result result;

	if (gpu)
		nv_die("a recorded program uses GPU 0, not %u", gpu);
	nv_must_open_program(program, gpu, version);
	nv_close(&program->nv);
	replay_must_run(&script, path, say_mismatch, &result);
	if (result.mismatches)
		nv_die("the driver answered %u of %u values other than recorded in %s",
		       result.mismatches, result.checks, path);
	snprintf(program->gpu_device, sizeof(program->gpu_device), "nvidia%u", gpu);
	program->nv.ctl = script.files[script.ctl];
	program->nv.next = script.next_handle;
	program->gpu = script.files[script.gpu];
	program->uvm = script.files[script.uvm];
	memcpy(program->uuid, script.uuid, sizeof(program->uuid));
	program->client = script.clients[script.client];
	program->device = script.device;
	program->subdevice = script.subdevice;
	program->vaspace = script.vaspace;
	program->tsg = script.tsg;
	program->ctxshare = script.ctxshare;
	program->doorbell = script.maps[script.doorbell].at;
	program->next_va = script.next_address;
	if (program->nv.ctl < 0 || program->uvm < 0 || !program->doorbell)
		nv_die("%s leaves no open files to go on with", path);
}
