/* SPDX-License-Identifier: Apache-2.0 */
/* What we ask of the compiler. */
#ifndef DS_COMPILER_H
#define DS_COMPILER_H

#define DS_EXPORT __attribute__((visibility("default")))
#define ds_likely(x) __builtin_expect(!!(x), 1)
#define ds_unlikely(x) __builtin_expect(!!(x), 0)

#endif
