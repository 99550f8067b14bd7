/* SPDX-License-Identifier: GPL-2.0-only */
#include <linux/linkage.h>
#include <linux/objtool.h>
#include <asm/nospec-branch.h>
#include <asm/unwind_hints.h>

/*
 * long ds_call_past(unsigned long a, unsigned long b, unsigned long c, unsigned long d,
 *		     unsigned long e, unsigned long target)
 *
 * Calls target(a, b, c, d, e) where target lies behind the fentry call of a function. There is no ENDBR at such an address, so that an
 * indirect call faults on CPUs with IBT; a return does not. The call/ret pair is the one of a retpoline and as safe against
 * speculation.
 */
	.text
SYM_FUNC_START(ds_call_past)
	ANNOTATE_INTRA_FUNCTION_CALL
	call	.Lto_target
	int3
.Lto_target:
	mov	%r9, (%rsp)
	UNWIND_HINT_FUNC
	RET
SYM_FUNC_END(ds_call_past)
