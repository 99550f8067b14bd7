/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the tracee: PTX text for whoever reads the image, host code for the stand-in. */
#ifndef TRACEE_KERNELS_H
#define TRACEE_KERNELS_H

extern const char tracee_ptx[];

void tracee_register(void);

#endif
