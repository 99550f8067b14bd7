/* SPDX-License-Identifier: Apache-2.0 */
/*
 * API(name, type, argument, ...) { body }: an exported function whose body runs with the lock held and may use every
 * argument. DUAL(name, suffix, ...): the same twice, the second for the per-thread default stream (`per_thread`).
 */
#ifndef FAKE_API_H
#define FAKE_API_H

#include "fake.h"

#define EXPORT __attribute__((visibility("default")))

enum { ENTER_PLAIN = 0, ENTER_UNINITIALISED = 1, ENTER_IN_CALLBACK = 2 };

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define COUNT_(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, \
	       a23, a24, n, ...) n
#define COUNT(...) COUNT_(__VA_ARGS__, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0)

#define D1(t, a) t a
#define D2(t, a, ...) t a, D1(__VA_ARGS__)
#define D3(t, a, ...) t a, D2(__VA_ARGS__)
#define D4(t, a, ...) t a, D3(__VA_ARGS__)
#define D5(t, a, ...) t a, D4(__VA_ARGS__)
#define D6(t, a, ...) t a, D5(__VA_ARGS__)
#define D7(t, a, ...) t a, D6(__VA_ARGS__)
#define D8(t, a, ...) t a, D7(__VA_ARGS__)
#define D9(t, a, ...) t a, D8(__VA_ARGS__)
#define D10(t, a, ...) t a, D9(__VA_ARGS__)
#define D11(t, a, ...) t a, D10(__VA_ARGS__)
#define D12(t, a, ...) t a, D11(__VA_ARGS__)
#define DECLARE(...) CAT(D, COUNT(__VA_ARGS__))(__VA_ARGS__)

#define N1(t, a) a
#define N2(t, a, ...) a, N1(__VA_ARGS__)
#define N3(t, a, ...) a, N2(__VA_ARGS__)
#define N4(t, a, ...) a, N3(__VA_ARGS__)
#define N5(t, a, ...) a, N4(__VA_ARGS__)
#define N6(t, a, ...) a, N5(__VA_ARGS__)
#define N7(t, a, ...) a, N6(__VA_ARGS__)
#define N8(t, a, ...) a, N7(__VA_ARGS__)
#define N9(t, a, ...) a, N8(__VA_ARGS__)
#define N10(t, a, ...) a, N9(__VA_ARGS__)
#define N11(t, a, ...) a, N10(__VA_ARGS__)
#define N12(t, a, ...) a, N11(__VA_ARGS__)
#define NAMES(...) CAT(N, COUNT(__VA_ARGS__))(__VA_ARGS__)

#define API_HOW(name, how, ...) \
	static CUresult do_##name(DECLARE(__VA_ARGS__)); \
	EXPORT CUresult name(DECLARE(__VA_ARGS__)) { \
		CUresult result_ = api_enter(how); \
		return result_ ? result_ : api_leave(how, do_##name(NAMES(__VA_ARGS__))); \
	} \
	static CUresult do_##name(DECLARE(__VA_ARGS__))

#define API(name, ...) API_HOW(name, ENTER_PLAIN, __VA_ARGS__)

#define DUAL(name, suffix, ...) \
	static CUresult do_##name(bool per_thread, DECLARE(__VA_ARGS__)); \
	EXPORT CUresult name(DECLARE(__VA_ARGS__)) { \
		CUresult result_ = api_enter(ENTER_PLAIN); \
		return result_ ? result_ : api_leave(ENTER_PLAIN, do_##name(false, NAMES(__VA_ARGS__))); \
	} \
	EXPORT CUresult name##suffix(DECLARE(__VA_ARGS__)) { \
		CUresult result_ = api_enter(ENTER_PLAIN); \
		return result_ ? result_ : api_leave(ENTER_PLAIN, do_##name(true, NAMES(__VA_ARGS__))); \
	} \
	static CUresult do_##name(bool per_thread, DECLARE(__VA_ARGS__))

#define STREAM(name, ...) DUAL(name, _ptsz, __VA_ARGS__)
#define SYNC(name, ...) DUAL(name, _ptds, __VA_ARGS__)

/* The same body under an older or newer name with the same prototype. */
#define SAME(alias, name, ...) \
	EXPORT CUresult alias(DECLARE(__VA_ARGS__)) { return name(NAMES(__VA_ARGS__)); }

#define TRY(call) \
	do { \
		CUresult tried_ = (call); \
		if (tried_) \
			return tried_; \
	} while (0)

#endif
