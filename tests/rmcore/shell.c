// SPDX-License-Identifier: Apache-2.0
/*
 * The RM core behind a pipe, for tests/unit/rmcore: one command per line on
 * stdin, one line of answer each: "ok key=value ..." or "error NUMBER". Built
 * with sanitizers, so that a fault ends the program. Numbers are decimal or
 * 0x..., bytes are hex ("-": none). What is malformed ends the program too.
 */
#include "shell.h"

#include <stdarg.h>
#include <unistd.h>

const struct rm_abi *abi;
static char line[1 << 17];

void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "shell: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(2);
}

char *word(void)
{
	char *next = strtok(NULL, " \n");

	if (!next)
		die("a word is missing");
	return next;
}

bool more(char **next)
{
	*next = strtok(NULL, " \n");
	return *next;
}

u64 value(const char *text)
{
	char *end;
	u64 n = strtoull(text, &end, 0);

	if (!*text || *end)
		die("%s is no number", text);
	return n;
}

u64 num(void)
{
	return value(word());
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	die("%c is no hex digit", c);
	return 0;
}

/* Exactly as long as the bytes, so that a read beyond them is seen. */
u8 *bytes(u32 *size)
{
	const char *text = word();
	size_t length = strcmp(text, "-") ? strlen(text) : 0, i;
	u8 *data = malloc(length / 2 + !length);

	if (length % 2 || !data)
		die("half a byte, or no memory");
	for (i = 0; i < length; i += 2)
		data[i / 2] = (u8)(digit(text[i]) << 4 | digit(text[i + 1]));
	*size = (u32)(length / 2);
	return data;
}

void put_hex(const char *key, const u8 *data, u32 size)
{
	u32 i;

	printf(" %s=%s", key, size ? "" : "-");
	for (i = 0; i < size; i++)
		printf("%02x", data[i]);
}

void done(int error)
{
	if (error)
		printf("error %d\n", -error);
	else
		printf("ok\n");
}

static void do_abi(void)
{
	static const char *const names[] = { "none", "branch", "exact" };
	enum rm_abi_match how;
	const struct rm_abi *found = rm_abi_lookup(word(), &how);

	if (found)
		abi = found;
	printf("ok how=%s version=%s\n", names[how], found ? found->version : "-");
}

static void do_class(void)
{
	u32 nr = (u32)num();
	const struct rm_class *class = rm_abi_class(abi, nr);

	if (!class)
		done(-ENOENT);
	else
		printf("ok params=%u kind=%u flags=%u size=%u\n", class->params, class->kind,
		       class->flags, rm_alloc_params_size(abi, nr));
}

static void do_decode(void)
{
	u32 nr = (u32)num(), size;
	u8 *block = bytes(&size);
	struct rm_call c;
	int error = rm_decode(abi, nr, block, size, &c);

	if (error) {
		done(error);
	} else {
		printf("ok op=%u nr=%u client=%u parent=%u object=%u class=%u cmd=%u flags=%u ",
		       c.op, c.nr, c.client, c.parent, c.object, c.class, c.cmd, c.flags);
		printf("src_client=%u src_object=%u function=%u fd=%d params=%lu params_size=%u ",
		       c.src_client, c.src_object, c.function, c.fd, c.params, c.params_size);
		printf("offset=%lu length=%lu limit=%lu address=%lu status=%u off_status=%u ",
		       c.offset, c.length, c.limit, c.address, c.status, c.off_status);
		printf("off_object=%u off_params=%u off_params_size=%u\n", c.off_object,
		       c.off_params, c.off_params_size);
	}
	free(block);
}

static void do_xfer(void)
{
	u32 size, nr, inner;
	u64 ptr;
	u8 *block = bytes(&size);
	int error = rm_decode_xfer(abi, block, size, &nr, &inner, &ptr);

	if (error)
		done(error);
	else
		printf("ok nr=%u size=%u ptr=%lu\n", nr, inner, ptr);
	free(block);
}

static void put_alloc(const struct rm_alloc *a, u32 handle)
{
	u32 i;

	printf("ok kind=%u class=%u bytes=%lu alignment=%lu attr=%u vidmem=%d sysmem=%d virtual=%d ",
	       a->kind, a->class, a->bytes, a->alignment, a->attr, a->vidmem, a->sysmem, a->virtual);
	printf("window=%d fabric=%d attached=%u device_id=%u subdevice_id=%u engine=%u vaspace=%u ",
	       a->window, a->fabric, a->attached, a->device_id, a->subdevice_id, a->engine, a->vaspace);
	printf("ctxshare=%u userd_memory=%u userd_offset=%lu gpfifo_va=%lu gpfifo_entries=%u ",
	       a->ctxshare, a->userd_memory, a->userd_offset, a->gpfifo_va, a->gpfifo_entries);
	printf("bar1_doorbell=%d request=%lu handle=%u deps=", a->bar1_doorbell,
	       rm_round_up_request(a), handle);
	for (i = 0; i < a->n_deps; i++)
		printf("%s%u", i ? "," : "", a->deps[i]);
	printf("\n");
}

static void do_alloc(void)
{
	u32 class = (u32)num(), size;
	u8 *params = bytes(&size);
	struct rm_alloc a;
	int error = rm_decode_alloc(abi, class, size ? params : NULL, size, &a);

	if (error)
		done(error);
	else
		put_alloc(&a, 0);
	free(params);
}

/* The same block or parameters asked and answered: what the driver took. */
static void do_answer_bytes(void)
{
	u32 class = (u32)num(), size, size_after, handle;
	u8 *before = bytes(&size), *after = bytes(&size_after);
	struct rm_alloc a, b;
	int error;

	if (class == 0x4a0000) {
		error = rm_decode_vid_heap(abi, before, size, &a, &handle) ?:
			rm_decode_vid_heap(abi, after, size_after, &b, &handle);
	} else if (class == 0x270000) {
		error = rm_decode_alloc_memory(abi, before, size, &a) ?:
			rm_decode_alloc_memory(abi, after, size_after, &b);
	} else {
		error = rm_decode_alloc(abi, class, before, size, &a) ?:
			rm_decode_alloc(abi, class, after, size_after, &b);
	}
	if (error)
		done(error);
	else
		printf("ok bytes=%lu\n", rm_answer_bytes(&a, &b));
	free(before);
	free(after);
}

static void do_vid_heap(void)
{
	u32 size, handle;
	u8 *block = bytes(&size);
	struct rm_alloc a;
	int error = rm_decode_vid_heap(abi, block, size, &a, &handle);

	if (error)
		done(error);
	else
		put_alloc(&a, handle);
	free(block);
}

static void do_vid_heap_free(void)
{
	u32 size, handle;
	u8 *block = bytes(&size);
	int error = rm_decode_vid_heap_free(abi, block, size, &handle);

	if (error)
		done(error);
	else
		printf("ok handle=%u\n", handle);
	free(block);
}

static void do_alloc_memory(void)
{
	u32 size;
	u8 *block = bytes(&size);
	struct rm_alloc a;
	int error = rm_decode_alloc_memory(abi, block, size, &a);

	if (error)
		done(error);
	else
		put_alloc(&a, 0);
	free(block);
}

static void put_export(int error, const struct rm_export *e, const u8 *params)
{
	u32 i;

	if (error) {
		done(error);
		return;
	}
	printf("ok import=%d fd=%d parent=%u device=%u index=%u count=%u off_fd=%u handles=",
	       e->import, e->fd, e->parent, e->device, e->index, e->count, e->off_fd);
	for (i = 0; i < e->count; i++)
		printf("%s%u", i ? "," : "", rm_export_handle(e, params, i));
	printf("\n");
}

static void do_export(void)
{
	u32 cmd = (u32)num(), size;
	u8 *params = bytes(&size);
	struct rm_export e;
	int error = rm_decode_export(abi, cmd, params, size, &e);

	put_export(error, &e, params);
	free(params);
}

static void do_dmabuf(void)
{
	u32 size;
	u8 *block = bytes(&size);
	struct rm_export e;
	int error = rm_decode_dmabuf(abi, block, size, &e);

	put_export(error, &e, block);
	free(block);
}

/* answer LIMIT ROOM list|heap|CMD BYTES; LIMIT "no": none */
static void do_answer(void)
{
	const char *limit = word();
	struct rm_view view = { .limit = strcmp(limit, "no") ? value(limit) : RM_NO_LIMIT };
	const char *what;
	bool changed;
	u32 size;
	u8 *data;

	view.room = num();
	what = word();
	data = bytes(&size);
	if (!strcmp(what, "list"))
		changed = rm_answer_fb_list(abi, &view, data, size / 8);
	else if (!strcmp(what, "heap"))
		changed = rm_answer_vid_heap(abi, &view, data, size);
	else
		changed = rm_answer_control(abi, &view, (u32)value(what), data, size);
	printf("ok changed=%d", changed);
	put_hex("data", data, size);
	printf("\n");
	free(data);
}

static const struct {
	const char *name;
	void (*run)(void);
} commands[] = {
	{ "abi", do_abi },
	{ "class", do_class },
	{ "decode", do_decode },
	{ "xfer", do_xfer },
	{ "alloc", do_alloc },
	{ "answer-bytes", do_answer_bytes },
	{ "vid-heap", do_vid_heap },
	{ "vid-heap-free", do_vid_heap_free },
	{ "alloc-memory", do_alloc_memory },
	{ "export", do_export },
	{ "dmabuf", do_dmabuf },
	{ "answer", do_answer },
};

int main(void)
{
	enum rm_abi_match how;
	unsigned int i;

	abi = rm_abi_lookup("580.142", &how);
	while (fgets(line, sizeof(line), stdin)) {
		const char *name = strtok(line, " \n");
		bool known = false;

		if (!name)
			continue;
		/* an endless loop in the core is to fail a test, not to hang it */
		alarm(60);
		for (i = 0; i < sizeof(commands) / sizeof(commands[0]) && !known; i++) {
			known = !strcmp(name, commands[i].name);
			if (known)
				commands[i].run();
		}
		if (!known && !tree_command(name) && !race_command(name) && !verdict_command(name) && !act_command(name))
			die("%s is no command", name);
		fflush(stdout);
	}
	tree_end();
	return 0;
}
