// SPDX-License-Identifier: Apache-2.0
/*
 * What one ioctl costs: batches of the same call, the time of each batch divided by its calls. Prepared blocks are used
 * again in every call, so that next to nothing but the ioctl is timed.
 */

#include "options.h"

#define PIECE	(64ull << 10)	/* the least that a GPU's memory is handed out by */

static const char usage[] =
	"[--kind LIST] [--batches N] [--calls N] [--xfer] [--gpu N] [--version V]\n"
	"Times driver calls and prints a JSON line for each kind: ns of a call, per batch, in order, and their median.\n"
	"  --kind LIST  of these, separated by commas (all that work here):\n"
	"     empty       a control that does nothing and has no parameters\n"
	"     version     CHECK_VERSION_STR\n"
	"     handle      a control with nested parameters (GET_HANDLE_INFO)\n"
	"     client      a client, allocated and freed: two calls, counted as one\n"
	"     missing     an object that is not there, freed: what costs the driver least of all that changes objects\n"
	"     fb-info     FB_GET_INFO_V2; needs a GPU\n"
	"     memory      64 KiB of video memory, allocated and freed: two calls, counted as one; needs a GPU\n"
	"  --batches N  batches of each kind (31)\n"
	"  --calls N    calls in a batch (200)\n"
	"  --xfer       every call wrapped in IOCTL_XFER_CMD\n"
	"example: nvloop --kind empty,memory --batches 51 --calls 500";

struct loop {
	struct nv_program program;
	bool gpu;		/* program has device and subdevice */
	const char *missing;	/* step at which the GPU failed */
	u32 missing_status;
	u32 client;
};

/* One call; the driver's status. */
typedef u32 call_fn(struct loop *loop);

static u32 empty(struct loop *loop)
{
	return nv_control(&loop->program.nv, loop->client, loop->client, 0, NULL, 0);
}

static u32 version(struct loop *loop)
{
	const struct nv *nv = &loop->program.nv;
	u8 block[128] = { 0 };
	int error;

	rm_put32(block, nv->abi->version_str.cmd, '2');
	error = nv->xfer ? nv_xfer(nv, nv->ctl, NV_ESC_CHECK_VERSION_STR, block, nv->abi->version_str.len) :
			   nv_ioctl(nv->ctl, NV_ESC_CHECK_VERSION_STR, block, nv->abi->version_str.len);
	return error ? NV_ERRNO(-error) : 0;
}

static u32 handle(struct loop *loop)
{
	const struct nv *nv = &loop->program.nv;
	u8 params[64] = { 0 };

	/* the driver looks the object up and answers that there is none: the same way in and out with and without a GPU */
	rm_put32(params, nv->abi->handle_info.hObject, 0x7fffffff);
	return nv_control(nv, loop->client, loop->client, NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO, params,
			  nv->abi->handle_info.len) == NV_ERR_OBJECT_NOT_FOUND ? 0 : NV_ERR_GENERIC;
}

static u32 client(struct loop *loop)
{
	u32 fresh, status = nv_root(&loop->program.nv, &fresh);

	return status ? status : nv_free(&loop->program.nv, fresh, fresh, fresh);
}

static u32 missing(struct loop *loop)
{
	/* some versions say that there is none, some that it is freed */
	u32 status = nv_free(&loop->program.nv, loop->client, loop->client, 0x7fffffff);

	return status >= NV_ERRNO(0) ? status : 0;
}

static u32 fb_info(struct loop *loop)
{
	u64 total, free;

	return nv_fb_info(&loop->program.nv, loop->program.client, loop->program.subdevice, &total, &free);
}

static u32 memory(struct loop *loop)
{
	const struct nv_memory_request ask = { .class = NV01_MEMORY_LOCAL_USER, .size = PIECE };
	struct nv_program *program = &loop->program;
	u32 object = NV_OBJECTS + 0x1000, status;

	status = nv_memory(&program->nv, program->client, program->device, &object, &ask, NULL);
	return status ? status : nv_free(&program->nv, program->client, program->device, object);
}

static const struct kind {
	const char *name;
	call_fn *call;
	bool gpu;
} kinds[] = {
	{ "empty", empty, false }, { "version", version, false }, { "handle", handle, false },
	{ "client", client, false }, { "missing", missing, false }, { "fb-info", fb_info, true }, { "memory", memory, true },
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static int by_size(const void *a, const void *b)
{
	u64 left = *(const u64 *)a, right = *(const u64 *)b;

	return left < right ? -1 : left > right;
}

static void measure(struct loop *loop, const struct kind *kind, u32 batches, u32 calls)
{
	u64 *ns = calloc(batches, sizeof(*ns)), begin;
	u32 batch, i, status = 0;

	if (!ns)
		nv_die("no memory for %u batches", batches);
	for (i = 0; i < calls && !status; i++)
		status = kind->call(loop);
	for (batch = 0; batch < batches && !status; batch++) {
		begin = nv_now_ns();
		for (i = 0; i < calls && !status; i++)
			status = kind->call(loop);
		ns[batch] = (nv_now_ns() - begin) / calls;
	}
	if (status)
		nv_die("%s: status 0x%x %s", kind->name, status, nv_status_name(status));
	printf("{\"kind\": \"%s\", \"calls\": %u, \"ns\": [", kind->name, calls);
	for (batch = 0; batch < batches; batch++)
		printf("%s%llu", batch ? ", " : "", (unsigned long long)ns[batch]);
	qsort(ns, batches, sizeof(*ns), by_size);
	printf("], \"median_ns\": %llu}\n", (unsigned long long)ns[batches / 2]);
	free(ns);
}

static bool is_asked(const char *list, const char *name)
{
	size_t length = strlen(name);
	const char *at;

	for (at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, name, length) && (!at[length] || at[length] == ','))
			return true;
	return false;
}

static void check_list(const char *list)
{
	const char *at, *end;
	size_t i;

	for (at = list; at; at = *end ? end + 1 : NULL) {
		end = strchrnul(at, ',');
		for (i = 0; i < KINDS; i++)
			if (strlen(kinds[i].name) == (size_t)(end - at) && !strncmp(at, kinds[i].name, (size_t)(end - at)))
				break;
		if (i == KINDS) {
			fprintf(stderr, "%s: no kind is called %.*s; see --help\n", nv_name, (int)(end - at), at);
			exit(2);
		}
	}
}

static void open_all(struct loop *loop, u32 gpu, const char *wanted_version, bool xfer)
{
	u32 status;

	nv_must_open_program(&loop->program, gpu, wanted_version);
	loop->program.nv.xfer = xfer;
	loop->missing_status = nv_program_base(&loop->program, &loop->missing);
	loop->gpu = !loop->missing_status;
	loop->client = loop->program.client;
	if (!loop->client) {
		status = nv_root(&loop->program.nv, &loop->client);
		if (status)
			nv_die("client: status 0x%x %s", status, nv_status_name(status));
	}
}

int nvloop_main(int argc, char **argv)
{
	const char *list = NULL, *wanted_version = NULL;
	u32 batches = 31, calls = 200, gpu = 0;
	static struct loop loop;
	bool xfer = false;
	size_t i;
	const struct nv_option options[] = {
		NV_OPTION("kind", &list),
		NV_OPTION("batches", &batches),
		NV_OPTION("calls", &calls),
		NV_OPTION("xfer", &xfer),
		NV_OPTION("gpu", &gpu),
		NV_OPTION("version", &wanted_version),
		{ 0 },
	};

	if (nv_options(argc, argv, usage, options) != argc || !batches || !calls || batches > 1000000)
		nv_usage(usage, 2);
	if (list)
		check_list(list);
	open_all(&loop, gpu, wanted_version, xfer);
	for (i = 0; i < KINDS; i++) {
		if (list ? !is_asked(list, kinds[i].name) : kinds[i].gpu && !loop.gpu)
			continue;
		if (kinds[i].gpu && !loop.gpu)
			nv_die("%s needs a GPU; %s: status 0x%x %s", kinds[i].name, loop.missing, loop.missing_status,
			       nv_status_name(loop.missing_status));
		measure(&loop, &kinds[i], batches, calls);
	}
	nv_close_program(&loop.program);
	return 0;
}
