# SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0
# The objects of the RM core, by name without folder, for whoever builds it: Kbuild includes this file and adds
# $(addprefix kmod/rm/,$(rm-objs)); user space compiles the same sources with -pthread.
rm-objs := tables.o abi.o decode.o alloc.o controls.o share.o answer.o quota.o handles.o tree.o memory.o act.o verdict.o rota.o gang.o
