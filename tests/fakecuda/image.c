// SPDX-License-Identifier: Apache-2.0
/*
 * Images. Text of our own:
 *   fakecuda 1
 *   kernel NAME [params=8,4,...] [duration_us=F] [registers=N] [shared=N] [max_threads=N] [cluster=N] [code_mib=N]
 *   global NAME size=N
 * PTX text: each .entry is a kernel with its parameters; comment lines `// fakecuda: kernel NAME duration_us=F ...` add
 * what PTX does not say. A binary (ELF, fat binary) is taken to hold every kernel asked for, each doing nothing unless
 * code was registered for its name; fakecuda_describe() tells its parameters.
 */
#include <ctype.h>
#include <stdio.h>

#include "fake.h"

#define FATBIN_MAGIC 0xba55ed50u
#define FATBIN_WRAPPER 0x466243b1u

static double duration_of(const char *name)
{
	const char *text = getenv("FAKECUDA_KERNEL_US");
	size_t length = strlen(name);

	return text && !strncmp(text, name, length) && text[length] == ':' ? strtod(text + length + 1, NULL) : 10;
}

static struct kernel *kernel_new(struct image *image, const char *name)
{
	struct kernel *kernel = xalloc(sizeof(*kernel)), **at = &image->kernels;

	handle_add(kernel, OBJECT_KERNEL);
	kernel->name = xdup(name);
	kernel->duration_us = duration_of(name);
	kernel->registers = 32;
	kernel->max_threads = 1024;
	while (*at)
		at = &(*at)->next;
	*at = kernel;
	return kernel;
}

static struct kernel *find(const struct image *image, const char *name)
{
	for (struct kernel *kernel = image->kernels; kernel; kernel = kernel->next)
		if (!strcmp(kernel->name, name))
			return kernel;
	return NULL;
}

static struct image described;

struct kernel *image_kernel(struct image *image, const char *name)
{
	const struct kernel *known = find(&described, name);
	struct kernel *kernel = find(image, name);

	if (!kernel && image->any_name) {
		kernel = kernel_new(image, name);
		kernel->any_params = !known;
		if (known) {
			kernel->params = known->params;
			kernel->param_bytes = known->param_bytes;
			memcpy(kernel->param_size, known->param_size, sizeof(known->param_size));
			memcpy(kernel->param_offset, known->param_offset, sizeof(known->param_offset));
		}
	}
	return kernel;
}

static void add_param(struct kernel *kernel, size_t size, size_t align)
{
	size_t offset = align ? (kernel->param_bytes + align - 1) & ~(align - 1) : kernel->param_bytes;

	if (kernel->params == ARRAY_LENGTH(kernel->param_size))
		return;
	kernel->param_offset[kernel->params] = offset;
	kernel->param_size[kernel->params++] = size;
	kernel->param_bytes = offset + size;
}

static bool kernel_words(struct kernel *kernel, char *words)
{
	char *rest = NULL;

	for (char *word = strtok_r(words, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
		char *value = strchr(word, '=');

		if (!value)
			return false;
		*value++ = 0;
		if (!strcmp(word, "duration_us")) {
			kernel->duration_us = strtod(value, NULL);
		} else if (!strcmp(word, "registers")) {
			kernel->registers = (unsigned int)atoi(value);
		} else if (!strcmp(word, "shared")) {
			kernel->shared = (unsigned int)atoi(value);
		} else if (!strcmp(word, "max_threads")) {
			kernel->max_threads = (unsigned int)atoi(value);
		} else if (!strcmp(word, "cluster")) {
			kernel->cluster = (unsigned int)atoi(value);
		} else if (!strcmp(word, "code_mib")) {
			kernel->code = strtoul(value, NULL, 10) << 20;
		} else if (!strcmp(word, "params")) {
			kernel->params = 0;
			kernel->param_bytes = 0;
			for (; isdigit((unsigned char)*value); value += *value == ',') {
				size_t size = strtoul(value, &value, 10);

				add_param(kernel, size, size > 8 ? 8 : size);
			}
		} else {
			return false;
		}
	}
	return true;
}

static bool line_of(struct image *image, char *line)
{
	char word[16], name[256];
	int used = 0;

	if (sscanf(line, "%15s %255s %n", word, name, &used) < 2)
		return line[strspn(line, " \t\r")] == 0 || line[strspn(line, " \t")] == '#';
	if (!strcmp(word, "kernel")) {
		struct kernel *kernel = find(image, name);

		return kernel_words(kernel ? kernel : kernel_new(image, name), line + used);
	}
	if (!strcmp(word, "global")) {
		struct variable *variable = xalloc(sizeof(*variable));

		variable->name = xdup(name);
		variable->next = image->variables;
		image->variables = variable;
		return sscanf(line + used, "size=%zu", &variable->size) == 1;
	}
	return line[0] == '#';
}

static CUresult parse_text(const char *text, struct image *image)
{
	char *copy = xdup(text), *rest = NULL;
	CUresult result = CUDA_SUCCESS;

	for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (strncmp(line, "fakecuda ", 9) && !line_of(image, line))
			result = CUDA_ERROR_INVALID_IMAGE;
	free(copy);
	return result;
}

static size_t ptx_width(const char *type)
{
	static const struct { const char *name; size_t size; } widths[] = {
		{ "64", 8 }, { "32", 4 }, { "16", 2 }, { "8", 1 },
	};

	if (type[0] != '.' || !strchr("busf", type[1]))
		return 0;
	for (size_t i = 0; i < ARRAY_LENGTH(widths); i++)
		if (!strncmp(type + 2, widths[i].name, strlen(widths[i].name)))
			return widths[i].size;
	return 0;
}

/* The parenthesised list: `.param .u64 name,` or `.param .align 8 .b8 name[16],`. */
static const char *ptx_params(struct kernel *kernel, const char *at)
{
	const char *end = strchr(at, ')');

	while (end && (at = strstr(at, ".param")) && at < end) {
		size_t size = 0, align = 0, length;
		const char *stop;

		at += 6;
		stop = strpbrk(at, ",)");
		for (const char *p = at; p < stop; p++) {
			if (!strncmp(p, ".align", 6))
				align = strtoul(p + 6, NULL, 10);
			else if (*p == '.' && ptx_width(p))
				size = ptx_width(p);
			else if (*p == '[') {
				length = strtoul(p + 1, NULL, 10);
				size *= length;
			}
		}
		if (size)
			add_param(kernel, size, align ? align : size > 8 ? 8 : size);
		at = stop;
	}
	return end;
}

static CUresult parse_ptx(const char *text, struct image *image)
{
	const char *at = text;
	char name[8192];

	while ((at = strstr(at, ".entry"))) {
		int used = 0;

		at += 6;
		if (sscanf(at, " %8191[A-Za-z0-9_$]%n", name, &used) == 1) {
			struct kernel *kernel = kernel_new(image, name);
			const char *open = at + used + strspn(at + used, " \t\n\r");

			if (*open == '(')
				at = ptx_params(kernel, open);
		}
		if (!at)
			return CUDA_ERROR_INVALID_PTX;
	}
	for (at = text; (at = strstr(at, "// fakecuda: ")); ) {
		size_t length;
		char *line;
		bool good;

		at += 13;
		length = strcspn(at, "\n");
		line = xalloc(length + 1);
		memcpy(line, at, length);
		good = line_of(image, line);
		free(line);
		if (!good)
			return CUDA_ERROR_INVALID_PTX;
	}
	return image->kernels ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

__attribute__((visibility("default"))) void fakecuda_describe(const char *ptx)
{
	pthread_mutex_lock(&fake_lock);
	parse_ptx(ptx, &described);
	pthread_mutex_unlock(&fake_lock);
}

CUresult image_parse(const void *data, struct image *image)
{
	const char *text = data;
	uint32_t magic;

	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&magic, data, sizeof(magic));
	if (magic == FATBIN_MAGIC || magic == FATBIN_WRAPPER || !memcmp(data, "\177ELF", 4)) {
		image->any_name = true;
		return CUDA_SUCCESS;
	}
	if (!strncmp(text, "fakecuda ", 9))
		return parse_text(text, image);
	if (strstr(text, ".version") && strstr(text, ".target"))
		return parse_ptx(text, image);
	return CUDA_ERROR_INVALID_IMAGE;
}

CUresult image_load(const char *path, struct image *image)
{
	FILE *file = path ? fopen(path, "rbe") : NULL;
	CUresult result;
	char *data;
	long size;

	if (!file)
		return CUDA_ERROR_FILE_NOT_FOUND;
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	data = xalloc((size_t)size + 8);
	result = fread(data, 1, (size_t)size, file) == (size_t)size ? image_parse(data, image) : CUDA_ERROR_INVALID_IMAGE;
	fclose(file);
	free(data);
	return result;
}

/* Kernels stay known as dead handles. */
void image_close(struct image *image)
{
	for (struct kernel *kernel = image->kernels; kernel; kernel = kernel->next)
		handle_kill(kernel);
}
