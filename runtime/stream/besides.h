/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts that are not steered: those beside a primary context, and all of a GPU that is not ours. What runs there passes us, and reaches what the
 * others have: while there is one, nothing leaves.
 */
#ifndef DS_BESIDES_H
#define DS_BESIDES_H

#include <stdbool.h>

#include "cuda.h"

/* It was seen; true: for the first time. */
bool ds_besides_seen(CUcontext context);
/* It was destroyed, and its work is over. */
void ds_besides_gone(CUcontext context);
bool ds_besides_any(void);

#endif
