/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel for the stand-in driver: writes how many SMs its launch may use, and the highest of them. */
#include "fakecuda.h"

static int census(struct fakecuda_call *call)
{
	uint32_t *out = fakecuda_touch(call, *(const uint64_t *)call->args[0], 2 * sizeof(*out), 1);

	if (!out)
		return -1;
	out[0] = call->sms;
	out[1] = call->sm[call->sms - 1];
	return 0;
}

void fakecuda_plugin(void);

void fakecuda_plugin(void)
{
	fakecuda_register_kernel("census", census);
}
