/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's binary interface, continued from cuda.h: graphs, and what allocates memory. Structures that are only
 * passed on stay incomplete.
 */
#ifndef DS_CUDA_GRAPH_H
#define DS_CUDA_GRAPH_H

/* included by cuda.h, at its end */

typedef enum {
	CU_GRAPH_NODE_TYPE_KERNEL = 0,
	CU_GRAPH_NODE_TYPE_MEMCPY = 1,
	CU_GRAPH_NODE_TYPE_MEMSET = 2,
	CU_GRAPH_NODE_TYPE_HOST = 3,
	CU_GRAPH_NODE_TYPE_GRAPH = 4,
} CUgraphNodeType;

enum {
	CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1,
	CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2,
	CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH = 4,
	CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY = 8,
};

struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
	cuuint64_t flags;
	CUstream hUploadStream;
	CUgraphNode hErrNode_out;
	int result_out;
};

typedef int CUgraphExecUpdateResult;

struct CUgraphExecUpdateResultInfo_st {
	CUgraphExecUpdateResult result;
	CUgraphNode errorNode;
	CUgraphNode errorFromNode;
};

struct CUDA_KERNEL_NODE_PARAMS_v1_st {
	CUfunction func;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	void **kernelParams;
	void **extra;
};

/* The first fields are those of _v1. Of func and kern one is given; both are set in what the driver answers. */
struct CUDA_KERNEL_NODE_PARAMS_st {
	CUfunction func;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	void **kernelParams;
	void **extra;
	CUkernel kern;
	CUcontext ctx;
};

struct CUDA_MEMSET_NODE_PARAMS_st {
	CUdeviceptr dst;
	size_t pitch;
	unsigned int value;
	unsigned int elementSize;
	size_t width;
	size_t height;
};

typedef struct {
	CUDA_MEMSET_NODE_PARAMS memset;
	CUcontext ctx;
} CUDA_MEMSET_NODE_PARAMS_v2;

enum { CU_MEMORYTYPE_DEVICE = 2 };

/* 200 bytes */
struct CUDA_MEMCPY3D_st {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	int srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	void *reserved0;
	size_t srcPitch, srcHeight;
	size_t dstXInBytes, dstY, dstZ, dstLOD;
	int dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	void *reserved1;
	size_t dstPitch, dstHeight;
	size_t WidthInBytes, Height, Depth;
};

typedef struct {
	int flags;
	int reserved;
	CUcontext copyCtx;
	CUDA_MEMCPY3D copyParams;
} CUDA_MEMCPY_NODE_PARAMS;

/* 256 bytes */
struct CUgraphNodeParams_st {
	CUgraphNodeType type;
	int reserved0[3];
	union {
		long long reserved1[29];
		CUDA_KERNEL_NODE_PARAMS kernel;
		CUDA_MEMCPY_NODE_PARAMS memcpy;
		CUDA_MEMSET_NODE_PARAMS_v2 memset;
	};
	long long reserved2;
};

typedef CUlaunchAttributeID CUkernelNodeAttrID;
typedef CUlaunchAttributeValue CUkernelNodeAttrValue;


enum {
	CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
	CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
	CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
	CU_AD_FORMAT_SIGNED_INT8 = 0x08,
	CU_AD_FORMAT_SIGNED_INT16 = 0x09,
	CU_AD_FORMAT_SIGNED_INT32 = 0x0a,
	CU_AD_FORMAT_HALF = 0x10,
	CU_AD_FORMAT_FLOAT = 0x20,
	CU_AD_FORMAT_BC1_UNORM = 0x91,
	CU_AD_FORMAT_BC1_UNORM_SRGB = 0x92,
	CU_AD_FORMAT_BC4_UNORM = 0x97,
	CU_AD_FORMAT_BC4_SNORM = 0x98,
	CU_AD_FORMAT_BC7_UNORM_SRGB = 0x9e,
	CU_AD_FORMAT_NV12 = 0xb0,
	CU_AD_FORMAT_UNORM_INT8X1 = 0xc0,
	CU_AD_FORMAT_SNORM_INT16X4 = 0xcb,
};

enum {
	CUDA_ARRAY3D_LAYERED = 0x01,
	CUDA_ARRAY3D_CUBEMAP = 0x04,
	CUDA_ARRAY3D_SPARSE = 0x40,
	CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80,
};

struct CUDA_ARRAY_DESCRIPTOR_st {
	size_t Width, Height;
	CUarray_format Format;
	unsigned int NumChannels;
};

struct CUDA_ARRAY3D_DESCRIPTOR_st {
	size_t Width, Height, Depth;
	CUarray_format Format;
	unsigned int NumChannels;
	unsigned int Flags;
};

struct CUmemAllocationProp_st {
	int type;
	int requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	unsigned char allocFlags[8];
};

enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum { CU_MEM_ACCESS_FLAGS_PROT_NONE = 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };

struct CUmemAccessDesc_st {
	CUmemLocation location;
	int flags;
};

typedef int CUlimit;

#endif
