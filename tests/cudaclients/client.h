/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of the client programs. Each program computes something whose result does not depend on timing or on which
 * SMs it got, says parts of it on lines `NAME HEX`, and ends with a line `digest HEX`: equal digests with and without
 * the runtime mean that nothing was lost or reordered. They run on the real libcuda.so.1 and on the stand-in: the
 * kernels are one PTX text for both.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"

#define WORDS 4096u

/* Prints the call and its status, and ends the program with status 1. */
void client_fail(const char *file, int line, const char *what, int status) __attribute__((noreturn));

#define OK(call) \
	do { \
		CUresult status_ = (call); \
		if (status_) \
			client_fail(__FILE__, __LINE__, #call, (int)status_); \
	} while (0)

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			client_fail(__FILE__, __LINE__, #condition, -1); \
	} while (0)

extern CUcontext client_context;
extern CUmodule client_module;
extern const char client_ptx[];

/* cuInit, primary context of device 0 current, kernels loaded. */
void client_start(void);
CUfunction client_kernel(const char *name);
/* The value behind --NAME, or the default. */
long client_option(int count, char **words, const char *name, long otherwise);
double client_ms(void);

/* Device words, all 1; the contents as host words; the digest of that is said under a name. */
CUdeviceptr client_words(unsigned int n);
void client_read(CUdeviceptr words, unsigned int n, uint32_t *out);
void client_say_words(const char *name, CUdeviceptr words, unsigned int n);
void client_say(const char *name, uint64_t value);
/* The last line; returns the exit status. */
int client_end(void);

/* words = words * a + b, a launch of 8 blocks of 128 threads. */
void client_mix(CUstream stream, CUdeviceptr words, uint32_t a, uint32_t b);

#endif
