/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "client.h"

/* for a real GPU too; the stand-in runs its own code for these names */
const char client_image[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	"// fakecuda: kernel mix duration_us=20\n"
	"// fakecuda: kernel census duration_us=20\n"
	"// fakecuda: kernel nothing duration_us=1\n"
	".visible .entry mix(.param .u64 p_to, .param .u32 p_count, .param .u32 p_a, .param .u32 p_b)\n"
	"{\n"
	"\t.reg .pred %p;\n"
	"\t.reg .b32 %r<8>;\n"
	"\t.reg .b64 %d<4>;\n"
	"\tld.param.u64 %d0, [p_to];\n"
	"\tld.param.u32 %r0, [p_count];\n"
	"\tld.param.u32 %r1, [p_a];\n"
	"\tld.param.u32 %r2, [p_b];\n"
	"\tmov.u32 %r3, %ctaid.x;\n"
	"\tmov.u32 %r4, %ntid.x;\n"
	"\tmov.u32 %r5, %tid.x;\n"
	"\tmad.lo.u32 %r6, %r3, %r4, %r5;\n"
	"\tsetp.ge.u32 %p, %r6, %r0;\n"
	"\t@%p bra OUT;\n"
	"\tcvta.to.global.u64 %d1, %d0;\n"
	"\tmul.wide.u32 %d2, %r6, 4;\n"
	"\tadd.u64 %d3, %d1, %d2;\n"
	"\tld.global.u32 %r7, [%d3];\n"
	"\tmad.lo.u32 %r7, %r7, %r1, %r2;\n"
	"\tst.global.u32 [%d3], %r7;\n"
	"OUT:\n"
	"\tret;\n"
	"}\n"
	".visible .entry census(.param .u64 p_sm, .param .u64 p_stamp)\n"
	"{\n"
	"\t.reg .pred %p, %q;\n"
	"\t.reg .b32 %r<4>;\n"
	"\t.reg .b64 %d<8>;\n"
	"\tld.param.u64 %d0, [p_sm];\n"
	"\tmov.u64 %d4, %globaltimer;\n"
	"\tmov.u32 %r0, %tid.x;\n"
	"\tsetp.ne.u32 %p, %r0, 0;\n"
	"\t@%p bra SPIN;\n"
	"\tcvta.to.global.u64 %d1, %d0;\n"
	"\tmov.u32 %r1, %ctaid.x;\n"
	"\tmul.wide.u32 %d2, %r1, 4;\n"
	"\tadd.u64 %d3, %d1, %d2;\n"
	"\tmov.u32 %r2, %smid;\n"
	"\tst.global.u32 [%d3], %r2;\n"
	"SPIN:\n"
	"\tmov.u64 %d5, %globaltimer;\n"
	"\tsub.u64 %d6, %d5, %d4;\n"
	"\tsetp.lt.u64 %q, %d6, 50000;\n"
	"\t@%q bra SPIN;\n"
	"\tret;\n"
	"}\n"
	".visible .entry nothing()\n"
	"{\n"
	"\tret;\n"
	"}\n";

CUcontext context;
CUfunction mix, census, nothing;

uint64_t client_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + now.tv_nsec;
}

void client_kernels(void)
{
	CUmodule module;

	CHECK(cuModuleLoadData(&module, client_image));
	CHECK(cuModuleGetFunction(&mix, module, "mix"));
	CHECK(cuModuleGetFunction(&census, module, "census"));
	CHECK(cuModuleGetFunction(&nothing, module, "nothing"));
}

void client_start(unsigned int tier)
{
	CUdevice device;

	daemon_tier(tier);
	daemon_start();
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	client_kernels();
}

CUresult client_mix(CUstream stream, CUdeviceptr to, unsigned int count, unsigned int a, unsigned int b)
{
	void *params[] = {&to, &count, &a, &b};

	return cuLaunchKernel(mix, 8, 1, 1, 64, 1, 1, 0, stream, params, NULL);
}

unsigned int client_census(CUstream stream, bool per_thread)
{
	enum { BLOCKS = 264 };
	uint32_t sm[BLOCKS];
	CUdeviceptr room, none = 0;
	void *params[] = {&room, &none};
	bool seen[1024] = {false};
	unsigned int count = 0;

	CHECK(cuMemAlloc_v2(&room, sizeof(sm)));
	CHECK((per_thread ? cuLaunchKernel_ptsz : cuLaunchKernel)(census, BLOCKS, 1, 1, 32, 1, 1, 0, stream, params, NULL));
	CHECK((per_thread ? cuStreamSynchronize_ptsz : cuStreamSynchronize)(stream));
	CHECK(cuMemcpyDtoH_v2(sm, room, sizeof(sm)));
	CHECK(cuMemFree_v2(room));
	for (unsigned int i = 0; i < BLOCKS; i++)
		if (!seen[sm[i]]) {
			seen[sm[i]] = true;
			count++;
		}
	return count;
}

void client_pool(void)
{
	static const unsigned int tiers[] = {1, 2, 3, 4};
	static const unsigned int sms[] = {32, 100, 64, 8};
	uint64_t until = client_ns() + 3000000000ULL;
	CUstream stream;

	/* without the library, to see that a test is right by itself */
	if (getenv("CLIENT_NATIVE"))
		return;
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (unsigned int i = 0; i < 4; i++) {
		daemon_tier(tiers[i]);
		while (client_census(stream, false) != sms[i]) {
			EXPECT(client_ns() < until);
			usleep(1000);
		}
	}
	CHECK(cuStreamDestroy_v2(stream));
	daemon_tier(0);
}
