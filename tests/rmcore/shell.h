/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the test shell share: shell.c reads and decodes,
 * shell_tree.c keeps clients and accounts, shell_race.c has threads,
 * shell_verdict.c judges, shell_act.c builds calls.
 */
#ifndef DETSHARE_RMCORE_SHELL_H
#define DETSHARE_RMCORE_SHELL_H

#include "../../kmod/rm/act.h"
#include "../../kmod/rm/answer.h"
#include "../../kmod/rm/decode.h"
#include "../../kmod/rm/quota.h"
#include "../../kmod/rm/tree.h"
#include "../../kmod/rm/verdict.h"

extern const struct rm_abi *abi;

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
char *word(void);		/* the next of the line; its lack ends the program */
bool more(char **next);		/* the next of the line, if there is one */
u64 value(const char *text);
u64 num(void);
u8 *bytes(u32 *size);		/* to be freed */
void put_hex(const char *key, const u8 *data, u32 size);
void done(int error);		/* "ok" or "error NUMBER" */

/* false: no such command */
bool tree_command(const char *name);
bool race_command(const char *name);
bool verdict_command(const char *name);
bool act_command(const char *name);
/* Frees everything, so that what leaks is the core's. */
void tree_end(void);

#endif /* DETSHARE_RMCORE_SHELL_H */
