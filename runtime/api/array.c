/* SPDX-License-Identifier: Apache-2.0 */
/* How large arrays are: the driver does not say it before it has made them. */

#include <stdbool.h>

#include "array.h"

/* of one element, all channels together */
static unsigned int element_bits(unsigned int format, unsigned int channels)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 8 * channels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 16 * channels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 32 * channels;
	case CU_AD_FORMAT_NV12:
		return 12;
	default:
		break;
	}
	if (format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4) {
		/* 8 and 16 bits, each with 1, 2 and 4 channels, unsigned and then signed */
		unsigned int index = (format - CU_AD_FORMAT_UNORM_INT8X1) % 6;

		return (index < 3 ? 8 : 16) << index % 3;
	}
	if (format == CU_AD_FORMAT_BC1_UNORM || format == CU_AD_FORMAT_BC1_UNORM_SRGB ||
	    format == CU_AD_FORMAT_BC4_UNORM || format == CU_AD_FORMAT_BC4_SNORM)
		return 4;
	if (format > CU_AD_FORMAT_BC1_UNORM_SRGB && format <= CU_AD_FORMAT_BC7_UNORM_SRGB)
		return 8;
	return 0;
}

static size_t at_least_one(size_t extent)
{
	return extent ? extent : 1;
}

size_t ds_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned int levels)
{
	bool layered = array->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	size_t width = array->Width, height = array->Height, depth = array->Depth;
	unsigned int bits = element_bits(array->Format, array->NumChannels);
	size_t bytes = 0;

	/* memory is mapped into these later, by cuMemMapArrayAsync */
	if (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	for (levels = levels ? levels : 1; levels; levels--) {
		bytes += (at_least_one(width) * at_least_one(height) * at_least_one(depth) * bits + 7) / 8;
		width /= 2;
		height /= 2;
		if (!layered)
			depth /= 2;
	}
	return bytes;
}
