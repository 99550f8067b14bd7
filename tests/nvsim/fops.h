/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NVSIM_FOPS_H
#define NVSIM_FOPS_H

#include "files.h"

#define SIM_MAJOR	195
#define SIM_CTL_MINOR	255

int sim_export_dmabuf(struct sim_file *file, void *block, size_t size);

#endif
