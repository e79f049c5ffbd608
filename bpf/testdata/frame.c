//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * frame.h and event.h on their own, for tests: reads messages (a 4-byte length in
 * host order, then the bytes) and answers each as the verdict program would find it:
 * a byte with the framing; a byte with, of whole chunks, 1 for a delta, plus 2 for a
 * first token, plus 4 for what may tell the usage; and in that case the message's end,
 * a length and the bytes. Each message lies in memory of exactly its size, so that the
 * sanitizer sees every read beyond it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../include/event.h"

static enum framing walk(const __u8 *data, __u32 size)
{
	enum framing framing = FRAME_MORE;
	__u32 off = 0, i;

	for (i = 0; i < FRAME_MAX_CHUNKS && framing == FRAME_MORE; i++)
		framing = frame_step(data, data + size, size, &off);
	return framing;
}

static __u32 line_end(const __u8 *data, __u32 size, __u32 from, __u32 steps)
{
	__u32 at = 0, i;

	for (i = 0; i < steps; i++)
		if (event_line(data, data + size, size, from, i, &at))
			break;
	return at;
}

static int is_delta(const __u8 *data, __u32 size)
{
	const __u8 *end = data + size;
	__u32 name, text;

	name = event_name(data, end, size);
	if (!name)
		return 0;
	text = event_text(data, end, name, line_end(data, size, name, EVENT_NAME_STEPS));
	return text && event_ends(data, end, size, text, line_end(data, size, text, EVENT_LINE_STEPS));
}

static void write_end(const __u8 *data, __u32 size)
{
	struct usage_end *usage = malloc(sizeof(*usage));
	__u32 i;

	if (!usage)
		exit(2);
	usage->size = event_kept(size);
	for (i = 0; i < USAGE_BYTES / 8; i++)
		if (event_keep(data, data + size, size, i, usage->words))
			break;
	fwrite(&usage->size, sizeof(usage->size), 1, stdout);
	fwrite(usage->words, 1, usage->size, stdout);
	free(usage);
}

int main(void)
{
	__u32 size;

	while (fread(&size, sizeof(size), 1, stdin) == 1) {
		__u8 *data = malloc(size ? size : 1);

		if (!data || fread(data, 1, size, stdin) != size)
			return 2;
		enum framing framing = walk(data, size);
		int usage = framing == FRAME_WHOLE && event_usage(data, data + size, size);

		putchar(framing);
		putchar(framing != FRAME_WHOLE ? 0 :
			is_delta(data, size) | event_token(data, data + size) << 1 | usage << 2);
		if (usage)
			write_end(data, size);
		fflush(stdout);
		free(data);
	}
	return 0;
}
