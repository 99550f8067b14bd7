/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recorded program, converted by `python -m detshare.tools.replay`, said to the driver again.
 * Client handles, files, pointers and identities of the GPU are put in as they are now; what comes
 * back is compared with the record.
 */
#ifndef NVCLIENT_REPLAY_H
#define NVCLIENT_REPLAY_H

#include "nvclient.h"
#include "replay_file.h"

#define REPLAY_NO_RECORD 0xffffffffu /* seq of what a stand-in does, which the trace does not hold */

struct replay_result {
	u32 calls, accepted; /* accepted: returned as recorded, with the recorded status */
	u32 maps;
	u32 checks, mismatches; /* each value that differs, and each call and mapping that failed
				   otherwise */
};

/*
 * What one value should have been and was; what: "return", "status", "handle", "size", "answer" or
 * "mapping".
 */
typedef void (*replay_report)(u32 seq, const char *name, const char *what, s64 expected, s64 got);

/*
 * The traces' addresses must be free: starts this program again without address randomisation if it
 * has it.
 */
void replay_fix_addresses(char **argv);
/*
 * What goes wrong before anything could be compared ends the program. The files and mappings stay
 * open.
 */
void replay_must_run(struct replay_script *script, const char *path, replay_report report,
		     struct replay_result *result);
/* Replay, which must agree with the record in full, and leave a program that can make channels. */
void replay_must_become_program(const char *path, struct nv_program *program, u32 gpu,
				const char *version);

#endif
