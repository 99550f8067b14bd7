/* SPDX-License-Identifier: GPL-2.0-only */
/* The RM escapes, behind rm_ioctl. */
#ifndef NVSIM_ESCAPES_H
#define NVSIM_ESCAPES_H

#include "files.h"

NV_STATUS sim_escape(struct sim_file *file, u32 nr, void *block, u32 size);
void sim_escape_close(struct sim_file *file);

#endif
