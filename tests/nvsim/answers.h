/* SPDX-License-Identifier: GPL-2.0-only */
/* Recorded answers: for a command and its parameters, the bytes that the driver of an H100 changed in them. */
#ifndef NVSIM_ANSWERS_H
#define NVSIM_ANSWERS_H

#include <linux/types.h>

struct sim_run {		/* bytes of one answer, from sim_answer_bytes */
	u16 at, length;
	u32 bytes;
};

struct sim_record {
	u32 cmd;
	u32 size;
	u32 key;		/* hash of the parameters that it answers */
	u16 first_run, runs;
};

struct sim_pair {		/* of commands with a list of {index, data}: one element */
	u32 cmd, index, data;
};

extern const struct sim_record sim_records[];
extern const size_t sim_record_count;
extern const struct sim_run sim_runs[];
extern const u8 sim_answer_bytes[];
extern const struct sim_pair sim_pairs[];
extern const size_t sim_pair_count;

#endif
