// SPDX-License-Identifier: Apache-2.0
/* Arrays: rows of elements in device memory, without any tiling. A copy names one by its handle. */
#include "api.h"

struct array {
	struct object object;
	struct memory *memory;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	size_t pitch;
};

static size_t element(CUarray_format format, unsigned int channels)
{
	size_t size;

	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		size = 1;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		size = 2;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		size = 4;
		break;
	default:
		return 0;
	}
	return channels == 1 || channels == 2 || channels == 4 ? size * channels : 0;
}

static CUresult create(CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	size_t bytes = element(desc->Format, desc->NumChannels);
	size_t rows = (desc->Height ? desc->Height : 1) * (desc->Depth ? desc->Depth : 1);
	struct context *context;
	struct memory *memory;
	struct array *array;

	TRY(context_current(&context));
	if (!handle || !desc->Width || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(check_capture_safe());
	TRY(memory_new(context, desc->Width * bytes * rows, MEMORY_ARRAY, &memory));
	array = xalloc(sizeof(*array));
	handle_add(array, OBJECT_ARRAY);
	array->memory = memory;
	array->desc = *desc;
	array->pitch = desc->Width * bytes;
	*handle = (CUarray)array;
	return CUDA_SUCCESS;
}

API(cuArrayCreate_v2, CUarray *, handle, const CUDA_ARRAY_DESCRIPTOR *, flat)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;

	if (!flat)
		return CUDA_ERROR_INVALID_VALUE;
	desc = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = flat->Width, .Height = flat->Height, .Format = flat->Format,
					  .NumChannels = flat->NumChannels };
	return create(handle, &desc);
}

API(cuArray3DCreate_v2, CUarray *, handle, const CUDA_ARRAY3D_DESCRIPTOR *, desc)
{
	return desc ? create(handle, desc) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult array_of(CUarray handle, struct array **array)
{
	*array = handle_get(handle, OBJECT_ARRAY);
	return *array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API(cuArrayDestroy, CUarray, handle)
{
	struct array *array;

	TRY(array_of(handle, &array));
	wait_all(NULL);
	arena_give(array->memory->device, array->memory->base, array->memory->size);
	memory_remove(array->memory);
	handle_kill(array);
	return CUDA_SUCCESS;
}

API(cuArray3DGetDescriptor_v2, CUDA_ARRAY3D_DESCRIPTOR *, desc, CUarray, handle)
{
	struct array *array;

	TRY(array_of(handle, &array));
	*desc = array->desc;
	return CUDA_SUCCESS;
}

API(cuArrayGetDescriptor_v2, CUDA_ARRAY_DESCRIPTOR *, desc, CUarray, handle)
{
	struct array *array;

	TRY(array_of(handle, &array));
	*desc = (CUDA_ARRAY_DESCRIPTOR){ .Width = array->desc.Width, .Height = array->desc.Height,
					 .Format = array->desc.Format, .NumChannels = array->desc.NumChannels };
	return CUDA_SUCCESS;
}

/* Puts memory in the place of arrays. */
CUresult array_resolve(CUDA_MEMCPY3D *how)
{
	struct array *array;

	if (how->srcMemoryType == CU_MEMORYTYPE_ARRAY) {
		TRY(array_of(how->srcArray, &array));
		how->srcMemoryType = CU_MEMORYTYPE_DEVICE;
		how->srcDevice = array->memory->base;
		how->srcPitch = array->pitch;
		how->srcHeight = array->desc.Height ? array->desc.Height : 1;
	}
	if (how->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
		TRY(array_of(how->dstArray, &array));
		how->dstMemoryType = CU_MEMORYTYPE_DEVICE;
		how->dstDevice = array->memory->base;
		how->dstPitch = array->pitch;
		how->dstHeight = array->desc.Height ? array->desc.Height : 1;
	}
	return CUDA_SUCCESS;
}
