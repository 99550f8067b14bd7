# SPDX-License-Identifier: Apache-2.0
"""The part of the ABI that kmod/rm uses: names only, the numbers come from the data."""

from __future__ import annotations

import re

# What kmod/rm uses: key in struct rm_abi -> (structure, members). A member's dots become underscores in C; the prefix
# "params." of the escapes' wrappers is left out.
LAYOUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "nvos00": ("NVOS00_PARAMETERS", ("hRoot", "hObjectParent", "hObjectOld", "status")),
    "nvos02": (
        "nv_ioctl_nvos02_parameters_with_fd",
        (
            "params.hRoot",
            "params.hObjectParent",
            "params.hObjectNew",
            "params.hClass",
            "params.flags",
            "params.pMemory",
            "params.limit",
            "params.status",
            "fd",
        ),
    ),
    "nvos05": ("NVOS05_PARAMETERS", ("hRoot", "hObjectParent", "hObjectNew", "hClass", "status")),
    "nvos21": (
        "NVOS21_PARAMETERS",
        ("hRoot", "hObjectParent", "hObjectNew", "hClass", "pAllocParms", "paramsSize", "status"),
    ),
    "nvos64": (
        "NVOS64_PARAMETERS",
        (
            "hRoot",
            "hObjectParent",
            "hObjectNew",
            "hClass",
            "pAllocParms",
            "pRightsRequested",
            "paramsSize",
            "flags",
            "status",
        ),
    ),
    "nvos30": (
        "NVOS30_PARAMETERS",
        ("hClient", "hDevice", "hChannel", "numChannels", "phClients", "phDevices", "phChannels", "timeout", "status"),
    ),
    "nvos32": (
        "NVOS32_PARAMETERS",
        (
            "hRoot",
            "hObjectParent",
            "function",
            "hVASpace",
            "ivcHeapNumber",
            "status",
            "total",
            "free",
            "data.AllocSize.hMemory",
            "data.AllocSize.flags",
            "data.AllocSize.attr",
            "data.AllocSize.attr2",
            "data.AllocSize.size",
            "data.AllocSize.alignment",
            "data.AllocSize.limit",
            "data.AllocTiledPitchHeight.hMemory",
            "data.AllocTiledPitchHeight.flags",
            "data.AllocTiledPitchHeight.height",
            "data.AllocTiledPitchHeight.pitch",
            "data.AllocTiledPitchHeight.attr",
            "data.AllocTiledPitchHeight.attr2",
            "data.AllocTiledPitchHeight.size",
            "data.AllocTiledPitchHeight.alignment",
            "data.AllocTiledPitchHeight.limit",
            "data.AllocSizeRange.hMemory",
            "data.AllocSizeRange.flags",
            "data.AllocSizeRange.attr",
            "data.AllocSizeRange.attr2",
            "data.AllocSizeRange.size",
            "data.AllocSizeRange.alignment",
            "data.AllocSizeRange.limit",
            "data.Free.hMemory",
            "data.Free.flags",
            "data.Info.offset",
            "data.Info.size",
            "data.Info.base",
            "data.HwAlloc.allochMemory",
            "data.HwAlloc.flags",
            "data.HwAlloc.allocSize",
            "data.HwAlloc.hResourceHandle",
            "data.HwFree.hResourceHandle",
            "data.AllocOsDesc.hMemory",
            "data.AllocOsDesc.flags",
            "data.AllocOsDesc.limit",
        ),
    ),
    "nvos33": (
        "nv_ioctl_nvos33_parameters_with_fd",
        (
            "params.hClient",
            "params.hDevice",
            "params.hMemory",
            "params.offset",
            "params.length",
            "params.pLinearAddress",
            "params.status",
            "params.flags",
            "fd",
        ),
    ),
    "nvos34": ("NVOS34_PARAMETERS", ("hClient", "hDevice", "hMemory", "pLinearAddress", "status", "flags")),
    "nvos39": (
        "NVOS39_PARAMETERS",
        ("hObjectParent", "hSubDevice", "hObjectNew", "hClass", "hMemory", "offset", "limit", "status"),
    ),
    "nvos46": (
        "NVOS46_PARAMETERS",
        ("hClient", "hDevice", "hDma", "hMemory", "offset", "length", "flags", "dmaOffset", "status"),
    ),
    "nvos47": ("NVOS47_PARAMETERS", ("hClient", "hDevice", "hDma", "hMemory", "flags", "dmaOffset", "status")),
    "nvos49": ("NVOS49_PARAMETERS", ("hClient", "hChannel", "hCtxDma", "status")),
    "nvos54": ("NVOS54_PARAMETERS", ("hClient", "hObject", "cmd", "flags", "params", "paramsSize", "status")),
    "nvos55": (
        "NVOS55_PARAMETERS",
        ("hClient", "hParent", "hObject", "hClientSrc", "hObjectSrc", "flags", "status"),
    ),
    "nvos56": (
        "NVOS56_PARAMETERS",
        ("hClient", "hDevice", "hMemory", "pOldCpuAddress", "pNewCpuAddress", "status"),
    ),
    "nvos57": (
        "NVOS57_PARAMETERS",
        ("hClient", "hObject", "sharePolicy.target", "sharePolicy.type", "sharePolicy.action", "status"),
    ),
    "xfer": ("nv_ioctl_xfer_t", ("cmd", "size", "ptr")),
    "register_fd": ("nv_ioctl_register_fd_t", ("ctl_fd",)),
    "os_event": ("nv_ioctl_alloc_os_event_t", ("hClient", "hDevice", "fd", "Status")),
    "version_str": ("nv_ioctl_rm_api_version_t", ("cmd", "reply", "versionString")),
    "dmabuf": (
        "nv_ioctl_export_to_dma_buf_fd_t",
        ("fd", "hClient", "totalObjects", "numObjects", "index", "totalSize", "handles", "offsets", "sizes", "status"),
    ),
    # allocation parameters
    "device": ("NV0080_ALLOC_PARAMETERS", ("deviceId", "hClientShare", "hTargetClient", "hTargetDevice", "flags")),
    "subdevice": ("NV2080_ALLOC_PARAMETERS", ("subDeviceId",)),
    "vaspace": ("NV_VASPACE_ALLOCATION_PARAMETERS", ("index", "flags", "vaSize", "vaBase")),
    "tsg": ("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", ("hObjectError", "hVASpace", "engineType")),
    "ctxshare": ("NV_CTXSHARE_ALLOCATION_PARAMETERS", ("hVASpace", "flags", "subctxId")),
    "channel": (
        "NV_CHANNEL_ALLOC_PARAMS",
        (
            "hObjectError",
            "gpFifoOffset",
            "gpFifoEntries",
            "flags",
            "hContextShare",
            "hVASpace",
            "hUserdMemory",
            "userdOffset",
            "engineType",
            "hPhysChannelGroup",
        ),
    ),
    "copy": ("NVB0B5_ALLOCATION_PARAMETERS", ("version", "engineType")),
    "usermode": ("NV_HOPPER_USERMODE_A_PARAMS", ("bBar1Mapping", "bPriv")),
    "memory": (
        "NV_MEMORY_ALLOCATION_PARAMS",
        (
            "owner",
            "type",
            "flags",
            "attr",
            "attr2",
            "rangeLo",
            "rangeHi",
            "size",
            "alignment",
            "offset",
            "limit",
            "hVASpace",
        ),
    ),
    "memory_virtual": ("NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS", ("offset", "limit", "hVASpace")),
    "memory_os": (
        "NV_OS_DESC_MEMORY_ALLOCATION_PARAMS",
        ("type", "flags", "attr", "attr2", "descriptor", "limit", "descriptorType"),
    ),
    "memory_window": ("NV_PHYSICAL_MEMORY_ALLOCATION_PARAMS", ("memSize", "pageSize")),
    "memory_list": (
        "NV_MEMORY_LIST_ALLOCATION_PARAMS",
        ("hClient", "hParent", "hObject", "pageCount", "size", "pageNumberList", "limit"),
    ),
    "fabric": (
        "NV00F8_ALLOCATION_PARAMETERS",
        ("alignment", "allocSize", "pageSize", "allocFlags", "map.offset", "map.hVidMem", "map.flags"),
    ),
    "multicast": ("NV00FD_ALLOCATION_PARAMETERS", ("alignment", "allocSize", "allocFlags", "numGpus")),
    "fla": ("NV_FLA_MEMORY_ALLOCATION_PARAMS", ("limit", "hExportHandle", "hExportClient")),
    "context_dma": ("NV_CONTEXT_DMA_ALLOCATION_PARAMS", ("hSubDevice", "flags", "hMemory", "offset", "limit")),
    "semaphore_surface": ("NV_SEMAPHORE_SURFACE_ALLOC_PARAMETERS", ("hSemaphoreMem", "hMaxSubmittedMem")),
    "mapper": ("NV_MEMORY_MAPPER_ALLOCATION_PARAMS", ("hSemaphoreSurface", "hNotificationMemory")),
    "p2p": ("NV503B_ALLOC_PARAMETERS", ("hSubDevice", "hPeerSubDevice")),
    "event": ("NV0005_ALLOC_PARAMETERS", ("hParentClient", "hSrcResource", "hClass", "notifyIndex")),
    # parameters of controls
    "fb_info": ("NV2080_CTRL_FB_INFO", ("index", "data")),
    "fb_get_info": ("NV2080_CTRL_FB_GET_INFO_PARAMS", ("fbInfoListSize", "fbInfoList")),
    "fb_get_info_v2": ("NV2080_CTRL_FB_GET_INFO_V2_PARAMS", ("fbInfoListSize", "fbInfoList")),
    "fb_region": ("NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO", ("base", "limit", "reserved")),
    "fb_get_region": ("NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO_PARAMS", ("numFBRegions", "fbRegion")),
    "export_to_fd": (
        "NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS",
        (
            "object.type",
            "object.data.rmObject.hDevice",
            "object.data.rmObject.hParent",
            "object.data.rmObject.hObject",
            "fd",
            "flags",
        ),
    ),
    "import_from_fd": (
        "NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS",
        (
            "fd",
            "object.type",
            "object.data.rmObject.hDevice",
            "object.data.rmObject.hParent",
            "object.data.rmObject.hObject",
        ),
    ),
    "exports_to_fd": (
        "NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS",
        ("fd", "hDevice", "maxObjects", "objects", "numObjects", "index"),
    ),
    "imports_from_fd": (
        "NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS",
        ("fd", "hParent", "objects", "objectTypes", "numObjects", "index"),
    ),
    "surface": ("NV0041_CTRL_SURFACE_INFO", ("index", "data")),
    "get_surface": ("NV0041_CTRL_GET_SURFACE_INFO_PARAMS", ("surfaceInfoListSize", "surfaceInfoList")),
    "pid_info": (
        "NV2080_CTRL_GPU_PID_INFO",
        (
            "pid",
            "index",
            "result",
            "data.vidMemUsage.memPrivate",
            "data.vidMemUsage.memSharedOwned",
            "data.vidMemUsage.memSharedDuped",
        ),
    ),
    "get_pid_info": ("NV2080_CTRL_GPU_GET_PID_INFO_PARAMS", ("pidInfoListCount", "pidInfoList")),
    "timeslice": ("NVA06C_CTRL_TIMESLICE_PARAMS", ("timesliceUs",)),
    "interleave": ("NVA06C_CTRL_INTERLEAVE_LEVEL_PARAMS", ("tsgInterleaveLevel",)),
    "tsg_info": ("NVA06C_CTRL_GET_INFO_PARAMS", ("tsgID",)),
    "tsg_preempt": ("NVA06C_CTRL_PREEMPT_PARAMS", ("bWait", "bManualTimeout", "timeoutUs")),
    "restart_runlist": ("NVA06F_CTRL_RESTART_RUNLIST_PARAMS", ("bForceRestart", "bBypassWait")),
    "tpc_mode": ("NV0090_CTRL_TPC_PARTITION_MODE_PARAMS", ("mode", "bEnableAllTpcs")),
    "tpc_table": ("NV9067_CTRL_TPC_PARTITION_TABLE_PARAMS", ("numUsedTpc", "tpcList")),
    "gpc_mask": ("NV2080_CTRL_GR_GET_GPC_MASK_PARAMS", ("gpcMask",)),
    "tpc_mask": ("NV2080_CTRL_GR_GET_TPC_MASK_PARAMS", ("gpcId", "tpcMask")),
    "handle_info": (
        "NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS",
        ("hObject", "index", "data.hResult", "data.iResult"),
    ),
    "child_handle": ("NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE_PARAMS", ("hParent", "classId", "hObject")),
    "gid_info": ("NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", ("index", "flags", "length", "data")),
    "disable_channels": (
        "NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS",
        (
            "bDisable",
            "numChannels",
            "bOnlyDisableScheduling",
            "bRewindGpPut",
            "pRunlistPreemptEvent",
            "hClientList",
            "hChannelList",
        ),
    ),
    "gpfifo_schedule": ("NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS", ("bEnable",)),
    "ctxsw_mode": (
        "NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS",
        ("flags", "hChannel", "gfxpPreemptMode", "cilpPreemptMode"),
    ),
    "ctxsw_bind": ("NV2080_CTRL_GR_CTXSW_PREEMPTION_BIND_PARAMS", ("flags", "hClient", "hChannel", "cilpPreemptMode")),
    "channel_properties": ("NV0080_CTRL_FIFO_SET_CHANNEL_PROPERTIES_PARAMS", ("hChannel", "property", "value")),
    "idle_channels": ("NV0080_CTRL_FIFO_IDLE_CHANNELS_PARAMS", ("numChannels", "hChannels", "flags", "timeout")),
    "channel_info": ("NV2080_CTRL_FIFO_UPDATE_CHANNEL_INFO_PARAMS", ("hClient", "hChannel")),
    "group_ids": (
        "NV2080_CTRL_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO_PARAMS",
        ("hClient", "hChannelOrTsg", "numChannels"),
    ),
    "channel_ids": ("NV2080_CTRL_FIFO_QUERY_CHANNEL_UNIQUE_ID_PARAMS", ("hClients", "hChannels", "numChannels")),
    "reg_ops": ("NV2080_CTRL_GPU_EXEC_REG_OPS_PARAMS", ("hClientTarget",)),
    "zcull_mode": ("NV2080_CTRL_GR_CTXSW_ZCULL_MODE_PARAMS", ("hShareClient",)),
    "zcull_bind": ("NV2080_CTRL_GR_CTXSW_ZCULL_BIND_PARAMS", ("hClient",)),
    "pm_bind": ("NV2080_CTRL_GR_CTXSW_PM_BIND_PARAMS", ("hClient",)),
    "setup_bind": ("NV2080_CTRL_GR_CTXSW_SETUP_BIND_PARAMS", ("hClient",)),
    "migratable_ops": ("NV2080_CTRL_GPU_MIGRATABLE_OPS_PARAMS", ("hClientTarget",)),
    "access_rights": ("NV0000_CTRL_CLIENT_GET_ACCESS_RIGHTS_PARAMS", ("hClient",)),
    "invalidate_tlb": ("NV2080_CTRL_DMA_INVALIDATE_TLB_PARAMS", ("hClient",)),
    "channel_state": ("NV208F_CTRL_FIFO_GET_CHANNEL_STATE_PARAMS", ("hClient",)),
    "register_pid": ("NV503C_CTRL_REGISTER_PID_PARAMS", ("hClient",)),
    "debugger": ("NV83DE_ALLOC_PARAMETERS", ("hAppClient",)),
    "realtime": ("NVA06C_CTRL_MAKE_REALTIME_PARAMS", ("bRealtime",)),
    "sched_policy": ("NV2080_CTRL_FIFO_RUNLIST_SET_SCHED_POLICY_PARAMS", ("flags", "schedPolicy")),
    "gr_tpc_mode": ("NV0080_CTRL_GR_TPC_PARTITION_MODE_PARAMS", ("hChannelGroup", "mode", "bEnableAllTpcs")),
    # UVM
    "uvm_initialize": ("UVM_INITIALIZE_PARAMS", ("flags", "rmStatus")),
    "uvm_mm_initialize": ("UVM_MM_INITIALIZE_PARAMS", ("uvmFd", "rmStatus")),
    "uvm_register_gpu": (
        "UVM_REGISTER_GPU_PARAMS",
        ("gpu_uuid.uuid", "rmCtrlFd", "hClient", "hSmcPartRef", "rmStatus"),
    ),
    "uvm_register_vaspace": (
        "UVM_REGISTER_GPU_VASPACE_PARAMS",
        ("gpuUuid.uuid", "rmCtrlFd", "hClient", "hVaSpace", "rmStatus"),
    ),
    "uvm_register_channel": (
        "UVM_REGISTER_CHANNEL_PARAMS",
        ("gpuUuid.uuid", "rmCtrlFd", "hClient", "hChannel", "base", "length", "rmStatus"),
    ),
    "uvm_external_range": ("UVM_CREATE_EXTERNAL_RANGE_PARAMS", ("base", "length", "rmStatus")),
    "uvm_map_external": (
        "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS",
        ("base", "length", "offset", "gpuAttributesCount", "rmCtrlFd", "hClient", "hMemory", "rmStatus"),
    ),
    "uvm_free": ("UVM_FREE_PARAMS", ("base", "length", "rmStatus")),
    "uvm_migrate": ("UVM_MIGRATE_PARAMS", ("base", "length", "destinationUuid.uuid", "flags", "rmStatus")),
}

# Layouts that some versions lack as a whole, and members that some versions lack.
OPTIONAL = frozenset(
    {
        "setup_bind",
        "fla",
        "uvm_free.length",
        "mapper.hSemaphoreSurface",
        "mapper.hNotificationMemory",
        "group_ids",
        "channel_ids",
    }
)

# The driver's own name of what a class makes -> enum rm_kind without its prefix.
KINDS = {
    "RmClientResource": "CLIENT",
    "Device": "DEVICE",
    "Subdevice": "SUBDEVICE",
    "VaSpaceApi": "VASPACE",
    "KernelChannelGroupApi": "TSG",
    "KernelCtxShareApi": "CTXSHARE",
    "KernelChannel": "CHANNEL",
    "KernelGraphicsObject": "GR",
    "KernelCeContext": "COPY",
    "UserModeApi": "USERMODE",
    "MpsApi": "MPS",
    "Event": "EVENT",
    "EventApi": "EVENT",
    "ContextDma": "CTXDMA",
    "P2PApi": "P2P",
    "ThirdPartyP2P": "P2P",
    "KernelSMDebuggerSession": "DEBUGGER",
    "BinaryApi": "BINAPI",
    "BinaryApiPrivileged": "BINAPI",
    "VideoMemory": "MEM_VIDEO",
    "ExtendedGpuMemory": "MEM_EXTENDED",
    "MemoryFabric": "MEM_FABRIC",
    "MemoryMulticastFabric": "MEM_MULTICAST",
    "MemoryList": "MEM_LIST",
    "PhysicalMemory": "MEM_WINDOW",
    "RegisterMemory": "MEM_REGISTERS",
    "SystemMemory": "MEM_SYSTEM",
    "NoDeviceMemory": "MEM_SYSTEM",
    "OsDescMemory": "MEM_OS",
    "VirtualMemory": "MEM_VIRTUAL",
    "VirtualMemoryRange": "MEM_VIRTUAL",
    "MemoryExport": "MEM_EXPORT",
    "MemoryFabricImportV2": "MEM_IMPORT",
    "MemoryFabricImportedRef": "MEM_IMPORT",
    "FlaMemory": "MEM_IMPORT",
    "MemoryHwResources": "MEM_OTHER",
    "ConsoleMemory": "MEM_OTHER",
    "SyncpointMemory": "MEM_OTHER",
    "SemaphoreSurface": "MEM_OTHER",
    "GpuUserSharedData": "MEM_OTHER",
}

# Of the graphics objects, those that compute.
COMPUTE = re.compile(r"\w+_COMPUTE_[A-Z]")

# Numbers that are the same in every version which has them become #defines.
CLASSES = re.compile(
    r"NV01_ROOT(_NON_PRIV|_CLIENT)?|NV01_DEVICE_0|NV20_SUBDEVICE_0|FERMI_VASPACE_A|KEPLER_CHANNEL_GROUP_A"
    r"|FERMI_CONTEXT_SHARE_A|MPS_COMPUTE|HOPPER_CHANNEL_GPFIFO_A|HOPPER_COMPUTE_A|HOPPER_DMA_COPY_A|HOPPER_USERMODE_A"
    r"|NV01_MEMORY_\w+|NV50_MEMORY_VIRTUAL|NV_MEMORY_\w+|NV01_CONTEXT_DMA|NV50_P2P|NV_SEMAPHORE_SURFACE|NV01_EVENT\w*"
    r"|NV2081_BINAPI|GT200_DEBUGGER|NV50_THIRD_PARTY_P2P|NV_CONFIDENTIAL_COMPUTE|RM_USER_SHARED_DATA"
)

CONTROLS = re.compile(
    r"NV0000_CTRL_CMD_OS_UNIX_(EXPORT_OBJECTS?_TO_FD|IMPORT_OBJECTS?_FROM_FD|CREATE_EXPORT_OBJECT_FD)"
    r"|NV0000_CTRL_CMD_CLIENT_GET_(CHILD_HANDLE|HANDLE_INFO|ACCESS_RIGHTS)"
    r"|NV0000_CTRL_CMD_GPUACCT_GET_(PROC_ACCOUNTING_INFO|ACCOUNTING_PIDS)|NV90CC_CTRL_CMD_HWPM_GET_RESERVATION_INFO"
    r"|NV2080_CTRL_CMD_(GPU_MIGRATABLE_OPS|GR_GET_CURRENT_RESIDENT_CHANNEL)"
    r"|NV00F8_CTRL_CMD_(ATTACH|DETACH)_MEM|NV00FD_CTRL_CMD_(ATTACH|DETACH)_MEM|NV00FD_CTRL_CMD_ATTACH_GPU"
    r"|NV00E0_CTRL_CMD_(EXPORT|IMPORT)_MEM|NV0041_CTRL_CMD_(GET_SURFACE_INFO|SURFACE_FLUSH_GPU_CACHE)|NV0080_CTRL_CMD_DMA_FLUSH|NVB0CC_CTRL_CMD_EXEC_REG_OPS|NV2080_CTRL_CMD_FB_GET_INFO_V2"
    r"|NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO|NV2080_CTRL_CMD_GPU_GET_PID_INFO|NV2080_CTRL_CMD_GPU_GET_PIDS"
    r"|NV2080_CTRL_CMD_GPU_GET_GID_INFO|NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS|NV906F_CTRL_GET_CLASS_ENGINEID"
    r"|NVA06C_CTRL_CMD_(GPFIFO_SCHEDULE|GET_INFO|GET_TIMESLICE|SET_TIMESLICE|PREEMPT|SET_INTERLEAVE_LEVEL|MAKE_REALTIME)"
    r"|NVA06F_CTRL_CMD_(GPFIFO_SCHEDULE|STOP_CHANNEL|RESTART_RUNLIST|SET_INTERLEAVE_LEVEL)"
    r"|NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN"
    r"|NV0090_CTRL_CMD_(GET|SET)_TPC_PARTITION_MODE|NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE|NV2080_CTRL_CMD_GR_GET_(GPC|TPC)_MASK"
    r"|NV906F_CTRL_CMD_RESET_CHANNEL|NVB06F_CTRL_CMD_(MIGRATE_ENGINE_CTX_DATA|SET_CHANNEL_HW_STATE|RESTORE_ENGINE_CTX_DATA)"
    r"|NV9067_CTRL_CMD_SET_CWD_WATERMARK|NV(0080|2080)_CTRL_CMD_GR_SET_TPC_PARTITION_MODE"
    r"|NV2080_CTRL_CMD_GR_(SET_CTXSW_PREEMPTION_MODE|CTXSW_PREEMPTION_BIND)"
    r"|NV2080_CTRL_CMD_FIFO_(RUNLIST_SET_SCHED_POLICY|CONFIG_CTXSW_TIMEOUT|UPDATE_CHANNEL_INFO|OBJSCHED_SET_STATE"
    r"|GET_CHANNEL_GROUP_UNIQUE_ID_INFO|QUERY_CHANNEL_UNIQUE_ID)"
    r"|NV2080_CTRL_CMD_(SET_GPFIFO|FIFO_(BIND_ENGINES|DISABLE_CHANNELS_FOR_KEY_ROTATION)|GR_CTXSW_(ZCULL|PM|SETUP)_BIND"
    r"|GPU_MARK_DEVICE_FOR_DRAIN_AND_RESET)|NV506F_CTRL_CMD_RESET_ISOLATED_CHANNEL|NV5080_CTRL_CMD_DEFERRED_API(_V2)?"
    r"|NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_\w+|NV00FE_CTRL_CMD_SUBMIT_OPERATIONS|NV0000_CTRL_CMD_IDLE_CHANNELS"
    r"|NV2080_CTRL_CMD_(GPU_EXEC_REG_OPS|GR_CTXSW_ZCULL_MODE|DMA_INVALIDATE_TLB|FB_FLUSH_GPU_CACHE|MC_SERVICE_INTERRUPTS"
    r"|RC_DISABLE_WATCHDOG|GPU_(UN)?MARK_DEVICE_FOR_RESET|GPU_UNMARK_DEVICE_FOR_DRAIN_AND_RESET)"
    r"|NV(A16F|A26F|B06F|C06F)_CTRL_CMD_GPFIFO_SCHEDULE|NV(A06F|A16F|A26F|B06F|C06F|C36F)_CTRL_CMD_RESET_CHANNEL"
    r"|NV0080_CTRL_CMD_FIFO_START_SELECTED_CHANNELS|NV208F_CTRL_CMD_(BIF_CONFIG_REG_WRITE|GR_INJECT_CTXSW_UCODE_ERROR)"
    r"|NV2080_CTRL_CMD_(FB_SET_GPU_CACHE_ALLOC_POLICY(_V2)?|MC_SET_HOSTCLK_SLOWDOWN_STATUS|GMMU_COMMIT_TLB_INVALIDATE)"
    r"|NV2080_CTRL_CMD_(GPU_SET_POWER|I2C_WRITE_(BUFFER|REG)|HSHUB_SET_EC_THROTTLE_MODE"
    r"|BUS_(SET_PCIE_LTR_LATENCY|CONTROL_PUBLIC_ASPM_BITS|SET_C2C_LPWR_STATE_VOTE)"
    r"|PERF_(SET_POWERSTATE|RATED_TDP_SET_CONTROL|SET_AUX_POWER_STATE))"
    r"|NV208F_CTRL_CMD_(FB_ECC_SET_(KILL_PTR|WRITE_KILL)|BIF_PBI_WRITE_COMMAND|GPU_SET_RAM_SVOP_VALUES)"
    r"|NV208F_CTRL_CMD_(FIFO_GET_CHANNEL_STATE|FB_CTRL_GPU_CACHE)|NV503C_CTRL_CMD_REGISTER_PID|NV83DE_CTRL_CMD_DEBUG_(RESUME_CONTEXT|EXEC_REG_OPS)"
    r"|NV0080_CTRL_CMD_FIFO_((STOP|START)_RUNLIST|SET_CHANNEL_PROPERTIES|IDLE_CHANNELS)|NV2080_CTRL_CMD_GPU_SET_COMPUTE_MODE_RULES"
)

CONSTANTS = re.compile(
    r"NV_ESC_\w+|NV_IOCTL_(MAGIC|BASE)|RS_CLIENT_HANDLE_(BASE|MAX)|NVOS32_FUNCTION_\w+"
    r"|NVOS32_ALLOC_FLAGS_(VIRTUAL|MEMORY_HANDLE_PROVIDED|FIXED_ADDRESS_ALLOCATE|ALIGNMENT_HINT|ALIGNMENT_FORCE)"
    r"|NVOS32_ATTR_LOCATION_\w+|NVOS32_ATTR_PAGE_SIZE_\w+|NVOS32_ATTR2_PAGE_SIZE_HUGE_\w+|NVOS32_ATTR2_USE_EGM_\w+"
    r"|NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED|NVOS02_FLAGS_LOCATION_\w+|NVOS54_FLAGS_\w+|NVOS64_FLAGS_\w+"
    r"|NV2080_CTRL_CMD_FB_GET_INFO|NV2080_CTRL_FB_INFO_INDEX_(?!MAX$)\w+|NV04_DUP_HANDLE_FLAGS_\w+|RS_SHARE_TYPE_(?!MAX$)\w+"
    r"|NV0041_CTRL_SURFACE_INFO_INDEX_\w+|NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_\w+"
    r"|NV2080_CTRL_GPU_PID_INFO_INDEX_VIDEO_MEMORY_USAGE|NV2080_ENGINE_TYPE_(NULL|GRAPHICS|GR0|GR7|COPY0|COPY9|COPY10|COPY19)"
    r"|NVA06C_CTRL_INTERLEAVE_LEVEL_(LOW|MEDIUM|HIGH)|NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_(PARENT|CLASSID)"
    r"|NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES|NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_(ASCII|BINARY)"
    r"|__nvoc_class_id_(Device|Subdevice|KernelChannelGroupApi|MpsApi)"
)

STATUSES = re.compile(
    r"NV_OK|NV_ERR_(NO_MEMORY|INSUFFICIENT_PERMISSIONS|INSUFFICIENT_RESOURCES|INSERT_DUPLICATE_NAME|INVALID_\w+"
    r"|NOT_SUPPORTED|OBJECT_NOT_FOUND|STATE_IN_USE|BUSY_RETRY|TIMEOUT|GENERIC|OPERATING_SYSTEM|BUFFER_TOO_SMALL)"
)

UVM = re.compile(
    r"UVM_(INITIALIZE|DEINITIALIZE|MM_INITIALIZE|REGISTER_GPU(_VASPACE)?|UNREGISTER_GPU(_VASPACE)?|(UN)?REGISTER_CHANNEL"
    r"|CREATE_EXTERNAL_RANGE|MAP_EXTERNAL_ALLOCATION|MAP_EXTERNAL_SPARSE|UNMAP_EXTERNAL|ALLOC_SEMAPHORE_POOL"
    r"|MAP_DYNAMIC_PARALLELISM_REGION|FREE|MIGRATE|ALLOC_DEVICE_P2P)"
)
