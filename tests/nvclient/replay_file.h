/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary form of a replay script; detshare.tools.replay.script writes it. Every reader ends the
 * program on a damaged file.
 */
#ifndef NVCLIENT_REPLAY_FILE_H
#define NVCLIENT_REPLAY_FILE_H

#include "nvclient.h"

enum replay_step { REPLAY_OPEN = 1, REPLAY_CLOSE, REPLAY_BUFFER, REPLAY_MAP, REPLAY_IOCTL };
enum replay_thing {
	REPLAY_CLIENT,
	REPLAY_FILE,
	REPLAY_UUID,
	REPLAY_GPU_ID,
	REPLAY_MEMORY,
	REPLAY_LINEAR,
	REPLAY_CPU
};
enum replay_what { REPLAY_STATUS, REPLAY_HANDLE, REPLAY_SIZE, REPLAY_ANSWER };

struct replay_map {
	void *at;
	u64 length;
	bool read_only;
};

struct replay_script {
	const char *path;
	u8 *data;
	size_t size, at;
	char source[256];
	u32 steps;
	u16 file_count, client_count, buffer_count, linear_count, map_count;
	/* where work goes on afterwards */
	u16 client, ctl, gpu, uvm, doorbell;
	u32 device, subdevice, vaspace, tsg, ctxshare, next_handle;
	u64 next_address;
	/* what fills the holes, by number */
	int *files;
	u32 *clients, gpu_id;
	void **buffers;
	u64 *linears;
	struct replay_map *maps;
	u8 uuid[16];
	/* memory placed at a recorded address: a later mapping may replace it */
	struct replay_map *placed;
	u32 placed_count;
};

void replay_load(struct replay_script *script, const char *path);
const u8 *replay_bytes(struct replay_script *script, size_t n);
u8 replay_u8(struct replay_script *script);
u16 replay_u16(struct replay_script *script);
u32 replay_u32(struct replay_script *script);
u64 replay_u64(struct replay_script *script);
void __attribute__((noreturn)) replay_damaged(const struct replay_script *script);

#endif
