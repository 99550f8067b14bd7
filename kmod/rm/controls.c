// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
#include "controls.h"
#include "verdict.h"

/* What the driver's headers give no name. */
#define SET_COMPUTE_POLICY_CONFIG 0x20800194
#define FIFO_ROTATE_KEYS 0x2080111c	/* of 595; the tables' headers do not have it */

/* In the order of their numbers. What looks at parameters gives its verdict on those. */
static const struct rm_rule rules[] = {
	{ NV0000_CTRL_CMD_IDLE_CHANNELS, RM_REFUSE, FOREIGN, "waits for another's channels to be idle" },
	{ NV0000_CTRL_CMD_GPUACCT_GET_PROC_ACCOUNTING_INFO, RM_REFUSE, NOTHING, "asks what others have used" },
	{ NV0000_CTRL_CMD_GPUACCT_GET_ACCOUNTING_PIDS, RM_REFUSE, NOTHING, "asks who has used the GPU" },
	{ NV0000_CTRL_CMD_CLIENT_GET_ACCESS_RIGHTS, RM_PASS, ACCESS_RIGHTS, "asks for rights to another's objects" },
	{ NV0041_CTRL_CMD_SURFACE_FLUSH_GPU_CACHE, RM_REFUSE, NOTHING, "flushes the GPU's cache" },
	{ NV0080_CTRL_CMD_GR_SET_TPC_PARTITION_MODE, RM_SWALLOW, NOTHING, "sets its TPC partition mode" },
	{ NV0080_CTRL_CMD_FIFO_START_SELECTED_CHANNELS, RM_WAIT, NOTHING, "schedules its channels" },
	{ NV0080_CTRL_CMD_FIFO_SET_CHANNEL_PROPERTIES, RM_REFUSE, NOTHING, "sets channel properties" },
	{ NV0080_CTRL_CMD_FIFO_STOP_RUNLIST, RM_REFUSE, NOTHING, "stops a runlist" },
	{ NV0080_CTRL_CMD_FIFO_START_RUNLIST, RM_REFUSE, NOTHING, "starts a runlist" },
	{ NV0080_CTRL_CMD_FIFO_IDLE_CHANNELS, RM_PASS, IDLE_TIME, "waits for its channels to be idle" },
	{ NV0080_CTRL_CMD_DMA_FLUSH, RM_REFUSE, NOTHING, "flushes the GPU's cache" },
	{ NV0090_CTRL_CMD_SET_TPC_PARTITION_MODE, RM_SWALLOW, NOTHING, "sets its TPC partition mode" },
	{ NV00E0_CTRL_CMD_EXPORT_MEM, RM_REFUSE, KEEPING, "gives memory to other nodes" },
	{ NV00E0_CTRL_CMD_IMPORT_MEM, RM_REFUSE, KEEPING, "takes memory of other nodes" },
	{ NV00FE_CTRL_CMD_SUBMIT_OPERATIONS, RM_REFUSE, NOTHING, "has the driver map memory for the GPU later" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_ALL_RM_LOCKS, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_NO_GPUS_LOCK, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_API_LOCK_READ_MODE, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_NO_GPUS_LOCK_API_LOCK_READ_MODE, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_INTERNAL_ALL_RM_LOCKS, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_INTERNAL_NO_GPUS_LOCK, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_INTERNAL_API_LOCK_READ_MODE, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV0100_CTRL_CMD_PERFORM_LOCK_STRESS_INTERNAL_NO_GPUS_LOCK_API_LOCK_READ_MODE, RM_REFUSE, NOTHING, "holds the driver's locks" },
	{ NV2080_CTRL_CMD_GPU_SET_POWER, RM_REFUSE, NOTHING, "sets the GPU's power" },
	{ NV2080_CTRL_CMD_GPU_EXEC_REG_OPS, RM_REFUSE, REG_OPS, "reads or writes registers" },
	{ NV2080_CTRL_CMD_GPU_SET_COMPUTE_MODE_RULES, RM_REFUSE, NOTHING, "sets the GPU's compute mode" },
	{ SET_COMPUTE_POLICY_CONFIG, RM_REFUSE, NOTHING, "sets the GPU's compute policy" },
	{ NV2080_CTRL_CMD_GPU_MIGRATABLE_OPS, RM_REFUSE, MIGRATABLE_OPS, "reads or writes registers" },
	{ NV2080_CTRL_CMD_GPU_MARK_DEVICE_FOR_RESET, RM_REFUSE, NOTHING, "takes the GPU out of service" },
	{ NV2080_CTRL_CMD_GPU_UNMARK_DEVICE_FOR_RESET, RM_REFUSE, NOTHING, "puts the GPU back into service" },
	{ NV2080_CTRL_CMD_GPU_MARK_DEVICE_FOR_DRAIN_AND_RESET, RM_REFUSE, NOTHING, "takes the GPU out of service" },
	{ NV2080_CTRL_CMD_GPU_UNMARK_DEVICE_FOR_DRAIN_AND_RESET, RM_REFUSE, NOTHING, "puts the GPU back into service" },
	{ NV2080_CTRL_CMD_I2C_WRITE_BUFFER, RM_REFUSE, NOTHING, "writes to the board's chips" },
	{ NV2080_CTRL_CMD_I2C_WRITE_REG, RM_REFUSE, NOTHING, "writes to the board's chips" },
	{ NV2080_CTRL_CMD_SET_GPFIFO, RM_REFUSE, NOTHING, "gives a channel another ring" },
	{ NV2080_CTRL_CMD_FIFO_BIND_ENGINES, RM_REFUSE, NOTHING, "binds channels to engines" },
	{ NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS, RM_REFUSE, DISABLE_LIST, "switches channels on or off" },
	{ NV2080_CTRL_CMD_FIFO_CONFIG_CTXSW_TIMEOUT, RM_REFUSE, NOTHING, "sets the context switch timeout" },
	{ NV2080_CTRL_CMD_FIFO_RUNLIST_SET_SCHED_POLICY, RM_REFUSE, NOTHING, "sets the runlist's policy" },
	{ NV2080_CTRL_CMD_FIFO_UPDATE_CHANNEL_INFO, RM_PASS, CHANNEL_INFO, "gives a channel another ring" },
	{ NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS_FOR_KEY_ROTATION, RM_REFUSE, FOREIGN, "switches channels on or off" },
	{ FIFO_ROTATE_KEYS, RM_REFUSE, FOREIGN, "switches channels on or off" },
	{ NV2080_CTRL_CMD_FIFO_OBJSCHED_SET_STATE, RM_REFUSE, NOTHING, "sets the software scheduler" },
	{ NV2080_CTRL_CMD_FIFO_GET_CHANNEL_GROUP_UNIQUE_ID_INFO, RM_PASS, GROUP_IDS, "asks for ids of a channel group" },
	{ NV2080_CTRL_CMD_FIFO_QUERY_CHANNEL_UNIQUE_ID, RM_PASS, CHANNEL_IDS, "asks for ids of channels" },
	{ NV2080_CTRL_CMD_GR_CTXSW_ZCULL_MODE, RM_REFUSE, ZCULL_MODE, "sets a channel's context" },
	{ NV2080_CTRL_CMD_GR_CTXSW_ZCULL_BIND, RM_REFUSE, ZCULL_BIND, "sets a channel's context" },
	{ NV2080_CTRL_CMD_GR_CTXSW_PM_BIND, RM_REFUSE, PM_BIND, "sets a channel's context" },
	{ NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, RM_REFUSE, MODE, "makes its kernels hard to preempt" },
	{ NV2080_CTRL_CMD_GR_CTXSW_PREEMPTION_BIND, RM_REFUSE, MODE_BIND, "makes its kernels hard to preempt" },
	{ NV2080_CTRL_CMD_GR_GET_CURRENT_RESIDENT_CHANNEL, RM_REFUSE, NOTHING, "asks whose channel is on" },
	{ NV2080_CTRL_CMD_GR_SET_TPC_PARTITION_MODE, RM_SWALLOW, NOTHING, "sets its TPC partition mode" },
	{ NV2080_CTRL_CMD_GR_CTXSW_SETUP_BIND, RM_REFUSE, SETUP_BIND, "sets a channel's context" },
	{ NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE, RM_REFUSE, NOTHING, "flushes the GPU's cache" },
	{ NV2080_CTRL_CMD_FB_SET_GPU_CACHE_ALLOC_POLICY, RM_REFUSE, NOTHING, "sets what the GPU's cache keeps" },
	{ NV2080_CTRL_CMD_FB_SET_GPU_CACHE_ALLOC_POLICY_V2, RM_REFUSE, NOTHING, "sets what the GPU's cache keeps" },
	{ NV2080_CTRL_CMD_GMMU_COMMIT_TLB_INVALIDATE, RM_REFUSE, NOTHING, "invalidates everybody's translations" },
	{ NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS, RM_REFUSE, NOTHING, "has the driver serve interrupts" },
	{ NV2080_CTRL_CMD_MC_SET_HOSTCLK_SLOWDOWN_STATUS, RM_REFUSE, NOTHING, "sets the GPU's clock" },
	{ NV2080_CTRL_CMD_BUS_SET_PCIE_LTR_LATENCY, RM_REFUSE, NOTHING, "sets how the GPU's link saves power" },
	{ NV2080_CTRL_CMD_BUS_CONTROL_PUBLIC_ASPM_BITS, RM_REFUSE, NOTHING, "sets how the GPU's link saves power" },
	{ NV2080_CTRL_CMD_BUS_SET_C2C_LPWR_STATE_VOTE, RM_REFUSE, NOTHING, "sets how the GPU's link saves power" },
	{ NV2080_CTRL_CMD_PERF_SET_POWERSTATE, RM_REFUSE, NOTHING, "sets the GPU's clock" },
	{ NV2080_CTRL_CMD_PERF_RATED_TDP_SET_CONTROL, RM_REFUSE, NOTHING, "sets the GPU's clock" },
	{ NV2080_CTRL_CMD_PERF_SET_AUX_POWER_STATE, RM_REFUSE, NOTHING, "sets the GPU's clock" },
	{ NV2080_CTRL_CMD_RC_DISABLE_WATCHDOG, RM_REFUSE, NOTHING, "switches the GPU's watchdog off" },
	{ NV2080_CTRL_CMD_DMA_INVALIDATE_TLB, RM_PASS, TLB, "invalidates another's translations" },
	{ NV2080_CTRL_CMD_HSHUB_SET_EC_THROTTLE_MODE, RM_REFUSE, NOTHING, "throttles the GPU" },
	{ NV208F_CTRL_CMD_FIFO_GET_CHANNEL_STATE, RM_PASS, CHANNEL_STATE, "asks for the state of a channel" },
	{ NV208F_CTRL_CMD_FB_CTRL_GPU_CACHE, RM_REFUSE, NOTHING, "switches the GPU's cache" },
	{ NV208F_CTRL_CMD_FB_ECC_SET_KILL_PTR, RM_REFUSE, NOTHING, "breaks the GPU's memory" },
	{ NV208F_CTRL_CMD_FB_ECC_SET_WRITE_KILL, RM_REFUSE, NOTHING, "breaks the GPU's memory" },
	{ NV208F_CTRL_CMD_BIF_PBI_WRITE_COMMAND, RM_REFUSE, NOTHING, "commands the GPU's firmware" },
	{ NV208F_CTRL_CMD_BIF_CONFIG_REG_WRITE, RM_REFUSE, NOTHING, "reads or writes registers" },
	{ NV208F_CTRL_CMD_GPU_SET_RAM_SVOP_VALUES, RM_REFUSE, NOTHING, "breaks the GPU's memory" },
	{ NV208F_CTRL_CMD_GR_INJECT_CTXSW_UCODE_ERROR, RM_REFUSE, NOTHING, "breaks the GPU's context switch" },
	{ NV503C_CTRL_CMD_REGISTER_PID, RM_PASS, REGISTER_PID, "lets another's program at its memory" },
	{ NV506F_CTRL_CMD_RESET_ISOLATED_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
	{ NV5080_CTRL_CMD_DEFERRED_API, RM_REFUSE, NOTHING, "has the driver do something later" },
	{ NV5080_CTRL_CMD_DEFERRED_API_V2, RM_REFUSE, NOTHING, "has the driver do something later" },
	{ NV83DE_CTRL_CMD_DEBUG_RESUME_CONTEXT, RM_WAIT, NOTHING, "resumes its context" },
	{ NV83DE_CTRL_CMD_DEBUG_EXEC_REG_OPS, RM_REFUSE, NOTHING, "reads or writes registers" },
	{ NV9067_CTRL_CMD_SET_TPC_PARTITION_TABLE, RM_REFUSE, NOTHING, "sets its TPC table" },
	{ NV9067_CTRL_CMD_SET_CWD_WATERMARK, RM_REFUSE, NOTHING, "sets its work distributor's watermark" },
	{ NV906F_CTRL_CMD_RESET_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
	{ NV90CC_CTRL_CMD_HWPM_GET_RESERVATION_INFO, RM_REFUSE, NOTHING, "asks who measures the GPU" },
	{ NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, RM_WAIT, NOTHING, "schedules its channels" },
	{ NVA06C_CTRL_CMD_SET_TIMESLICE, RM_SWALLOW, NOTHING, "sets its own time slice" },
	{ NVA06C_CTRL_CMD_PREEMPT, RM_REFUSE, NOTHING, "preempts" },
	{ NVA06C_CTRL_CMD_SET_INTERLEAVE_LEVEL, RM_REFUSE, NOTHING, "sets its own level" },
	{ NVA06C_CTRL_CMD_MAKE_REALTIME, RM_REFUSE, NOTHING, "makes itself realtime" },
	{ NVA06F_CTRL_CMD_RESET_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
	{ NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, RM_WAIT, NOTHING, "schedules its channels" },
	{ NVA06F_CTRL_CMD_SET_INTERLEAVE_LEVEL, RM_REFUSE, NOTHING, "sets its own level" },
	{ NVA06F_CTRL_CMD_RESTART_RUNLIST, RM_REFUSE, NOTHING, "restarts the runlist" },
	{ NVA16F_CTRL_CMD_RESET_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
	{ NVA16F_CTRL_CMD_GPFIFO_SCHEDULE, RM_WAIT, NOTHING, "schedules its channels" },
	{ NVA26F_CTRL_CMD_RESET_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
	{ NVA26F_CTRL_CMD_GPFIFO_SCHEDULE, RM_WAIT, NOTHING, "schedules its channels" },
	{ NVB06F_CTRL_CMD_RESET_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
	{ NVB06F_CTRL_CMD_GPFIFO_SCHEDULE, RM_WAIT, NOTHING, "schedules its channels" },
	{ NVB06F_CTRL_CMD_MIGRATE_ENGINE_CTX_DATA, RM_REFUSE, NOTHING, "writes a context" },
	{ NVB06F_CTRL_CMD_SET_CHANNEL_HW_STATE, RM_REFUSE, NOTHING, "writes a channel's state" },
	{ NVB06F_CTRL_CMD_RESTORE_ENGINE_CTX_DATA, RM_REFUSE, NOTHING, "writes a context" },
	{ NVB0CC_CTRL_CMD_EXEC_REG_OPS, RM_REFUSE, NOTHING, "reads or writes registers" },
	{ NVC06F_CTRL_CMD_RESET_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
	{ NVC06F_CTRL_CMD_GPFIFO_SCHEDULE, RM_WAIT, NOTHING, "schedules its channels" },
	{ NVC36F_CTRL_CMD_RESET_CHANNEL, RM_REFUSE, NOTHING, "resets a channel" },
};

/* Raw commands that CUDA 13.0 made on an H100 (tests/data/traces). What others do nobody can tell. */
static const u32 known_raw[] = {
	0x20808159,
	0x20808162,
	0x20809038,
	0x20810108,
};

const struct rm_rule *rm_control_rule(u32 cmd)
{
	u32 low = 0, high = sizeof(rules) / sizeof(rules[0]);

	while (low < high) {
		u32 middle = (low + high) / 2;

		if (rules[middle].cmd < cmd)
			low = middle + 1;
		else
			high = middle;
	}
	return low < sizeof(rules) / sizeof(rules[0]) && rules[low].cmd == cmd ? &rules[low] : NULL;
}

bool rm_control_known_raw(u32 cmd)
{
	u32 i;

	for (i = 0; i < sizeof(known_raw) / sizeof(known_raw[0]); i++)
		if (known_raw[i] == cmd)
			return true;
	return false;
}
