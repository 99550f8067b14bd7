// SPDX-License-Identifier: GPL-2.0-only
/*
 * The entry into the resource manager. In the real driver it is in the precompiled part: this file is built without fentry, so that only
 * kprobes reach it here as well.
 */
#include "fwd.h"

noinline NV_STATUS rm_ioctl(nvidia_stack_t *sp, nv_state_t *nv, struct nvf_file *nvfp, NvU32 cmd, void *data, NvU32 size)
{
	return nvf_escape(nvfp, cmd, data, size);
}
