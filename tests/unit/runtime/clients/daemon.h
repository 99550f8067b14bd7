/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon inside the test program: hands out boards, so that the program itself can say which tier its streams shall be on. */
#ifndef DAEMON_H
#define DAEMON_H

#include <stdbool.h>

#include "board.h"

/* Sets DETSHARE_SOCKET and answers from then on. Tiers: 0 full, 1 first 32 SMs, 2 all but these, 3 first 64, 4 first 8. */
void daemon_start(void);
/* tiers of work that starts from now on */
void daemon_tier(unsigned int tier);
/* boards of the GPU whose context asked last; the policy is that of all */
struct ds_policy *daemon_policy(void);
struct ds_counters *daemon_counters(void);
struct ds_activity *daemon_activity(void); /* the program has slot 0, class normal */
unsigned int daemon_attached(void); /* how often boards were asked for */

/* The program's memory shall leave the GPU, or come back. */
void daemon_park(bool wanted);
uint32_t daemon_park_wait(void); /* until that is done or refused; DS_PARK_* */
void daemon_arena(uint64_t most); /* more bytes are refused from now on */
void daemon_refuses(int gpu); /* its boards are given to nobody */
void daemon_silent(bool on); /* it answers nothing from now on */
unsigned int daemon_unheard(void); /* how often it did not */
unsigned int daemon_arenas(void); /* how often it was given */

#endif
