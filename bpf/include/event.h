/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Server-sent events in a message. Pure functions, also built natively for tests.
 *
 * Does it show a first token, may it tell the usage: see event_token and event_usage.
 *
 * Is it one chunk with one event without ids, of a Responses stream whose ids the
 * agent rewrites? Such an event is, to the byte,
 *
 *	event: response.NAME.delta LF data:TEXT LF LF
 *
 * with no CR or LF in NAME and TEXT. A server may legally write it in other ways,
 * or several in a chunk; then it goes through the agent. What is taken here must
 * be an event that the agent's rewriter would not change, and must leave the
 * rewriter where it stands, between two events.
 */
#ifndef TAUTLINE_EVENT_H
#define TAUTLINE_EVENT_H

#include "abi.h"
#include "frame.h"

#define EVENT_MAX 4096     /* bytes of a message that is looked through */
#define EVENT_MAX_NAME 64  /* the rewriter tells no longer names apart */
#define EVENT_MAX_DONE 24  /* bytes of a message that is only the mark of the end */
/* Steps that find the end of a name that is short enough, and of any line. */
#define EVENT_NAME_STEPS (EVENT_MAX_NAME / 8 + 2)
#define EVENT_LINE_STEPS (EVENT_MAX / 8 + 1)

/* Eight bytes as they lie in memory of a little-endian machine; the object is
 * built for no other. */
#define EVENT_WORD(a, b, c, d, e, f, g, h)                                          \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 |       \
	 (__u64)(e) << 32 | (__u64)(f) << 40 | (__u64)(g) << 48 | (__u64)(h) << 56)
#define EVENT_EACH(c) EVENT_WORD(c, c, c, c, c, c, c, c)

/* The eight bytes at off into *word; 0 where they are not all there. */
static inline __attribute__((always_inline)) int
event_word(const __u8 *data, const __u8 *end, __u32 off, __u64 *word)
{
	const __u8 *p;

	if (off >= FRAME_WINDOW)
		return 0;
	p = data + off;
	/* As in frame_byte. */
	__asm__ volatile("" : "+r"(p));
	if (p + 8 > end)
		return 0;
#ifdef __bpf__
	*word = *(const __u64 *)p; /* the verifier allows it where the machine does */
#else
	__builtin_memcpy(word, p, 8);
#endif
	return 1;
}

/* The top bit of each byte of word that is c, and maybe of bytes above such a one. */
static inline __attribute__((always_inline)) __u64
event_find(__u64 word, __u8 c)
{
	word ^= EVENT_EACH(c);
	return (word - EVENT_EACH(0x01)) & ~word & EVENT_EACH(0x80);
}

/* Where the name of the event of a message begins, 0 if the message is not one
 * chunk with a response's event. The message must consist of whole chunks. */
static inline __attribute__((always_inline)) __u32
event_name(const __u8 *data, const __u8 *end, __u32 size)
{
	__u32 n, begin;
	__u64 word;

	if (size > EVENT_MAX || data + FRAME_DIGITS > end)
		return 0;
	begin = frame_size(data, &n) + 2;
	if (begin + n + 2 != size)
		return 0; /* more chunks than one */
	if (!event_word(data, end, begin, &word) ||
	    word != EVENT_WORD('e', 'v', 'e', 'n', 't', ':', ' ', 'r'))
		return 0;
	if (!event_word(data, end, begin + 8, &word) ||
	    word != EVENT_WORD('e', 's', 'p', 'o', 'n', 's', 'e', '.'))
		return 0;
	return begin + 7;
}

/* Looks at the i-th eight bytes behind from for the first CR or LF and puts its
 * place into *at. Not 0: found, or there is nothing more to look at. The place
 * comes from i and is not carried along: the verifier takes i for any number, and
 * would walk a place that is carried along once for each value that it takes. */
static inline __attribute__((always_inline)) int
event_line(const __u8 *data, const __u8 *end, __u32 size, __u32 from, __u32 i, __u32 *at)
{
	__u32 off = from + i * 8;
	__u64 word, found;

	if (off > size - 8)
		off = size - 8; /* the last eight, some of them again */
	if (!event_word(data, end, off, &word))
		return 1;
	found = event_find(word, '\n') | event_find(word, '\r');
	if (!found)
		return 0;
	/* Below the lowest bit of found there is a bit of each byte up to this one. */
	found = ((found & -found) - 1) & EVENT_EACH(0x01);
	*at = off + (__u32)((found * EVENT_EACH(0x01)) >> 56) - 1;
	return 1;
}

/* Where the text of the event begins whose name begins at name and ends before
 * at, 0 if it is no delta. */
static inline __attribute__((always_inline)) __u32
event_text(const __u8 *data, const __u8 *end, __u32 name, __u32 at)
{
	__u64 word;

	if (at - name > EVENT_MAX_NAME)
		return 0;
	if (!event_word(data, end, at - 6, &word) ||
	    word != EVENT_WORD('.', 'd', 'e', 'l', 't', 'a', '\n', 'd'))
		return 0;
	if (!event_word(data, end, at + 1, &word) ||
	    (__u32)(word >> 8) != (__u32)EVENT_WORD('a', 't', 'a', ':', 0, 0, 0, 0))
		return 0;
	return at + 6;
}

/* Whether a message of whole chunks begins with an event that shows the first token
 * of a stream: with its data, or with a name that is not that of a ping. Comments
 * (":"), pings and other fields tell nothing of the prompt. */
static inline __attribute__((always_inline)) int
event_token(const __u8 *data, const __u8 *end)
{
	__u64 word;
	__u32 n;

	if (data + FRAME_DIGITS > end)
		return 0;
	if (!event_word(data, end, frame_size(data, &n) + 2, &word))
		return 0;
	if ((word & EVENT_WORD(255, 255, 255, 255, 255, 0, 0, 0)) ==
	    EVENT_WORD('d', 'a', 't', 'a', ':', 0, 0, 0))
		return 1;
	return (word & ~EVENT_WORD(0, 0, 0, 0, 0, 0, 0, 255)) ==
		       EVENT_WORD('e', 'v', 'e', 'n', 't', ':', ' ', 0) &&
	       word >> 56 != 'p' && word >> 56 != '\r' && word >> 56 != '\n';
}

/* Whether a message of whole chunks may tell the usage near its end: it ends with an
 * object in an object, at the end of which there is no string, or with the mark of the
 * stream's end, "data: [DONE]", and has room for more before that. */
static inline __attribute__((always_inline)) int
event_usage(const __u8 *data, const __u8 *end, __u32 size)
{
	__u64 word;

	if (size < 8 || !event_word(data, end, size - 8, &word))
		return 0;
	/* c } } LF LF CR LF in its upper seven bytes */
	if (word >> 16 == EVENT_WORD('}', '}', '\n', '\n', '\r', '\n', 0, 0))
		return (__u8)(word >> 8) != '"';
	return size > EVENT_MAX_DONE &&
	       word == EVENT_WORD('O', 'N', 'E', ']', '\n', '\n', '\r', '\n');
}

/* How many bytes of a message's end are kept: whole words, so that of a short message
 * up to seven at the beginning, in its chunk's frame, are not. */
static inline __attribute__((always_inline)) __u32
event_kept(__u32 size)
{
	return size < USAGE_BYTES ? size & -8U : USAGE_BYTES;
}

/* Copies the i-th eight bytes of what is kept of a message's end. Not 0: there are no
 * more. */
static inline __attribute__((always_inline)) int
event_keep(const __u8 *data, const __u8 *end, __u32 size, __u32 i, __u64 *words)
{
	__u32 kept = event_kept(size);
	__u64 word;

	if (i >= USAGE_BYTES / 8 || i >= kept / 8)
		return 1;
	if (!event_word(data, end, size - kept + i * 8, &word))
		return 1;
	words[i] = word;
	return 0;
}

/* Whether the end of the line that begins at text is the event's and the chunk's,
 * LF LF CR LF. Where the last bytes were looked at again, at may lie before text. */
static inline __attribute__((always_inline)) int
event_ends(const __u8 *data, const __u8 *end, __u32 size, __u32 text, __u32 at)
{
	__u64 word;

	return at >= text && at + 4 == size && event_word(data, end, at - 4, &word) &&
	       word >> 32 == EVENT_WORD('\n', '\n', '\r', '\n', 0, 0, 0, 0);
}

#endif
