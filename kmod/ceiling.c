// SPDX-License-Identifier: GPL-2.0-only
#include "ceiling.h"
#include "rmcall.h"

u32 ds_ceiling_set(u32 gpu, u32 client, u32 tsg, u32 percent, bool *set)
{
	*set = false;
	return NV_ERR_NOT_SUPPORTED;
}

bool ds_ceiling_again(u32 status)
{
	return status == NV_ERR_OBJECT_NOT_FOUND || status == NV_ERR_BUSY_RETRY;
}

enum detshare_ability ds_ceiling_ability(u32 gpu, u32 *status)
{
	*status = 0;
	return DETSHARE_ABILITY_UNKNOWN;
}

void ds_ceiling_forget(void)
{
}
