/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists that the linker makes. A file adds its entry by DS_LIST_ADD(); files of lower folders walk the list and know nobody in it. No code runs for
 * that: a list is whole before the first constructor of the process.
 */
#ifndef DS_LIST_H
#define DS_LIST_H

#include <stddef.h>

/* at file scope; `entry` is a constant. Entries stand in the order in which their objects are linked: those of lower folders first. */
#define DS_LIST_ADD(list, entry) static const __typeof__(entry) *const list##_##entry __attribute__((used, section(#list))) = &entry

/* at file scope, in the one file that walks the list. Its own entry is empty: the linker knows no list without any. */
#define DS_LIST(list, type)                                                                     \
	static const type *const list##_none __attribute__((used, section(#list))) = NULL;      \
	extern const type *const __start_##list[] __attribute__((visibility("hidden")));        \
	extern const type *const __stop_##list[] __attribute__((visibility("hidden")))

#define ds_list_each(at, list)                                          \
	for ((at) = __start_##list; (at) != __stop_##list; (at)++)      \
		if (*(at))

#endif
