// SPDX-License-Identifier: Apache-2.0
/* More TSGs of a program, and what the simulated driver says of them. */
#include "nvclient.h"

u32 nv_group_open(struct nv_channel *channel, struct nv_program *program, u32 *tsg,
		  const char **step)
{
	const struct rm_abi *abi = program->nv.abi;
	u8 params[64] = { 0 };
	u32 share, status;

	*step = "TSG";
	rm_put32(params, abi->tsg.engineType, NV2080_ENGINE_TYPE_GR0);
	*tsg = nv_next_handle(&program->nv);
	status = nv_alloc(&program->nv, program->client, program->device, tsg,
			  KEPLER_CHANNEL_GROUP_A, params, abi->tsg.len);
	if (status)
		return status;
	*step = "context share";
	memset(params, 0, sizeof(params));
	rm_put32(params, abi->ctxshare.hVASpace, program->vaspace);
	share = nv_next_handle(&program->nv);
	status = nv_alloc(&program->nv, program->client, *tsg, &share, FERMI_CONTEXT_SHARE_A,
			  params, abi->ctxshare.len);
	if (!status)
		status = nv_channel_open(channel, program, *tsg, share, NV2080_ENGINE_TYPE_GR0,
					 step);
	if (status)
		return status;
	*step = "GPFIFO_SCHEDULE";
	return nv_schedule(program, *tsg, true);
}

u32 nv_program_share(struct nv_program *program)
{
	u32 status = nv_mark_mps(program);

	return status ? status : nv_share(&program->nv, program->client, program->tsg, RS_SHARE_TYPE_ALL, 0);
}

bool nv_gpu_time(const struct nv_program *program, u64 *us)
{
	char path[64], line[512];
	unsigned long long spent;
	unsigned int client;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/kernel/debug/nvsim/gpu%u/tsgs", program->gpu_number);
	file = fopen(path, "re");
	if (!file)
		return false;
	*us = 0;
	/* client handle engine slice_us level enabled gpu_time_us ... */
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%x %*x %*u %*u %*u %*u %llu", &client, &spent) == 2 &&
		    client == program->client)
			*us += spent;
	fclose(file);
	return true;
}
