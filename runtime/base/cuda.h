/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libdetshare.so needs of the driver's binary interface (CUDA 11.0 to 13.0, x86-64 and aarch64), in our own words:
 * the library is built where no CUDA toolkit is. Structures that are only passed on stay incomplete.
 */
#ifndef DS_CUDA_H
#define DS_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* the newest one whose functions are all known to api.json */
#define DS_CUDA_VERSION 13000

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef uint64_t CUmemGenericAllocationHandle;
typedef uint64_t CUgraphConditionalHandle;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef unsigned int GLuint;
typedef unsigned int GLenum;
typedef void *EGLStreamKHR;
typedef uint32_t VdpDevice;
typedef int VdpGetProcAddress(VdpDevice, uint32_t, void **);

typedef struct CUctx_st *CUcontext;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUkern_st *CUkernel;
typedef struct CUlib_st *CUlibrary;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphicsResource_st *CUgraphicsResource;
typedef struct CUtexref_st *CUtexref;
typedef struct CUsurfref_st *CUsurfref;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUeglStreamConnection_st *CUeglStreamConnection;

/* the two handles that name a default stream whatever the program was compiled for */
#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

typedef enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_INVALID_CLUSTER_SIZE = 912,
	CUDA_ERROR_UNKNOWN = 999,
} CUresult;

enum {
	CU_STREAM_DEFAULT = 0,
	CU_STREAM_NON_BLOCKING = 1,
	CU_EVENT_DISABLE_TIMING = 2,
	CU_STREAM_WAIT_VALUE_EQ = 1,
	CU_GREEN_CTX_DEFAULT_STREAM = 1,
	CU_DEV_RESOURCE_TYPE_SM = 1,
	CU_MEMHOSTREGISTER_DEVICEMAP = 2,
	CU_MEMHOSTREGISTER_READ_ONLY = 8,
	CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2,
};

typedef enum {
	CU_STREAM_CAPTURE_STATUS_NONE = 0,
	CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
	CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
} CUstreamCaptureStatus;

typedef enum {
	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
} CUstreamCaptureMode;

typedef enum {
	CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
} CUdevice_attribute;

typedef int CUdevResourceType;
typedef int CUdriverProcAddressQueryResult;
typedef int CUfunction_attribute;
typedef size_t (*CUoccupancyB2DSize)(int block_size);
typedef int CUpointer_attribute;
typedef int CUmemAllocationHandleType;
typedef int CUmemRangeHandleType;
typedef int CUarray_format;
typedef int CUlimit;
typedef int CUdevice_P2PAttribute;
typedef int CUfunc_cache;
typedef int CUfunctionLoadingState;
typedef int CUgraphMem_attribute;
typedef int CUjitInputType;
typedef int CUjit_option;
typedef int CUlibraryOption;
typedef int CUmemAccess_flags;
typedef int CUmemAllocationGranularity_flags;
typedef int CUmemPool_attribute;
typedef int CUmoduleLoadingMode;
typedef int CUgraphExecUpdateResult;
typedef int CUaddress_mode;
typedef int CUatomicOperation;
typedef int CUexecAffinityType;
typedef int CUflushGPUDirectRDMAWritesScope;
typedef int CUflushGPUDirectRDMAWritesTarget;
typedef int CUfilter_mode;
typedef int CUmemAllocationType;
typedef int CUmem_advise;
typedef int CUmem_range_attribute;
typedef int CUmulticastGranularity_flags;
typedef int CUsharedconfig;

typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;

typedef struct {
	unsigned int smCount;
	unsigned int minSmPartitionSize;
	unsigned int smCoscheduledAlignment;
} CUdevSmResource;

/* passed by value */
typedef struct {
	char reserved[64];
} CUipcMemHandle;

/* passed by value */
typedef struct {
	char reserved[64];
} CUipcEventHandle;

/* 144 bytes, whose inner parts belong to the driver: copy it whole */
typedef struct {
	CUdevResourceType type;
	unsigned char reserved[92];
	union {
		CUdevSmResource sm;
		unsigned char bytes[48];
	};
} CUdevResource;

/* stream, launch and kernel node attributes share one numbering and one union of 64 bytes */
typedef enum {
	CU_LAUNCH_ATTRIBUTE_IGNORE = 0,
	CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW = 1,
	CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
	CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY = 3,
	CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
	CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
	CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT = 7,
	CU_LAUNCH_ATTRIBUTE_PRIORITY = 8,
	CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP = 9,
	CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN = 10,
	CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION = 11,
	CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT = 12,
	CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE = 13,
} CUlaunchAttributeID;

typedef CUlaunchAttributeID CUstreamAttrID;

typedef union {
	char pad[64];
	int cooperative;
	int priority;
	struct {
		unsigned int x, y, z;
	} clusterDim;
	int programmaticStreamSerializationAllowed;
	struct {
		CUevent event;
		int flags;
		int triggerAtBlockStart;
	} programmaticEvent;
	struct {
		CUevent event;
		int flags;
	} launchCompletionEvent;
	uint64_t align;
} CUlaunchAttributeValue;

typedef CUlaunchAttributeValue CUstreamAttrValue;

typedef struct {
	CUlaunchAttributeID id;
	char pad[8 - sizeof(CUlaunchAttributeID)];
	CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct {
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} CUlaunchConfig;

/* one device's part of a cooperative launch on several */
typedef struct {
	CUfunction function;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	void **kernelParams;
} CUDA_LAUNCH_PARAMS;

/* passed by value */
typedef struct {
	int type;
	int id;
} CUmemLocation;

/* passed by value */
typedef struct {
	void *planes[3];
	unsigned int width, height, depth, pitch, planeCount, numChannels;
	int frameType, eglColorFormat;
	CUarray_format cuFormat;
} CUeglFrame;

typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *data);
typedef void (*CUhostFn)(void *data);

typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct CUDA_MEMCPY2D_st CUDA_MEMCPY2D;
typedef struct CUDA_MEMCPY2D_v1_st CUDA_MEMCPY2D_v1;
typedef struct CUDA_MEMCPY3D_st CUDA_MEMCPY3D;
typedef struct CUDA_MEMCPY3D_v1_st CUDA_MEMCPY3D_v1;
typedef struct CUDA_MEMCPY3D_PEER_st CUDA_MEMCPY3D_PEER;
typedef struct CUDA_MEMCPY3D_BATCH_OP_st CUDA_MEMCPY3D_BATCH_OP;
typedef struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
typedef struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
typedef struct CUstreamBatchMemOpParams_st CUstreamBatchMemOpParams;
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes;
typedef struct CUmemDecompressParams_st CUmemDecompressParams;
typedef struct CUarrayMapInfo_st CUarrayMapInfo;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st CUDA_GRAPH_INSTANTIATE_PARAMS;
typedef struct CUgraphExecUpdateResultInfo_st CUgraphExecUpdateResultInfo;
typedef struct CUgraphNodeParams_st CUgraphNodeParams;
typedef struct CUDA_RESOURCE_DESC_st CUDA_RESOURCE_DESC;
typedef struct CUDA_TEXTURE_DESC_st CUDA_TEXTURE_DESC;
typedef struct CUDA_RESOURCE_VIEW_DESC_st CUDA_RESOURCE_VIEW_DESC;
typedef struct CUDA_ARRAY_DESCRIPTOR_st CUDA_ARRAY_DESCRIPTOR;
typedef struct CUDA_ARRAY_DESCRIPTOR_v1_st CUDA_ARRAY_DESCRIPTOR_v1;
typedef struct CUDA_ARRAY3D_DESCRIPTOR_st CUDA_ARRAY3D_DESCRIPTOR;
typedef struct CUDA_ARRAY3D_DESCRIPTOR_v1_st CUDA_ARRAY3D_DESCRIPTOR_v1;
typedef struct CUDA_BATCH_MEM_OP_NODE_PARAMS_st CUDA_BATCH_MEM_OP_NODE_PARAMS;
typedef struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_st CUDA_EXT_SEM_SIGNAL_NODE_PARAMS;
typedef struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_st CUDA_EXT_SEM_WAIT_NODE_PARAMS;
typedef struct CUDA_HOST_NODE_PARAMS_st CUDA_HOST_NODE_PARAMS;
typedef struct CUDA_KERNEL_NODE_PARAMS_st CUDA_KERNEL_NODE_PARAMS;
typedef struct CUDA_KERNEL_NODE_PARAMS_v1_st CUDA_KERNEL_NODE_PARAMS_v1;
typedef struct CUDA_MEMSET_NODE_PARAMS_st CUDA_MEMSET_NODE_PARAMS;
typedef struct CUmemAllocationProp_st CUmemAllocationProp;
typedef struct CUmemPoolProps_st CUmemPoolProps;
typedef struct CUmemAccessDesc_st CUmemAccessDesc;
typedef struct CUDA_ARRAY_MEMORY_REQUIREMENTS_st CUDA_ARRAY_MEMORY_REQUIREMENTS;
typedef struct CUDA_ARRAY_SPARSE_PROPERTIES_st CUDA_ARRAY_SPARSE_PROPERTIES;
typedef struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC_st CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC_st CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
typedef struct CUDA_MEM_ALLOC_NODE_PARAMS_st CUDA_MEM_ALLOC_NODE_PARAMS;
typedef struct CUdevprop_st CUdevprop;
typedef struct CUmemPoolPtrExportData_st CUmemPoolPtrExportData;
typedef struct CUmulticastObjectProp_st CUmulticastObjectProp;

#include "cuda_graph.h"

#endif
