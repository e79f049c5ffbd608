/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * HTTP/1.1 chunked framing of one message: does it consist of whole chunks, none
 * of them the last? Pure functions, also built natively for tests.
 *
 * A chunk is 1*4HEXDIG CRLF data CRLF. Chunk extensions and longer sizes are legal
 * but not followed (FRAME_FOREIGN), so such a message is passed.
 */
#ifndef TAUTLINE_FRAME_H
#define TAUTLINE_FRAME_H

/* The kernel lets us read this much of a message; it also bounds every offset
 * for the verifier. */
#define FRAME_WINDOW 32768
#define FRAME_DIGITS 4 /* enough for the window */
#define FRAME_MAX_CHUNKS 1024

enum framing {
	FRAME_MORE,    /* one whole chunk was stepped over, more bytes follow */
	FRAME_WHOLE,   /* the message ends exactly after this chunk */
	FRAME_LAST,    /* the terminating chunk begins here */
	FRAME_PARTIAL, /* the message ends inside a chunk */
	FRAME_FOREIGN, /* not a chunk that we follow */
};

/* A digit's value plus one, 0 for anything else. A table, not a chain of
 * comparisons: the verifier would walk each branch of each digit. */
static const __u8 frame_digit[256] = {
	['0'] = 1, ['1'] = 2, ['2'] = 3, ['3'] = 4, ['4'] = 5,
	['5'] = 6, ['6'] = 7, ['7'] = 8, ['8'] = 9, ['9'] = 10,
	['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
	['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

/* The byte at off, -1 behind the end. */
static inline __attribute__((always_inline)) int
frame_byte(const __u8 *data, const __u8 *end, __u32 off)
{
	const __u8 *p;

	if (off >= FRAME_WINDOW)
		return -1;
	p = data + off;
	/* The pointer that is checked must be the pointer that is read. */
	__asm__ volatile("" : "+r"(p));
	if (p + 1 > end)
		return -1;
	return *p;
}

/* Reads up to four digits at p into *n and returns how many there were. Without a
 * branch: the verifier walks what follows once for each way that leads there. */
static inline __attribute__((always_inline)) __u32
frame_size(const __u8 *p, __u32 *n)
{
	__u32 size = 0, digits = 0, valid = 1, i;

#pragma unroll
	for (i = 0; i < FRAME_DIGITS; i++) {
		__u32 d = frame_digit[p[i]];

		valid &= (d + 31) >> 5; /* 1 while every byte was a digit */
		size = size << (valid << 2) | ((d - 1) & 15 & -valid);
		digits += valid;
	}
	*n = size;
	return digits;
}

/* Whether CRLF is at off: FRAME_WHOLE, FRAME_PARTIAL or FRAME_FOREIGN. */
static inline __attribute__((always_inline)) enum framing
frame_crlf(const __u8 *data, const __u8 *end, __u32 off)
{
	int c = frame_byte(data, end, off);

	if (c < 0)
		return FRAME_PARTIAL;
	if (c != '\r')
		return FRAME_FOREIGN;
	c = frame_byte(data, end, off + 1);
	if (c < 0)
		return FRAME_PARTIAL;
	return c == '\n' ? FRAME_WHOLE : FRAME_FOREIGN;
}

/* Steps over the chunk at *off of a message of size bytes and moves *off behind
 * it when it is whole. */
static inline __attribute__((always_inline)) enum framing
frame_step(const __u8 *data, const __u8 *end, __u32 size, __u32 *off)
{
	__u32 at = *off, n, digits;
	enum framing crlf;
	const __u8 *p;

	if (at >= FRAME_WINDOW)
		return FRAME_PARTIAL;
	p = data + at;
	__asm__ volatile("" : "+r"(p));
	if (p + FRAME_DIGITS > end)
		return FRAME_PARTIAL; /* no chunk is that short */
	digits = frame_size(p, &n);
	if (digits == 0)
		return FRAME_FOREIGN;
	at += digits;
	crlf = frame_crlf(data, end, at);
	if (crlf != FRAME_WHOLE)
		return crlf;
	if (n == 0)
		return FRAME_LAST;
	at += 2 + n;
	crlf = frame_crlf(data, end, at);
	if (crlf != FRAME_WHOLE)
		return crlf;
	at += 2;
	*off = at;
	return at == size ? FRAME_WHOLE : FRAME_MORE;
}

#endif
