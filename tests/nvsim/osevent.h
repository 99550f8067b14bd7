/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef NVSIM_OSEVENT_H
#define NVSIM_OSEVENT_H

#include "sim.h"

NV_STATUS sim_os_event_alloc(struct sim_file *file, u32 parent, u32 fd);
NV_STATUS sim_os_event_free(u32 parent, u32 fd);
void sim_os_events_drop(struct sim_file *file);

#endif
