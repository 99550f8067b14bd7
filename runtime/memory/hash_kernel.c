/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.h for GPUs, as PTX that the driver compiles. A block for each grain, a thread for each lane. Four rows are on their way at a time: a thread
 * needs 28 instructions for 16 bytes, and waits for memory otherwise.
 */
#include "hash.h"

#define QUARTER(word, other, rotated, bits)                        \
	"	add.u32 " word ", " word ", " other ";\n"          \
	"	xor.b32 " rotated ", " rotated ", " word ";\n"     \
	"	shf.l.wrap.b32 " rotated ", " rotated ", " rotated ", " bits ";\n"

#define ROUND                              \
	QUARTER("%a", "%b", "%d", "16")    \
	QUARTER("%c", "%d", "%b", "12")    \
	QUARTER("%a", "%b", "%d", "8")     \
	QUARTER("%c", "%d", "%b", "7")

#define MIX ROUND ROUND

#define TAKE(v0, v1, v2, v3)               \
	"	xor.b32 %a, %a, " v0 ";\n" \
	"	xor.b32 %b, %b, " v1 ";\n" \
	"	xor.b32 %c, %c, " v2 ";\n" \
	"	xor.b32 %d, %d, " v3 ";\n" \
	MIX

const char ds_hash_kernel[] =
	".version 6.3\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry detshare_hash(\n"
	"	.param .u64 grains,\n"
	"	.param .u64 digests,\n"
	"	.param .u32 key0,\n"
	"	.param .u32 key1,\n"
	"	.param .u32 key2,\n"
	"	.param .u32 key3,\n"
	"	.param .u32 rows\n"
	")\n"
	".maxntid 256, 1, 1\n"
	"{\n"
	"	.reg .pred %p;\n"
	"	.reg .b32 %a, %b, %c, %d, %t, %g, %left, %half, %mine, %far;\n"
	"	.reg .b32 %v<16>;\n"
	"	.reg .b64 %from, %to, %shift;\n"
	"	.shared .align 16 .b8 lanes[4096];\n"
	"	mov.u32 %t, %tid.x;\n"
	"	mov.u32 %g, %ctaid.x;\n"
	"	ld.param.u64 %from, [grains];\n"
	"	mul.wide.u32 %shift, %g, 8;\n"
	"	add.u64 %from, %from, %shift;\n"
	"	ld.global.u64 %from, [%from];\n"
	"	mul.wide.u32 %shift, %t, 16;\n"
	"	add.u64 %from, %from, %shift;\n"
	"	ld.param.u32 %a, [key0];\n"
	"	ld.param.u32 %b, [key1];\n"
	"	ld.param.u32 %c, [key2];\n"
	"	ld.param.u32 %d, [key3];\n"
	"	ld.param.u32 %left, [rows];\n"
	"	xor.b32 %a, %a, %t;\n"
	MIX
	"ROWS:\n"
	"	ld.global.cs.v4.u32 {%v0, %v1, %v2, %v3}, [%from];\n"
	"	ld.global.cs.v4.u32 {%v4, %v5, %v6, %v7}, [%from+4096];\n"
	"	ld.global.cs.v4.u32 {%v8, %v9, %v10, %v11}, [%from+8192];\n"
	"	ld.global.cs.v4.u32 {%v12, %v13, %v14, %v15}, [%from+12288];\n"
	TAKE("%v0", "%v1", "%v2", "%v3")
	TAKE("%v4", "%v5", "%v6", "%v7")
	TAKE("%v8", "%v9", "%v10", "%v11")
	TAKE("%v12", "%v13", "%v14", "%v15")
	"	add.u64 %from, %from, 16384;\n"
	"	sub.u32 %left, %left, 4;\n"
	"	setp.ne.u32 %p, %left, 0;\n"
	"	@%p bra ROWS;\n"
	"	mov.u32 %mine, lanes;\n"
	"	shl.b32 %far, %t, 4;\n"
	"	add.u32 %mine, %mine, %far;\n"
	"	st.shared.v4.u32 [%mine], {%a, %b, %c, %d};\n"
	"	mov.u32 %half, 128;\n"
	"JOIN:\n"
	"	bar.sync 0;\n"
	"	setp.ge.u32 %p, %t, %half;\n"
	"	@%p bra JOINED;\n"
	MIX
	"	shl.b32 %far, %half, 4;\n"
	"	add.u32 %far, %mine, %far;\n"
	"	ld.shared.v4.u32 {%v0, %v1, %v2, %v3}, [%far];\n"
	TAKE("%v0", "%v1", "%v2", "%v3")
	"	st.shared.v4.u32 [%mine], {%a, %b, %c, %d};\n"
	"JOINED:\n"
	"	shr.u32 %half, %half, 1;\n"
	"	setp.ne.u32 %p, %half, 0;\n"
	"	@%p bra JOIN;\n"
	"	setp.ne.u32 %p, %t, 0;\n"
	"	@%p bra DONE;\n"
	"	ld.param.u64 %to, [digests];\n"
	"	mul.wide.u32 %shift, %g, 16;\n"
	"	add.u64 %to, %to, %shift;\n"
	"	st.global.v4.u32 [%to], {%a, %b, %c, %d};\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";
