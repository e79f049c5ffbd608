//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * frame.h on its own, for tests: reads messages (a 4-byte length in host order,
 * then the bytes) and answers each with one byte, the framing, as the verdict
 * program would find it. Each message lies in memory of exactly its size, so that
 * the sanitizer sees every read beyond it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint8_t __u8;
typedef uint32_t __u32;
#include "../include/frame.h"

static enum framing walk(const __u8 *data, __u32 size)
{
	enum framing framing = FRAME_MORE;
	__u32 off = 0, i;

	for (i = 0; i < FRAME_MAX_CHUNKS && framing == FRAME_MORE; i++)
		framing = frame_step(data, data + size, size, &off);
	return framing;
}

int main(void)
{
	__u32 size;

	while (fread(&size, sizeof(size), 1, stdin) == 1) {
		__u8 *data = malloc(size ? size : 1);

		if (!data || fread(data, 1, size, stdin) != size)
			return 2;
		putchar(walk(data, size));
		fflush(stdout);
		free(data);
	}
	return 0;
}
