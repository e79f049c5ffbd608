//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * frame.h and event.h on their own, for tests: reads messages (a 4-byte length in
 * host order, then the bytes) and answers each with two bytes, as the verdict
 * program would find them: the framing, and of whole chunks 1 for a delta, plus 2
 * for a first token, plus 4 for what may tell the usage. Each message lies in memory of exactly its size, so that the
 * sanitizer sees every read beyond it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint8_t __u8;
typedef uint32_t __u32;
typedef uint64_t __u64;
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

int main(void)
{
	__u32 size;

	while (fread(&size, sizeof(size), 1, stdin) == 1) {
		__u8 *data = malloc(size ? size : 1);

		if (!data || fread(data, 1, size, stdin) != size)
			return 2;
		enum framing framing = walk(data, size);

		putchar(framing);
		putchar(framing != FRAME_WHOLE ? 0 :
			is_delta(data, size) | event_token(data, data + size) << 1 |
			event_usage(data, data + size, size) << 2);
		fflush(stdout);
		free(data);
	}
	return 0;
}
