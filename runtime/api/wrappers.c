/* SPDX-License-Identifier: Apache-2.0 */
/* Made by `python -m detshare.tools.cudaapi` from runtime/api.json; do not edit. */

#include "gate.h"
#include "home.h"
#include "move.h"
#include "primary.h"
#include "room.h"

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *p0, CUarray p1)
{
	return real->cuArray3DGetDescriptor_v2(p0, p1);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *p0, CUarray p1)
{
	return real->cuArrayGetDescriptor_v2(p0, p1);
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *p0, CUarray p1, CUdevice p2)
{
	return real->cuArrayGetMemoryRequirements(p0, p1, p2);
}

CUresult cuArrayGetPlane(CUarray *p0, CUarray p1, unsigned int p2)
{
	return real->cuArrayGetPlane(p0, p1, p2);
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *p0, CUarray p1)
{
	return real->cuArrayGetSparseProperties(p0, p1);
}

CUresult cuCtxAttach(CUcontext *p0, unsigned int p1)
{
	CUresult result = real->cuCtxAttach(p0, p1);

	ds_context_changed();
	return result;
}

CUresult cuCtxCreate(CUcontext *p0, unsigned int p1, CUdevice p2)
{
	CUresult result = real->cuCtxCreate(p0, p1, p2);

	ds_context_changed();
	return result;
}

CUresult cuCtxCreate_v2(CUcontext *p0, unsigned int p1, CUdevice p2)
{
	CUresult result = real->cuCtxCreate_v2(p0, p1, p2);

	ds_context_changed();
	return result;
}

CUresult cuCtxCreate_v3(CUcontext *p0, CUexecAffinityParam *p1, int p2, unsigned int p3, CUdevice p4)
{
	CUresult result = real->cuCtxCreate_v3(p0, p1, p2, p3, p4);

	ds_context_changed();
	return result;
}

CUresult cuCtxCreate_v4(CUcontext *p0, CUctxCreateParams *p1, unsigned int p2, CUdevice p3)
{
	CUresult result = real->cuCtxCreate_v4(p0, p1, p2, p3);

	ds_context_changed();
	return result;
}

CUresult cuCtxDetach(CUcontext p0)
{
	CUresult result = real->cuCtxDetach(p0);

	ds_context_changed();
	return result;
}

CUresult cuCtxFromGreenCtx(CUcontext *p0, CUgreenCtx p1)
{
	return real->cuCtxFromGreenCtx(p0, p1);
}

CUresult cuCtxGetApiVersion(CUcontext p0, unsigned int *p1)
{
	return real->cuCtxGetApiVersion(p0, p1);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *p0)
{
	return real->cuCtxGetCacheConfig(p0);
}

CUresult cuCtxGetCurrent(CUcontext *p0)
{
	return real->cuCtxGetCurrent(p0);
}

CUresult cuCtxGetDevResource(CUcontext p0, CUdevResource *p1, CUdevResourceType p2)
{
	return real->cuCtxGetDevResource(p0, p1, p2);
}

CUresult cuCtxGetDevice(CUdevice *p0)
{
	return real->cuCtxGetDevice(p0);
}

CUresult cuCtxGetDevice_v2(CUdevice *p0, CUcontext p1)
{
	return real->cuCtxGetDevice_v2(p0, p1);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *p0, CUexecAffinityType p1)
{
	return real->cuCtxGetExecAffinity(p0, p1);
}

CUresult cuCtxGetFlags(unsigned int *p0)
{
	return real->cuCtxGetFlags(p0);
}

CUresult cuCtxGetId(CUcontext p0, unsigned long long *p1)
{
	return real->cuCtxGetId(p0, p1);
}

CUresult cuCtxGetLimit(size_t *p0, CUlimit p1)
{
	return real->cuCtxGetLimit(p0, p1);
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *p0)
{
	return real->cuCtxGetSharedMemConfig(p0);
}

CUresult cuCtxGetStreamPriorityRange(int *p0, int *p1)
{
	return real->cuCtxGetStreamPriorityRange(p0, p1);
}

CUresult cuCtxPopCurrent(CUcontext *p0)
{
	CUresult result = real->cuCtxPopCurrent(p0);

	ds_context_changed();
	return result;
}

CUresult cuCtxPopCurrent_v2(CUcontext *p0)
{
	CUresult result = real->cuCtxPopCurrent_v2(p0);

	ds_context_changed();
	return result;
}

CUresult cuCtxPushCurrent(CUcontext p0)
{
	CUresult result = real->cuCtxPushCurrent(p0);

	ds_context_changed();
	return result;
}

CUresult cuCtxPushCurrent_v2(CUcontext p0)
{
	CUresult result = real->cuCtxPushCurrent_v2(p0);

	ds_context_changed();
	return result;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	return real->cuCtxResetPersistingL2Cache();
}

CUresult cuCtxSetCacheConfig(CUfunc_cache p0)
{
	return real->cuCtxSetCacheConfig(p0);
}

CUresult cuCtxSetCurrent(CUcontext p0)
{
	CUresult result = real->cuCtxSetCurrent(p0);

	ds_context_changed();
	return result;
}

CUresult cuCtxSetFlags(unsigned int p0)
{
	return real->cuCtxSetFlags(p0);
}

CUresult cuCtxSetLimit(CUlimit p0, size_t p1)
{
	return ds_room_own(ds_device_current(), real->cuCtxSetLimit(p0, p1), real->cuCtxSetLimit(p0, p1));
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig p0)
{
	return real->cuCtxSetSharedMemConfig(p0);
}

CUresult cuDestroyExternalMemory(CUexternalMemory p0)
{
	return real->cuDestroyExternalMemory(p0);
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore p0)
{
	return real->cuDestroyExternalSemaphore(p0);
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *p0, CUdevResource *p1, unsigned int p2)
{
	return real->cuDevResourceGenerateDesc(p0, p1, p2);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *p0, unsigned int *p1, const CUdevResource *p2, CUdevResource *p3, unsigned int p4, unsigned int p5)
{
	return real->cuDevSmResourceSplitByCount(p0, p1, p2, p3, p4, p5);
}

CUresult cuDeviceCanAccessPeer(int *p0, CUdevice p1, CUdevice p2)
{
	return real->cuDeviceCanAccessPeer(p0, p1, p2);
}

CUresult cuDeviceComputeCapability(int *p0, int *p1, CUdevice p2)
{
	return real->cuDeviceComputeCapability(p0, p1, p2);
}

CUresult cuDeviceGet(CUdevice *p0, int p1)
{
	return real->cuDeviceGet(p0, p1);
}

CUresult cuDeviceGetAttribute(int *p0, CUdevice_attribute p1, CUdevice p2)
{
	return real->cuDeviceGetAttribute(p0, p1, p2);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *p0, const char *p1)
{
	return real->cuDeviceGetByPCIBusId(p0, p1);
}

CUresult cuDeviceGetCount(int *p0)
{
	return real->cuDeviceGetCount(p0);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *p0, CUdevice p1)
{
	return real->cuDeviceGetDefaultMemPool(p0, p1);
}

CUresult cuDeviceGetDevResource(CUdevice p0, CUdevResource *p1, CUdevResourceType p2)
{
	return real->cuDeviceGetDevResource(p0, p1, p2);
}

CUresult cuDeviceGetExecAffinitySupport(int *p0, CUexecAffinityType p1, CUdevice p2)
{
	return real->cuDeviceGetExecAffinitySupport(p0, p1, p2);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice p0, CUgraphMem_attribute p1, void *p2)
{
	return real->cuDeviceGetGraphMemAttribute(p0, p1, p2);
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *p0, const CUatomicOperation *p1, unsigned int p2, CUdevice p3)
{
	return real->cuDeviceGetHostAtomicCapabilities(p0, p1, p2, p3);
}

CUresult cuDeviceGetLuid(char *p0, unsigned int *p1, CUdevice p2)
{
	return real->cuDeviceGetLuid(p0, p1, p2);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *p0, CUdevice p1)
{
	return real->cuDeviceGetMemPool(p0, p1);
}

CUresult cuDeviceGetName(char *p0, int p1, CUdevice p2)
{
	return real->cuDeviceGetName(p0, p1, p2);
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *p0, const CUatomicOperation *p1, unsigned int p2, CUdevice p3, CUdevice p4)
{
	return real->cuDeviceGetP2PAtomicCapabilities(p0, p1, p2, p3, p4);
}

CUresult cuDeviceGetP2PAttribute(int *p0, CUdevice_P2PAttribute p1, CUdevice p2, CUdevice p3)
{
	return real->cuDeviceGetP2PAttribute(p0, p1, p2, p3);
}

CUresult cuDeviceGetPCIBusId(char *p0, int p1, CUdevice p2)
{
	return real->cuDeviceGetPCIBusId(p0, p1, p2);
}

CUresult cuDeviceGetProperties(CUdevprop *p0, CUdevice p1)
{
	return real->cuDeviceGetProperties(p0, p1);
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *p0, CUarray_format p1, unsigned int p2, CUdevice p3)
{
	return real->cuDeviceGetTexture1DLinearMaxWidth(p0, p1, p2, p3);
}

CUresult cuDeviceGetUuid(CUuuid *p0, CUdevice p1)
{
	return real->cuDeviceGetUuid(p0, p1);
}

CUresult cuDeviceGetUuid_v2(CUuuid *p0, CUdevice p1)
{
	return real->cuDeviceGetUuid_v2(p0, p1);
}

CUresult cuDeviceGraphMemTrim(CUdevice p0)
{
	return real->cuDeviceGraphMemTrim(p0);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice p0, unsigned int *p1, int *p2)
{
	return real->cuDevicePrimaryCtxGetState(p0, p1, p2);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice p0, unsigned int p1)
{
	return real->cuDevicePrimaryCtxSetFlags(p0, p1);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice p0, unsigned int p1)
{
	return real->cuDevicePrimaryCtxSetFlags_v2(p0, p1);
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice p0, CUgraphMem_attribute p1, void *p2)
{
	return real->cuDeviceSetGraphMemAttribute(p0, p1, p2);
}

CUresult cuDeviceSetMemPool(CUdevice p0, CUmemoryPool p1)
{
	return real->cuDeviceSetMemPool(p0, p1);
}

CUresult cuEGLStreamConsumerAcquireFrame(CUeglStreamConnection *p0, CUgraphicsResource *p1, CUstream *p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p2 ? *p2 : NULL, false);
	CUresult result;

	if (!stream)
		return real->cuEGLStreamConsumerAcquireFrame(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuEGLStreamConsumerAcquireFrame(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuEGLStreamConsumerReleaseFrame(CUeglStreamConnection *p0, CUgraphicsResource p1, CUstream *p2)
{
	struct ds_stream *stream = ds_stream_of(p2 ? *p2 : NULL, false);
	CUresult result;

	if (!stream)
		return real->cuEGLStreamConsumerReleaseFrame(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuEGLStreamConsumerReleaseFrame(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuEGLStreamProducerPresentFrame(CUeglStreamConnection *p0, CUeglFrame p1, CUstream *p2)
{
	struct ds_stream *stream = ds_stream_of(p2 ? *p2 : NULL, false);
	CUresult result;

	if (!stream)
		return real->cuEGLStreamProducerPresentFrame(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuEGLStreamProducerPresentFrame(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuEGLStreamProducerReturnFrame(CUeglStreamConnection *p0, CUeglFrame *p1, CUstream *p2)
{
	struct ds_stream *stream = ds_stream_of(p2 ? *p2 : NULL, false);
	CUresult result;

	if (!stream)
		return real->cuEGLStreamProducerReturnFrame(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuEGLStreamProducerReturnFrame(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuEventCreate(CUevent *p0, unsigned int p1)
{
	return ds_room_own(ds_device_current(), real->cuEventCreate(p0, p1), real->cuEventCreate(p0, p1));
}

CUresult cuEventElapsedTime(float *p0, CUevent p1, CUevent p2)
{
	return real->cuEventElapsedTime(p0, p1, p2);
}

CUresult cuEventElapsedTime_v2(float *p0, CUevent p1, CUevent p2)
{
	return real->cuEventElapsedTime_v2(p0, p1, p2);
}

CUresult cuEventQuery(CUevent p0)
{
	return real->cuEventQuery(p0);
}

CUresult cuEventSynchronize(CUevent p0)
{
	return real->cuEventSynchronize(p0);
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *p0, CUexternalMemory p1, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *p2)
{
	return real->cuExternalMemoryGetMappedBuffer(p0, p1, p2);
}

CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *p0, CUexternalMemory p1, const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *p2)
{
	return real->cuExternalMemoryGetMappedMipmappedArray(p0, p1, p2);
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget p0, CUflushGPUDirectRDMAWritesScope p1)
{
	return real->cuFlushGPUDirectRDMAWrites(p0, p1);
}

CUresult cuFuncGetAttribute(int *p0, CUfunction_attribute p1, CUfunction p2)
{
	return ds_room_own(ds_device_current(), real->cuFuncGetAttribute(p0, p1, p2), real->cuFuncGetAttribute(p0, p1, p2));
}

CUresult cuFuncGetModule(CUmodule *p0, CUfunction p1)
{
	return real->cuFuncGetModule(p0, p1);
}

CUresult cuFuncGetName(const char **p0, CUfunction p1)
{
	return real->cuFuncGetName(p0, p1);
}

CUresult cuFuncGetParamInfo(CUfunction p0, size_t p1, size_t *p2, size_t *p3)
{
	return real->cuFuncGetParamInfo(p0, p1, p2, p3);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *p0, CUfunction p1)
{
	return real->cuFuncIsLoaded(p0, p1);
}

CUresult cuFuncLoad(CUfunction p0)
{
	return ds_room_own(ds_device_current(), real->cuFuncLoad(p0), real->cuFuncLoad(p0));
}

CUresult cuFuncSetAttribute(CUfunction p0, CUfunction_attribute p1, int p2)
{
	return ds_room_own(ds_device_current(), real->cuFuncSetAttribute(p0, p1, p2), real->cuFuncSetAttribute(p0, p1, p2));
}

CUresult cuFuncSetBlockShape(CUfunction p0, int p1, int p2, int p3)
{
	return real->cuFuncSetBlockShape(p0, p1, p2, p3);
}

CUresult cuFuncSetCacheConfig(CUfunction p0, CUfunc_cache p1)
{
	return real->cuFuncSetCacheConfig(p0, p1);
}

CUresult cuFuncSetSharedMemConfig(CUfunction p0, CUsharedconfig p1)
{
	return real->cuFuncSetSharedMemConfig(p0, p1);
}

CUresult cuFuncSetSharedSize(CUfunction p0, unsigned int p1)
{
	return real->cuFuncSetSharedSize(p0, p1);
}

CUresult cuGLCtxCreate(CUcontext *p0, unsigned int p1, CUdevice p2)
{
	CUresult result = real->cuGLCtxCreate(p0, p1, p2);

	ds_context_changed();
	return result;
}

CUresult cuGLCtxCreate_v2(CUcontext *p0, unsigned int p1, CUdevice p2)
{
	CUresult result = real->cuGLCtxCreate_v2(p0, p1, p2);

	ds_context_changed();
	return result;
}

CUresult cuGLMapBufferObject(CUdeviceptr_v1 *p0, unsigned int *p1, GLuint p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuGLMapBufferObject(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuGLMapBufferObject(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuGLMapBufferObjectAsync(CUdeviceptr_v1 *p0, unsigned int *p1, GLuint p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuGLMapBufferObjectAsync(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuGLMapBufferObjectAsync(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuGLMapBufferObjectAsync_v2(CUdeviceptr *p0, size_t *p1, GLuint p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuGLMapBufferObjectAsync_v2(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuGLMapBufferObjectAsync_v2(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuGLMapBufferObjectAsync_v2_ptsz(CUdeviceptr *p0, size_t *p1, GLuint p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuGLMapBufferObjectAsync_v2_ptsz(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuGLMapBufferObjectAsync_v2_ptsz(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuGLMapBufferObject_v2(CUdeviceptr *p0, size_t *p1, GLuint p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuGLMapBufferObject_v2(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuGLMapBufferObject_v2(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuGLMapBufferObject_v2_ptds(CUdeviceptr *p0, size_t *p1, GLuint p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuGLMapBufferObject_v2_ptds(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuGLMapBufferObject_v2_ptds(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuGLUnmapBufferObject(GLuint p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuGLUnmapBufferObject(p0);
	ds_stream_home(stream);
	result = real->cuGLUnmapBufferObject(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuGLUnmapBufferObjectAsync(GLuint p0, CUstream p1)
{
	struct ds_stream *stream = ds_stream_of(p1, false);
	CUresult result;

	if (!stream)
		return real->cuGLUnmapBufferObjectAsync(p0, p1);
	ds_stream_home(stream);
	result = real->cuGLUnmapBufferObjectAsync(p0, p1);
	ds_stream_done(stream);
	return result;
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p4)
{
	return ds_home_call(real->cuGraphAddBatchMemOpNode(p0, p1, p2, p3, p4));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, CUgraph p4)
{
	return real->cuGraphAddChildGraphNode(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddDependencies(CUgraph p0, const CUgraphNode *p1, const CUgraphNode *p2, size_t p3)
{
	return real->cuGraphAddDependencies(p0, p1, p2, p3);
}

CUresult cuGraphAddDependencies_v2(CUgraph p0, const CUgraphNode *p1, const CUgraphNode *p2, const CUgraphEdgeData *p3, size_t p4)
{
	return real->cuGraphAddDependencies_v2(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3)
{
	return real->cuGraphAddEmptyNode(p0, p1, p2, p3);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, CUevent p4)
{
	return real->cuGraphAddEventRecordNode(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, CUevent p4)
{
	return real->cuGraphAddEventWaitNode(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddExternalSemaphoresSignalNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p4)
{
	return real->cuGraphAddExternalSemaphoresSignalNode(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddExternalSemaphoresWaitNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p4)
{
	return real->cuGraphAddExternalSemaphoresWaitNode(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddHostNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, const CUDA_HOST_NODE_PARAMS *p4)
{
	return real->cuGraphAddHostNode(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddKernelNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, const CUDA_KERNEL_NODE_PARAMS_v1 *p4)
{
	return real->cuGraphAddKernelNode(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, const CUDA_KERNEL_NODE_PARAMS *p4)
{
	return real->cuGraphAddKernelNode_v2(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, CUDA_MEM_ALLOC_NODE_PARAMS *p4)
{
	return real->cuGraphAddMemAllocNode(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, CUdeviceptr p4)
{
	return real->cuGraphAddMemFreeNode(p0, p1, p2, p3, p4);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, const CUDA_MEMCPY3D *p4, CUcontext p5)
{
	return ds_home_call(real->cuGraphAddMemcpyNode(p0, p1, p2, p3, p4, p5));
}

CUresult cuGraphAddMemsetNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, const CUDA_MEMSET_NODE_PARAMS *p4, CUcontext p5)
{
	return ds_home_call(real->cuGraphAddMemsetNode(p0, p1, p2, p3, p4, p5));
}

CUresult cuGraphAddNode(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, size_t p3, CUgraphNodeParams *p4)
{
	return ds_home_call(real->cuGraphAddNode(p0, p1, p2, p3, p4));
}

CUresult cuGraphAddNode_v2(CUgraphNode *p0, CUgraph p1, const CUgraphNode *p2, const CUgraphEdgeData *p3, size_t p4, CUgraphNodeParams *p5)
{
	return ds_home_call(real->cuGraphAddNode_v2(p0, p1, p2, p3, p4, p5));
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode p0, CUDA_BATCH_MEM_OP_NODE_PARAMS *p1)
{
	return real->cuGraphBatchMemOpNodeGetParams(p0, p1);
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode p0, const CUDA_BATCH_MEM_OP_NODE_PARAMS *p1)
{
	return ds_home_call(real->cuGraphBatchMemOpNodeSetParams(p0, p1));
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode p0, CUgraph *p1)
{
	return real->cuGraphChildGraphNodeGetGraph(p0, p1);
}

CUresult cuGraphClone(CUgraph *p0, CUgraph p1)
{
	return real->cuGraphClone(p0, p1);
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *p0, CUgraph p1, CUcontext p2, unsigned int p3, unsigned int p4)
{
	return real->cuGraphConditionalHandleCreate(p0, p1, p2, p3, p4);
}

CUresult cuGraphCreate(CUgraph *p0, unsigned int p1)
{
	return real->cuGraphCreate(p0, p1);
}

CUresult cuGraphDebugDotPrint(CUgraph p0, const char *p1, unsigned int p2)
{
	return real->cuGraphDebugDotPrint(p0, p1, p2);
}

CUresult cuGraphDestroy(CUgraph p0)
{
	return real->cuGraphDestroy(p0);
}

CUresult cuGraphDestroyNode(CUgraphNode p0)
{
	return real->cuGraphDestroyNode(p0);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode p0, CUevent *p1)
{
	return real->cuGraphEventRecordNodeGetEvent(p0, p1);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode p0, CUevent p1)
{
	return real->cuGraphEventRecordNodeSetEvent(p0, p1);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode p0, CUevent *p1)
{
	return real->cuGraphEventWaitNodeGetEvent(p0, p1);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode p0, CUevent p1)
{
	return real->cuGraphEventWaitNodeSetEvent(p0, p1);
}

CUresult cuGraphExecGetFlags(CUgraphExec p0, cuuint64_t *p1)
{
	return real->cuGraphExecGetFlags(p0, p1);
}

CUresult cuGraphExternalSemaphoresSignalNodeGetParams(CUgraphNode p0, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p1)
{
	return real->cuGraphExternalSemaphoresSignalNodeGetParams(p0, p1);
}

CUresult cuGraphExternalSemaphoresSignalNodeSetParams(CUgraphNode p0, const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *p1)
{
	return real->cuGraphExternalSemaphoresSignalNodeSetParams(p0, p1);
}

CUresult cuGraphExternalSemaphoresWaitNodeGetParams(CUgraphNode p0, CUDA_EXT_SEM_WAIT_NODE_PARAMS *p1)
{
	return real->cuGraphExternalSemaphoresWaitNodeGetParams(p0, p1);
}

CUresult cuGraphExternalSemaphoresWaitNodeSetParams(CUgraphNode p0, const CUDA_EXT_SEM_WAIT_NODE_PARAMS *p1)
{
	return real->cuGraphExternalSemaphoresWaitNodeSetParams(p0, p1);
}

CUresult cuGraphGetEdges(CUgraph p0, CUgraphNode *p1, CUgraphNode *p2, size_t *p3)
{
	return real->cuGraphGetEdges(p0, p1, p2, p3);
}

CUresult cuGraphGetEdges_v2(CUgraph p0, CUgraphNode *p1, CUgraphNode *p2, CUgraphEdgeData *p3, size_t *p4)
{
	return real->cuGraphGetEdges_v2(p0, p1, p2, p3, p4);
}

CUresult cuGraphGetNodes(CUgraph p0, CUgraphNode *p1, size_t *p2)
{
	return real->cuGraphGetNodes(p0, p1, p2);
}

CUresult cuGraphGetRootNodes(CUgraph p0, CUgraphNode *p1, size_t *p2)
{
	return real->cuGraphGetRootNodes(p0, p1, p2);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode p0, CUDA_HOST_NODE_PARAMS *p1)
{
	return real->cuGraphHostNodeGetParams(p0, p1);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode p0, const CUDA_HOST_NODE_PARAMS *p1)
{
	return real->cuGraphHostNodeSetParams(p0, p1);
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode p0, CUgraphNode p1)
{
	return real->cuGraphKernelNodeCopyAttributes(p0, p1);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode p0, CUkernelNodeAttrID p1, CUkernelNodeAttrValue *p2)
{
	return real->cuGraphKernelNodeGetAttribute(p0, p1, p2);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode p0, CUDA_KERNEL_NODE_PARAMS_v1 *p1)
{
	return real->cuGraphKernelNodeGetParams(p0, p1);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode p0, CUDA_KERNEL_NODE_PARAMS *p1)
{
	return real->cuGraphKernelNodeGetParams_v2(p0, p1);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode p0, CUkernelNodeAttrID p1, const CUkernelNodeAttrValue *p2)
{
	return real->cuGraphKernelNodeSetAttribute(p0, p1, p2);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode p0, const CUDA_KERNEL_NODE_PARAMS_v1 *p1)
{
	return real->cuGraphKernelNodeSetParams(p0, p1);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode p0, const CUDA_KERNEL_NODE_PARAMS *p1)
{
	return real->cuGraphKernelNodeSetParams_v2(p0, p1);
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode p0, CUDA_MEM_ALLOC_NODE_PARAMS *p1)
{
	return real->cuGraphMemAllocNodeGetParams(p0, p1);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode p0, CUdeviceptr *p1)
{
	return real->cuGraphMemFreeNodeGetParams(p0, p1);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode p0, CUDA_MEMCPY3D *p1)
{
	return real->cuGraphMemcpyNodeGetParams(p0, p1);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode p0, const CUDA_MEMCPY3D *p1)
{
	return ds_home_call(real->cuGraphMemcpyNodeSetParams(p0, p1));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode p0, CUDA_MEMSET_NODE_PARAMS *p1)
{
	return real->cuGraphMemsetNodeGetParams(p0, p1);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode p0, const CUDA_MEMSET_NODE_PARAMS *p1)
{
	return ds_home_call(real->cuGraphMemsetNodeSetParams(p0, p1));
}

CUresult cuGraphNodeFindInClone(CUgraphNode *p0, CUgraphNode p1, CUgraph p2)
{
	return real->cuGraphNodeFindInClone(p0, p1, p2);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode p0, CUgraphNode *p1, size_t *p2)
{
	return real->cuGraphNodeGetDependencies(p0, p1, p2);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode p0, CUgraphNode *p1, CUgraphEdgeData *p2, size_t *p3)
{
	return real->cuGraphNodeGetDependencies_v2(p0, p1, p2, p3);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode p0, CUgraphNode *p1, size_t *p2)
{
	return real->cuGraphNodeGetDependentNodes(p0, p1, p2);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode p0, CUgraphNode *p1, CUgraphEdgeData *p2, size_t *p3)
{
	return real->cuGraphNodeGetDependentNodes_v2(p0, p1, p2, p3);
}

CUresult cuGraphNodeGetEnabled(CUgraphExec p0, CUgraphNode p1, unsigned int *p2)
{
	return real->cuGraphNodeGetEnabled(p0, p1, p2);
}

CUresult cuGraphNodeGetType(CUgraphNode p0, CUgraphNodeType *p1)
{
	return real->cuGraphNodeGetType(p0, p1);
}

CUresult cuGraphNodeSetParams(CUgraphNode p0, CUgraphNodeParams *p1)
{
	return ds_home_call(real->cuGraphNodeSetParams(p0, p1));
}

CUresult cuGraphReleaseUserObject(CUgraph p0, CUuserObject p1, unsigned int p2)
{
	return real->cuGraphReleaseUserObject(p0, p1, p2);
}

CUresult cuGraphRemoveDependencies(CUgraph p0, const CUgraphNode *p1, const CUgraphNode *p2, size_t p3)
{
	return real->cuGraphRemoveDependencies(p0, p1, p2, p3);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph p0, const CUgraphNode *p1, const CUgraphNode *p2, const CUgraphEdgeData *p3, size_t p4)
{
	return real->cuGraphRemoveDependencies_v2(p0, p1, p2, p3, p4);
}

CUresult cuGraphRetainUserObject(CUgraph p0, CUuserObject p1, unsigned int p2, unsigned int p3)
{
	return real->cuGraphRetainUserObject(p0, p1, p2, p3);
}

CUresult cuGraphicsMapResources(unsigned int p0, CUgraphicsResource *p1, CUstream p2)
{
	struct ds_stream *stream = ds_stream_of(p2, false);
	CUresult result;

	if (!stream)
		return real->cuGraphicsMapResources(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuGraphicsMapResources(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuGraphicsMapResources_ptsz(unsigned int p0, CUgraphicsResource *p1, CUstream p2)
{
	struct ds_stream *stream = ds_stream_of(p2, true);
	CUresult result;

	if (!stream)
		return real->cuGraphicsMapResources_ptsz(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuGraphicsMapResources_ptsz(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuGraphicsUnmapResources(unsigned int p0, CUgraphicsResource *p1, CUstream p2)
{
	struct ds_stream *stream = ds_stream_of(p2, false);
	CUresult result;

	if (!stream)
		return real->cuGraphicsUnmapResources(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuGraphicsUnmapResources(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuGraphicsUnmapResources_ptsz(unsigned int p0, CUgraphicsResource *p1, CUstream p2)
{
	struct ds_stream *stream = ds_stream_of(p2, true);
	CUresult result;

	if (!stream)
		return real->cuGraphicsUnmapResources_ptsz(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuGraphicsUnmapResources_ptsz(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx p0)
{
	CUresult result = real->cuGreenCtxDestroy(p0);

	ds_context_changed();
	return result;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx p0, CUdevResource *p1, CUdevResourceType p2)
{
	return real->cuGreenCtxGetDevResource(p0, p1, p2);
}

CUresult cuGreenCtxGetId(CUgreenCtx p0, unsigned long long *p1)
{
	return real->cuGreenCtxGetId(p0, p1);
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx p0, CUevent p1)
{
	return real->cuGreenCtxRecordEvent(p0, p1);
}

CUresult cuGreenCtxStreamCreate(CUstream *p0, CUgreenCtx p1, unsigned int p2, int p3)
{
	return real->cuGreenCtxStreamCreate(p0, p1, p2, p3);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx p0, CUevent p1)
{
	return real->cuGreenCtxWaitEvent(p0, p1);
}

CUresult cuImportExternalMemory(CUexternalMemory *p0, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *p1)
{
	return real->cuImportExternalMemory(p0, p1);
}

CUresult cuImportExternalSemaphore(CUexternalSemaphore *p0, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *p1)
{
	return real->cuImportExternalSemaphore(p0, p1);
}

CUresult cuKernelGetAttribute(int *p0, CUfunction_attribute p1, CUkernel p2, CUdevice p3)
{
	return ds_room_own(ds_device_current(), real->cuKernelGetAttribute(p0, p1, p2, p3), real->cuKernelGetAttribute(p0, p1, p2, p3));
}

CUresult cuKernelGetFunction(CUfunction *p0, CUkernel p1)
{
	return ds_room_own(ds_device_current(), real->cuKernelGetFunction(p0, p1), real->cuKernelGetFunction(p0, p1));
}

CUresult cuKernelGetLibrary(CUlibrary *p0, CUkernel p1)
{
	return real->cuKernelGetLibrary(p0, p1);
}

CUresult cuKernelGetName(const char **p0, CUkernel p1)
{
	return real->cuKernelGetName(p0, p1);
}

CUresult cuKernelGetParamInfo(CUkernel p0, size_t p1, size_t *p2, size_t *p3)
{
	return real->cuKernelGetParamInfo(p0, p1, p2, p3);
}

CUresult cuKernelSetAttribute(CUfunction_attribute p0, int p1, CUkernel p2, CUdevice p3)
{
	return ds_room_own(ds_device_current(), real->cuKernelSetAttribute(p0, p1, p2, p3), real->cuKernelSetAttribute(p0, p1, p2, p3));
}

CUresult cuKernelSetCacheConfig(CUkernel p0, CUfunc_cache p1, CUdevice p2)
{
	return real->cuKernelSetCacheConfig(p0, p1, p2);
}

CUresult cuLaunchHostFunc(CUstream p0, CUhostFn p1, void *p2)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuLaunchHostFunc(p0, p1, p2);
	result = real->cuLaunchHostFunc(ds_stream_cur(stream), p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuLaunchHostFunc_ptsz(CUstream p0, CUhostFn p1, void *p2)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuLaunchHostFunc_ptsz(p0, p1, p2);
	result = real->cuLaunchHostFunc_ptsz(ds_stream_cur(stream), p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel *p0, unsigned int p1, CUlibrary p2)
{
	return real->cuLibraryEnumerateKernels(p0, p1, p2);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *p0, size_t *p1, CUlibrary p2, const char *p3)
{
	return ds_room_own(ds_device_current(), real->cuLibraryGetGlobal(p0, p1, p2, p3), real->cuLibraryGetGlobal(p0, p1, p2, p3));
}

CUresult cuLibraryGetKernel(CUkernel *p0, CUlibrary p1, const char *p2)
{
	return real->cuLibraryGetKernel(p0, p1, p2);
}

CUresult cuLibraryGetKernelCount(unsigned int *p0, CUlibrary p1)
{
	return real->cuLibraryGetKernelCount(p0, p1);
}

CUresult cuLibraryGetManaged(CUdeviceptr *p0, size_t *p1, CUlibrary p2, const char *p3)
{
	return ds_room_own(ds_device_current(), real->cuLibraryGetManaged(p0, p1, p2, p3), real->cuLibraryGetManaged(p0, p1, p2, p3));
}

CUresult cuLibraryGetModule(CUmodule *p0, CUlibrary p1)
{
	return ds_room_own(ds_device_current(), real->cuLibraryGetModule(p0, p1), real->cuLibraryGetModule(p0, p1));
}

CUresult cuLibraryGetUnifiedFunction(void **p0, CUlibrary p1, const char *p2)
{
	return real->cuLibraryGetUnifiedFunction(p0, p1, p2);
}

CUresult cuLibraryLoadData(CUlibrary *p0, const void *p1, CUjit_option *p2, void **p3, unsigned int p4, CUlibraryOption *p5, void **p6, unsigned int p7)
{
	return ds_room_own(ds_device_current(), real->cuLibraryLoadData(p0, p1, p2, p3, p4, p5, p6, p7), real->cuLibraryLoadData(p0, p1, p2, p3, p4, p5, p6, p7));
}

CUresult cuLibraryLoadFromFile(CUlibrary *p0, const char *p1, CUjit_option *p2, void **p3, unsigned int p4, CUlibraryOption *p5, void **p6, unsigned int p7)
{
	return ds_room_own(ds_device_current(), real->cuLibraryLoadFromFile(p0, p1, p2, p3, p4, p5, p6, p7), real->cuLibraryLoadFromFile(p0, p1, p2, p3, p4, p5, p6, p7));
}

CUresult cuLinkAddData(CUlinkState p0, CUjitInputType p1, void *p2, size_t p3, const char *p4, unsigned int p5, CUjit_option *p6, void **p7)
{
	return real->cuLinkAddData(p0, p1, p2, p3, p4, p5, p6, p7);
}

CUresult cuLinkAddData_v2(CUlinkState p0, CUjitInputType p1, void *p2, size_t p3, const char *p4, unsigned int p5, CUjit_option *p6, void **p7)
{
	return real->cuLinkAddData_v2(p0, p1, p2, p3, p4, p5, p6, p7);
}

CUresult cuLinkAddFile(CUlinkState p0, CUjitInputType p1, const char *p2, unsigned int p3, CUjit_option *p4, void **p5)
{
	return real->cuLinkAddFile(p0, p1, p2, p3, p4, p5);
}

CUresult cuLinkAddFile_v2(CUlinkState p0, CUjitInputType p1, const char *p2, unsigned int p3, CUjit_option *p4, void **p5)
{
	return real->cuLinkAddFile_v2(p0, p1, p2, p3, p4, p5);
}

CUresult cuLinkComplete(CUlinkState p0, void **p1, size_t *p2)
{
	return real->cuLinkComplete(p0, p1, p2);
}

CUresult cuLinkCreate(unsigned int p0, CUjit_option *p1, void **p2, CUlinkState *p3)
{
	return real->cuLinkCreate(p0, p1, p2, p3);
}

CUresult cuLinkCreate_v2(unsigned int p0, CUjit_option *p1, void **p2, CUlinkState *p3)
{
	return real->cuLinkCreate_v2(p0, p1, p2, p3);
}

CUresult cuLinkDestroy(CUlinkState p0)
{
	return real->cuLinkDestroy(p0);
}

CUresult cuMemAddressReserve(CUdeviceptr *p0, size_t p1, size_t p2, CUdeviceptr p3, unsigned long long p4)
{
	return real->cuMemAddressReserve(p0, p1, p2, p3, p4);
}

CUresult cuMemAdvise(CUdeviceptr p0, size_t p1, CUmem_advise p2, CUdevice p3)
{
	return real->cuMemAdvise(p0, p1, p2, p3);
}

CUresult cuMemAdvise_v2(CUdeviceptr p0, size_t p1, CUmem_advise p2, CUmemLocation p3)
{
	return real->cuMemAdvise_v2(p0, p1, p2, p3);
}

CUresult cuMemAllocHost_v2(void **p0, size_t p1)
{
	return real->cuMemAllocHost_v2(p0, p1);
}

CUresult cuMemBatchDecompressAsync(CUmemDecompressParams *p0, size_t p1, unsigned int p2, size_t *p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, false);
	CUresult result;

	if (!stream)
		return real->cuMemBatchDecompressAsync(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemBatchDecompressAsync(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemBatchDecompressAsync_ptsz(CUmemDecompressParams *p0, size_t p1, unsigned int p2, size_t *p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, true);
	CUresult result;

	if (!stream)
		return real->cuMemBatchDecompressAsync_ptsz(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemBatchDecompressAsync_ptsz(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *p0, size_t *p1, size_t p2, CUmemLocation *p3, size_t *p4, size_t p5, unsigned long long p6, CUstream p7)
{
	struct ds_stream *stream = ds_stream_of(p7, false);
	CUresult result;

	if (!stream)
		return real->cuMemDiscardAndPrefetchBatchAsync(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_home(stream);
	result = real->cuMemDiscardAndPrefetchBatchAsync(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *p0, size_t *p1, size_t p2, CUmemLocation *p3, size_t *p4, size_t p5, unsigned long long p6, CUstream p7)
{
	struct ds_stream *stream = ds_stream_of(p7, true);
	CUresult result;

	if (!stream)
		return real->cuMemDiscardAndPrefetchBatchAsync_ptsz(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_home(stream);
	result = real->cuMemDiscardAndPrefetchBatchAsync_ptsz(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr *p0, size_t *p1, size_t p2, unsigned long long p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, false);
	CUresult result;

	if (!stream)
		return real->cuMemDiscardBatchAsync(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemDiscardBatchAsync(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemDiscardBatchAsync_ptsz(CUdeviceptr *p0, size_t *p1, size_t p2, unsigned long long p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, true);
	CUresult result;

	if (!stream)
		return real->cuMemDiscardBatchAsync_ptsz(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemDiscardBatchAsync_ptsz(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemFreeHost(void *p0)
{
	return real->cuMemFreeHost(p0);
}

CUresult cuMemGetAccess(unsigned long long *p0, const CUmemLocation *p1, CUdeviceptr p2)
{
	return ds_home_call(real->cuMemGetAccess(p0, p1, p2));
}

CUresult cuMemGetAllocationGranularity(size_t *p0, const CUmemAllocationProp *p1, CUmemAllocationGranularity_flags p2)
{
	return real->cuMemGetAllocationGranularity(p0, p1, p2);
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *p0, CUmemLocation *p1, CUmemAllocationType p2)
{
	return real->cuMemGetDefaultMemPool(p0, p1, p2);
}

CUresult cuMemGetMemPool(CUmemoryPool *p0, CUmemLocation *p1, CUmemAllocationType p2)
{
	return real->cuMemGetMemPool(p0, p1, p2);
}

CUresult cuMemHostAlloc(void **p0, size_t p1, unsigned int p2)
{
	return real->cuMemHostAlloc(p0, p1, p2);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *p0, void *p1, unsigned int p2)
{
	return real->cuMemHostGetDevicePointer_v2(p0, p1, p2);
}

CUresult cuMemHostGetFlags(unsigned int *p0, void *p1)
{
	return real->cuMemHostGetFlags(p0, p1);
}

CUresult cuMemHostRegister_v2(void *p0, size_t p1, unsigned int p2)
{
	return real->cuMemHostRegister_v2(p0, p1, p2);
}

CUresult cuMemHostUnregister(void *p0)
{
	return real->cuMemHostUnregister(p0);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *p0, unsigned int p1, CUstream p2)
{
	struct ds_stream *stream = ds_stream_of(p2, false);
	CUresult result;

	if (!stream)
		return real->cuMemMapArrayAsync(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemMapArrayAsync(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *p0, unsigned int p1, CUstream p2)
{
	struct ds_stream *stream = ds_stream_of(p2, true);
	CUresult result;

	if (!stream)
		return real->cuMemMapArrayAsync_ptsz(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemMapArrayAsync_ptsz(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemPoolCreate(CUmemoryPool *p0, const CUmemPoolProps *p1)
{
	return real->cuMemPoolCreate(p0, p1);
}

CUresult cuMemPoolDestroy(CUmemoryPool p0)
{
	return real->cuMemPoolDestroy(p0);
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *p0, CUdeviceptr p1)
{
	return real->cuMemPoolExportPointer(p0, p1);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *p0, CUmemoryPool p1, CUmemLocation *p2)
{
	return real->cuMemPoolGetAccess(p0, p1, p2);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool p0, CUmemPool_attribute p1, void *p2)
{
	return real->cuMemPoolGetAttribute(p0, p1, p2);
}

CUresult cuMemPoolImportPointer(CUdeviceptr *p0, CUmemoryPool p1, CUmemPoolPtrExportData *p2)
{
	return real->cuMemPoolImportPointer(p0, p1, p2);
}

CUresult cuMemPoolSetAccess(CUmemoryPool p0, const CUmemAccessDesc *p1, size_t p2)
{
	return real->cuMemPoolSetAccess(p0, p1, p2);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool p0, CUmemPool_attribute p1, void *p2)
{
	return real->cuMemPoolSetAttribute(p0, p1, p2);
}

CUresult cuMemPoolTrimTo(CUmemoryPool p0, size_t p1)
{
	return real->cuMemPoolTrimTo(p0, p1);
}

CUresult cuMemPrefetchAsync(CUdeviceptr p0, size_t p1, CUdevice p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemPrefetchAsync(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemPrefetchAsync(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr p0, size_t p1, CUdevice p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuMemPrefetchAsync_ptsz(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemPrefetchAsync_ptsz(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr p0, size_t p1, CUmemLocation p2, unsigned int p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, false);
	CUresult result;

	if (!stream)
		return real->cuMemPrefetchAsync_v2(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemPrefetchAsync_v2(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr p0, size_t p1, CUmemLocation p2, unsigned int p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, true);
	CUresult result;

	if (!stream)
		return real->cuMemPrefetchAsync_v2_ptsz(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemPrefetchAsync_v2_ptsz(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *p0, size_t *p1, size_t p2, CUmemLocation *p3, size_t *p4, size_t p5, unsigned long long p6, CUstream p7)
{
	struct ds_stream *stream = ds_stream_of(p7, false);
	CUresult result;

	if (!stream)
		return real->cuMemPrefetchBatchAsync(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_home(stream);
	result = real->cuMemPrefetchBatchAsync(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *p0, size_t *p1, size_t p2, CUmemLocation *p3, size_t *p4, size_t p5, unsigned long long p6, CUstream p7)
{
	struct ds_stream *stream = ds_stream_of(p7, true);
	CUresult result;

	if (!stream)
		return real->cuMemPrefetchBatchAsync_ptsz(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_home(stream);
	result = real->cuMemPrefetchBatchAsync_ptsz(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemRangeGetAttribute(void *p0, size_t p1, CUmem_range_attribute p2, CUdeviceptr p3, size_t p4)
{
	return real->cuMemRangeGetAttribute(p0, p1, p2, p3, p4);
}

CUresult cuMemRangeGetAttributes(void **p0, size_t *p1, CUmem_range_attribute *p2, size_t p3, CUdeviceptr p4, size_t p5)
{
	return real->cuMemRangeGetAttributes(p0, p1, p2, p3, p4, p5);
}

CUresult cuMemSetMemPool(CUmemLocation *p0, CUmemAllocationType p1, CUmemoryPool p2)
{
	return real->cuMemSetMemPool(p0, p1, p2);
}

CUresult cuMemcpy(CUdeviceptr p0, CUdeviceptr p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpy(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy_ptds(CUdeviceptr p0, CUdeviceptr p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy_ptds(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpy_ptds(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1 *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy2D(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy2D(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1 *p0, CUstream p1)
{
	struct ds_stream *stream = ds_stream_of(p1, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy2DAsync(p0, p1);
	result = real->cuMemcpy2DAsync(p0, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p0, CUstream p1)
{
	struct ds_stream *stream = ds_stream_of(p1, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy2DAsync_v2(p0, p1);
	result = real->cuMemcpy2DAsync_v2(p0, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *p0, CUstream p1)
{
	struct ds_stream *stream = ds_stream_of(p1, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy2DAsync_v2_ptsz(p0, p1);
	result = real->cuMemcpy2DAsync_v2_ptsz(p0, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1 *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy2DUnaligned(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy2DUnaligned(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy2DUnaligned_v2(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy2DUnaligned_v2(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy2DUnaligned_v2_ptds(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy2DUnaligned_v2_ptds(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy2D_v2(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy2D_v2(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy2D_v2_ptds(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy2D_v2_ptds(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1 *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3D(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy3D(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1 *p0, CUstream p1)
{
	struct ds_stream *stream = ds_stream_of(p1, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DAsync(p0, p1);
	result = real->cuMemcpy3DAsync(p0, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p0, CUstream p1)
{
	struct ds_stream *stream = ds_stream_of(p1, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DAsync_v2(p0, p1);
	result = real->cuMemcpy3DAsync_v2(p0, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *p0, CUstream p1)
{
	struct ds_stream *stream = ds_stream_of(p1, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DAsync_v2_ptsz(p0, p1);
	result = real->cuMemcpy3DAsync_v2_ptsz(p0, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DBatchAsync(size_t p0, CUDA_MEMCPY3D_BATCH_OP *p1, size_t *p2, unsigned long long p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DBatchAsync(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemcpy3DBatchAsync(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DBatchAsync_ptsz(size_t p0, CUDA_MEMCPY3D_BATCH_OP *p1, size_t *p2, unsigned long long p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DBatchAsync_ptsz(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemcpy3DBatchAsync_ptsz(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DBatchAsync_v2(size_t p0, CUDA_MEMCPY3D_BATCH_OP *p1, unsigned long long p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DBatchAsync_v2(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpy3DBatchAsync_v2(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DBatchAsync_v2_ptsz(size_t p0, CUDA_MEMCPY3D_BATCH_OP *p1, unsigned long long p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DBatchAsync_v2_ptsz(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpy3DBatchAsync_v2_ptsz(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DPeer(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy3DPeer(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DPeer_ptds(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy3DPeer_ptds(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *p0, CUstream p1)
{
	struct ds_stream *stream = ds_stream_of(p1, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DPeerAsync(p0, p1);
	result = real->cuMemcpy3DPeerAsync(p0, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *p0, CUstream p1)
{
	struct ds_stream *stream = ds_stream_of(p1, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3DPeerAsync_ptsz(p0, p1);
	result = real->cuMemcpy3DPeerAsync_ptsz(p0, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3D_v2(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy3D_v2(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *p0)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpy3D_v2_ptds(p0);
	ds_stream_home(stream);
	result = real->cuMemcpy3D_v2_ptds(p0);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAsync(CUdeviceptr p0, CUdeviceptr p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAsync(p0, p1, p2, p3);
	ds_active_soon(stream);
	result = real->cuMemcpyAsync(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr p0, CUdeviceptr p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAsync_ptsz(p0, p1, p2, p3);
	ds_active_soon(stream);
	result = real->cuMemcpyAsync_ptsz(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoA(CUarray p0, unsigned int p1, CUarray p2, unsigned int p3, unsigned int p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoA(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemcpyAtoA(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoA_v2(CUarray p0, size_t p1, CUarray p2, size_t p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoA_v2(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemcpyAtoA_v2(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoA_v2_ptds(CUarray p0, size_t p1, CUarray p2, size_t p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoA_v2_ptds(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemcpyAtoA_v2_ptds(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoD(CUdeviceptr_v1 p0, CUarray p1, unsigned int p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoD(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyAtoD(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr p0, CUarray p1, size_t p2, size_t p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoD_v2(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyAtoD_v2(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr p0, CUarray p1, size_t p2, size_t p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoD_v2_ptds(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyAtoD_v2_ptds(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoH(void *p0, CUarray p1, unsigned int p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoH(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyAtoH(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoHAsync(void *p0, CUarray p1, unsigned int p2, unsigned int p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoHAsync(p0, p1, p2, p3, p4);
	result = real->cuMemcpyAtoHAsync(p0, p1, p2, p3, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoHAsync_v2(void *p0, CUarray p1, size_t p2, size_t p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoHAsync_v2(p0, p1, p2, p3, p4);
	result = real->cuMemcpyAtoHAsync_v2(p0, p1, p2, p3, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoHAsync_v2_ptsz(void *p0, CUarray p1, size_t p2, size_t p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoHAsync_v2_ptsz(p0, p1, p2, p3, p4);
	result = real->cuMemcpyAtoHAsync_v2_ptsz(p0, p1, p2, p3, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoH_v2(void *p0, CUarray p1, size_t p2, size_t p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoH_v2(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyAtoH_v2(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyAtoH_v2_ptds(void *p0, CUarray p1, size_t p2, size_t p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyAtoH_v2_ptds(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyAtoH_v2_ptds(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *p0, CUdeviceptr *p1, size_t *p2, size_t p3, CUmemcpyAttributes *p4, size_t *p5, size_t p6, size_t *p7, CUstream p8)
{
	struct ds_stream *stream = ds_stream_of(p8, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyBatchAsync(p0, p1, p2, p3, p4, p5, p6, p7, p8);
	ds_stream_home(stream);
	result = real->cuMemcpyBatchAsync(p0, p1, p2, p3, p4, p5, p6, p7, p8);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *p0, CUdeviceptr *p1, size_t *p2, size_t p3, CUmemcpyAttributes *p4, size_t *p5, size_t p6, size_t *p7, CUstream p8)
{
	struct ds_stream *stream = ds_stream_of(p8, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyBatchAsync_ptsz(p0, p1, p2, p3, p4, p5, p6, p7, p8);
	ds_stream_home(stream);
	result = real->cuMemcpyBatchAsync_ptsz(p0, p1, p2, p3, p4, p5, p6, p7, p8);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *p0, CUdeviceptr *p1, size_t *p2, size_t p3, CUmemcpyAttributes *p4, size_t *p5, size_t p6, CUstream p7)
{
	struct ds_stream *stream = ds_stream_of(p7, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyBatchAsync_v2(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_home(stream);
	result = real->cuMemcpyBatchAsync_v2(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *p0, CUdeviceptr *p1, size_t *p2, size_t p3, CUmemcpyAttributes *p4, size_t *p5, size_t p6, CUstream p7)
{
	struct ds_stream *stream = ds_stream_of(p7, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyBatchAsync_v2_ptsz(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_home(stream);
	result = real->cuMemcpyBatchAsync_v2_ptsz(p0, p1, p2, p3, p4, p5, p6, p7);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoA(CUarray p0, unsigned int p1, CUdeviceptr_v1 p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoA(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyDtoA(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoA_v2(CUarray p0, size_t p1, CUdeviceptr p2, size_t p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoA_v2(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyDtoA_v2(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoA_v2_ptds(CUarray p0, size_t p1, CUdeviceptr p2, size_t p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoA_v2_ptds(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyDtoA_v2_ptds(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoD(CUdeviceptr_v1 p0, CUdeviceptr_v1 p1, unsigned int p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoD(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpyDtoD(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 p0, CUdeviceptr_v1 p1, unsigned int p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoDAsync(p0, p1, p2, p3);
	result = real->cuMemcpyDtoDAsync(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr p0, CUdeviceptr p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoDAsync_v2(p0, p1, p2, p3);
	result = real->cuMemcpyDtoDAsync_v2(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr p0, CUdeviceptr p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoDAsync_v2_ptsz(p0, p1, p2, p3);
	result = real->cuMemcpyDtoDAsync_v2_ptsz(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr p0, CUdeviceptr p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoD_v2(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpyDtoD_v2(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr p0, CUdeviceptr p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoD_v2_ptds(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpyDtoD_v2_ptds(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoH(void *p0, CUdeviceptr_v1 p1, unsigned int p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoH(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpyDtoH(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoHAsync(void *p0, CUdeviceptr_v1 p1, unsigned int p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoHAsync(p0, p1, p2, p3);
	result = real->cuMemcpyDtoHAsync(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoHAsync_v2(void *p0, CUdeviceptr p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoHAsync_v2(p0, p1, p2, p3);
	result = real->cuMemcpyDtoHAsync_v2(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *p0, CUdeviceptr p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoHAsync_v2_ptsz(p0, p1, p2, p3);
	result = real->cuMemcpyDtoHAsync_v2_ptsz(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoH_v2(void *p0, CUdeviceptr p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoH_v2(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpyDtoH_v2(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyDtoH_v2_ptds(void *p0, CUdeviceptr p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyDtoH_v2_ptds(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpyDtoH_v2_ptds(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoA(CUarray p0, unsigned int p1, const void *p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoA(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyHtoA(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoAAsync(CUarray p0, unsigned int p1, const void *p2, unsigned int p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoAAsync(p0, p1, p2, p3, p4);
	result = real->cuMemcpyHtoAAsync(p0, p1, p2, p3, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoAAsync_v2(CUarray p0, size_t p1, const void *p2, size_t p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoAAsync_v2(p0, p1, p2, p3, p4);
	result = real->cuMemcpyHtoAAsync_v2(p0, p1, p2, p3, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray p0, size_t p1, const void *p2, size_t p3, CUstream p4)
{
	struct ds_stream *stream = ds_stream_of(p4, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoAAsync_v2_ptsz(p0, p1, p2, p3, p4);
	result = real->cuMemcpyHtoAAsync_v2_ptsz(p0, p1, p2, p3, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoA_v2(CUarray p0, size_t p1, const void *p2, size_t p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoA_v2(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyHtoA_v2(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoA_v2_ptds(CUarray p0, size_t p1, const void *p2, size_t p3)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoA_v2_ptds(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuMemcpyHtoA_v2_ptds(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoD(CUdeviceptr_v1 p0, const void *p1, unsigned int p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoD(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpyHtoD(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 p0, const void *p1, unsigned int p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoDAsync(p0, p1, p2, p3);
	ds_active_soon(stream);
	result = real->cuMemcpyHtoDAsync(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr p0, const void *p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoDAsync_v2(p0, p1, p2, p3);
	ds_active_soon(stream);
	result = real->cuMemcpyHtoDAsync_v2(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr p0, const void *p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoDAsync_v2_ptsz(p0, p1, p2, p3);
	ds_active_soon(stream);
	result = real->cuMemcpyHtoDAsync_v2_ptsz(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr p0, const void *p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoD_v2(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpyHtoD_v2(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr p0, const void *p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyHtoD_v2_ptds(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemcpyHtoD_v2_ptds(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyPeer(CUdeviceptr p0, CUcontext p1, CUdeviceptr p2, CUcontext p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyPeer(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemcpyPeer(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr p0, CUcontext p1, CUdeviceptr p2, CUcontext p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyPeer_ptds(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemcpyPeer_ptds(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr p0, CUcontext p1, CUdeviceptr p2, CUcontext p3, size_t p4, CUstream p5)
{
	struct ds_stream *stream = ds_stream_of(p5, false);
	CUresult result;

	if (!stream)
		return real->cuMemcpyPeerAsync(p0, p1, p2, p3, p4, p5);
	result = real->cuMemcpyPeerAsync(p0, p1, p2, p3, p4, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr p0, CUcontext p1, CUdeviceptr p2, CUcontext p3, size_t p4, CUstream p5)
{
	struct ds_stream *stream = ds_stream_of(p5, true);
	CUresult result;

	if (!stream)
		return real->cuMemcpyPeerAsync_ptsz(p0, p1, p2, p3, p4, p5);
	result = real->cuMemcpyPeerAsync_ptsz(p0, p1, p2, p3, p4, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD16(CUdeviceptr_v1 p0, unsigned short p1, unsigned int p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD16(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemsetD16(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD16Async(CUdeviceptr p0, unsigned short p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD16Async(p0, p1, p2, p3);
	result = real->cuMemsetD16Async(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD16Async_ptsz(CUdeviceptr p0, unsigned short p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD16Async_ptsz(p0, p1, p2, p3);
	result = real->cuMemsetD16Async_ptsz(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD16_v2(CUdeviceptr p0, unsigned short p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD16_v2(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemsetD16_v2(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr p0, unsigned short p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD16_v2_ptds(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemsetD16_v2_ptds(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D16(CUdeviceptr_v1 p0, unsigned int p1, unsigned short p2, unsigned int p3, unsigned int p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D16(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemsetD2D16(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D16Async(CUdeviceptr p0, size_t p1, unsigned short p2, size_t p3, size_t p4, CUstream p5)
{
	struct ds_stream *stream = ds_stream_of(p5, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D16Async(p0, p1, p2, p3, p4, p5);
	result = real->cuMemsetD2D16Async(p0, p1, p2, p3, p4, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D16Async_ptsz(CUdeviceptr p0, size_t p1, unsigned short p2, size_t p3, size_t p4, CUstream p5)
{
	struct ds_stream *stream = ds_stream_of(p5, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D16Async_ptsz(p0, p1, p2, p3, p4, p5);
	result = real->cuMemsetD2D16Async_ptsz(p0, p1, p2, p3, p4, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D16_v2(CUdeviceptr p0, size_t p1, unsigned short p2, size_t p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D16_v2(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemsetD2D16_v2(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D16_v2_ptds(CUdeviceptr p0, size_t p1, unsigned short p2, size_t p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D16_v2_ptds(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemsetD2D16_v2_ptds(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D32(CUdeviceptr_v1 p0, unsigned int p1, unsigned int p2, unsigned int p3, unsigned int p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D32(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemsetD2D32(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D32Async(CUdeviceptr p0, size_t p1, unsigned int p2, size_t p3, size_t p4, CUstream p5)
{
	struct ds_stream *stream = ds_stream_of(p5, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D32Async(p0, p1, p2, p3, p4, p5);
	result = real->cuMemsetD2D32Async(p0, p1, p2, p3, p4, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D32Async_ptsz(CUdeviceptr p0, size_t p1, unsigned int p2, size_t p3, size_t p4, CUstream p5)
{
	struct ds_stream *stream = ds_stream_of(p5, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D32Async_ptsz(p0, p1, p2, p3, p4, p5);
	result = real->cuMemsetD2D32Async_ptsz(p0, p1, p2, p3, p4, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D32_v2(CUdeviceptr p0, size_t p1, unsigned int p2, size_t p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D32_v2(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemsetD2D32_v2(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D32_v2_ptds(CUdeviceptr p0, size_t p1, unsigned int p2, size_t p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D32_v2_ptds(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemsetD2D32_v2_ptds(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D8(CUdeviceptr_v1 p0, unsigned int p1, unsigned char p2, unsigned int p3, unsigned int p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D8(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemsetD2D8(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D8Async(CUdeviceptr p0, size_t p1, unsigned char p2, size_t p3, size_t p4, CUstream p5)
{
	struct ds_stream *stream = ds_stream_of(p5, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D8Async(p0, p1, p2, p3, p4, p5);
	result = real->cuMemsetD2D8Async(p0, p1, p2, p3, p4, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D8Async_ptsz(CUdeviceptr p0, size_t p1, unsigned char p2, size_t p3, size_t p4, CUstream p5)
{
	struct ds_stream *stream = ds_stream_of(p5, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D8Async_ptsz(p0, p1, p2, p3, p4, p5);
	result = real->cuMemsetD2D8Async_ptsz(p0, p1, p2, p3, p4, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D8_v2(CUdeviceptr p0, size_t p1, unsigned char p2, size_t p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D8_v2(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemsetD2D8_v2(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD2D8_v2_ptds(CUdeviceptr p0, size_t p1, unsigned char p2, size_t p3, size_t p4)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD2D8_v2_ptds(p0, p1, p2, p3, p4);
	ds_stream_home(stream);
	result = real->cuMemsetD2D8_v2_ptds(p0, p1, p2, p3, p4);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD32(CUdeviceptr_v1 p0, unsigned int p1, unsigned int p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD32(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemsetD32(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD32Async(CUdeviceptr p0, unsigned int p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD32Async(p0, p1, p2, p3);
	result = real->cuMemsetD32Async(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD32Async_ptsz(CUdeviceptr p0, unsigned int p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD32Async_ptsz(p0, p1, p2, p3);
	result = real->cuMemsetD32Async_ptsz(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD32_v2(CUdeviceptr p0, unsigned int p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD32_v2(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemsetD32_v2(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr p0, unsigned int p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD32_v2_ptds(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemsetD32_v2_ptds(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD8(CUdeviceptr_v1 p0, unsigned char p1, unsigned int p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD8(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemsetD8(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD8Async(CUdeviceptr p0, unsigned char p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD8Async(p0, p1, p2, p3);
	result = real->cuMemsetD8Async(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr p0, unsigned char p1, size_t p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD8Async_ptsz(p0, p1, p2, p3);
	result = real->cuMemsetD8Async_ptsz(p0, p1, p2, ds_stream_cur(stream));
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD8_v2(CUdeviceptr p0, unsigned char p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, false);
	CUresult result;

	if (!stream)
		return real->cuMemsetD8_v2(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemsetD8_v2(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr p0, unsigned char p1, size_t p2)
{
	struct ds_stream *stream = ds_stream_of(NULL, true);
	CUresult result;

	if (!stream)
		return real->cuMemsetD8_v2_ptds(p0, p1, p2);
	ds_stream_home(stream);
	result = real->cuMemsetD8_v2_ptds(p0, p1, p2);
	ds_stream_done(stream);
	return result;
}

CUresult cuMipmappedArrayGetLevel(CUarray *p0, CUmipmappedArray p1, unsigned int p2)
{
	return real->cuMipmappedArrayGetLevel(p0, p1, p2);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *p0, CUmipmappedArray p1, CUdevice p2)
{
	return real->cuMipmappedArrayGetMemoryRequirements(p0, p1, p2);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *p0, CUmipmappedArray p1)
{
	return real->cuMipmappedArrayGetSparseProperties(p0, p1);
}

CUresult cuModuleEnumerateFunctions(CUfunction *p0, unsigned int p1, CUmodule p2)
{
	return real->cuModuleEnumerateFunctions(p0, p1, p2);
}

CUresult cuModuleGetFunction(CUfunction *p0, CUmodule p1, const char *p2)
{
	return ds_room_own(ds_device_current(), real->cuModuleGetFunction(p0, p1, p2), real->cuModuleGetFunction(p0, p1, p2));
}

CUresult cuModuleGetFunctionCount(unsigned int *p0, CUmodule p1)
{
	return real->cuModuleGetFunctionCount(p0, p1);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *p0, size_t *p1, CUmodule p2, const char *p3)
{
	return ds_room_own(ds_device_current(), real->cuModuleGetGlobal_v2(p0, p1, p2, p3), real->cuModuleGetGlobal_v2(p0, p1, p2, p3));
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *p0)
{
	return real->cuModuleGetLoadingMode(p0);
}

CUresult cuModuleGetSurfRef(CUsurfref *p0, CUmodule p1, const char *p2)
{
	return real->cuModuleGetSurfRef(p0, p1, p2);
}

CUresult cuModuleGetTexRef(CUtexref *p0, CUmodule p1, const char *p2)
{
	return real->cuModuleGetTexRef(p0, p1, p2);
}

CUresult cuModuleLoad(CUmodule *p0, const char *p1)
{
	return ds_room_own(ds_device_current(), real->cuModuleLoad(p0, p1), real->cuModuleLoad(p0, p1));
}

CUresult cuModuleLoadData(CUmodule *p0, const void *p1)
{
	return ds_room_own(ds_device_current(), real->cuModuleLoadData(p0, p1), real->cuModuleLoadData(p0, p1));
}

CUresult cuModuleLoadDataEx(CUmodule *p0, const void *p1, unsigned int p2, CUjit_option *p3, void **p4)
{
	return ds_room_own(ds_device_current(), real->cuModuleLoadDataEx(p0, p1, p2, p3, p4), real->cuModuleLoadDataEx(p0, p1, p2, p3, p4));
}

CUresult cuModuleLoadFatBinary(CUmodule *p0, const void *p1)
{
	return ds_room_own(ds_device_current(), real->cuModuleLoadFatBinary(p0, p1), real->cuModuleLoadFatBinary(p0, p1));
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle p0, CUdevice p1)
{
	return real->cuMulticastAddDevice(p0, p1);
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *p0, const CUmulticastObjectProp *p1)
{
	return real->cuMulticastCreate(p0, p1);
}

CUresult cuMulticastGetGranularity(size_t *p0, const CUmulticastObjectProp *p1, CUmulticastGranularity_flags p2)
{
	return real->cuMulticastGetGranularity(p0, p1, p2);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle p0, CUdevice p1, size_t p2, size_t p3)
{
	return real->cuMulticastUnbind(p0, p1, p2, p3);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *p0, CUfunction p1, int p2, int p3)
{
	return ds_room_own(ds_device_current(), real->cuOccupancyAvailableDynamicSMemPerBlock(p0, p1, p2, p3), real->cuOccupancyAvailableDynamicSMemPerBlock(p0, p1, p2, p3));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *p0, CUfunction p1, int p2, size_t p3)
{
	return ds_room_own(ds_device_current(), real->cuOccupancyMaxActiveBlocksPerMultiprocessor(p0, p1, p2, p3), real->cuOccupancyMaxActiveBlocksPerMultiprocessor(p0, p1, p2, p3));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *p0, CUfunction p1, int p2, size_t p3, unsigned int p4)
{
	return ds_room_own(ds_device_current(), real->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(p0, p1, p2, p3, p4), real->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(p0, p1, p2, p3, p4));
}

CUresult cuOccupancyMaxActiveClusters(int *p0, CUfunction p1, const CUlaunchConfig *p2)
{
	return ds_room_own(ds_device_current(), real->cuOccupancyMaxActiveClusters(p0, p1, p2), real->cuOccupancyMaxActiveClusters(p0, p1, p2));
}

CUresult cuOccupancyMaxPotentialBlockSize(int *p0, int *p1, CUfunction p2, CUoccupancyB2DSize p3, size_t p4, int p5)
{
	return ds_room_own(ds_device_current(), real->cuOccupancyMaxPotentialBlockSize(p0, p1, p2, p3, p4, p5), real->cuOccupancyMaxPotentialBlockSize(p0, p1, p2, p3, p4, p5));
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *p0, int *p1, CUfunction p2, CUoccupancyB2DSize p3, size_t p4, int p5, unsigned int p6)
{
	return ds_room_own(ds_device_current(), real->cuOccupancyMaxPotentialBlockSizeWithFlags(p0, p1, p2, p3, p4, p5, p6), real->cuOccupancyMaxPotentialBlockSizeWithFlags(p0, p1, p2, p3, p4, p5, p6));
}

CUresult cuOccupancyMaxPotentialClusterSize(int *p0, CUfunction p1, const CUlaunchConfig *p2)
{
	return ds_room_own(ds_device_current(), real->cuOccupancyMaxPotentialClusterSize(p0, p1, p2), real->cuOccupancyMaxPotentialClusterSize(p0, p1, p2));
}

CUresult cuProfilerStart(void)
{
	return real->cuProfilerStart();
}

CUresult cuProfilerStop(void)
{
	return real->cuProfilerStop();
}

CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *p0, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *p1, unsigned int p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuSignalExternalSemaphoresAsync(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuSignalExternalSemaphoresAsync(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuSignalExternalSemaphoresAsync_ptsz(const CUexternalSemaphore *p0, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *p1, unsigned int p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuSignalExternalSemaphoresAsync_ptsz(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuSignalExternalSemaphoresAsync_ptsz(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamAttachMemAsync(CUstream p0, CUdeviceptr p1, size_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamAttachMemAsync(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuStreamAttachMemAsync(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamAttachMemAsync_ptsz(CUstream p0, CUdeviceptr p1, size_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamAttachMemAsync_ptsz(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuStreamAttachMemAsync_ptsz(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamBatchMemOp(CUstream p0, unsigned int p1, CUstreamBatchMemOpParams *p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamBatchMemOp(p0, p1, p2, p3);
	result = real->cuStreamBatchMemOp(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamBatchMemOp_ptsz(CUstream p0, unsigned int p1, CUstreamBatchMemOpParams *p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamBatchMemOp_ptsz(p0, p1, p2, p3);
	result = real->cuStreamBatchMemOp_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamBatchMemOp_v2(CUstream p0, unsigned int p1, CUstreamBatchMemOpParams *p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamBatchMemOp_v2(p0, p1, p2, p3);
	result = real->cuStreamBatchMemOp_v2(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamBatchMemOp_v2_ptsz(CUstream p0, unsigned int p1, CUstreamBatchMemOpParams *p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamBatchMemOp_v2_ptsz(p0, p1, p2, p3);
	result = real->cuStreamBatchMemOp_v2_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamGetAttribute(CUstream p0, CUstreamAttrID p1, CUstreamAttrValue *p2)
{
	return real->cuStreamGetAttribute(p0, p1, p2);
}

CUresult cuStreamGetAttribute_ptsz(CUstream p0, CUstreamAttrID p1, CUstreamAttrValue *p2)
{
	return real->cuStreamGetAttribute_ptsz(p0, p1, p2);
}

CUresult cuStreamGetCaptureInfo(CUstream p0, CUstreamCaptureStatus *p1, cuuint64_t *p2)
{
	return real->cuStreamGetCaptureInfo(p0, p1, p2);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream p0, CUstreamCaptureStatus *p1, cuuint64_t *p2)
{
	return real->cuStreamGetCaptureInfo_ptsz(p0, p1, p2);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream p0, CUstreamCaptureStatus *p1, cuuint64_t *p2, CUgraph *p3, const CUgraphNode **p4, size_t *p5)
{
	return real->cuStreamGetCaptureInfo_v2(p0, p1, p2, p3, p4, p5);
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream p0, CUstreamCaptureStatus *p1, cuuint64_t *p2, CUgraph *p3, const CUgraphNode **p4, size_t *p5)
{
	return real->cuStreamGetCaptureInfo_v2_ptsz(p0, p1, p2, p3, p4, p5);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream p0, CUstreamCaptureStatus *p1, cuuint64_t *p2, CUgraph *p3, const CUgraphNode **p4, const CUgraphEdgeData **p5, size_t *p6)
{
	return real->cuStreamGetCaptureInfo_v3(p0, p1, p2, p3, p4, p5, p6);
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream p0, CUstreamCaptureStatus *p1, cuuint64_t *p2, CUgraph *p3, const CUgraphNode **p4, const CUgraphEdgeData **p5, size_t *p6)
{
	return real->cuStreamGetCaptureInfo_v3_ptsz(p0, p1, p2, p3, p4, p5, p6);
}

CUresult cuStreamGetCtx(CUstream p0, CUcontext *p1)
{
	return real->cuStreamGetCtx(p0, p1);
}

CUresult cuStreamGetCtx_ptsz(CUstream p0, CUcontext *p1)
{
	return real->cuStreamGetCtx_ptsz(p0, p1);
}

CUresult cuStreamGetCtx_v2(CUstream p0, CUcontext *p1, CUgreenCtx *p2)
{
	return real->cuStreamGetCtx_v2(p0, p1, p2);
}

CUresult cuStreamGetCtx_v2_ptsz(CUstream p0, CUcontext *p1, CUgreenCtx *p2)
{
	return real->cuStreamGetCtx_v2_ptsz(p0, p1, p2);
}

CUresult cuStreamGetDevice(CUstream p0, CUdevice *p1)
{
	return real->cuStreamGetDevice(p0, p1);
}

CUresult cuStreamGetDevice_ptsz(CUstream p0, CUdevice *p1)
{
	return real->cuStreamGetDevice_ptsz(p0, p1);
}

CUresult cuStreamGetFlags(CUstream p0, unsigned int *p1)
{
	return real->cuStreamGetFlags(p0, p1);
}

CUresult cuStreamGetFlags_ptsz(CUstream p0, unsigned int *p1)
{
	return real->cuStreamGetFlags_ptsz(p0, p1);
}

CUresult cuStreamGetGreenCtx(CUstream p0, CUgreenCtx *p1)
{
	return real->cuStreamGetGreenCtx(p0, p1);
}

CUresult cuStreamGetId(CUstream p0, unsigned long long *p1)
{
	return real->cuStreamGetId(p0, p1);
}

CUresult cuStreamGetId_ptsz(CUstream p0, unsigned long long *p1)
{
	return real->cuStreamGetId_ptsz(p0, p1);
}

CUresult cuStreamGetPriority(CUstream p0, int *p1)
{
	return real->cuStreamGetPriority(p0, p1);
}

CUresult cuStreamGetPriority_ptsz(CUstream p0, int *p1)
{
	return real->cuStreamGetPriority_ptsz(p0, p1);
}

CUresult cuStreamIsCapturing(CUstream p0, CUstreamCaptureStatus *p1)
{
	return real->cuStreamIsCapturing(p0, p1);
}

CUresult cuStreamIsCapturing_ptsz(CUstream p0, CUstreamCaptureStatus *p1)
{
	return real->cuStreamIsCapturing_ptsz(p0, p1);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream p0, CUgraphNode *p1, size_t p2, unsigned int p3)
{
	return real->cuStreamUpdateCaptureDependencies(p0, p1, p2, p3);
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream p0, CUgraphNode *p1, size_t p2, unsigned int p3)
{
	return real->cuStreamUpdateCaptureDependencies_ptsz(p0, p1, p2, p3);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream p0, CUgraphNode *p1, const CUgraphEdgeData *p2, size_t p3, unsigned int p4)
{
	return real->cuStreamUpdateCaptureDependencies_v2(p0, p1, p2, p3, p4);
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream p0, CUgraphNode *p1, const CUgraphEdgeData *p2, size_t p3, unsigned int p4)
{
	return real->cuStreamUpdateCaptureDependencies_v2_ptsz(p0, p1, p2, p3, p4);
}

CUresult cuStreamWaitValue32(CUstream p0, CUdeviceptr p1, cuuint32_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamWaitValue32(p0, p1, p2, p3);
	result = real->cuStreamWaitValue32(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWaitValue32_ptsz(CUstream p0, CUdeviceptr p1, cuuint32_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamWaitValue32_ptsz(p0, p1, p2, p3);
	result = real->cuStreamWaitValue32_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWaitValue32_v2(CUstream p0, CUdeviceptr p1, cuuint32_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamWaitValue32_v2(p0, p1, p2, p3);
	result = real->cuStreamWaitValue32_v2(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWaitValue32_v2_ptsz(CUstream p0, CUdeviceptr p1, cuuint32_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamWaitValue32_v2_ptsz(p0, p1, p2, p3);
	result = real->cuStreamWaitValue32_v2_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWaitValue64(CUstream p0, CUdeviceptr p1, cuuint64_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamWaitValue64(p0, p1, p2, p3);
	result = real->cuStreamWaitValue64(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWaitValue64_ptsz(CUstream p0, CUdeviceptr p1, cuuint64_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamWaitValue64_ptsz(p0, p1, p2, p3);
	result = real->cuStreamWaitValue64_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWaitValue64_v2(CUstream p0, CUdeviceptr p1, cuuint64_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamWaitValue64_v2(p0, p1, p2, p3);
	result = real->cuStreamWaitValue64_v2(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWaitValue64_v2_ptsz(CUstream p0, CUdeviceptr p1, cuuint64_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamWaitValue64_v2_ptsz(p0, p1, p2, p3);
	result = real->cuStreamWaitValue64_v2_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWriteValue32(CUstream p0, CUdeviceptr p1, cuuint32_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamWriteValue32(p0, p1, p2, p3);
	result = real->cuStreamWriteValue32(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWriteValue32_ptsz(CUstream p0, CUdeviceptr p1, cuuint32_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamWriteValue32_ptsz(p0, p1, p2, p3);
	result = real->cuStreamWriteValue32_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWriteValue32_v2(CUstream p0, CUdeviceptr p1, cuuint32_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamWriteValue32_v2(p0, p1, p2, p3);
	result = real->cuStreamWriteValue32_v2(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream p0, CUdeviceptr p1, cuuint32_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamWriteValue32_v2_ptsz(p0, p1, p2, p3);
	result = real->cuStreamWriteValue32_v2_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWriteValue64(CUstream p0, CUdeviceptr p1, cuuint64_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamWriteValue64(p0, p1, p2, p3);
	result = real->cuStreamWriteValue64(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWriteValue64_ptsz(CUstream p0, CUdeviceptr p1, cuuint64_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamWriteValue64_ptsz(p0, p1, p2, p3);
	result = real->cuStreamWriteValue64_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWriteValue64_v2(CUstream p0, CUdeviceptr p1, cuuint64_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, false);
	CUresult result;

	if (!stream)
		return real->cuStreamWriteValue64_v2(p0, p1, p2, p3);
	result = real->cuStreamWriteValue64_v2(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuStreamWriteValue64_v2_ptsz(CUstream p0, CUdeviceptr p1, cuuint64_t p2, unsigned int p3)
{
	struct ds_stream *stream = ds_stream_of(p0, true);
	CUresult result;

	if (!stream)
		return real->cuStreamWriteValue64_v2_ptsz(p0, p1, p2, p3);
	result = real->cuStreamWriteValue64_v2_ptsz(ds_stream_cur(stream), p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuSurfObjectCreate(CUsurfObject *p0, const CUDA_RESOURCE_DESC *p1)
{
	return real->cuSurfObjectCreate(p0, p1);
}

CUresult cuSurfObjectDestroy(CUsurfObject p0)
{
	return real->cuSurfObjectDestroy(p0);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *p0, CUsurfObject p1)
{
	return real->cuSurfObjectGetResourceDesc(p0, p1);
}

CUresult cuSurfRefGetArray(CUarray *p0, CUsurfref p1)
{
	return real->cuSurfRefGetArray(p0, p1);
}

CUresult cuSurfRefSetArray(CUsurfref p0, CUarray p1, unsigned int p2)
{
	return real->cuSurfRefSetArray(p0, p1, p2);
}

CUresult cuTexObjectCreate(CUtexObject *p0, const CUDA_RESOURCE_DESC *p1, const CUDA_TEXTURE_DESC *p2, const CUDA_RESOURCE_VIEW_DESC *p3)
{
	return ds_home_call(real->cuTexObjectCreate(p0, p1, p2, p3));
}

CUresult cuTexObjectDestroy(CUtexObject p0)
{
	return real->cuTexObjectDestroy(p0);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *p0, CUtexObject p1)
{
	return real->cuTexObjectGetResourceDesc(p0, p1);
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *p0, CUtexObject p1)
{
	return real->cuTexObjectGetResourceViewDesc(p0, p1);
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *p0, CUtexObject p1)
{
	return real->cuTexObjectGetTextureDesc(p0, p1);
}

CUresult cuTexRefCreate(CUtexref *p0)
{
	return real->cuTexRefCreate(p0);
}

CUresult cuTexRefDestroy(CUtexref p0)
{
	return real->cuTexRefDestroy(p0);
}

CUresult cuTexRefGetAddressMode(CUaddress_mode *p0, CUtexref p1, int p2)
{
	return real->cuTexRefGetAddressMode(p0, p1, p2);
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr *p0, CUtexref p1)
{
	return real->cuTexRefGetAddress_v2(p0, p1);
}

CUresult cuTexRefGetArray(CUarray *p0, CUtexref p1)
{
	return real->cuTexRefGetArray(p0, p1);
}

CUresult cuTexRefGetBorderColor(float *p0, CUtexref p1)
{
	return real->cuTexRefGetBorderColor(p0, p1);
}

CUresult cuTexRefGetFilterMode(CUfilter_mode *p0, CUtexref p1)
{
	return real->cuTexRefGetFilterMode(p0, p1);
}

CUresult cuTexRefGetFlags(unsigned int *p0, CUtexref p1)
{
	return real->cuTexRefGetFlags(p0, p1);
}

CUresult cuTexRefGetFormat(CUarray_format *p0, int *p1, CUtexref p2)
{
	return real->cuTexRefGetFormat(p0, p1, p2);
}

CUresult cuTexRefGetMaxAnisotropy(int *p0, CUtexref p1)
{
	return real->cuTexRefGetMaxAnisotropy(p0, p1);
}

CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode *p0, CUtexref p1)
{
	return real->cuTexRefGetMipmapFilterMode(p0, p1);
}

CUresult cuTexRefGetMipmapLevelBias(float *p0, CUtexref p1)
{
	return real->cuTexRefGetMipmapLevelBias(p0, p1);
}

CUresult cuTexRefGetMipmapLevelClamp(float *p0, float *p1, CUtexref p2)
{
	return real->cuTexRefGetMipmapLevelClamp(p0, p1, p2);
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray *p0, CUtexref p1)
{
	return real->cuTexRefGetMipmappedArray(p0, p1);
}

CUresult cuTexRefSetAddress2D_v2(CUtexref p0, const CUDA_ARRAY_DESCRIPTOR *p1, CUdeviceptr p2, size_t p3)
{
	return ds_home_call(real->cuTexRefSetAddress2D_v2(p0, p1, p2, p3));
}

CUresult cuTexRefSetAddress2D_v3(CUtexref p0, const CUDA_ARRAY_DESCRIPTOR *p1, CUdeviceptr p2, size_t p3)
{
	return ds_home_call(real->cuTexRefSetAddress2D_v3(p0, p1, p2, p3));
}

CUresult cuTexRefSetAddressMode(CUtexref p0, int p1, CUaddress_mode p2)
{
	return real->cuTexRefSetAddressMode(p0, p1, p2);
}

CUresult cuTexRefSetAddress_v2(size_t *p0, CUtexref p1, CUdeviceptr p2, size_t p3)
{
	return ds_home_call(real->cuTexRefSetAddress_v2(p0, p1, p2, p3));
}

CUresult cuTexRefSetArray(CUtexref p0, CUarray p1, unsigned int p2)
{
	return real->cuTexRefSetArray(p0, p1, p2);
}

CUresult cuTexRefSetBorderColor(CUtexref p0, float *p1)
{
	return real->cuTexRefSetBorderColor(p0, p1);
}

CUresult cuTexRefSetFilterMode(CUtexref p0, CUfilter_mode p1)
{
	return real->cuTexRefSetFilterMode(p0, p1);
}

CUresult cuTexRefSetFlags(CUtexref p0, unsigned int p1)
{
	return real->cuTexRefSetFlags(p0, p1);
}

CUresult cuTexRefSetFormat(CUtexref p0, CUarray_format p1, int p2)
{
	return real->cuTexRefSetFormat(p0, p1, p2);
}

CUresult cuTexRefSetMaxAnisotropy(CUtexref p0, unsigned int p1)
{
	return real->cuTexRefSetMaxAnisotropy(p0, p1);
}

CUresult cuTexRefSetMipmapFilterMode(CUtexref p0, CUfilter_mode p1)
{
	return real->cuTexRefSetMipmapFilterMode(p0, p1);
}

CUresult cuTexRefSetMipmapLevelBias(CUtexref p0, float p1)
{
	return real->cuTexRefSetMipmapLevelBias(p0, p1);
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref p0, float p1, float p2)
{
	return real->cuTexRefSetMipmapLevelClamp(p0, p1, p2);
}

CUresult cuTexRefSetMipmappedArray(CUtexref p0, CUmipmappedArray p1, unsigned int p2)
{
	return real->cuTexRefSetMipmappedArray(p0, p1, p2);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *p0)
{
	return real->cuThreadExchangeStreamCaptureMode(p0);
}

CUresult cuUserObjectCreate(CUuserObject *p0, void *p1, CUhostFn p2, unsigned int p3, unsigned int p4)
{
	return real->cuUserObjectCreate(p0, p1, p2, p3, p4);
}

CUresult cuUserObjectRelease(CUuserObject p0, unsigned int p1)
{
	return real->cuUserObjectRelease(p0, p1);
}

CUresult cuUserObjectRetain(CUuserObject p0, unsigned int p1)
{
	return real->cuUserObjectRetain(p0, p1);
}

CUresult cuVDPAUCtxCreate(CUcontext *p0, unsigned int p1, CUdevice p2, VdpDevice p3, VdpGetProcAddress *p4)
{
	CUresult result = real->cuVDPAUCtxCreate(p0, p1, p2, p3, p4);

	ds_context_changed();
	return result;
}

CUresult cuVDPAUCtxCreate_v2(CUcontext *p0, unsigned int p1, CUdevice p2, VdpDevice p3, VdpGetProcAddress *p4)
{
	CUresult result = real->cuVDPAUCtxCreate_v2(p0, p1, p2, p3, p4);

	ds_context_changed();
	return result;
}

CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *p0, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *p1, unsigned int p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, false);
	CUresult result;

	if (!stream)
		return real->cuWaitExternalSemaphoresAsync(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuWaitExternalSemaphoresAsync(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}

CUresult cuWaitExternalSemaphoresAsync_ptsz(const CUexternalSemaphore *p0, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *p1, unsigned int p2, CUstream p3)
{
	struct ds_stream *stream = ds_stream_of(p3, true);
	CUresult result;

	if (!stream)
		return real->cuWaitExternalSemaphoresAsync_ptsz(p0, p1, p2, p3);
	ds_stream_home(stream);
	result = real->cuWaitExternalSemaphoresAsync_ptsz(p0, p1, p2, p3);
	ds_stream_done(stream);
	return result;
}
