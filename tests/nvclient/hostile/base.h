/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without a C library: it begins at _start, and asks the kernel by the syscall instruction only. What libnvclient
 * wants of a C library (open, ioctl, mmap, snprintf, ...) is here too, in the least form that serves.
 */
#ifndef HOSTILE_BASE_H
#define HOSTILE_BASE_H

#include "../nvclient.h"

long sys(long number, long a, long b, long c, long d, long e, long f);
/* An ioctl as a 32-bit program makes it; block below 4 GiB. 0 or -errno. */
int ioctl_of_32_bits(int fd, u32 request, void *block);

/* -errno instead of -1: nothing here reads errno. */
int fork_process(void);
int wait_for(int pid, u32 ms);	/* its exit code, 0x100 + signal; -1: it goes on after that time */
void kill_process(int pid);
void leave(int code) __attribute__((noreturn));
void rest(u32 ms);

/* %s %d %u %x %lx %lu, to a descriptor */
void say(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next line of standard input, without its end; false: none is left. */
bool next_line(char *line, u32 size);
/* The next word of a line, which is changed; NULL: none is left. */
char *next_word(char **rest);
u64 to_number(const char *text);

int hostile_main(int argc, char **argv);

#endif
