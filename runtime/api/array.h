/* SPDX-License-Identifier: Apache-2.0 */
/* How large arrays are. */
#ifndef DS_ARRAY_H
#define DS_ARRAY_H

#include <stddef.h>

#include "cuda.h"

/* bytes of an array's elements, which the driver may round up; 0 for formats that are not known */
size_t ds_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned int levels);

#endif
