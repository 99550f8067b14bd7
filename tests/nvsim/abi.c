// SPDX-License-Identifier: GPL-2.0-only
/* Look-ups in the generated ABI tables. */

#include "abi.h"

int sim_abi = 2;

const struct sim_class *sim_class_find(u32 nr)
{
	size_t low = 0, high = sim_class_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (sim_classes[middle].nr < nr)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == sim_class_count || sim_classes[low].nr != nr || sim_classes[low].size[sim_abi] == SIM_NO_CLASS)
		return NULL;
	return &sim_classes[low];
}

/* kind KIND_NONE: the first entry of that command, whatever its class */
const struct sim_control *sim_control_find(u32 cmd, enum sim_kind kind)
{
	size_t low = 0, high = sim_control_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (sim_controls[middle].cmd < cmd)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < sim_control_count && sim_controls[low].cmd == cmd; low++) {
		if (sim_controls[low].size[sim_abi] == SIM_NO_CONTROL)
			continue;
		if (kind == KIND_NONE || sim_kind_isa(kind, sim_controls[low].kind))
			return &sim_controls[low];
	}
	return NULL;
}

u32 sim_uvm_size(u32 nr)
{
	for (size_t i = 0; i < sim_uvm_size_count; i++)
		if (sim_uvm_sizes[i].nr == nr)
			return sim_uvm_sizes[i].size[sim_abi];
	return 0;
}

/* The inheritance that matters here: every memory class is a Memory. */
bool sim_kind_isa(enum sim_kind kind, enum sim_kind base)
{
	if (kind == base)
		return true;
	if (base != KIND_Memory)
		return false;
	switch (kind) {
	case KIND_VideoMemory:
	case KIND_SystemMemory:
	case KIND_OsDescMemory:
	case KIND_VirtualMemory:
	case KIND_VirtualMemoryRange:
	case KIND_NoDeviceMemory:
	case KIND_MemoryFabric:
	case KIND_MemoryMulticastFabric:
	case KIND_MemoryList:
	case KIND_PhysicalMemory:
	case KIND_RegisterMemory:
	case KIND_ExtendedGpuMemory:
	case KIND_UserModeApi:
	case KIND_GpuUserSharedData:
		return true;
	default:
		return false;
	}
}

enum sim_kind sim_kind_of_nvoc(u32 id)
{
	static const struct {
		u16 kind;
		u32 id;
	} ids[] = { SIM_KIND_NVOC_IDS };

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		if (ids[i].id == id)
			return ids[i].kind;
	return KIND_NONE;
}
