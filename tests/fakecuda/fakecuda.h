/* SPDX-License-Identifier: Apache-2.0 */
/* What the stand-in offers beside the driver's own interface: for tests and for plugins (FAKECUDA_PLUGINS). */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

/* One kernel launch while its host code runs. args[i] points at the i-th parameter. */
struct fakecuda_call {
	const char *name;
	unsigned int grid[3];
	unsigned int block[3];
	unsigned int shared;
	unsigned int params;
	void *const *args;
	const uint16_t *sm;	/* ids of the SMs that the launch may use, ascending */
	unsigned int sms;
	uint64_t start_ns;	/* virtual start */
	uint64_t end_ns;	/* virtual end */
	void *state;		/* NULL at the first call of a launch; kept between calls that return 1 */
	void *engine;		/* private */
};

/* Returns 0: the kernel is over; 1: it still runs, call again in a moment (resident kernels); < 0: it faults (700).
 * Runs on the engine's thread with the library locked: must not call CUDA and must not block. */
typedef int (*fakecuda_kernel)(struct fakecuda_call *call);

/* Kernels of that name run this code from now on. A plugin calls it from `void fakecuda_plugin(void)`. */
void fakecuda_register_kernel(const char *name, fakecuda_kernel run);

/* Kernels of binary images (ELF, fat binary) have from now on the parameters that PTX text says of their names. */
void fakecuda_describe(const char *ptx);

/* Device memory for a kernel that reads (write = 0) or writes it: the host address, or NULL if the range is no live
 * memory of the launch's context. The access is checked against all unordered ones. */
void *fakecuda_touch(struct fakecuda_call *call, uint64_t address, size_t size, int write);

/* The host reads or writes memory that the device uses too: checked as an access of the calling thread. */
void fakecuda_host_access(const void *address, size_t size, int write);

/* Number of violations so far (races, use of dead handles, foreign memory); text of the i-th, NULL behind the last. */
size_t fakecuda_violations(void);
const char *fakecuda_violation(size_t index);
void fakecuda_forget_violations(void);

/* SM ids that work submitted now to this stream would use (of the context, for NULL); returns their number. */
unsigned int fakecuda_stream_sms(void *stream, uint16_t *ids, unsigned int room);

/* As cuCtxSetCurrent, by a name that no list of the driver's functions has: what a newer driver may bring. Returns a CUresult. */
int fakecuda_make_current(void *context);

/* Work submitted and not finished yet, of the whole process. */
size_t fakecuda_pending(void);

/* The GPU fails: its primary context is beyond repair (719). */
void fakecuda_break(int device);

/* Bytes of the device that programs and tests have now, whatever the library says of it. */
size_t fakecuda_used(int device);

/* The most that this was since the last such call. */
size_t fakecuda_peak(int device);

/* As FAKECUDA_REFUSE, from now on. */
void fakecuda_refuse(unsigned int permille);

/* whether what is mapped there lies in the host's memory */
int fakecuda_on_host(unsigned long long address);

#endif
