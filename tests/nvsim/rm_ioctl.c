// SPDX-License-Identifier: GPL-2.0-only
/*
 * The entries from the glue into the resource manager. In the real driver they are in the precompiled part: this file is
 * built without fentry, so that only kprobes reach them here as well.
 */
#include "escapes.h"
#include "files.h"

noinline NV_STATUS rm_ioctl(nvidia_stack_t *sp, nv_state_t *nv, nv_file_private_t *nvfp, NvU32 cmd, void *data,
			    NvU32 size)
{
	return sim_escape(nvfp, cmd, data, size);
}

noinline void rm_cleanup_file_private(nvidia_stack_t *sp, nv_state_t *nv, nv_file_private_t *nvfp)
{
	sim_escape_close(nvfp);
}
