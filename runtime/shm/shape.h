/* SPDX-License-Identifier: Apache-2.0 */
/* How long kernels of each shape take. */
#ifndef DS_SHAPE_H
#define DS_SHAPE_H

#include "profile.h"

/* a kernel ran so long */
void ds_shape_note(struct ds_counters *counters, const struct ds_sample *sample, double ns);

#endif
