// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base.h"

#define IOCTL_OF_32_BITS 54

/* The stack as the kernel leaves it: argc, argv. */
__asm__(".globl _start\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	mov (%rsp), %rdi\n"
	"	lea 8(%rsp), %rsi\n"
	"	and $-16, %rsp\n"
	"	call hostile_main\n"
	"	mov %eax, %edi\n"
	"	mov $231, %eax\n" /* exit_group */
	"	syscall\n");

long sys(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

int ioctl_of_32_bits(int fd, u32 request, void *block)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(IOCTL_OF_32_BITS), "b"((long)fd), "c"((long)request), "d"(block)
			 : "r8", "r9", "r10", "r11", "memory");
	return (int)result;
}

void leave(int code)
{
	for (;;)
		sys(SYS_exit_group, code, 0, 0, 0, 0, 0);
}

int fork_process(void)
{
	return (int)sys(SYS_fork, 0, 0, 0, 0, 0, 0);
}

int wait_for(int pid, u32 ms)
{
	u64 end = nv_now_ns() + ms * 1000000ull;
	int status = 0;

	for (;;) {
		if (sys(SYS_wait4, pid, (long)&status, WNOHANG, 0, 0, 0) == pid)
			return WIFSIGNALED(status) ? 0x100 + WTERMSIG(status) : WEXITSTATUS(status);
		if (nv_now_ns() > end)
			return -1;
		rest(1);
	}
}

void kill_process(int pid)
{
	sys(SYS_kill, pid, SIGKILL, 0, 0, 0, 0);
	sys(SYS_wait4, pid, 0, 0, 0, 0, 0);
}

void rest(u32 ms)
{
	struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	sys(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
}

/* ---- words -------------------------------------------------------------------- */

struct text {
	char *at, *end;
};

static void put(struct text *text, char c)
{
	if (text->at < text->end)
		*text->at++ = c;
}

static void put_number(struct text *text, u64 value, u32 base)
{
	char digits[24];
	u32 n = 0;

	do {
		digits[n++] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	while (n)
		put(text, digits[--n]);
}

static void put_signed(struct text *text, s64 value)
{
	if (value < 0)
		put(text, '-');
	put_number(text, value < 0 ? 0 - (u64)value : (u64)value, 10);
}

static void format_text(struct text *text, const char *format, va_list args)
{
	for (; *format; format++) {
		bool wide = false;
		const char *word;

		if (*format != '%') {
			put(text, *format);
			continue;
		}
		while (*++format == 'l')
			wide = true;
		switch (*format) {
		case 's':
			for (word = va_arg(args, const char *); *word; word++)
				put(text, *word);
			break;
		case 'd':
			put_signed(text, wide ? va_arg(args, long) : va_arg(args, int));
			break;
		case 'u':
			put_number(text, wide ? va_arg(args, unsigned long) : va_arg(args, unsigned int), 10);
			break;
		case 'x':
			put_number(text, wide ? va_arg(args, unsigned long) : va_arg(args, unsigned int), 16);
			break;
		default:
			put(text, *format);
		}
	}
}

void say(int fd, const char *format, ...)
{
	char line[1024];
	struct text text = { line, line + sizeof(line) };
	va_list args;

	va_start(args, format);
	format_text(&text, format, args);
	va_end(args);
	sys(SYS_write, fd, (long)line, text.at - line, 0, 0, 0);
}

bool next_line(char *line, u32 size)
{
	u32 n = 0;

	while (n + 1 < size) {
		long got = sys(SYS_read, 0, (long)(line + n), 1, 0, 0, 0);

		if (got <= 0)
			return false;
		if (line[n] == '\n')
			break;
		n++;
	}
	line[n] = '\0';
	return true;
}

char *next_word(char **rest)
{
	char *begin = *rest;

	while (*begin == ' ')
		begin++;
	*rest = begin;
	while (**rest && **rest != ' ')
		++*rest;
	if (**rest)
		*(*rest)++ = '\0';
	return *begin ? begin : NULL;
}

u64 to_number(const char *text)
{
	u32 base = text[0] == '0' && text[1] == 'x' ? 16 : 10;
	u64 value = 0;

	for (text += base == 16 ? 2 : 0; *text; text++) {
		u32 digit = *text >= 'a' ? (u32)(*text - 'a' + 10) : (u32)(*text - '0');

		value = value * base + digit;
	}
	return value;
}

/* ---- what libnvclient and the compiler take from a C library --------------------- */

static int error;

int *__errno_location(void)
{
	return &error;
}

static long result_of(long result)
{
	if (result < 0 && result > -4096) {
		error = (int)-result;
		return -1;
	}
	return result;
}

int open(const char *path, int flags, ...)
{
	return (int)result_of(sys(SYS_open, (long)path, flags, 0, 0, 0, 0));
}

int close(int fd)
{
	return (int)result_of(sys(SYS_close, fd, 0, 0, 0, 0, 0));
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *block;

	va_start(args, request);
	block = va_arg(args, void *);
	va_end(args);
	return (int)result_of(sys(SYS_ioctl, fd, (long)request, (long)block, 0, 0, 0));
}

void *mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
	return (void *)result_of(sys(SYS_mmap, (long)at, (long)length, prot, flags, fd, offset));
}

int munmap(void *at, size_t length)
{
	return (int)result_of(sys(SYS_munmap, (long)at, (long)length, 0, 0, 0, 0));
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	return (int)result_of(sys(SYS_clock_gettime, clock, (long)time, 0, 0, 0, 0));
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
	return (int)result_of(sys(SYS_nanosleep, (long)time, (long)left, 0, 0, 0, 0));
}

int snprintf(char *to, size_t size, const char *format, ...)
{
	struct text text = { to, to + (size ? size - 1 : 0) };
	va_list args;

	va_start(args, format);
	format_text(&text, format, args);
	va_end(args);
	if (size)
		*text.at = '\0';
	return (int)(text.at - to);
}

void *memcpy(void *to, const void *from, size_t n)
{
	u8 *a = to;
	const u8 *b = from;

	while (n--)
		*a++ = *b++;
	return to;
}

void *memset(void *to, int value, size_t n)
{
	u8 *a = to;

	while (n--)
		*a++ = (u8)value;
	return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const u8 *x = a, *y = b;

	for (; n--; x++, y++)
		if (*x != *y)
			return *x < *y ? -1 : 1;
	return 0;
}

int strcmp(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return (u8)*a - (u8)*b;
}

size_t strlen(const char *text)
{
	size_t n = 0;

	while (text[n])
		n++;
	return n;
}
